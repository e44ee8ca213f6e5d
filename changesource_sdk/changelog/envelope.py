"""The frames around a transaction's data: `begin` and `commit`, as bytes, and how to take them off again.

JSON columns always travel as text (mode `s`), so every `begin` says so. The watermark is spliced in unescaped: it is a
LexiVersion and holds nothing to escape.
"""

from __future__ import annotations

import orjson

from protocol.framing import first_frame_end, frame, header_size

_COMMIT = b'["commit",{"tag":"commit"'


def begin_frame(watermark: str) -> bytes:
    """The `begin` that opens the transaction of this watermark."""
    return frame(b'["begin",{"tag":"begin","json":"s"},{"commitWatermark":"%s"}]' % watermark.encode())


def commit_frame(watermark: str, commit_time_ms: float | None = None) -> bytes:
    """The `commit` of this watermark; the commit time feeds the consumer's lag metrics."""
    if commit_time_ms is None:
        return frame(b'["commit",{"tag":"commit"},{"watermark":"%s"}]' % watermark.encode())
    time = orjson.dumps(commit_time_ms)
    return frame(b'["commit",{"tag":"commit","commitTimeMs":%s},{"watermark":"%s"}]' % (time, watermark.encode()))


def data_frames(frames: bytes) -> bytes:
    """The `data` frames of a whole transaction: everything between its `begin` and its `commit`."""
    # The last match is the commit: inside a data frame the same text would have its quotes escaped.
    commit = frames.rindex(_COMMIT)
    return frames[first_frame_end(frames) : commit - header_size(len(frames) - commit)]
