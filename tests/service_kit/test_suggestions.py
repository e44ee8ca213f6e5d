"""What was probably meant."""

from __future__ import annotations

import time

from service_kit.suggestions import closest, nearest


def test_the_most_similar_word_is_named() -> None:
    assert closest("lisen", ["listen", "state"]) == "listen"
    assert closest("zzz", ["listen", "state"]) is None
    assert nearest("lisen", ["listen", "state"]) == "did you mean 'listen'?"
    assert nearest("zzz", ["state", "listen"]) == "known: listen, state"


def test_a_huge_name_takes_no_time() -> None:
    began = time.monotonic()
    assert closest("x" * 1_000_000, ["listen"]) is None
    assert time.monotonic() - began < 1.0
