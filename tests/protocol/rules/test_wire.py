import pytest

from protocol.messages import Begin, Rollback
from protocol.rules.wire import read_downstream


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (b"", "json"),
        (b'"\xff"', "json"),
        (b"[" * 100_000, "json"),
        (b'["rollback",{"tag":"rollback"}]\n["rollback",{"tag":"rollback"}]', "one-message"),
        (b'[["rollback",{"tag":"rollback"}]]', "one-message"),
        (b"[NaN]", "nan"),
        (b"[-Infinity]", "nan"),
        (b"[1e999]", "nan"),
        (b'["\\uD800"]', "surrogate"),
        (b"[]", "shape"),
        (b"{}", "shape"),
        (b'["begin",{"tag":"begin"}]', "shape"),
    ],
)
def test_a_bad_frame_breaks_one_rule_and_has_no_message(text: bytes, rule: str) -> None:
    problems, message = read_downstream(text, 200_000)
    assert [problem.rule for problem in problems] == [rule]
    assert message is None


def test_a_good_frame_breaks_none() -> None:
    assert read_downstream(b' ["rollback", {"tag": "rollback"}] ', 100) == ([], Rollback())


def test_a_frame_over_the_limit_is_not_read() -> None:
    assert read_downstream(b'["rollback",{"tag":"rollback"}]', 31) == ([], Rollback())
    problems, message = read_downstream(b'["rollback",{"tag":"rollback"}]', 30)
    assert ([problem.rule for problem in problems], message) == (["size"], None)


def test_a_message_is_told_in_spite_of_more_in_its_third_element() -> None:
    text = b'["begin",{"tag":"begin"},{"commitWatermark":"01","lsn":1,"at":2}]'
    problems, message = read_downstream(text, 100)
    assert [problem.message for problem in problems] == ["begin holds also at, lsn"]
    assert message == Begin(commit_watermark="01")


def test_a_third_element_can_lack_what_it_needs_and_hold_what_it_must_not() -> None:
    problems, message = read_downstream(b'["commit",{"tag":"commit"},{"lsn":1}]', 100)
    assert [problem.rule for problem in problems] == ["third-element", "shape"]
    assert message is None
