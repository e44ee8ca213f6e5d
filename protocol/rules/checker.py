"""The rules of a legal stream, checkable on any transcript.

`check` reads what one consumer saw, over all its connections, and names each broken rule with the frame that broke it;
`Checker` does so frame by frame, for a stream that is still open. Neither stops at the first broken rule: it continues
as the consumer most likely would. `RULES` is the whole list; `section` is the section of the protocol description that
a rule comes from.

Rules about tables, columns and rows need to know the replica: all of them are checked after an initial sync, and
otherwise those about tables that were created since.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from protocol import codec
from protocol.codec import MAX_MESSAGE_BYTES, AnyDownstream
from protocol.errors import CodecError, HandshakeError
from protocol.messages import Begin, Commit, Data, JsonMode, ResetRequired, Rollback
from protocol.rules import changes as change_rules
from protocol.rules import required_tables
from protocol.rules import wire as wire_rules
from protocol.rules.replica import CheckedReplica
from protocol.stream import transcript
from protocol.stream.handshake import Handshake, parse_target
from protocol.stream.order import Problem, Stream, acknowledged_by
from protocol.stream.transcript import Connect


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: a stable id, what it requires, and the section it comes from."""

    id: str
    text: str
    section: str


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule; `frame` is the line of the transcript, from 1."""

    rule: str
    frame: int
    message: str
    section: str

    def __str__(self) -> str:
        return f"frame {self.frame}: [{self.rule}] {self.message} (§{self.section})"


_TABLE = (
    ("handshake", "a connection starts with a path and parameters that can be read", "2.1"),
    ("json", "a frame is JSON in UTF-8", "3"),
    ("nan", "NaN and Infinity are no JSON numbers", "3"),
    ("one-message", "a frame holds one message", "3"),
    ("size", "a message has at most 100 MiB", "3"),
    ("shape", "a message has a known tag and the fields that go with it", "3"),
    ("third-element", "the third element of begin and commit holds the watermark and nothing else", "4"),
    ("begin-inside", "transactions do not nest", "4"),
    ("data-outside", "data comes between begin and commit", "4"),
    ("commit-outside", "commit ends a transaction that began", "4"),
    ("rollback-outside", "rollback ends a transaction that began", "4"),
    ("status-inside", "status comes between transactions", "4"),
    ("commit-watermark", "commit carries the watermark that its begin announced", "4"),
    ("unknown-table", "a change names a table that the replica has", "5.2"),
    ("unknown-column", "a change names columns that the table has", "5.2"),
    ("key-value", "a row and an old key hold every key column", "5.2"),
    ("full-row", "an update carries the whole row", "5.2"),
    ("old-key", "an update that changes the key carries the old key", "5.2"),
    ("key-index", "a table has a unique index before its rows change", "5.3"),
    ("table-exists", "a new table has a name that is free", "5.3"),
    ("column-exists", "a new column has a name that is free", "5.3"),
    ("indexed-column", "a column that an index uses is dropped after the index", "5.3"),
    ("backfill", "backfill strands a consumer that reconnects", "5.4"),
    ("reserved-name", "names of the consumer's own are left alone", "6.1"),
    ("data-type", "a type name has no |, and [] goes with elemPgTypeClass", "6.2"),
    ("default", "add-column has a default that is understood, or none", "6.2"),
    ("index-name", "an index name is unique in its schema", "6.3"),
    ("no-row-key", "rows of a table without a key are neither updated nor deleted", "6.4"),
    ("value-type", "a value suits the type of its column", "7.2"),
    ("surrogate", "a text has no half surrogate pairs", "7.2"),
    ("watermark-form", "a watermark is a LexiVersion above 00", "8"),
    ("watermark-order", "a commit has a higher watermark than every one before it", "8"),
    ("status-order", "a status is not below the last commit", "8"),
    ("initial-status", "an initial sync has no status", "9"),
    ("initial-rollback", "an initial sync is not rolled back", "9"),
    ("after-initial", "nothing follows the commit of an initial sync", "9"),
    ("required-table", "an initial sync brings the consumer's own tables", "10"),
    ("permissions-row", "an initial sync brings one row of permissions", "10"),
    ("ack-shape", "a consumer sends acks and nothing else", "11"),
    ("ack-order", "acks do not go back", "11"),
    ("ack-unsent", "an ack names a watermark that was sent", "11"),
    (
        "initial-watermark",
        "an initial sync has a higher watermark than all that was sent to its app and shard",
        "12",
    ),
    ("initial-reset", "an initial sync is not answered with reset-required", "13"),
    ("reset-watermark", "the initial sync after a reset has a higher watermark than any before", "13"),
    ("ack-requested", "ack-requested is for the sketch dialect only", "16"),
)

RULES = {name: Rule(name, text, section) for name, text, section in _TABLE}
"""Every rule by its id, in the order of the protocol description."""


def check(lines: Iterable[str | bytes], *, max_message_bytes: int = MAX_MESSAGE_BYTES) -> list[Violation]:
    """Each broken rule of a transcript (see `transcript`), in its order."""
    checker = Checker(max_message_bytes)
    return [violation for entry in transcript.read(lines) for violation in checker.take(entry)]


class Checker:
    """Checks one consumer's transcript, over all its connections. All state is written by `take`."""

    def __init__(self, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        # The message of the last frame from the source; None if it was malformed, or the entry was no such frame.
        self.message: AnyDownstream | None = None
        self._max_bytes = max_message_bytes
        # Violations of the entry that is being taken.
        self._violations: list[Violation] = []
        # Its line in the transcript, from 1.
        self._line = 0
        # The open connection; None before the first, and after a request that could not be parsed.
        self._connection: tuple[Handshake, Stream] | None = None
        # The consumer's replica; a new one with every initial sync, otherwise kept over connections.
        self._replica = CheckedReplica()
        # How JSON values travel in the open transaction, from its `begin`.
        self._json_mode: JsonMode = "p"
        # Every watermark that the consumer may acknowledge, over all connections.
        self._sent: set[str] = set()
        # The highest ack of this connection.
        self._acked = ""
        # The source has sent `reset-required`, and no initial sync was completed since.
        self._was_reset = False

    def take(self, entry: transcript.Entry) -> list[Violation]:
        """The rules that the next entry breaks."""
        self.message, self._violations = None, []
        self._line = entry.line
        if isinstance(entry, Connect):
            self._connect(entry.target)
        elif self._connection is None:
            self._note(Problem("handshake", "a frame before any connection"))
        elif entry.direction == "up":
            self._take_up(entry.text)
        else:
            self._take_down(entry.text, *self._connection)
        return self._violations

    def _note(self, *problems: Problem) -> None:
        for problem in problems:
            section = RULES[problem.rule].section
            self._violations.append(Violation(problem.rule, self._line, problem.message, section))

    def _connect(self, target: str) -> None:
        self._replica.rollback()
        self._connection = None
        try:
            _, handshake = parse_target(target)
        except HandshakeError as error:
            self._note(Problem("handshake", str(error)))
            return
        self._connection = handshake, Stream(handshake)
        self._acked = ""
        self._mark_sent(handshake.last_watermark)
        if handshake.is_initial:
            self._replica = CheckedReplica(complete=True)

    def _take_down(self, text: bytes, handshake: Handshake, stream: Stream) -> None:
        problems, message = wire_rules.read_downstream(text, self._max_bytes)
        self.message = message
        self._note(*problems)
        if message is None:
            return
        self._note(*stream.problems(message))
        self._follow(message, handshake, was_initial=stream.initial)
        stream.advance(message)
        self._mark_sent(acknowledged_by(message))

    def _follow(self, message: AnyDownstream, handshake: Handshake, *, was_initial: bool) -> None:
        """Keep the model of the consumer in step with what it was sent."""
        match message:
            case Begin():
                self._json_mode = message.json_mode or "p"
                self._replica.begin()
            case Data():
                self._note(*change_rules.problems(self._replica, message.change, self._json_mode))
                self._replica.apply_change(message.change)
            case Commit():
                self._commit(message, handshake, was_initial=was_initial)
            case Rollback():
                self._replica.rollback()
            case ResetRequired():
                self._was_reset = True
            case _:
                pass

    def _commit(self, message: Commit, handshake: Handshake, *, was_initial: bool) -> None:
        self._replica.commit()
        if was_initial:
            self._note(*required_tables.missing(self._replica, handshake.app_id, handshake.shard_num))
            self._judge_initial(message.watermark)

    def _mark_sent(self, reached: str | None) -> None:
        if reached is not None:
            self._sent.add(reached)

    def _judge_initial(self, committed: str) -> None:
        """zero-cache keeps its change DB, and with it a gap, if it has seen the watermark of an initial sync before."""
        highest = max(self._sent, default="")
        if committed <= highest:
            rule = "reset-watermark" if self._was_reset else "initial-watermark"
            self._note(Problem(rule, f"{committed} is not above {highest}, which was sent before"))
        self._was_reset = False

    def _take_up(self, text: bytes) -> None:
        try:
            acked = codec.decode_upstream(text).watermark
        except CodecError as error:
            self._note(Problem("ack-shape", str(error)))
            return
        if acked < self._acked:
            self._note(Problem("ack-order", f"{acked} after {self._acked}"))
        if acked not in self._sent:
            self._note(Problem("ack-unsent", f"{acked} was never sent"))
        self._acked = max(self._acked, acked)
