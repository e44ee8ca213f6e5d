"""Autouse: what a test makes of the package's logger ends with it, so that tests do not depend on their order."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from changesource_sdk.observe.logs import LOGGER_NAME


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    log = logging.getLogger(LOGGER_NAME)
    before = log.handlers[:], log.level, log.propagate
    yield
    log.handlers[:], log.level, log.propagate = before
