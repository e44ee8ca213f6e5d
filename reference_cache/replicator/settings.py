"""Settings of a replicator: the change source, the replica file, and the reset policy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from protocol.redaction import shown_url
from protocol.stream.handshake import Handshake
from reference_cache.replica.log_retention import MAX_LOGGED
from reference_cache.replica.stored_catalog import Origin

_RESERVED = ("appID", "shardNum", "lastWatermark", "replicaVersion")
"""URL parameters that the replicator sets."""


@dataclass(frozen=True, slots=True)
class ReplicatorSettings:
    """`upstream` is the URL of a change source, with any parameters of its own (such as an API key).

    With `auto_reset`, a `reset-required` of the source starts a new initial sync; without, it is only reported. At most
    `max_logged` changed rows may be unread by the view syncer before the replicator pauses.
    """

    upstream: str
    replica_file: Path
    origin: Origin
    auto_reset: bool = True
    max_logged: int = MAX_LOGGED

    def handshake(self, last_watermark: str | None = None, replica_version: str | None = None) -> Handshake:
        """The handshake for an initial sync, or for the transactions after a watermark."""
        origin = self.origin
        return Handshake(
            "shipped", origin.app_id, origin.shard_num, origin.publications, last_watermark, replica_version
        )

    def url(self, handshake: Handshake) -> str:
        """The URL of a connection with this handshake."""
        parts = urlsplit(self.upstream)
        own = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] not in _RESERVED]
        query = "&".join(part for part in (urlencode(own), handshake.query) if part)
        return urlunsplit(parts._replace(query=query))

    def to_json(self) -> dict[str, Any]:
        """JSON for the child process; `from_json` is the inverse."""
        origin = [self.origin.app_id, self.origin.shard_num, sorted(self.origin.publications)]
        return {**asdict(self), "replica_file": str(self.replica_file.absolute()), "origin": origin}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ReplicatorSettings:
        app_id, shard_num, publications = value["origin"]
        origin = Origin(app_id, shard_num, frozenset(publications))
        return cls(**{**value, "replica_file": Path(value["replica_file"]), "origin": origin})

    @property
    def shown_upstream(self) -> str:
        """The URL with secrets masked, for logs."""
        return shown_url(self.upstream)
