"""Keys that a change feed touched since a base was taken: one small Parquet file per version.

A file holds, for each key, whether its row was there after the version. It is written before the version's transaction
is handed on and says the same when it is written again, so a version that is read twice changes nothing; files of
versions that never became durable are passed over, since whoever asks says up to which version.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from adapters.spark_tables.delta.feed import BEFORE, CHANGE_TYPE, stored
from adapters.spark_tables.difference.files import DELETE, OPERATION, UPDATE

MOST_FILES = 100
"""When there are more, they are put together to one."""

_NET = b"changesource.net"


class TouchedKeys:
    """The touched keys of one table, by the number of the base and the version of the table.

    Files are put together by the thread that acknowledges, so reading and that exclude each other.
    """

    def __init__(self, folder: str, key: Sequence[str]) -> None:
        self._files, root = fs.FileSystem.from_uri(folder)
        self._root = f"{root}/touched"
        self._key = key
        self._turn = threading.RLock()

    def add(self, base: int, version: int, feed: Iterable[pa.RecordBatch]) -> None:
        """Write down what the feed of a version touched."""
        marked = [_marked(batch, self._key) for batch in feed if batch.num_rows]
        if marked:
            table = pa.concat_tables(marked)
            is_gone = pc.equal(table[OPERATION], DELETE)
            gone, here = table.filter(is_gone), table.filter(pc.invert(is_gone))
            self._write(base, version, pa.concat_tables([gone, here]), here.num_rows - gone.num_rows)

    def up_to(self, base: int, version: int) -> tuple[pa.Table, int] | None:
        """Every key once, as it was left, and by how many rows the table grew; None if nothing was touched."""
        with self._turn:
            paths = [path for found, path in self._listed(base) if found <= version]
            tables = [pq.read_table(path, filesystem=self._files) for path in paths]
        if not tables:
            return None
        net = sum(int(table.schema.metadata[_NET]) for table in tables)
        names = tables[0].column_names[:-1]
        plain = [table.replace_schema_metadata(None).cast(tables[-1].schema.remove_metadata()) for table in tables]
        grouped = pa.concat_tables(plain).group_by(names, use_threads=False).aggregate([(OPERATION, "last")])
        return grouped.rename_columns([*names, OPERATION]), net

    def merge(self, base: int, version: int) -> None:
        """Put together, if they are many, the files of versions that are not asked for one by one any more."""
        with self._turn:
            durable = [(found, path) for found, path in self._listed(base) if found <= version]
            together = self.up_to(base, version) if len(durable) > MOST_FILES else None
            if together is not None:
                last, _ = durable.pop()
                self._write(base, last, *together)
                for _, path in durable:
                    self._files.delete_file(path)

    def forget_before(self, base: int) -> None:
        """Earlier bases are needed no more."""
        for info in self._files.get_file_info(fs.FileSelector(self._root, allow_not_found=True)):
            if info.base_name.isdecimal() and int(info.base_name) < base:
                self._files.delete_dir(info.path)

    def _listed(self, base: int) -> list[tuple[int, str]]:
        """Versions and their files, in order."""
        selector = fs.FileSelector(f"{self._root}/{base}", allow_not_found=True)
        found = [info for info in self._files.get_file_info(selector) if info.base_name.endswith(".parquet")]
        return sorted((int(info.base_name.removesuffix(".parquet")), info.path) for info in found)

    def _write(self, base: int, version: int, keys: pa.Table, net: int) -> None:
        self._files.create_dir(f"{self._root}/{base}", recursive=True)
        path = f"{self._root}/{base}/{version}.parquet"
        told = keys.replace_schema_metadata({_NET: str(net).encode()})
        pq.write_table(told, f"{path}.staged", filesystem=self._files)
        self._files.move(f"{path}.staged", path)


def _marked(batch: pa.RecordBatch, key: Sequence[str]) -> pa.Table:
    """The keys of a feed's rows, called by their place, and what became of them."""
    is_before = pc.is_in(stored(batch.column(CHANGE_TYPE)), pa.array(BEFORE))
    operation = pc.if_else(is_before, pa.scalar(DELETE, pa.int8()), pa.scalar(UPDATE, pa.int8()))
    columns = [stored(batch.column(name)) for name in key]
    return pa.table([*columns, operation], [*(f"k{i}" for i in range(len(key))), OPERATION])
