"""`make fuzz`: every lane for `FUZZ_SECONDS` (60), from `FUZZ_SEED` (random, printed). Ends with 1 on a find."""

from __future__ import annotations

import os
import random
import sys
import time

import pytest

from tests.fuzz.lanes import run_all_targets
from tests.fuzz.targets import TARGETS

if __name__ == "__main__":
    seconds = float(os.environ.get("FUZZ_SECONDS", "60"))
    seed = int(os.environ.get("FUZZ_SEED", random.SystemRandom().randrange(2**31)))
    print(f"FUZZ_SEED={seed}", flush=True)
    begun = time.monotonic()
    done = run_all_targets(seed, inputs_each=10**9, seconds_each=seconds / len(TARGETS))
    taken = time.monotonic() - begun
    inputs = sum(each.inputs for each in done.values())
    print(f"in process: {inputs} inputs in {taken:.0f} s ({inputs / taken * 60:.0f} a minute)")
    for name, each in done.items():
        print(f"  {name}: {each.inputs} inputs, {each.refused} refused, slowest {each.slowest * 1000:.0f} ms")
    # The sockets: at least a thousand inputs a minute, and pongs within 250 ms on a machine that does nothing else.
    knobs = {"FUZZ_SEED": seed, "FUZZ_SECONDS": seconds, "FUZZ_SOCKET_INPUTS": int(seconds / 60 * 1000)}
    os.environ |= {name: str(value) for name, value in knobs.items()}
    os.environ.setdefault("FUZZ_LONGEST_PONG", "0.25")
    sys.exit(pytest.main(["-q", "-s", "-m", "e2e", "tests/fuzz"]))
