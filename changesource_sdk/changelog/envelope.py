"""Makes the `begin` and `commit` frames around a transaction's data, and removes them again.

JSON columns are always sent as text (mode `s`), so every `begin` has `"json":"s"`. The watermark is inserted without
escaping: it is a LexiVersion, which has no character that JSON escapes.
"""

from __future__ import annotations

import orjson

from protocol.framing import first_frame_end, frame, header_size

_COMMIT = b'["commit",{"tag":"commit"'


def begin_frame(watermark: str) -> bytes:
    """Return the `begin` frame of the transaction with this watermark."""
    return frame(b'["begin",{"tag":"begin","json":"s"},{"commitWatermark":"%s"}]' % watermark.encode())


def commit_frame(watermark: str, commit_time_ms: float | None = None) -> bytes:
    """Return the `commit` frame of this watermark. zero-cache makes its lag metrics of the commit time."""
    if commit_time_ms is None:
        return frame(b'["commit",{"tag":"commit"},{"watermark":"%s"}]' % watermark.encode())
    time = orjson.dumps(commit_time_ms)
    return frame(b'["commit",{"tag":"commit","commitTimeMs":%s},{"watermark":"%s"}]' % (time, watermark.encode()))


def data_frames(frames: bytes) -> bytes:
    """Return the `data` frames of a whole transaction: everything between its `begin` and its `commit`."""
    # The last match is the commit: inside a data frame the same text would have its quotes escaped.
    commit = frames.rindex(_COMMIT)
    return frames[first_frame_end(frames) : commit - header_size(len(frames) - commit)]
