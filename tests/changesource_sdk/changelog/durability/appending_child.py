"""A process that appends to a log until it is killed: the victim of the kill loop.

Run as `python -m tests.changesource_sdk.changelog.durability.appending_child STORE SEED`, the store pickled and in
hexadecimal digits. It resumes after the last position, appends batches of random size, some transactions spilled,
prunes and starts generations now and then, and prints each position once `append` returned.
"""

from __future__ import annotations

import itertools
import pickle
import random
import sys
import time
from pathlib import Path

from changesource_sdk.changelog.log import EncodedTransaction
from changesource_sdk.changelog.spool.blocks import BlockWriter
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.changelog.writer import LogWriter
from protocol.framing import frame
from tests.changesource_sdk.changelog.log_fixtures import begin_generation

_NAMES = itertools.count()


def body(position: int) -> list[bytes]:
    """The frames of a position, the same in every run."""
    return [frame(b'["data",{"position":%d,"line":%d}]' % (position, line)) for line in range(position % 5 + 1)]


def encoded(position: int, segments: Path, epoch: int) -> EncodedTransaction:
    frames = body(position)
    if position % 7:
        return EncodedTransaction(position, None, None, b"".join(frames), len(frames))
    with BlockWriter(segments / f"{epoch}-{next(_NAMES)}.frames", block_size=32) as writer:
        for item in frames:
            writer.write(item)
        return EncodedTransaction(position, None, None, writer.finish(), len(frames))


def step(writer: LogWriter, state: Path, chance: random.Random) -> None:
    last = writer.state().position
    assert isinstance(last, int)
    if chance.random() < 0.02:
        begin_generation(writer, state, position=last)
    if chance.random() < 0.05:
        writer.prune(writer.state().head)
    count = chance.randint(1, 20)
    writer.append(
        [encoded(last + n, state / "segments", writer.state().epoch) for n in range(count + 1) if last + n > 0]
    )
    print(last + count, flush=True)


def main(store: LogStore, seed: int) -> None:
    state = store.layout.root
    writer = store.open_writer(lambda: int(time.time() * 1e6))
    if writer.state().generation == 0:
        begin_generation(writer, state)
    chance = random.Random(seed)
    while True:
        step(writer, state, chance)


if __name__ == "__main__":
    main(pickle.loads(bytes.fromhex(sys.argv[1])), int(sys.argv[2]))
