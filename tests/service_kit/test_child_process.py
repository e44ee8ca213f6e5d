"""A child process ends when asked, and by force if it does not."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process

from service_kit.child_process import end

STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"


async def started(program: str) -> Process:
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdin=PIPE, stdout=PIPE)
    assert child.stdout is not None
    await child.stdout.readline()
    return child


async def test_a_child_that_obeys_is_not_killed() -> None:
    child = await started("print('up', flush=True); import signal; signal.pause()")
    killed: list[bool] = []
    assert await end(child, 30.0, lambda: killed.append(True)) == -signal.SIGTERM
    assert killed == []


async def test_a_child_that_does_not_obey_is_killed_after_the_grace_period() -> None:
    killed: list[bool] = []
    assert await end(await started(STUBBORN), 0.1, lambda: killed.append(True)) == -signal.SIGKILL
    assert killed == [True]


async def test_a_child_that_has_ended_already_is_fine() -> None:
    child = await started("print('up', flush=True)")
    await child.wait()
    assert await end(child, 1.0) == 0
