"""Transcripts without the ids of errors, which are new in every run."""

from __future__ import annotations

import re
from typing import Any


def without_error_ids(value: Any) -> Any:
    """The same value with every id of an error taken out of its texts."""
    match value:
        case str():
            return re.sub(r"error id [0-9a-f]+", "error id …", value)
        case dict():
            return {name: without_error_ids(each) for name, each in value.items()}
        case list() | tuple():
            return type(value)(without_error_ids(each) for each in value)
    return value
