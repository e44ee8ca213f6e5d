"""`/seeds/v0/claim`: whether the log continues a seed, and the replica version of one copy of it.

`changesource fetch-seed` asks before a cache starts. Parameters: `appID`, `shardNum` and `watermark` of the seed, and
`check=1` to issue nothing. The answer is `{"replicaVersion": …}`, or 409 with the error. A claim costs the log as much
as the request for an initial sync, and the same limits hold for both (`changelog.retention`).
"""

from __future__ import annotations

import asyncio
import time
from urllib.parse import parse_qs

from changesource_sdk.changelog.coordination.contract import Coordination
from changesource_sdk.changelog.coordination.seeds import NOT_COVERED, check_covered, claim
from changesource_sdk.changelog.log import Log
from changesource_sdk.errors import ChangesourceError
from protocol.errors import HandshakeError
from protocol.stream.handshake import parse_parameters
from protocol.watermark import is_valid
from service_kit.pages import Page

PATH = "/seeds/v0/claim"


class SeedClaims:
    """Answers claims from one log."""

    def __init__(self, reader: Log, coordination: Coordination) -> None:
        self._reader = reader
        self._coordination = coordination

    async def answer(self, target: str) -> Page:
        """Return the answer to an authenticated request."""
        parameters = parse_qs(target.partition("?")[2], keep_blank_values=True, max_num_fields=100)
        try:
            handshake = parse_parameters({name: parameters.get(name, []) for name in ("appID", "shardNum")})
        except HandshakeError as error:
            return Page.text(error.status, str(error))
        watermarks = parameters.get("watermark", [])
        if len(watermarks) != 1 or not is_valid(watermarks[0]):
            return Page.text(400, "watermark: give the watermark of one seed")
        return await asyncio.to_thread(
            self._claim, handshake.app_id, handshake.shard_num, watermarks[0], "check" in parameters
        )

    def _claim(self, app_id: str, shard: int, watermark: str, only_check: bool) -> Page:
        try:
            check_covered(self._reader, watermark)
            if only_check:
                return Page.json(200, {"replicaVersion": None})
            version = claim(self._reader, self._coordination, app_id, shard, watermark, time.time() * 1000)
        except ChangesourceError as error:
            return Page.json(409 if error.code == NOT_COVERED else 503, {"error": error.as_json()})
        return Page.json(200, {"replicaVersion": version})
