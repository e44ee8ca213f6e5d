"""`changesource doctor`: report what is wrong and how to fix it, before or while serving.

Each check makes a finding: ok, a warning or a failure; the last two have a fix. Checks do not depend on each other, so
one run reports everything. The exit code is that of the first failure; warnings do not change it.
"""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from changesource_cli.adapter_choice import load_class, named_source, source_specs, try_settings
from changesource_cli.checks.mapping_check import check_mappings
from changesource_cli.commands import serve
from changesource_cli.output import ExitCode, print_json, reported, stdout
from changesource_sdk import config as configuration
from changesource_sdk.adapter import Examining
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.log import SourceRow
from changesource_sdk.changelog.open import open_store
from changesource_sdk.changelog.source_writer import merged_schemas
from changesource_sdk.config import ServeConfig
from changesource_sdk.contract import checked_tables
from changesource_sdk.endpoint.access.auth import tls_context
from changesource_sdk.endpoint.access.keys import KeyRing
from changesource_sdk.endpoint.fetch_status import fetch_status
from changesource_sdk.errors import AdapterError, ChangesourceError, ConfigurationError, EndpointError, StateError
from changesource_sdk.observe.warnings import stages_only
from changesource_sdk.pipeline.adapter_factory import adapter_factory, opened
from changesource_sdk.pipeline.snapshot.take import adapter_call, checked_schema
from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.pipeline.spark.java import find_java

EPILOG = (
    "Examples:\n\nchangesource doctor sqlite --set path=app.db\n\nchangesource doctor --log postgresql://user@host/db"
)
LOW_DISK = 1 << 30
"""Bytes."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")
MARKS = {"ok": "[green]ok  [/]", "warn": "[yellow]WARN[/]", "fail": "[bold red]FAIL[/]"}
NEEDED = ("orjson", "prometheus-client", "pydantic", "rich", "typer", "websockets")


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """The result of one check. One that is not ok has a fix; one that is ok and has a fix is a warning."""

    check: str
    ok: bool
    message: str
    fix: str = ""
    exit_code: int = 0

    @property
    def level(self) -> str:
        """`ok`, `warn` or `fail`."""
        return "fail" if not self.ok else "warn" if self.fix else "ok"


class Warned(NamedTuple):
    """What a check returns for something that works but should be changed."""

    message: str
    fix: str


def doctor(
    adapter: Annotated[str | None, typer.Argument(help="Adapter to check, as for serve.", show_default=False)] = None,
    pairs: serve.Pairs = None,
    listen: Annotated[str | None, typer.Option(help="Address to check.", show_default=False)] = None,
    state: Annotated[Path | None, typer.Option(help="State directory to check.", show_default=False)] = None,
    log: Annotated[str | None, typer.Option(help="Log to check: postgresql://…", show_default=False)] = None,
    log_schema: Annotated[str | None, typer.Option(help="Schema of that log.", show_default=False)] = None,
    spool: Annotated[str | None, typer.Option(help="Where the snapshots are.", show_default=False)] = None,
    config: Annotated[Path | None, typer.Option(envvar=serve.CONFIG_VARIABLE, help="TOML file, as for serve.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check versions, configuration, adapter, state directory and address; say how to fix what is wrong."""
    with reported(as_json=as_json):
        flags: dict[str, object] = {"adapter": adapter, "listen": listen, "state": state}
        flags |= {"log": log, "log_schema": log_schema, "spool": spool}
        flags["settings"] = configuration.parse_pairs(pairs or [])
        findings = list(examine(serve.effective_config(config, flags).config))
        if as_json:
            print_json([{**asdict(finding), "level": finding.level} for finding in findings])
        else:
            _print(findings)
        raise typer.Exit(next((finding.exit_code for finding in findings if not finding.ok), ExitCode.OK))


def examine(config: ServeConfig) -> Iterator[DoctorFinding]:
    """Run every check on a configuration, and yield the findings."""
    checks: tuple[tuple[str, Callable[[ServeConfig], str | Warned]], ...] = (
        ("versions", _versions),
        ("java", _java),
        ("adapter", _adapter),
        ("mapping", check_mappings),
        ("tls", _tls),
        ("keys", _keys),
        ("state", _state),
        ("log", _log),
        ("pipeline", _pipeline),
        ("address", _address),
    )
    for name, check in checks:
        try:
            answer = check(config)
            message, fix = answer if isinstance(answer, Warned) else (answer, "")
            yield DoctorFinding(name, True, message, fix)
        except ChangesourceError as error:
            yield DoctorFinding(name, False, str(error), error.fix or "see the message", error.exit_code)
        except OSError as error:
            yield DoctorFinding(name, False, str(error), "make that path usable", ExitCode.STATE)
    try:
        specs = source_specs(config)
    except ConfigurationError:
        return  # reported by the check `adapter`
    for spec in specs:
        yield from _upstream(spec)
    if config.sources:
        yield _names(specs)


