"""Schema versions in the store: each position finds its own, as long as someone may resume from it."""

from __future__ import annotations

from adapters.postgres.catalog.model import Catalog, ColumnDef, IndexDef, TableDef
from adapters.postgres.connection import Connection
from adapters.postgres.replication.visibility import Horizon, Redefinition
from adapters.postgres.schema_changes.capture import install, uninstall
from adapters.postgres.schema_changes.versions import Version, forget_versions, last_version, store_version
from adapters.postgres.types import PgType

COLUMN = ColumnDef(1, "id", 23, -1, "int4", not_null=True)
INDEX = IndexDef(9, "t_x", (("id", "DESC"),), unique=True)
TABLE = TableDef(5, "public", "t", (COLUMN,), ("id",), indexes=(INDEX,), unsynced=("raw",), partitions=(6, 7))
INT4 = PgType(23, "int4")


def _version(waiting: int) -> Version:
    return Version(
        Catalog((TABLE,)),
        {23: INT4},
        {5: Horizon(20, frozenset({12}), 99)},
        frozenset({waiting}),
        {5: Redefinition(13), 6: Redefinition(14, frozenset({15}))},
    )


def test_a_version_survives_being_stored() -> None:
    assert Version.from_json(_version(1).to_json()) == _version(1)


def test_a_position_finds_the_last_version_up_to_it(db: Connection) -> None:
    install(db, "a", ("p",))
    for position in (10, 20, 30):
        store_version(db, "a", position, _version(position))
    store_version(db, "b", 15, _version(0))
    store_version(db, "a", 20, _version(21))
    found = {position: last_version(db, "a", position) for position in (9, 10, 19, 20, 31)}
    assert found == {9: None, 10: _version(10), 19: _version(10), 20: _version(21), 31: _version(30)}


def test_versions_behind_the_acknowledged_position_are_forgotten(db: Connection) -> None:
    install(db, "a", ("p",))
    for position in (10, 20, 30):
        store_version(db, "a", position, _version(position))
    forget_versions(db, "a", 25)
    assert last_version(db, "a", 15) is None
    assert last_version(db, "a", 25) == _version(20)
    assert last_version(db, "a", 30) == _version(30)


def test_everything_can_be_taken_out_again(db: Connection) -> None:
    assert install(db, "a", ("p",))
    uninstall(db)
    assert db.execute("SELECT count(*) FROM pg_event_trigger").fetchone() == (0,)
    assert db.execute("SELECT to_regnamespace('changesource_state')").fetchone() == (None,)
