"""`changesource compact`: make a new snapshot from the newest one and the log, without reading the upstream."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from changesource_cli.commands import serve
from changesource_cli.output import print_json, reported, stdout
from changesource_sdk import config as configuration
from changesource_sdk.changelog.open import open_existing
from changesource_sdk.config import ServeConfig
from changesource_sdk.pipeline.spark.session import LOG_FILE, SparkSettings
from service_kit import logs

EPILOG = "\n\n".join(
    (
        "Options not given here come from the TOML file and from CHANGESOURCE_* variables, as for serve.",
        "Examples:",
        "changesource compact --state ./changesource-state --runner inline",
        "changesource compact --log postgresql://user@host/db --spool s3://bucket/spool --master spark://host:7077",
    )
)


def compact(
    state: Annotated[Path | None, serve.flag("state")] = None,
    log: Annotated[str | None, serve.flag("log")] = None,
    log_schema: Annotated[str | None, serve.flag("log_schema")] = None,
    spool: Annotated[str | None, serve.flag("spool")] = None,
    runner: Annotated[str | None, serve.flag("runner")] = None,
    master: Annotated[str | None, serve.flag("master")] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="Spark setting; may be repeated.", show_default=False),
    ] = None,
    config: Annotated[Path | None, typer.Option(envvar=serve.CONFIG_VARIABLE, help="TOML file, as for serve.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output and logs.")] = False,
) -> None:
    """Make a new snapshot from the newest one and the log, so that the log can be deleted; the upstream is not read."""
    with reported(as_json=as_json):
        flags: dict[str, object] = {"state": state, "log": log, "log_schema": log_schema, "spool": spool}
        flags |= {"runner": runner, "master": master, "conf": configuration.parse_pairs(conf or [], "--conf")}
        _run(serve.effective_config(config, flags).config, as_json)


def _run(config: ServeConfig, as_json: bool) -> None:
    # `--help` does not need the pipeline's modules.
    from changesource_sdk.pipeline import compact_once

    logs.configure(form="json" if as_json else config.log_format, level=config.log_level)
    log_store = open_existing(config.state, config.log, config.log_schema, config.spool)
    log_store.layout.create()
    spark = SparkSettings(
        config.master, {key: str(value) for key, value in config.conf.items()}, "changesource compact"
    )
    try:
        with compact_once.lane(config.runner, spark, config.state / LOG_FILE) as lane:
            done = compact_once.compact_once(log_store, lane, config.subscriber_expiry * 1000)
    finally:
        log_store.close()
    if as_json:
        print_json({"compacted": asdict(done) if done else None})
    elif done is None:
        stdout.print("nothing came after the newest snapshot")
    elif done.registered:
        stdout.print(f"snapshot {done.watermark} is served from now on, {done.forgotten} transactions were forgotten")
    else:
        stdout.print("the snapshot is ready and waits for the pipeline of this log to take it")
