"""The lanes of the fuzzer: every target in process, and the sockets of a running endpoint and cache."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from tests.fuzz.corpus import MESSAGES
from tests.fuzz.mutation import Mutator
from tests.fuzz.targets import TARGETS, Target
from tests.support.fakes.sync_client import sync_client, sync_url

SLOW_SECONDS = 1.0
"""No single input may take more of the processor's time than this."""

ANSWER_SECONDS = 0.2
"""How long one attacking socket waits for an answer before it leaves."""


@dataclass(slots=True)
class InProcess:
    """What a lane in process did."""

    inputs: int = 0
    refused: int = 0
    slowest: float = 0.0


def run_target(target: Target, seed: int, *, inputs: int, seconds: float = 1e9) -> InProcess:
    """Feed a target; raises `AssertionError` with the input if it answers as it must not, or takes too long."""
    done = InProcess()
    until = time.monotonic() + seconds
    for text in Mutator(target.examples, seed).inputs():
        if done.inputs >= inputs or time.monotonic() > until:
            return done
        begun = time.process_time()
        try:
            target.take(text)
        except target.refuses:
            done.refused += 1
        except Exception as error:
            raise AssertionError(f"{target.name}, seed {seed}: {error!r} for {text[:500]!r}") from error
        taken = time.process_time() - begun
        assert taken < SLOW_SECONDS, f"{target.name}, seed {seed}: {taken:.1f} s for {text[:500]!r}"
        done.inputs += 1
        done.slowest = max(done.slowest, taken)
    raise AssertionError("inputs never end")


def run_all_targets(seed: int, *, inputs_each: int, seconds_each: float = 1e9) -> dict[str, InProcess]:
    """Every target with its own seed."""
    return {
        target.name: run_target(target, seed + number, inputs=inputs_each, seconds=seconds_each)
        for number, target in enumerate(TARGETS)
    }


@dataclass(slots=True)
class OnSockets:
    """What a lane on sockets did, and how long a healthy client waited for its pongs meanwhile, in seconds."""

    inputs: int = 0
    pongs: list[float] = field(default_factory=list)

    def pong(self, share: float) -> float:
        """The time within which this share of pings was answered."""
        return sorted(self.pongs)[min(len(self.pongs) - 1, int(len(self.pongs) * share))]


async def run_sockets(
    seed: int, endpoint: str, cache_port: int, init: dict[str, object], *, inputs: int, seconds: float
) -> OnSockets:
    """Attack both servers with `inputs` messages and handshakes while a healthy client of the cache pings."""
    done = OnSockets()
    stop = asyncio.Event()
    async with sync_client(sync_url(cache_port, "healthy", "healthy-group", user="healthy"), init=init) as healthy:
        await healthy.hear("connected")
        watching = asyncio.create_task(_ping(healthy.socket, done, stop))
        async with asyncio.timeout(seconds + 60):
            attacks = [_attack(seed + n, endpoint, cache_port, inputs // 4, seconds) for n in range(4)]
            done.inputs = sum(await asyncio.gather(*attacks))
        stop.set()
        await watching
        await healthy.say("ping", {})
        await healthy.hear("pong")
    return done


async def _ping(socket: object, done: OnSockets, stop: asyncio.Event) -> None:
    while not stop.is_set():
        begun = time.perf_counter()
        await (await socket.ping())  # type: ignore[attr-defined]
        done.pongs.append(time.perf_counter() - begun)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.02)


async def _attack(seed: int, endpoint: str, cache_port: int, inputs: int, seconds: float) -> int:
    """Connections that each say a few random things, one after the other."""
    chance = random.Random(seed)
    messages = Mutator(MESSAGES, seed).inputs()
    acks = Mutator(TARGETS[2].examples, seed + 1).inputs()
    queries = Mutator(("appID=zero&shardNum=0", "shardID=a_0&lastWatermark=01"), seed + 2).inputs()
    until, sent = time.monotonic() + seconds, 0
    while sent < inputs and time.monotonic() < until:
        if chance.random() < 0.5:
            url = sync_url(cache_port, f"c{sent}", f"g{seed % 7}", user="attacker")
            sent += await _say(url, [next(messages) for _ in range(5)])
        else:
            query = next(queries) if chance.random() < 0.5 else "appID=fuzz&shardNum=0"
            sent += await _say(f"{endpoint}?{_plain(query)}", [next(acks) for _ in range(5)])
    return sent


def _plain(query: str) -> str:
    """What an HTTP client can put into a request line at all."""
    return "".join(character for character in query if 32 < ord(character) < 127 and character not in "#")[:2000]


async def _say(url: str, texts: Sequence[str]) -> int:
    """Connect and send; the server may refuse or close at any moment. The number of inputs tried."""
    try:
        async with connect(url, proxy=None, compression=None, open_timeout=30, close_timeout=1) as socket:
            for text in texts:
                await socket.send(text.encode("utf-8", "replace").decode())
            with suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    while True:
                        await socket.recv()
    except (WebSocketException, OSError, ValueError):
        pass
    return 1 + len(texts)
