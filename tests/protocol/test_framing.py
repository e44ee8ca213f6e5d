from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from protocol.errors import FramingError
from protocol.framing import first_frame_end, frame, header_size, unframe


def read_with_websockets(data: bytes) -> Frame:
    reader = StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    parsing = Frame.parse(reader.read_exact, mask=False)
    return run_to_the_end(parsing)


def run_to_the_end(parsing: Iterator[None]) -> Frame:
    while True:
        try:
            next(parsing)
        except StopIteration as end:
            result: Frame = end.value
            return result


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 200_000])
def test_a_websocket_reader_finds_one_final_text_frame(size: int) -> None:
    read = read_with_websockets(frame(b"x" * size))
    assert (read.opcode, read.fin, bytes(read.data)) == (Opcode.TEXT, True, b"x" * size)


@pytest.mark.parametrize(("size", "header"), [(125, 2), (126, 4), (65535, 4), (65536, 10)])
def test_the_header_is_as_short_as_it_can_be(size: int, header: int) -> None:
    assert len(frame(b"x" * size)) == header + size


@given(st.lists(st.binary(max_size=300)))
def test_unframe_gives_back_what_was_framed(payloads: list[bytes]) -> None:
    assert list(unframe(b"".join(map(frame, payloads)))) == payloads


@pytest.mark.parametrize("size", [10, 130, 70_000])
def test_a_chunk_that_ends_within_a_frame_is_refused(size: int) -> None:
    data = frame(b"x" * size)
    for cut in {1, 2, 3, 5, len(data) - 1}:
        with pytest.raises(FramingError, match="the last frame") as caught:
            list(unframe(frame(b"ok") + data[:cut]))
        assert caught.value.where == "byte 4"


@pytest.mark.parametrize("first", [0x01, 0x80, 0x82, 0x88, 0x89, 0xC1])
def test_only_final_text_frames_are_read(first: int) -> None:
    with pytest.raises(FramingError, match=f"0x{first:02x}"):
        list(unframe(bytes((first, 0))))


def test_a_masked_frame_is_refused() -> None:
    with pytest.raises(FramingError, match="masked"):
        list(unframe(bytes((0x81, 0x80, 1, 2, 3, 4))))


def test_any_buffer_can_be_read() -> None:
    data = frame(b"abc")
    assert list(unframe(memoryview(data))) == list(unframe(bytearray(data))) == [b"abc"]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 70_000])
def test_the_size_of_a_header_and_the_end_of_the_first_frame_are_known(size: int) -> None:
    payload = b"x" * size
    framed = frame(payload)
    assert header_size(size) == len(framed) - size
    assert first_frame_end(framed + frame(b"[]")) == len(framed)
