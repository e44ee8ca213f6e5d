"""What was pickled before modules moved can be read after it."""

from __future__ import annotations

import pickle
from importlib.util import find_spec

import pytest

from changesource_sdk.pipeline.snapshot.former_modules import FORMER, unpickled
from changesource_sdk.pipeline.snapshot.resume import Plan


def test_a_class_is_found_under_the_former_name_of_its_module() -> None:
    content = pickle.dumps(Plan, protocol=0)
    former = content.replace(b"changesource_sdk.pipeline.snapshot.resume", b"changesource_sdk.pipeline.unfinished")
    assert former != content
    assert unpickled(former) is Plan


def test_what_this_version_pickles_is_read_as_it_is() -> None:
    assert unpickled(pickle.dumps((Plan, {"a": 1}))) == (Plan, {"a": 1})


@pytest.mark.parametrize("present", FORMER.values())
def test_every_present_name_is_a_module(present: str) -> None:
    assert find_spec(present) is not None
