"""The child process of `process`: JSON lines on standard input and output. Started by the cache only."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from dataclasses import asdict
from typing import Any

import orjson

from reference_cache.replica.errors import UnusableReplica
from reference_cache.replica.stored_catalog import ReplicaState
from reference_cache.replicator.process import UNUSABLE_EXIT
from reference_cache.replicator.replicator import Replicator
from reference_cache.replicator.settings import ReplicatorSettings

STATUS_SECONDS = 0.5


class _ParentLogHandler(logging.Handler):
    """Sends log records to the parent, which logs them in its own format."""

    def emit(self, record: logging.LogRecord) -> None:
        fields = {name: str(value) for name, value in getattr(record, "fields", {}).items()}
        _send({"log": record.getMessage(), "level": record.levelno, "fields": fields})


def _send(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(message) + b"\n")
    sys.stdout.buffer.flush()


def _send_version(state: ReplicaState) -> None:
    _send({"version": asdict(state)})


async def _lines() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def _serve() -> int:
    lines = await _lines()
    replicator = Replicator(ReplicatorSettings.from_json(orjson.loads(await lines.readline())["settings"]))
    replicator.on_version(_send_version)
    running = asyncio.create_task(replicator.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    # Ctrl-C goes to the whole process group; the parent decides.
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
    tasks = [asyncio.create_task(_receive(lines, replicator, running)), asyncio.create_task(_report(replicator))]
    try:
        await running
    except asyncio.CancelledError:
        return 0
    except UnusableReplica as error:
        replicator.status().error = str(error)
        return UNUSABLE_EXIT
    finally:
        for task in tasks:
            task.cancel()
        _send({"status": replicator.status().to_json()})
    return 0


async def _receive(lines: asyncio.StreamReader, replicator: Replicator, running: asyncio.Task[None]) -> None:
    while line := await lines.readline():
        replicator.forget_changes(orjson.loads(line)["forget"])
    running.cancel()


async def _report(replicator: Replicator) -> None:
    while True:
        _send({"status": replicator.status().to_json()})
        await asyncio.sleep(STATUS_SECONDS)


def main() -> int:
    logging.getLogger().addHandler(_ParentLogHandler())
    logging.getLogger("changesource").setLevel(logging.DEBUG)
    return asyncio.run(_serve())


if __name__ == "__main__":
    sys.exit(main())
