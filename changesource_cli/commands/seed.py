"""`changesource seed`: build a replica file from the log, for a cache to start from without an initial sync."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from changesource_cli.commands import serve
from changesource_cli.output import print_json, reported, stdout
from changesource_sdk import config as configuration
from changesource_sdk.changelog.open import open_existing
from changesource_sdk.config import ServeConfig
from changesource_sdk.errors import ConfigurationError
from changesource_sdk.seed.layout import NEWEST
from service_kit import logs

EPILOG = "\n\n".join(
    (
        "The upstream is not read. Options not given here come from the TOML file and from CHANGESOURCE_* variables, "
        "as for serve.",
        "Examples:",
        "changesource seed --state ./changesource-state --runner inline --replica /var/zero/replica.db",
        "changesource seed --log postgresql://user@host/db --upload s3://bucket/seeds --app-id myapp",
    )
)

AppId = Annotated[str, typer.Option(envvar="ZERO_APP_ID", help="ZERO_APP_ID of the cache.")]
ShardNum = Annotated[int, typer.Option(envvar="ZERO_SHARD_NUM", min=0, help="ZERO_SHARD_NUM of the cache.")]
Release = Annotated[str, typer.Option(help="Release of zero-cache that starts from it.")]
DEFAULT_RELEASE = NEWEST


def seed(
    state: Annotated[Path | None, serve.flag("state")] = None,
    log: Annotated[str | None, serve.flag("log")] = None,
    log_schema: Annotated[str | None, serve.flag("log_schema")] = None,
    spool: Annotated[str | None, serve.flag("spool")] = None,
    replica: Annotated[Path | None, typer.Option(help="File to make: ZERO_REPLICA_FILE of one cache.")] = None,
    upload: Annotated[
        str | None,
        typer.Option(
            envvar="CHANGESOURCE_SEED_TO", help="Directory or URI (s3://…) to put it in, compressed, for fetch-seed."
        ),
    ] = None,
    keep: Annotated[int, typer.Option(min=1, help="Seeds that stay in that directory; older ones are deleted.")] = 2,
    app_id: AppId = "zero",
    shard_num: ShardNum = 0,
    publications: Annotated[
        str, typer.Option(envvar="ZERO_APP_PUBLICATIONS", help="ZERO_APP_PUBLICATIONS of the cache.")
    ] = "",
    release: Release = DEFAULT_RELEASE,
    permissions: Annotated[str | None, serve.flag("permissions")] = None,
    runner: Annotated[str | None, serve.flag("runner")] = None,
    master: Annotated[str | None, serve.flag("master")] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="Spark setting; may be repeated.", show_default=False),
    ] = None,
    config: Annotated[Path | None, typer.Option(envvar=serve.CONFIG_VARIABLE, help="TOML file, as for serve.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output and logs.")] = False,
) -> None:
    """Build a replica file from the newest snapshot and the log, so that a cache starts without an initial sync."""
    with reported(as_json=as_json):
        flags: dict[str, object] = {"state": state, "log": log, "log_schema": log_schema, "spool": spool}
        flags |= {"runner": runner, "master": master, "conf": configuration.parse_pairs(conf or [], "--conf")}
        flags |= {"permissions": permissions}
        if replica is None and upload is None:
            fix = "give --replica FILE, --upload URI, or both"
            raise ConfigurationError("no-target", "the seed has nowhere to go", "--replica, --upload", fix)
        names = publication_names(publications)
        settings = serve.effective_config(config, flags).config
        _run(settings, replica, upload, keep, (app_id, shard_num, names, release), as_json)


def publication_names(text: str) -> tuple[str, ...]:
    """Return the names in a list with commas between them, in order."""
    return tuple(sorted(name.strip() for name in text.split(",") if name.strip()))


def _run(
    config: ServeConfig,
    replica: Path | None,
    upload: str | None,
    keep: int,
    whose: tuple[str, int, tuple[str, ...], str],
    as_json: bool,
) -> None:
    # `--help` does not need the pipeline's modules.
    from changesource_cli.seed_progress import shown_progress
    from changesource_sdk.pipeline.spark.session import LOG_FILE, SparkSettings
    from changesource_sdk.seed.lanes import seed_lane
    from changesource_sdk.seed.make import Target, make_seed
    from changesource_sdk.seed.plan import SeedOptions
    from changesource_sdk.seed.publish import SeedFolder
    from changesource_sdk.system_tables import Permissions

    logs.configure(form="json" if as_json else config.log_format, level=config.log_level)
    options = SeedOptions(*whose, Permissions.parse(config.permissions))
    target = Target(replica.absolute() if replica else None, SeedFolder(upload) if upload else None, keep)
    log_store = open_existing(config.state, config.log, config.log_schema, config.spool)
    log_store.layout.create()
    conf = {key: str(value) for key, value in config.conf.items()}
    spark = SparkSettings(config.master, conf, "changesource seed")
    work = _work_folder(config, target.replica)
    try:
        with (
            shown_progress("building a seed", "rows, twice", as_json=as_json) as progress,
            seed_lane(config.runner, spark, config.state / LOG_FILE) as lane,
        ):
            made = make_seed(log_store, lane, options, target, work, progress)
    finally:
        log_store.close()
    record = made.record
    if as_json:
        print_json(
            {
                "watermark": record.watermark,
                "version": record.version,
                "replicaVersion": made.replica_version,
                "rows": record.rows,
                "bytes": record.bytes,
                "compressedBytes": made.compressed_bytes,
                "pruned": made.pruned,
            }
        )
        return
    stdout.print(f"a seed with {record.rows} rows at {record.watermark} is in {target}", markup=False)


def _work_folder(config: ServeConfig, replica: Path | None) -> Path:
    """Return where the seed is built: on the disk of the replica, so that the file is renamed and not copied."""
    if replica is not None:
        return replica.with_name(replica.name + ".building")
    return config.state.absolute() / "seed.building"
