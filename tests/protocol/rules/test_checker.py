"""The golden transcripts: legal ones break nothing, and each broken one breaks its rule on its last line."""

import re
from pathlib import Path

import pytest

import protocol
from protocol.rules import RULES, Violation, check

FIXTURES = Path(protocol.__file__).parent / "fixtures"
LEGAL = sorted(FIXTURES.glob("*.jsonl"))
BROKEN = sorted((FIXTURES / "broken").glob("*.jsonl"))
SMALL = 1000
"""A limit on messages that makes the rule on size testable with a small file."""

LIVE = '{"connect": "/changes/v0/stream?appID=zero&shardNum=0&lastWatermark=01&replicaVersion=01"}'
SKETCH = '{"connect": "/changes/v0/stream?shardID=zero&lastWatermark=01"}'


def down(message: str) -> str:
    return f'{{"direction": "down", "message": {message}}}'


def up(message: str) -> str:
    return f'{{"direction": "up", "message": {message}}}'


@pytest.mark.parametrize("path", LEGAL, ids=lambda path: path.stem)
def test_a_legal_transcript_breaks_no_rule(path: Path) -> None:
    assert check(path.read_bytes().splitlines(), max_message_bytes=SMALL) == []


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_a_broken_transcript_breaks_its_rule_on_its_last_line(path: Path) -> None:
    lines = path.read_text().splitlines()
    found = check(lines, max_message_bytes=SMALL)
    assert [(violation.rule, violation.frame) for violation in found] == [(path.stem, len(lines))]
    assert found[0].section == RULES[path.stem].section


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_a_broken_transcript_is_legal_up_to_its_last_line(path: Path) -> None:
    assert check(path.read_text().splitlines()[:-1], max_message_bytes=SMALL) == []


def test_every_rule_has_a_broken_transcript() -> None:
    assert {path.stem for path in BROKEN} == set(RULES)


def test_every_problem_that_the_code_can_name_is_in_the_table() -> None:
    sources = "".join(path.read_text() for path in Path(protocol.__file__).parent.rglob("*.py"))
    named = set(re.findall(r'Problem\(\s*"([a-z-]+)"', sources))
    assert len(named) > 30
    assert named <= set(RULES)


def test_checking_goes_on_after_a_broken_rule() -> None:
    lines = [LIVE, down('["commit",{"tag":"commit"},{"watermark":"02"}]'), down('["rollback",{"tag":"rollback"}]')]
    assert [violation.rule for violation in check(lines)] == ["commit-outside", "rollback-outside"]


def test_a_violation_reads_as_a_line() -> None:
    assert str(Violation("json", 7, "not JSON", "3")) == "frame 7: [json] not JSON (§3)"


def test_frames_without_a_readable_connection_are_not_judged_further() -> None:
    bad = '{"connect": "/elsewhere"}'
    assert [violation.rule for violation in check([down("[]"), bad, down("[]")])] == ["handshake"] * 3


def test_the_sketch_may_ask_for_an_ack_with_or_without_a_watermark() -> None:
    asked = down('["control",{"tag":"ack-requested","latestUpstreamWatermark":"05"}]')
    lines = [SKETCH, down('["control",{"tag":"ack-requested"}]'), asked, up('["ack",{"watermark":"05"}]')]
    assert check(lines) == []
    assert [violation.rule for violation in check([*lines[:2], lines[3]])] == ["ack-unsent"]


def test_an_ack_may_be_repeated() -> None:
    ack = up('["status",{"tag":"commit"},{"watermark":"01"}]')
    assert check([LIVE, ack, ack]) == []


@pytest.mark.parametrize(("mode", "broken"), [("", []), (',"json":"p"', []), (',"json":"s"', ["value-type"])])
def test_json_is_judged_by_what_begin_says_of_it(mode: str, broken: list[str]) -> None:
    table = '{"schema":"public","name":"t","columns":{"doc":{"pos":1,"dataType":"json"}}}'
    relation = '{"schema":"public","name":"t","rowKey":{"columns":[]}}'
    lines = [
        LIVE,
        down(f'["begin",{{"tag":"begin"{mode}}},{{"commitWatermark":"02"}}]'),
        down(f'["data",{{"tag":"create-table","spec":{table}}}]'),
        down(f'["data",{{"tag":"insert","relation":{relation},"new":{{"doc":"plain text"}}}}]'),
    ]
    assert [violation.rule for violation in check(lines)] == broken


def test_a_transaction_that_a_connection_cut_short_leaves_no_trace() -> None:
    create = down('["data",{"tag":"create-table","spec":{"schema":"public","name":"t","columns":{}}}]')
    begin = down('["begin",{"tag":"begin"},{"commitWatermark":"02"}]')
    assert check([LIVE, begin, create, LIVE, begin, create]) == []
    assert [violation.rule for violation in check([LIVE, begin, create, create])] == ["table-exists"]
