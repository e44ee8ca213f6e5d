"""The messages of both directions and both dialects; on the wire each is one JSON array.

A message is modelled flat: `Begin(commit_watermark="01", skip_ack=True)` travels as `["begin", {"tag": "begin",
"skipAck": true}, {"commitWatermark": "01"}]`. The second element takes unknown fields. The third element of `begin` and
`commit` holds the watermark and nothing else, because the consumer splices it into a record of its own.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from protocol.changes import Change
from protocol.specs import JsonObject, Maybe, Number, SafeObject, Wire

JsonMode = Literal["p", "s"]
"""How values of JSON columns travel in a transaction: parsed, or as a string that holds their text."""


class Message(Wire):
    """One array: its name, its payload and, if `position` names a field, that field alone in a third element."""

    name: ClassVar[str]
    position: ClassVar[str | None] = None
    exact: ClassVar[bool] = False
    """Whether the third element may hold nothing but the position."""

    @model_validator(mode="before")
    @classmethod
    def _from_array(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        length = 3 if cls.position else 2
        if len(value) != length:
            raise ValueError(f"takes {length} elements, got {len(value)}")
        if not all(isinstance(element, dict) for element in value[1:]):
            raise ValueError("every element after the first must be an object")
        return cls._flatten(value[1], value[2] if cls.position else {})

    @classmethod
    def _flatten(cls, payload: JsonObject, third: JsonObject) -> JsonObject:
        if cls.exact and (extra := third.keys() - {cls.position}):
            raise ValueError(f"the third element may hold only {cls.position}, got also {', '.join(sorted(extra))}")
        if "tag" not in payload and "tag" in cls.model_fields and cls.model_fields["tag"].default:
            raise ValueError("tag is missing in the second element")
        flat = {name: value for name, value in payload.items() if name != cls.position}
        if cls.position in third:
            flat[cls.position] = third[cls.position]
        return flat

    def to_wire(self) -> list[object]:
        """The array that travels, as Python values."""
        payload = self.to_json()
        if self.position is None:
            return [self.name, payload]
        position = payload.pop(self.position)
        return [self.name, payload, {self.position: position}]


class Begin(Message):
    """Opens a transaction whose watermark is known; absent `json_mode` means `p`, parsed JSON values."""

    name: ClassVar[str] = "begin"
    position: ClassVar[str | None] = "commitWatermark"
    exact: ClassVar[bool] = True
    tag: Literal["begin"] = "begin"
    json_mode: Maybe[JsonMode] = Field(default=None, alias="json")
    skip_ack: Maybe[bool] = None
    commit_watermark: str


class Data(Message):
    """One change within a transaction."""

    name: ClassVar[str] = "data"
    change: Change

    @classmethod
    def _flatten(cls, payload: JsonObject, third: JsonObject) -> JsonObject:
        return {"change": payload}

    def to_wire(self) -> list[object]:
        return [self.name, self.change.to_json()]


class Commit(Message):
    """Closes a transaction with the watermark that its begin announced."""

    name: ClassVar[str] = "commit"
    position: ClassVar[str | None] = "watermark"
    exact: ClassVar[bool] = True
    tag: Literal["commit"] = "commit"
    commit_time_ms: Maybe[Number] = None
    watermark: str


class Rollback(Message):
    """Discards the open transaction; its watermark is free again."""

    name: ClassVar[str] = "rollback"
    tag: Literal["rollback"] = "rollback"


class LagTimings(Wire):
    """Times of the last report, epoch milliseconds."""

    send_time_ms: Number
    commit_time_ms: Number
    receive_time_ms: Number


class LagReport(Wire):
    """How far the source lags behind its upstream; for metrics only."""

    last_timings: LagTimings
    next_send_time_ms: Number


class Status(Message):
    """The source has advanced to here without changes; echoed once durable unless `ack` is false. Never stored."""

    name: ClassVar[str] = "status"
    position: ClassVar[str | None] = "watermark"
    ack: Maybe[bool] = None
    lag_report: Maybe[LagReport] = None
    watermark: str

    @property
    def wants_ack(self) -> bool:
        """Whether the consumer echoes it: the default is yes."""
        return self.ack is not False


class ResetRequired(Message):
    """The stream cannot continue from the consumer's watermark: it must start over with an initial sync."""

    name: ClassVar[str] = "control"
    tag: Literal["reset-required"] = "reset-required"
    message: Maybe[str] = None
    error_details: Maybe[SafeObject] = None


class AckRequested(Message):
    """The sketch's keepalive; never for a consumer of the shipped dialect, which closes on it."""

    name: ClassVar[str] = "control"
    tag: Literal["ack-requested"] = "ack-requested"
    latest_upstream_watermark: Maybe[str] = None


class StatusAck(Message):
    """All up to and including `watermark` is durable at the consumer. Cumulative, may be coalesced."""

    name: ClassVar[str] = "status"
    position: ClassVar[str | None] = "watermark"
    tag: Maybe[Literal["commit"]] = None
    ack: Maybe[bool] = None
    watermark: str


class Ack(Message):
    """The sketch's form of `StatusAck`, with the watermark in the second element."""

    name: ClassVar[str] = "ack"
    watermark: str


def wire_tag(value: object) -> str | None:
    """What identifies a kind of message: the name of the array, for `control` together with the tag of its payload."""
    match value:
        case ResetRequired() | AckRequested():
            return f"control:{value.tag}"
        case Message():
            return value.name
        case ["control", {"tag": str(tag)}, *_]:
            return f"control:{tag}"
        case [str(name), *_]:
            return name
        case _:
            return None


Downstream = Annotated[
    Annotated[Begin, Tag("begin")]
    | Annotated[Data, Tag("data")]
    | Annotated[Commit, Tag("commit")]
    | Annotated[Rollback, Tag("rollback")]
    | Annotated[Status, Tag("status")]
    | Annotated[ResetRequired, Tag("control:reset-required")]
    | Annotated[AckRequested, Tag("control:ack-requested")],
    Discriminator(
        wire_tag,
        custom_error_type="unknown_message",
        custom_error_message="unknown tag; control knows reset-required and ack-requested",
    ),
]
"""What the source sends."""

Upstream = Annotated[Annotated[StatusAck, Tag("status")] | Annotated[Ack, Tag("ack")], Discriminator(wire_tag)]
"""What the consumer sends."""
