"""`changesource skip`: let a pipeline that is stopped by a row or a transaction continue without it.

The request is left with the log, with its reason. The pipeline carries it out and the log keeps who asked for it, when
and why; `changesource inspect` shows it.
"""

from __future__ import annotations

import getpass
import socket
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from changesource_cli.commands import serve
from changesource_cli.output import print_json, reported, stdout
from changesource_sdk.changelog.dead_letters import Skip
from changesource_sdk.changelog.open import open_existing
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.errors import ConfigurationError, StateError
from changesource_sdk.observe.stages import stage_of_source
from changesource_sdk.positions import to_text

EPILOG = "\n\n".join(
    (
        "The row is removed from consumers, so that none keeps an older version, and is a dead letter until its next "
        "change comes through. With --transaction this holds for all rows that the transaction inserts or updates; its "
        "deletes, truncates and schema changes take effect. An adapter that compares listings makes another "
        "transaction at each attempt: skip its rows one by one.",
        "Examples:",
        'changesource skip --state ./changesource-state --reason "price is text, corrected in the next release"',
        'changesource skip --transaction --log postgresql://user@host/db --reason "bulk import of 3 May, ticket 812"',
    )
)
LONGEST_REASON = 1000


def skip(
    reason: Annotated[str, typer.Option(help="Why; it is kept in the log.")],
    transaction: Annotated[
        bool, typer.Option("--transaction", help="Leave out the whole transaction instead of the row.")
    ] = False,
    source: Annotated[str, typer.Option(help="The one of the [sources] that is stopped.", show_default=False)] = "",
    by: Annotated[str | None, typer.Option(help="Who; the user of this process.", show_default=False)] = None,
    state: Annotated[Path | None, serve.flag("state")] = None,
    log: Annotated[str | None, serve.flag("log")] = None,
    log_schema: Annotated[str | None, serve.flag("log_schema")] = None,
    config: Annotated[Path | None, typer.Option(envvar=serve.CONFIG_VARIABLE, help="TOML file, as for serve.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the request as JSON.")] = False,
) -> None:
    """Continue without the row, or the transaction, at which the pipeline stopped."""
    with reported(as_json=as_json):
        if not reason.strip() or len(reason) > LONGEST_REASON:
            message = f"a reason of 1 to {LONGEST_REASON} characters is needed"
            raise ConfigurationError("no-reason", message, "--reason", "say why it may be left out")
        flags: dict[str, object] = {"state": state, "log": log, "log_schema": log_schema}
        effective = serve.effective_config(config, flags).config
        log_store = open_existing(effective.state, effective.log, effective.log_schema, effective.spool)
        try:
            request = _request(log_store, reason.strip(), by or _user(), source, whole=transaction)
            log_store.requests.ask_skip(request)
        finally:
            log_store.close()
        if as_json:
            print_json({"position": request.position, "table": request.table, "row": request.row, "by": request.by})
            return
        what = f"row {request.row} of {request.table}" if request.table else f"transaction {request.position}"
        stdout.print(f"{what} is left out when the pipeline tries again, within seconds", markup=False)


def _request(log_store: LogStore, reason: str, by: str, source: str, *, whole: bool) -> Skip:
    """What the pipeline reports to be stopped by. Raises `StateError` if it is not, or not by a single row."""
    error = log_store.reports.all().get(stage_of_source(source), {}).get("error")
    named = error if isinstance(error, dict) else {}
    position, table = str(named.get("position", "")), str(named.get("table", ""))
    where = str(log_store.layout.root)
    if not position and not table:
        reported_error = f"it reports {named['code']}" if named else "it reports no error"
        message = f"the pipeline is not stopped by a row or a transaction: {reported_error}"
        raise StateError("nothing-to-skip", message, where, "see changesource inspect")
    if whole and not position:
        raise StateError(
            "no-transaction", "it is stopped by a row of a snapshot, not by a transaction", where, "omit --transaction"
        )
    if not whole and not table:
        raise StateError("no-row", "it is stopped by no single row", where, "give --transaction to leave out all of it")
    row = ("", "", "") if whole else (table, str(named.get("key", "")), str(named.get("row", "")))
    return Skip(position, *row, by, time.time() * 1000, reason, source=source, after=_last_position(log_store, source))


def _last_position(log_store: LogStore, source: str) -> str:
    """The text of the last position that the log has of a source."""
    with closing(log_store.open_log()) as log:
        state = log.state()
    return (state.sources[source].position or "") if source in state.sources else to_text(state.position)


def _user() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):
        return socket.gethostname()
