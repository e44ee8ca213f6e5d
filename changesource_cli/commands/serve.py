"""`changesource serve`: the options, where their values come from, and how they are shown without starting."""

from __future__ import annotations

import asyncio
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.table import Table
from typer.core import TyperCommand

from changesource_cli.adapter_choice import load_class, resolve, with_secret_files
from changesource_cli.output import print_json, reported, stdout
from changesource_cli.serving import run as serving
from changesource_sdk import config as configuration
from changesource_sdk.config import Effective, ServeConfig, help_text
from changesource_sdk.errors import ChangesourceError, ConfigurationError
from changesource_sdk.source_config import SourceConfig

CONFIG_VARIABLE = "CHANGESOURCE_CONFIG"
EPILOG = "\n\n".join(
    (
        "Every option can also be a key of the TOML file (adapter settings in its table 'set') or a variable "
        "CHANGESOURCE_OPTION (CHANGESOURCE_SET_KEY); flags win over variables, variables over the file.",
        "Examples:",
        "changesource serve sqlite --set path=app.db",
        "changesource serve mystore:Adapter --set url=… --listen 0.0.0.0:4810 --state /var/lib/changesource",
        "changesource serve --config changesource.toml --show-config",
        "changesource serve --role endpoint --log postgresql://user@host/db --spool /mnt/spool",
    )
)


Pairs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Setting of the adapter; may be repeated.", show_default=False),
]
"""`--set`, as every command with an adapter has it."""


def flag(name: str, *names: str) -> object:
    """Return typer's declaration of an option that is a field of `ServeConfig`; `names` replace `--field-name`."""
    declared = names or ("--" + name.replace("_", "-"),)
    return typer.Option(*declared, help=_sentence(help_text(name)), show_default=False)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


class ServeCommand(TyperCommand):
    """The command `serve`, whose help shows the current value of each option and where it comes from."""

    # Any: newer versions of typer have a private copy of click, so click's types cannot be named.
    def format_help(self, ctx: Any, formatter: Any) -> None:
        try:
            effective = effective_config(ctx.params.get("config"), {})
        except ChangesourceError:
            # The command itself reports the error; help must work with a broken file.
            return super().format_help(ctx, formatter)
        known = {field.name for field in fields(ServeConfig)} - configuration.TABLES.keys()
        own = [(parameter, vars(parameter)["help"]) for parameter in self.params if parameter.name in known]
        try:
            for parameter, _ in own:
                value, origin = effective.shown(parameter.name), effective.origins[parameter.name]
                vars(parameter)["help"] = f"{_sentence(help_text(parameter.name))} Now: {value} ({origin})."
            super().format_help(ctx, formatter)
        finally:
            for parameter, text in own:
                vars(parameter)["help"] = text


