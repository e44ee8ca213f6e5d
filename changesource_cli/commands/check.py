"""`changesource check`: whether an adapter, or an endpoint in any language, keeps the rules.

An adapter is checked by the cases of the conformance suite that only read, then served by a temporary pipeline and
endpoint, which is checked from outside like any other; nothing is written to its upstream. A harness makes its own
upstreams, so the whole suite is run on it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from changesource_cli.adapter_choice import import_class
from changesource_cli.checks.adapter_check import check_adapter
from changesource_cli.checks.findings import print_repeated, print_verdict
from changesource_cli.checks.suite_check import check_suite
from changesource_cli.commands.serve import CONFIG_VARIABLE, Pairs, effective_config
from changesource_cli.output import ExitCode, print_json, reported, stderr, stdout
from changesource_sdk import config as configuration
from changesource_sdk.checking.connecting import stream_url
from changesource_sdk.checking.endpoint import check_endpoint
from changesource_sdk.checking.endpoint_run import APP, CheckSettings
from changesource_sdk.checking.verdict import CheckVerdict
from changesource_sdk.errors import ConfigurationError
from changesource_sdk.testing.conformance.harness import Harness
from service_kit.suggestions import nearest

EPILOG = "\n\n".join(
    (
        "Exit codes: 0 nothing is broken, 1 a rule is broken, 2 usage or settings, "
        "5 the endpoint cannot be reached, 130 interrupted. What could not be tried is reported as 'not seen' and "
        "is no failure.",
        "Examples:",
        "changesource check ws://127.0.0.1:4810/changes/v0/stream",
        "changesource check my_store:MyAdapter --set path=data",
        "changesource check sqlite --set path=app.db --json",
        "changesource check tests.harness:MyHarness",
        "changesource check crm --config changesource.toml",
    )
)


def check(
    target: Annotated[
        str,
        typer.Argument(
            help="Endpoint (ws://…, host:port), adapter as for serve, or module:Harness; else the file's adapter."
        ),
    ] = "",
    pairs: Pairs = None,
    config: Annotated[Path | None, typer.Option(envvar=CONFIG_VARIABLE, help="TOML file, as for serve.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Longest time for the whole check.")] = 60.0,
    watch: Annotated[float, typer.Option(min=0.0, help="Seconds to listen for changes on a live stream.")] = 3.0,
    app: Annotated[str, typer.Option(help="App id of the check; a separate one leaves other acks alone.")] = APP,
    shard: Annotated[int, typer.Option(min=0, help="Shard of the check.")] = 0,
    resets: Annotated[
        bool, typer.Option("--resets", help="Also run cases that may make the endpoint reset all its consumers.")
    ] = False,
    acks: Annotated[
        bool,
        typer.Option("--acks/--no-acks", help="Whether to acknowledge; an endpoint records each consumer that does."),
    ] = True,
    transcript: Annotated[
        Path | None, typer.Option(help="Write every frame to this file; frame N is its line N.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one document with every verdict.")] = False,
) -> None:
    """Check an adapter, or any running endpoint, against the rules of the protocol."""
    with reported(as_json=as_json):
        settings = configuration.parse_pairs(pairs or [])
        if not target or not is_endpoint(target):
            target, settings = _adapter_of(target, settings, config)
        options = CheckSettings(target, app, shard, seconds, watch, resets=resets, acks=acks)
        with _transcript(transcript) as keep, _progress(as_json=as_json) as report_progress:
            verdicts = asyncio.run(_gather(_verdicts(options, settings, keep, report_progress), as_json))
        if as_json:
            is_ok = all(verdict.outcome != "broken" for verdict in verdicts)
            print_json({"target": target, "ok": is_ok, "verdicts": [verdict.as_json() for verdict in verdicts]})
        else:
            _print_counts(verdicts)
        raise typer.Exit(ExitCode.FAILURE if any(v.outcome == "broken" for v in verdicts) else ExitCode.OK)


def _adapter_of(target: str, settings: dict[str, object], path: Path | None) -> tuple[str, dict[str, object]]:
    """Return the adapter and its settings: of the source that the target names, else as for serve."""
    sources = effective_config(path, {}).config.sources if path is not None else {}
    if target in sources:
        return sources[target].adapter, {**sources[target].settings, **settings}
    if sources:
        fix = nearest(target, list(sources))
        raise ConfigurationError("unknown-source", f"no source is called {target!r}", str(path), fix)
    effective = effective_config(path, {"adapter": target or None, "settings": settings}).config
    return effective.adapter, dict(effective.settings)


def is_endpoint(target: str) -> bool:
    """Whether a target names an endpoint: it has a scheme, or is host:port."""
    return "://" in target or target.rpartition(":")[2].isdigit()


def _verdicts(
    options: CheckSettings,
    settings: dict[str, object],
    keep: Callable[[bytes], None],
    report_progress: Callable[[str], None],
) -> AsyncIterator[CheckVerdict]:
    if not is_endpoint(options.url):
        if ":" in options.url and issubclass(target := import_class(options.url), Harness):
            return check_suite(target, report_progress)
        return check_adapter(options.url, settings, options, keep=keep, report_progress=report_progress)
    if settings:
        raise ConfigurationError(
            "no-settings", "an endpoint takes no settings", "--set", "give an adapter, or no --set"
        )
    return check_endpoint(replace(options, url=stream_url(options.url)), keep=keep, report_progress=report_progress)


async def _gather(stream: AsyncIterator[CheckVerdict], as_json: bool) -> list[CheckVerdict]:
    """Collect the verdicts; print each at once unless they will be printed as one document.

    What fails for the same reason as a case before is printed as one line at the end.
    """
    verdicts: list[CheckVerdict] = []
    same: dict[str, list[CheckVerdict]] = {}
    async for verdict in stream:
        verdicts.append(verdict)
        reason = "\n".join(finding.message for finding in verdict.findings)
        alike = same.setdefault(reason, []) if reason else []
        alike.append(verdict)
        if not as_json and len(alike) == 1:
            print_verdict(verdict)
    if not as_json:
        for first, *others in same.values():
            if others:
                print_repeated(first, others)
    return verdicts


def _print_counts(verdicts: list[CheckVerdict]) -> None:
    counts = {outcome: sum(v.outcome == outcome for v in verdicts) for outcome in ("ok", "broken", "not seen")}
    stdout.print(", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count), markup=False)


@contextmanager
def _transcript(path: Path | None) -> Iterator[Callable[[bytes], None]]:
    """Open the transcript's file, if any; gives the function that writes a line. Raises `ConfigurationError`."""
    if path is None:
        yield lambda line: None
        return
    try:
        file = path.open("wb")
    except OSError as error:
        raise ConfigurationError(
            "transcript", f"cannot write: {error.strerror}", str(path), "correct --transcript"
        ) from None
    with file:

        def keep(line: bytes) -> None:
            file.write(line)

        yield keep


@contextmanager
def _progress(*, as_json: bool) -> Iterator[Callable[[str], None]]:
    """Show what is being checked now, on a terminal only; gives the function that changes the text."""
    if as_json or not sys.stderr.isatty():
        yield lambda text: None
        return
    with stderr.status("starting") as status:
        yield status.update
