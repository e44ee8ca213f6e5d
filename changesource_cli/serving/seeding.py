"""Makes a seed every so often while `serve` runs, in a process of its own (`changesource seed`).

The time of the next one follows from the log's record of seeds, so a restart of `serve` neither skips nor repeats one.
A seed that fails is tried again with a growing delay; the stream does not depend on it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Mapping
from contextlib import closing, suppress

from changesource_sdk.changelog.store import LogStore
from changesource_sdk.config import ServeConfig
from changesource_sdk.errors import ChangesourceError
from changesource_sdk.policies.seeding import interval_seconds, wait_seconds
from service_kit.backoff import Backoff
from service_kit.logs import event, logger

log = logger("seed")

POLL_S = 1.0
_MOST_ERROR_CHARACTERS = 500


class SeedSchedule:
    """Makes seeds of one log until cancelled. `environment` is that of the child."""

    def __init__(self, config: ServeConfig, log_store: LogStore, environment: Mapping[str, str]) -> None:
        self._config = config
        self._log_store = log_store
        self._environment = dict(environment) | _settings(config)
        self._backoff = Backoff(first_s=5.0, last_s=900.0)

    async def run(self) -> None:
        """Wait and make seeds, without end; returns at once if none are to be made."""
        every = interval_seconds(self._config.seed_every)
        if every is None:
            return
        while True:
            try:
                pause = await asyncio.to_thread(self._pause, every)
                if pause > 0:
                    await asyncio.sleep(min(pause, POLL_S))
                    continue
                await self._make()
                self._backoff.reset()
            except (ChangesourceError, OSError) as error:
                seconds = self._backoff.seconds()
                event(log, logging.WARNING, "no seed was made, trying again", error=str(error), seconds=round(seconds))
                await asyncio.sleep(seconds)

    def _pause(self, every: float) -> float:
        """Return the seconds until the next seed is due. Blocking."""
        with closing(self._log_store.open_log()) as reader:
            if reader.state().generation == 0:
                return POLL_S
        made = [each.created_ms for each in self._log_store.seeds.all() if each.state == "ready"]
        return wait_seconds(max(made, default=None), every, time.time() * 1000)

    async def _make(self) -> None:
        child = await asyncio.create_subprocess_exec(
            *_command(self._config),
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            output, errors = await child.communicate()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                child.terminate()
            await child.wait()
            raise
        if child.returncode:
            raise OSError(_last_error(errors))
        made = json.loads(output.splitlines()[-1])
        event(
            log,
            logging.INFO,
            "a seed was made",
            watermark=made["watermark"],
            rows=made["rows"],
            bytes=made["bytes"],
            compressed=made["compressedBytes"],
            pruned=made["pruned"],
        )


def _command(config: ServeConfig) -> list[str]:
    conf = [word for key, value in config.conf.items() for word in ("--conf", f"{key}={value}")]
    whose = ["--app-id", config.seed_app_id, "--publications", ",".join(config.seed_publications)]
    keep = ["--keep", str(config.seed_keep)]
    return [sys.executable, "-m", "changesource_cli", "seed", "--json", *whose, *keep, *conf]


def _settings(config: ServeConfig) -> dict[str, str]:
    """Return the child's settings as variables: a command line is visible to every user of the host."""
    values = {
        "STATE": config.state.absolute(),
        "LOG": config.log,
        "LOG_SCHEMA": config.log_schema,
        "SPOOL": config.spool,
        "RUNNER": config.runner,
        "MASTER": config.master,
        "PERMISSIONS": config.permissions,
        "SEED_TO": config.seed_to,
    }
    return {f"CHANGESOURCE_{name}": str(value) for name, value in values.items() if value is not None}


def _last_error(errors: bytes) -> str:
    """Return what the child said last, shortened."""
    lines = errors.decode(errors="replace").strip().splitlines()
    return lines[-1][:_MOST_ERROR_CHARACTERS] if lines else "the process ended without a message"