def serve(
    ctx: typer.Context,
    adapter: Annotated[
        str | None, typer.Argument(help="Installed adapter, or module:Class.", show_default=False)
    ] = None,
    pairs: Pairs = None,
    listen: Annotated[str | None, flag("listen")] = None,
    state: Annotated[Path | None, flag("state")] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", is_eager=True, envvar=CONFIG_VARIABLE, help="TOML file with any of these options."),
    ] = None,
    log: Annotated[str | None, flag("log")] = None,
    log_schema: Annotated[str | None, flag("log_schema")] = None,
    spool: Annotated[str | None, flag("spool")] = None,
    role: Annotated[str | None, flag("role")] = None,
    api_key: Annotated[str | None, flag("api_key")] = None,
    api_key_file: Annotated[Path | None, flag("api_key_file")] = None,
    tls_cert: Annotated[Path | None, flag("tls_cert")] = None,
    tls_key: Annotated[Path | None, flag("tls_key")] = None,
    tls_client_ca: Annotated[Path | None, flag("tls_client_ca")] = None,
    allowed_origins: Annotated[str | None, flag("allowed_origins")] = None,
    allowed_hosts: Annotated[str | None, flag("allowed_hosts")] = None,
    connections_per_address: Annotated[int | None, flag("connections_per_address")] = None,
    connection_rate_per_address: Annotated[float | None, flag("connection_rate_per_address")] = None,
    permissions: Annotated[str | None, flag("permissions")] = None,
    runner: Annotated[str | None, flag("runner")] = None,
    master: Annotated[str | None, flag("master")] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="Spark setting; may be repeated.", show_default=False),
    ] = None,
    mappings: Annotated[str | None, flag("mappings")] = None,
    ledger: Annotated[Path | None, flag("ledger")] = None,
    on_bad_value: Annotated[str | None, flag("on_bad_value")] = None,
    compression: Annotated[bool | None, flag("compression", "--compression/--no-compression")] = None,
    log_format: Annotated[str | None, flag("log_format")] = None,
    log_level: Annotated[str | None, flag("log_level")] = None,
    status_interval: Annotated[float | None, flag("status_interval")] = None,
    ping_interval: Annotated[float | None, flag("ping_interval")] = None,
    dead_after: Annotated[float | None, flag("dead_after")] = None,
    tail_bytes: Annotated[int | None, flag("tail_bytes")] = None,
    grace: Annotated[float | None, flag("grace")] = None,
    prune_interval: Annotated[float | None, flag("prune_interval")] = None,
    subscriber_expiry: Annotated[float | None, flag("subscriber_expiry")] = None,
    compact_after: Annotated[str | None, flag("compact_after")] = None,
    seed_every: Annotated[str | None, flag("seed_every")] = None,
    seed_to: Annotated[str | None, flag("seed_to")] = None,
    seed_keep: Annotated[int | None, flag("seed_keep")] = None,
    seed_app_id: Annotated[str | None, flag("seed_app_id")] = None,
    seed_publications: Annotated[str | None, flag("seed_publications")] = None,
    show_config: Annotated[
        bool, typer.Option("--show-config", help="Print every value with its origin, and stop.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output and logs.")] = False,
) -> None:
    """Serve an upstream to zero-cache: runs its pipeline, its change log and the endpoint."""
    with reported(as_json=as_json):
        names = {field.name for field in fields(ServeConfig)} - configuration.TABLES.keys()
        flags: dict[str, object] = {name: ctx.params.get(name) for name in names}
        flags["settings"] = configuration.parse_pairs(pairs or [])
        flags["conf"] = configuration.parse_pairs(conf or [], "--conf")
        effective = effective_config(config, flags)
        if show_config:
            _print_config(effective, as_json)
            return
        raise typer.Exit(asyncio.run(serving.run(effective.config, as_json=as_json)))


def effective_config(path: Path | None, flags: dict[str, object]) -> Effective:
    """Return the configuration from the file at `path`, the environment and flags. Raises `ConfigurationError`."""
    text = None
    if path is not None:
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigurationError(
                "bad-toml", f"cannot read the configuration file: {reason}", str(path), "correct --config"
            ) from None
    effective = configuration.load(toml=text, toml_name=str(path), environment=os.environ, flags=flags)
    config = effective.config
    if config.sources:
        named = {name: _with_secrets(source) for name, source in config.sources.items()}
        return replace(effective, config=replace(config, sources=named))
    if not config.adapter or not any(key.endswith("_file") for key in config.settings):
        return effective
    opened = with_secret_files(load_class(resolve(config.adapter)), config.settings)
    return replace(effective, config=replace(config, settings=opened))


def _with_secrets(source: SourceConfig) -> SourceConfig:
    if not any(key.endswith("_file") for key in source.settings):
        return source
    return replace(source, settings=with_secret_files(load_class(resolve(source.adapter)), source.settings))


def _print_config(effective: Effective, as_json: bool) -> None:
    if as_json:
        print_json(effective.as_json())
        return
    table = Table("option", "value", "origin", box=None)
    for row in effective.describe():
        table.add_row(*row)
    stdout.print(table)
