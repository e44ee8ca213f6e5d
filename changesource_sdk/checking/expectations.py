"""What a good endpoint does beyond single frames: over several connections, and while it has nothing to send.

The rules of `protocol.rules` apply to any transcript. These need a client: they are checked by connecting again, from
known and unknown watermarks, and by waiting. They have the same form and are on the same page of the docs.
"""

from __future__ import annotations

from protocol.rules import RULES, Rule

_TABLE = (
    ("answers", "a request of a consumer is answered with a stream", "2.2"),
    ("several-consumers", "consumers of the same shard are served side by side", "2.3"),
    ("answers-pings", "pings are answered, whatever the endpoint is busy with", "3"),
    ("whole-transaction", "a transaction that began comes to its end", "4"),
    ("same-content", "a watermark always stands for the same changes", "8"),
    ("initial-complete", "an initial sync comes to its commit", "9"),
    ("seam", "a snapshot plus what follows it equals a later snapshot", "9"),
    ("snapshot-resumable", "a stream continues from the snapshot just sent", "9"),
    ("tolerates-acks", "acks, repeated ones too, do not end the stream", "11"),
    ("resume-known", "a stream continues from every watermark it gave", "12"),
    ("resume-complete", "a resumed stream brings every transaction after the watermark", "12"),
    ("stays-open", "a stream without news stays open", "12"),
    ("unknown-reset", "a watermark that the endpoint does not know is answered with reset-required", "13"),
    ("claim-harmless", "what one consumer claims resets no other", "13"),
    ("sketch-goes-on", "in the sketch dialect changes follow the snapshot on the same connection", "16"),
)

EXPECTATIONS = {name: Rule(name, text, section) for name, text, section in _TABLE}
"""Every expectation by its id."""

ALL = RULES | EXPECTATIONS
"""All that `changesource check` can find broken."""

PAGE = "docs/reference/rules.md"


def doc(rule: str) -> str:
    """Where the documentation explains a rule."""
    return f"{PAGE}#{rule}"
