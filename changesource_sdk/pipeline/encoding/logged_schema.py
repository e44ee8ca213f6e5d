"""What the log keeps as its schema: the tables of consumers, and next to them the adapter's own where mappings change
them.

Both sides are of the same position, the log's head, and are written with the transaction that changes one of them. The
text is that of `ConsumerSchema.to_json` with one name more, which readers of consumers' tables ignore. A log of an
earlier release has only the consumers' side.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.schema import Table

_UPSTREAM = "upstream"


@dataclass(frozen=True, slots=True)
class LoggedSchema:
    """The schema of a log. `upstream` has the adapter's tables if the source is mapped, else None: they are the
    consumers'.
    """

    consumer: ConsumerSchema
    upstream: tuple[Table, ...] | None = None

    def to_json(self) -> str:
        """Text that `from_json` reads back, and `ConsumerSchema.from_json` too."""
        if self.upstream is None:
            return self.consumer.to_json()
        upstream = ConsumerSchema.of(self.upstream).as_json()
        return orjson.dumps({**self.consumer.as_json(), _UPSTREAM: upstream}).decode()

    @classmethod
    def from_json(cls, text: str) -> LoggedSchema:
        """The schema in a log's text; an empty text is an empty schema."""
        content = orjson.loads(text) if text else {"tables": [], "indexes": []}
        upstream = content.get(_UPSTREAM)
        declared = None if upstream is None else ConsumerSchema.of_json(upstream).declared()
        return cls(ConsumerSchema.of_json(content), declared)
