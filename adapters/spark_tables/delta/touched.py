"""Keys that a change feed touched since a base was taken: one small Parquet file per version.

For each key, a file says whether its row exists after the version. It is written before the version's transaction is
passed to the pipeline. Writing it again gives the same content, so a version that is read twice changes nothing. Files
of versions that never became durable are ignored, since a reader says up to which version it wants them.
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
"""When there are more files, they are merged into one."""

_NET = b"changesource.net"


class TouchedKeys:
    """The touched keys of one table, by the number of the base and the version of the table.

    The acknowledging thread merges files while the polling thread reads them; `_turn` excludes both at once.
    """

    def __init__(self, folder: str, key: Sequence[str]) -> None:
        self._files, root = fs.FileSystem.from_uri(folder)
        self._root = f"{root}/touched"
        self._key = key
        self._turn = threading.RLock()

    def add(self, base: int, version: int, feed: Iterable[pa.RecordBatch]) -> None:
        """Write the keys that the feed of a version touched."""
        marked = [_marked(batch, self._key) for batch in feed if batch.num_rows]
        if marked:
            table = pa.concat_tables(marked)
            is_gone = pc.equal(table[OPERATION], DELETE)
            gone, here = table.filter(is_gone), table.filter(pc.invert(is_gone))
            self._write(base, version, pa.concat_tables([gone, here]), here.num_rows - gone.num_rows)

    def up_to(self, base: int, version: int) -> tuple[pa.Table, int] | None:
        """Every touched key once, with its last operation, and the net number of added rows; None if there are none."""
        with self._turn:
            paths = [path for number, path in self._listed(base) if number <= version]
            tables = [pq.read_table(path, filesystem=self._files) for path in paths]
        if not tables:
            return None
        net = sum(int(table.schema.metadata[_NET]) for table in tables)
        names = tables[0].column_names[:-1]
        plain = [table.replace_schema_metadata(None).cast(tables[-1].schema.remove_metadata()) for table in tables]
        grouped = pa.concat_tables(plain).group_by(names, use_threads=False).aggregate([(OPERATION, "last")])
        return grouped.rename_columns([*names, OPERATION]), net

    def merge(self, base: int, version: int) -> None:
        """Merge the files up to a durable version, if there are many: they are no longer read one by one."""
        with self._turn:
            durable = [(number, path) for number, path in self._listed(base) if number <= version]
            together = self.up_to(base, version) if len(durable) > MOST_FILES else None
            if together is not None:
                last, _ = durable.pop()
                self._write(base, last, *together)
                for _, path in durable:
                    self._files.delete_file(path)

    def forget_before(self, base: int) -> None:
        """Delete the files of earlier bases."""
        for info in self._files.get_file_info(fs.FileSelector(self._root, allow_not_found=True)):
            if info.base_name.isdecimal() and int(info.base_name) < base:
                self._files.delete_dir(info.path)

    def _listed(self, base: int) -> list[tuple[int, str]]:
        """Versions and their files, in order."""
        selector = fs.FileSelector(f"{self._root}/{base}", allow_not_found=True)
        files = [info for info in self._files.get_file_info(selector) if info.base_name.endswith(".parquet")]
        return sorted((int(info.base_name.removesuffix(".parquet")), info.path) for info in files)

    def _write(self, base: int, version: int, keys: pa.Table, net: int) -> None:
        self._files.create_dir(f"{self._root}/{base}", recursive=True)
        path = f"{self._root}/{base}/{version}.parquet"
        labelled = keys.replace_schema_metadata({_NET: str(net).encode()})
        pq.write_table(labelled, f"{path}.staged", filesystem=self._files)
        self._files.move(f"{path}.staged", path)


def _marked(batch: pa.RecordBatch, key: Sequence[str]) -> pa.Table:
    """The keys of a feed's rows in the columns `k0`, `k1`, …, and whether the row exists afterwards."""
    is_before = pc.is_in(stored(batch.column(CHANGE_TYPE)), pa.array(BEFORE))
    operation = pc.if_else(is_before, pa.scalar(DELETE, pa.int8()), pa.scalar(UPDATE, pa.int8()))
    columns = [stored(batch.column(name)) for name in key]
    return pa.table([*columns, operation], [*(f"k{i}" for i in range(len(key))), OPERATION])
