"""One served workload and what the measurements ask of it: start, release transactions, wait for positions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.endpoint.workload import Gate
from tests.support.peers.serving import Serving

ADAPTER = "benchmarks.endpoint.workload:Workload"
OPTIONS = ("--permissions", "allow-all", "--runner", "inline")


class Session:
    """A running endpoint over the workload; `folder` is scratch space that goes with it."""

    def __init__(self, folder: Path, *, rows: int, plan: str = "", pace: float = 0) -> None:
        self.folder = folder
        self.gate = Gate(folder / "gate")
        settings = {"rows": str(rows), "plan": plan, "gate": str(self.gate.path), "pace": str(pace)}
        self.endpoint = Serving(ADAPTER, settings, folder / "state", options=OPTIONS)

    @property
    def url(self) -> str:
        return self.endpoint.stream_url

    def position(self) -> int:
        """The number of the last transaction in the log."""
        return int(self.endpoint.status()["log"]["position"] or 0)

    def head(self) -> str:
        return str(self.endpoint.status()["log"]["head"])

    def release(self, number: int) -> None:
        """Let the store commit all transactions up to this one."""
        self.gate.release(number)


@contextmanager
def session(*, rows: int, plan: str = "", pace: float = 0, seconds: float = 600) -> Iterator[Session]:
    """Serve a workload until the context ends."""
    with TemporaryDirectory(prefix="changesource-bench-") as folder:
        made = Session(Path(folder), rows=rows, plan=plan, pace=pace)
        with made.endpoint:
            made.endpoint.start(seconds=seconds)
            yield made
