"""Cookies: read, refused, and always growing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import watermark
from protocol.watermark import EMPTY
from reference_cache.view_syncer.cvr.versions import CookieError, check, next_config, next_version, state_of


@pytest.mark.parametrize("cookie", ["00", "00:01", "4h8zc8", "4h8zc8.01:02", "110:0z"])
def test_what_is_a_cookie_is_taken(cookie: str) -> None:
    assert check(cookie) == cookie


@pytest.mark.parametrize("cookie", ["", "zero", "01:", ":01", "01:02:03", "01:01.01", "1", "Ω"])
def test_what_is_no_cookie_is_refused(cookie: str) -> None:
    with pytest.raises(CookieError):
        check(cookie)


@given(st.lists(st.integers(0, 3), max_size=80))
def test_versions_grow_whatever_happens(steps: list[int]) -> None:
    data, version = 1, EMPTY
    for step in steps:
        data += max(0, step - 1) * 20
        after = next_config(version) if step == 0 else next_version(version, watermark.from_int(data))
        assert after > version
        assert state_of(after) <= watermark.from_int(data)
        version = check(after)


def test_the_observed_sequence_of_the_official_server() -> None:
    assert next_config("00") == "00:01"
    assert next_version("00:01", "4h8zc8") == "4h8zc8"
    assert next_version("4h8zc8", "4h8zc8") == "4h8zc8:01"
    assert next_config("4h8zc8:01") == "4h8zc8:02"
    assert next_version("4h8zc8:02", "4hhlp4") == "4hhlp4"