def _upstream(source: SourceSpec) -> Iterator[DoctorFinding]:
    """Yield what the adapter finds wrong with its upstream. Bad settings are reported by the check `adapter`."""
    before = f"{source.name}: " if source.name else ""
    try:
        with opened(adapter_factory(source.adapter, source.settings)) as adapter:
            checks = list(adapter.examine()) if isinstance(adapter, Examining) else []
    except ConfigurationError:
        return
    except ChangesourceError as error:
        yield DoctorFinding(f"{before}store", False, str(error), error.fix or "see the message", error.exit_code)
        return
    for check in checks:
        code = 0 if check.ok else AdapterError.exit_code
        yield DoctorFinding(before + check.name, check.ok, check.message, check.fix, code)


def _names(specs: list[SourceSpec]) -> DoctorFinding:
    """Whether the tables of all sources that can be read have names of their own."""
    rows: list[SourceRow] = []
    unread: list[str] = []
    for spec in specs:
        try:
            with opened(spec.factory()) as adapter, adapter_call("tables()"):
                schema = checked_schema(checked_tables(adapter.tables()))
            rows.append(SourceRow(spec.name, schema=schema.to_json()))
        except ChangesourceError:
            unread.append(spec.name)
    try:
        merged_schemas(rows)
    except ChangesourceError as error:
        return DoctorFinding("names", False, str(error), error.fix, error.exit_code)
    without = f"; not checked, since they cannot be read: {', '.join(unread)}" if unread else ""
    return DoctorFinding("names", True, f"no table is in two of the sources{without}")


def _versions(config: ServeConfig) -> str:
    try:
        versions = [f"{name} {version(name)}" for name in NEEDED]
    except PackageNotFoundError as error:
        raise ChangesourceError(
            "missing-package", f"{error.name} is not installed", fix=f"pip install {error.name}"
        ) from None
    return f"Python {sys.version.split()[0]}, " + ", ".join(versions)


def _java(config: ServeConfig) -> str:
    if config.runner == "inline" or config.role == "endpoint":
        return "not needed"
    java = find_java()
    return f"Java {java.version}, {java.origin}"


def _adapter(config: ServeConfig) -> str:
    specs = source_specs(config)
    if not specs:
        return "none named, not checked"
    for spec in specs:
        with named_source(spec.name):
            try_settings(load_class(spec.adapter), spec.settings)
    if config.sources:
        listed = ", ".join(f"{spec.name} is {spec.adapter}" for spec in specs)
        return f"{listed}; the settings of each are complete"
    return f"{config.adapter} is {specs[0].adapter}, its settings are complete"


def _tls(config: ServeConfig) -> str:
    if not tls_context(config.tls_cert, config.tls_key, config.tls_client_ca):
        return "off"
    return "on, with client certificates" if config.tls_client_ca else "on"


def _keys(config: ServeConfig) -> str | Warned:
    names = KeyRing(config.api_key, config.api_key_file).names
    if names:
        return f"accepted: {', '.join(names)}"
    message = "none: anyone who reaches the address may read"
    if config.host in LOOPBACK or config.tls_client_ca is not None:
        return message
    return Warned(message, "set --api-key or --api-key-file, or ask for client certificates with --tls-client-ca")


def _state(config: ServeConfig) -> str:
    StateDirectory(config.state).create()
    free = shutil.disk_usage(config.state).free
    if free < LOW_DISK:
        raise StateError(
            "disk-low", f"only {free >> 20} MiB are free", str(config.state), "free some space, or move --state"
        )
    return f"{config.state} can be written, {free >> 30} GiB free"


def _log(config: ServeConfig) -> str | Warned:
    reader = open_store(config.state, config.log, config.log_schema, config.spool).open_log()
    try:
        state, counts = reader.state(), reader.kept_aside(0).counts
    finally:
        reader.close()
    if not state.generation:
        return "none yet, the first run makes it"
    said = f"generation {state.generation}, head {state.head}"
    if not counts:
        return said
    fix = "see changesource inspect; correct the rows upstream"
    return Warned(f"{said}; consumers did not get {sum(counts.values())} rows as they are upstream", fix)


def _pipeline(config: ServeConfig) -> str:
    store = open_store(config.state, config.log, config.log_schema, config.spool)
    try:
        stages = stages_only(store.reports.all())
    finally:
        store.close()
    for name, report in stages.items():
        if isinstance(error := report.get("error"), dict):
            raise ChangesourceError(
                str(error.get("code")), f"{name}: {error.get('message')}", fix=str(error.get("fix"))
            )
    return ", ".join(f"{name} {report.get('state')}" for name, report in stages.items()) or "has not run yet"


def _address(config: ServeConfig) -> str:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.host, config.port))
        except OSError as error:
            return _in_use(config, error)
    return f"{config.listen} is free"


def _in_use(config: ServeConfig, error: OSError) -> str:
    """Return that an endpoint of ours has the address. Raises `EndpointError` if another program has it."""
    try:
        fetch_status(config.listen)
    except EndpointError as answer:
        if answer.code != "refused" or "401" not in answer.message:
            reason = error.strerror or str(error)
            raise EndpointError("port-in-use", reason, config.listen, "choose another --listen address") from None
    return f"{config.listen} is served by a running endpoint"


def _print(findings: list[DoctorFinding]) -> None:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        mark = MARKS[finding.level]
        stdout.print(f"{mark} {finding.check:<{width}} ", end="")
        stdout.print(finding.message, markup=False)
        if finding.fix:
            stdout.print(f"     {'':<{width}} fix: {finding.fix}", markup=False)
