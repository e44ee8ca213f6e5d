from typing import get_args

import pytest

from protocol import codec
from protocol.changes import Insert
from protocol.codec import decode_changes, decode_downstream, decode_upstream, encode
from protocol.errors import CodecError
from protocol.framing import frame
from protocol.messages import Ack, AckRequested, Begin, Data, ResetRequired, StatusAck
from protocol.specs import Relation, RowKey

RELATION = Relation(schema_name="public", name="issue", row_key=RowKey(columns=("id",)))
INSERT = b'["data",{"tag":"insert","relation":{"schema":"public","name":"issue","rowKey":{"columns":["id"]}},"new":{}}]'


def test_a_row_with_integers_of_any_size_comes_back_exactly() -> None:
    row: dict[str, object] = {"id": 2**63 - 1, "huge": -(10**30), "pi": 3.14, "text": "ž🐎", "none": None}
    message = Data(change=Insert(relation=RELATION, new=row))
    assert decode_downstream(encode(message)) == message


def test_text_and_bytes_are_read_alike() -> None:
    assert decode_downstream(INSERT) == decode_downstream(INSERT.decode())
    assert encode(decode_downstream(INSERT)) == INSERT


def test_the_changes_of_stored_frames_are_read_in_order() -> None:
    changes = [Insert(relation=RELATION, new={"id": number}) for number in range(2)]
    begin, *data = Begin(commit_watermark="01"), *(Data(change=each) for each in changes)
    assert decode_changes(b"".join(frame(encode(message)) for message in (begin, *data))) == changes


def test_both_dialects_are_read() -> None:
    assert decode_upstream('["ack",{"watermark":"0a"}]') == Ack(watermark="0a")
    assert decode_upstream('["status",{"tag":"commit"},{"watermark":"0a"}]') == StatusAck(tag="commit", watermark="0a")
    assert decode_downstream('["control",{"tag":"ack-requested"}]') == AckRequested()
    assert decode_downstream('["control",{"tag":"reset-required"}]') == ResetRequired()


def test_unknown_fields_pass_and_are_kept() -> None:
    text = b'["begin",{"tag":"begin","novelty":[1]},{"commitWatermark":"01"}]'
    assert encode(decode_downstream(text)) == text


