import pytest

from protocol.errors import CodecError
from protocol.stream.transcript import Connect, Frame, connect_line, frame_line, read


def test_what_is_written_is_read_back_with_its_line() -> None:
    lines = [
        connect_line("/changes/v0/stream?appID=zero&shardNum=0"),
        b"\n",
        frame_line("down", b'["rollback", {"tag": "rollback"}]'),
        frame_line("up", '["ack",{"watermark":"01"}]'),
        frame_line("down", "[NaN"),
        frame_line("down", b"\xff"),
    ]
    assert list(read(lines)) == [
        Connect(1, "/changes/v0/stream?appID=zero&shardNum=0"),
        Frame(3, "down", b'["rollback",{"tag":"rollback"}]'),
        Frame(4, "up", b'["ack",{"watermark":"01"}]'),
        Frame(5, "down", b"[NaN"),
        Frame(6, "down", "�".encode()),
    ]


@pytest.mark.parametrize("line", ["[]", "{}", '{"direction":"sideways","message":[]}', '{"connect":5}'])
def test_a_line_of_another_kind_is_refused_by_its_number(line: str) -> None:
    with pytest.raises(CodecError, match="line 1: neither a connection nor a frame"):
        list(read([line]))
