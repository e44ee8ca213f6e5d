"""Adapters for upstreams that keep no log: an API, a sheet, a folder, a table without versions.

    class Notes(ByDifference):
        def __init__(self, url: str, state: str = "changesource-state/notes") -> None:
            super().__init__(state)
            self.url = url

        def tables(self):
            return [Table("note", [Column("id", int), Column("text", str)])]

        def rows(self, table):
            yield from fetch_all(self.url)

The author lists rows; this package remembers a digest of every row, compares each listing with it, and makes one
transaction of what was inserted, updated and deleted.
"""

from changesource_sdk.by_difference.adapter import ByDifference
from changesource_sdk.by_difference.listing import COMPLETE, Complete, Cursor, Item

__all__ = ["COMPLETE", "ByDifference", "Complete", "Cursor", "Item"]
