"""`changesource fetch-seed`: bring the newest seed to a cache, if the log continues it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from changesource_cli.commands import serve
from changesource_cli.commands.seed import DEFAULT_RELEASE, AppId, Release, ShardNum, publication_names
from changesource_cli.output import print_json, reported, stdout
from changesource_sdk.changelog.open import open_existing
from changesource_sdk.errors import ConfigurationError
from service_kit import logs

if TYPE_CHECKING:
    from changesource_sdk.seed.fetch import Claim

EPILOG = "\n\n".join(
    (
        "Each file gets a replica version of its own: never copy a fetched file to a second cache, fetch it again.",
        "Examples:",
        "changesource fetch-seed s3://bucket/seeds /var/zero/replica.db --endpoint ws://source:4810/changes/v0/stream",
        "ZERO_UPSTREAM_DB=… changesource fetch-seed ./seeds replica.db --if-missing",
    )
)


def fetch_seed(
    source: Annotated[str, typer.Argument(metavar="URI", help="Directory or URI of seed's --upload.")],
    replica: Annotated[Path, typer.Argument(metavar="FILE", help="ZERO_REPLICA_FILE of the cache.")],
    endpoint: Annotated[
        str | None,
        typer.Option(envvar="ZERO_UPSTREAM_DB", help="URL of the endpoint (?apiKey=… for a key).", show_default=False),
    ] = None,
    state: Annotated[Path | None, serve.flag("state")] = None,
    log: Annotated[str | None, serve.flag("log")] = None,
    log_schema: Annotated[str | None, serve.flag("log_schema")] = None,
    app_id: AppId = "zero",
    shard_num: ShardNum = 0,
    publications: Annotated[
        str | None,
        typer.Option(envvar="ZERO_APP_PUBLICATIONS", help="Publications that the seed must have.", show_default=False),
    ] = None,
    release: Release = DEFAULT_RELEASE,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Do nothing if there is a replica.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output and logs.")] = False,
) -> None:
    """Download the newest seed, verify it, and make it the replica of one cache."""
    with reported(as_json=as_json), ExitStack() as stack:
        # `--help` does not need these modules.
        from changesource_cli.seed_progress import shown_progress
        from changesource_sdk.seed import fetch
        from changesource_sdk.seed.publish import SeedFolder, check_fits

        logs.configure(form="json" if as_json else "text", level="info")
        if if_missing and replica.exists():
            _print({"fetched": False}, f"{replica} is there already", as_json)
            return
        claim = _claim(stack, endpoint, state, log, log_schema)
        folder = SeedFolder(source)
        newest = folder.newest(app_id, shard_num)
        wanted = None if publications is None else publication_names(publications)
        check_fits(newest, release, wanted, str(folder))
        with shown_progress("fetching a seed", "bytes", as_json=as_json) as progress:
            progress.planned(newest.bytes)
            fetched = fetch.fetch_seed(folder, newest, replica.absolute(), claim, progress.done)
        document = {"fetched": True, "watermark": newest.watermark, "replicaVersion": fetched.replica_version}
        _print(
            document | {"rows": newest.rows, "bytes": newest.bytes},
            f"{replica} has {newest.rows} rows at {newest.watermark}",
            as_json,
        )


def _claim(
    stack: ExitStack, endpoint: str | None, state: Path | None, log: str | None, log_schema: str | None
) -> Claim:
    """Return the function that claims a seed: at the endpoint, unless the log is given."""
    from changesource_sdk.seed import fetch

    if state is not None or log is not None:
        flags: dict[str, object] = {"state": state, "log": log, "log_schema": log_schema}
        config = serve.effective_config(None, flags).config
        log_store = open_existing(config.state, config.log, config.log_schema, config.spool)
        stack.callback(log_store.close)
        return fetch.claim_from_log(log_store)
    if endpoint is None:
        raise ConfigurationError(
            "no-endpoint",
            "only the log knows whether it continues a seed",
            "--endpoint, --state, --log",
            "give --endpoint (or ZERO_UPSTREAM_DB), the state directory, or --log",
        )
    return fetch.claim_from_endpoint(endpoint)


def _print(document: dict[str, object], text: str, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        stdout.print(text, markup=False)
