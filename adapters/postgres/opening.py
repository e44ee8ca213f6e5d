"""Before anything is read: check the server, create what is missing in the database, and export a snapshot.

The order matters. The event triggers must exist before the snapshot, or a schema change in between would be missed. The
slot must exist before the snapshot, or the changes after it would be lost.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace

from adapters.postgres.catalog.reading import read_catalog
from adapters.postgres.catalog.table_selection import SelectedTables
from adapters.postgres.checks import require
from adapters.postgres.connection import translated_errors
from adapters.postgres.replication.lineage import remember_server, watermarks_ahead
from adapters.postgres.replication.publication import ensure_publications
from adapters.postgres.replication.slot import ExportedSnapshot, ensure_slot, export_snapshot
from adapters.postgres.schema_changes.capture import install
from adapters.postgres.schema_changes.versions import Version, store_version
from adapters.postgres.settings import PostgresSettings
from adapters.postgres.snapshot import import_snapshot
from adapters.postgres.system_tables import ensure_system_tables
from changesource_sdk.toolkit import event, logger

_log = logger("postgres")


def prepare(settings: PostgresSettings) -> None:
    """Check the database and create what is missing in it; logs each thing that it creates."""
    with translated_errors(settings.dsn), closing(settings.connect()) as db:
        require(db, settings)
        made = ensure_publications(db, settings)
        if ensure_system_tables(db, settings.app, settings.shard, settings.system_publication):
            made.append(f"made the tables of app {settings.app}, shard {settings.shard}")
        if not install(db, settings.slot, settings.all_publications):
            made.append("schema changes are looked for every second: only a superuser can make event triggers")
        if slot := ensure_slot(db, settings):
            made.append(slot)
    for what in made:
        event(_log, logging.INFO, what)


def open_snapshot(settings: PostgresSettings) -> tuple[ExportedSnapshot, SelectedTables]:
    """Export a snapshot of the prepared database and read its catalog; `changes` can start at its position."""
    exported = export_snapshot(settings)
    try:
        with translated_errors(settings.dsn), closing(settings.connect()) as db:
            import_snapshot(db, settings.dsn, exported.name)
            selected = read_catalog(db, settings.all_publications, settings.selection)
            db.execute("COMMIT")
            store_version(db, settings.slot, exported.lsn, Version(selected.catalog, selected.types))
            remember_server(db, settings.slot, *exported.server)
            exported = replace(exported, ahead=watermarks_ahead(db, settings.slot))
    except BaseException:
        exported.close()
        raise
    return exported, selected
