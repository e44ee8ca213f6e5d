"""An endpoint over the workload, with a say in when its transactions are committed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.endpoint.session import OPTIONS
from benchmarks.endpoint.workload import Gate
from tests.support.peers.serving import Serving
from tests.support.waiting import until

ADAPTER = "benchmarks.cache.workload:Buckets"


class Session:
    """A running endpoint; `folder` is scratch space that goes with it."""

    def __init__(self, folder: Path, *, rows: int, spread: int, size: int) -> None:
        self.folder = folder
        self._gate = Gate(folder / "gate")
        settings = {"rows": str(rows), "gate": str(self._gate.path), "spread": str(spread), "size": str(size)}
        self.endpoint = Serving(ADAPTER, settings, folder / "state", options=OPTIONS)
        self.released = 0

    @property
    def url(self) -> str:
        return self.endpoint.stream_url

    def commit(self, number: int) -> None:
        """Let the store commit so many transactions more."""
        self.released += number
        self._gate.release(self.released)

    def wait_until_logged(self) -> str:
        """Wait until the endpoint has all that was committed; the watermark of the last."""

        def logged() -> bool:
            return int(self.endpoint.status()["log"]["position"] or 0) >= self.released

        until(logged, f"transaction {self.released} in the endpoint's log", seconds=600)
        return str(self.endpoint.status()["log"]["head"])


@contextmanager
def session(*, rows: int, spread: int = 1, size: int = 1) -> Iterator[Session]:
    """Serve the workload until the context ends."""
    with TemporaryDirectory(prefix="changesource-bench-") as folder:
        made = Session(Path(folder), rows=rows, spread=spread, size=size)
        with made.endpoint:
            made.endpoint.start(seconds=600)
            yield made