def test_an_ack_may_carry_more_than_we_know() -> None:
    ack = decode_upstream('["status",{"ack":true,"lagReport":{"x":1}},{"watermark":"0a","novelty":1}]')
    assert ack.watermark == "0a"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{}", "a message is a JSON array"),
        ("[]", "[0]: unknown message nothing"),
        ('[["begin"]]', "[0]: several messages in one frame"),
        ('["bgin",{}]', "[0]: unknown message 'bgin'"),
        ('["ack",{"watermark":"01"}]', "[0]: unknown message 'ack'"),
        ('[{"tag":"begin"}]', "[0]: unknown message {'tag': 'begin'}"),
        ('["begin",{"tag":"begin"}]', "begin: takes 3 elements, got 2"),
        ('["rollback",{"tag":"rollback"},{}]', "rollback: takes 2 elements, got 3"),
        ('["begin",{"tag":"begin"},null]', "begin: every element after the first must be an object"),
        ('["begin",{},{"commitWatermark":"01"}]', "begin: tag is missing"),
        ('["begin",{"tag":"begin"},{}]', "begin[2].commitWatermark: Field required"),
        ('["begin",{"tag":"begin","json":"x"},{"commitWatermark":"01"}]', "begin[1].json: Input should be 'p' or 's'"),
        ('["begin",{"tag":"begin"},{"commitWatermark":"01","lsn":1}]', "begin: the third element may hold only"),
        ('["commit",{"tag":"commit","commitTimeMs":"1"},{"watermark":"01"}]', "commit[1].commitTimeMs: Input should"),
        ('["commit",{"tag":"commit"},{"watermark":5}]', "commit[2].watermark: Input should be a valid string"),
        ('["status",{"lagReport":{}},{"watermark":"01"}]', "status[1].lagReport.lastTimings: Field required"),
        ('["control"]', "control: unknown tag"),
        ('["control",{"tag":"rollback"}]', "control: unknown tag"),
        ('["control",{"tag":"reset-required","message":5}]', "control[1].message: Input should be a valid string"),
        ('["data",5]', "data[1]: every element after the first must be an object"),
        ('["data",{}]', "data[1]: Unable to extract tag"),
        ('["data",{"tag":"upsert"}]', "data[1]: Input tag 'upsert'"),
        (
            '["data",{"tag":"truncate","relations":[{"schema":"a","name":"b"}]}]',
            "data[1].relations[0]: rowKey is missing",
        ),
        (
            '["data",{"tag":"create-table","spec":{"schema":"a","name":"b","columns":{"c":{"pos":true}}}}]',
            "data[1].spec.columns.c.pos: Input should be a number",
        ),
        ('["status",{"ack":null},{"watermark":"01"}]', "status[1].ack: Input should not be null; leave the field out"),
        (
            '["data",{"tag":"delete","relation":{"schema":"a","name":"b","rowKey":null,"keyColumns":[]},"key":{}}]',
            "data[1].relation.rowKey: Input should not be null",
        ),
        (
            '["commit",{"tag":"commit","commitTimeMs":9007199254740992},{"watermark":"01"}]',
            "commit[1].commitTimeMs: Input should be at most 2**53 - 1",
        ),
        (
            '["control",{"tag":"reset-required","errorDetails":{"a":[1.5,true,{"b":-9007199254740992}]}}]',
            "control[1].errorDetails: Input should be at most 2**53 - 1",
        ),
        ("[NaN]", "not JSON"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_path_of_the_field(text: str, error: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode_downstream(text)
    assert str(caught.value).startswith(error)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('["begin",{"tag":"begin"},{"commitWatermark":"01"}]', "[0]: unknown message 'begin'"),
        ('["status",{}]', "status: takes 3 elements, got 2"),
        ('["status",{},{}]', "status[2].watermark: Field required"),
        ('["ack",{}]', "ack[1].watermark: Field required"),
        ('["status",{"tag":"rollback"},{"watermark":"01"}]', "status[1].tag: Input should be 'commit'"),
    ],
)
def test_what_a_consumer_may_not_send_is_refused(text: str, error: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode_upstream(text)
    assert str(caught.value).startswith(error)


def test_none_stands_for_absent_in_python_and_is_never_sent() -> None:
    assert encode(Begin(commit_watermark="01", skip_ack=None)) == (
        b'["begin",{"tag":"begin"},{"commitWatermark":"01"}]'
    )


def test_a_column_may_have_nulls_where_the_consumer_takes_them() -> None:
    column = '{"pos":1,"dataType":"text","notNull":null,"dflt":null,"characterMaximumLength":null}'
    text = f'["data",{{"tag":"create-table","spec":{{"schema":"a","name":"b","columns":{{"c":{column}}}}}}}]'
    assert decode_downstream(text).name == "data"


def test_the_size_of_a_message_is_limited_in_bytes() -> None:
    text = '["status",{"é":1},{"watermark":"01"}]'
    size = len(text.encode())
    assert decode_upstream(text, max_bytes=size).watermark == "01"
    for form in (text, text.encode()):
        with pytest.raises(CodecError, match=f"{size} bytes, more than {size - 1}"):
            decode_upstream(form, max_bytes=size - 1)


def test_acks_are_small() -> None:
    with pytest.raises(CodecError, match="more than 65536"):
        decode_upstream('["ack",{"watermark":"01"}]' + " " * 65536)


def test_a_value_that_json_does_not_have_is_refused_on_the_way_out() -> None:
    with pytest.raises(CodecError, match=r"data: cannot be written as JSON: nan"):
        encode(Data(change=Insert(relation=RELATION, new={"id": float("nan")})))


def test_every_message_class_can_be_decoded() -> None:
    assert {kind.__name__ for kind in get_args(codec.AnyDownstream)} >= {Begin.__name__, AckRequested.__name__}
    assert set(get_args(codec.AnyUpstream)) == {StatusAck, Ack}
