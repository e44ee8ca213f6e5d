"""A Python client as a process of its own, made to be killed: it creates issues, and says each once it is queued.

python -m tests.support.apps.busy_client URL FILE PREFIX offline|online
"""

from __future__ import annotations

import asyncio
import sys
from itertools import count

from reference_cache.client import Client
from tests.support.apps.tracker import TRACKER, mutators


async def main(url: str, file: str, prefix: str, line: str) -> None:
    options = {"user_id": "u", "auth": "u-token", "store": file, "offline": line == "offline"}
    async with Client(url, TRACKER, mutators=mutators, **options) as client:  # type: ignore[arg-type]
        for number in count():
            issue = f"{prefix}{number}"
            client.mutate["issue.create"]({"id": issue, "title": "by a process that was killed"})
            print(f"queued {issue}", flush=True)
            await asyncio.sleep(0.005)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
