"""End to end: the adapter behind a real endpoint, read by a consumer that keeps the rules of the protocol."""

from __future__ import annotations

import asyncio
import threading

from changesource_sdk.config import ServeConfig
from changesource_sdk.endpoint.server import Endpoint
from changesource_sdk.system_tables import Permissions
from changesource_sdk.testing.conformance.case import Broken
from changesource_sdk.testing.conformance.comparing import differences, same_state
from changesource_sdk.testing.conformance.pipeline_run import Watch
from changesource_sdk.testing.conformance.trial import Trial
from changesource_sdk.testing.fake_cache import FakeCache
from protocol import rules


def to_a_cache(trial: Trial) -> None:
    """A cache syncs, follows, disconnects and reconnects; every frame is legal, and it ends with all rows."""
    if trial.has("writes"):
        trial.insert_many(5)
    with trial.running() as watch:
        watch.until(lambda: watch.witness.generation > 0, lambda: "no snapshot came")
        errors: list[BaseException] = []
        thread = threading.Thread(target=lambda: _run(trial, watch, errors), daemon=True)
        thread.start()
        thread.join(trial.patience * 4)
        if thread.is_alive():
            raise Broken("a cache did not get what was written")
        if errors:
            raise errors[0]


def _run(trial: Trial, watch: Watch, errors: list[BaseException]) -> None:
    """Run in a new event loop, because the caller may be inside one."""
    try:
        asyncio.run(_serve_and_follow(trial, watch))
    except BaseException as error:
        errors.append(error)


async def _serve_and_follow(trial: Trial, watch: Watch) -> None:
    config = ServeConfig(listen="127.0.0.1:0", state=watch.store.layout.root, grace=1.0)
    endpoint = Endpoint(config, Permissions.parse("null"))
    port = await endpoint.start()
    cache = FakeCache(f"ws://127.0.0.1:{port}/changes/v0/stream", timeout=trial.patience)
    try:
        await cache.initial_sync()
        for _ in range(2 if trial.has("writes") else 0):
            async with cache.stream():
                await _write_and_follow(trial, cache)
    finally:
        await endpoint.stop()
    broken = rules.check(cache.transcript)
    if broken:
        raise Broken(f"the stream breaks the protocol: {broken[0]}")


async def _write_and_follow(trial: Trial, cache: FakeCache) -> None:
    for _ in range(5):
        await asyncio.to_thread(trial.some_transaction)
    try:
        await cache.until(lambda: same_state(trial.history.states[-1], cache.tables))
    except TimeoutError:
        differing = list(differences(trial.history.states[-1], cache.tables))
        raise Broken(f"a cache does not end with what the store holds: {'; '.join(map(str, differing[:3]))}") from None
