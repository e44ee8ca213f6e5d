"""The table of commands, and the options of `changesource` itself.

Only the module of the command that runs is imported: `serve` listens before the modules of `check` would be loaded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from changesource_cli.output import EXIT_CODES, print_json
from protocol.stream.handshake import PATHS, ZERO_RELEASES

NAMES = (
    "demo",
    "serve",
    "new",
    "cache",
    "check",
    "tail",
    "compact",
    "seed",
    "fetch-seed",
    "inspect",
    "skip",
    "verify",
    "replay",
    "doctor",
)
"""Every command, in the order of the help text. Each is a function of its module in `commands`, with _ for -."""


class Commands(Mapping[str, TyperCommand]):
    """The commands by name, each imported when it is first looked up."""

    def __getitem__(self, name: str) -> TyperCommand:
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


@functools.cache
def _load(name: str) -> TyperCommand:
    """Import one command. Raises `KeyError` for an unknown name."""
    match name:
        case "demo":
            from changesource_cli.commands import demo

            return _command(name, demo.demo, demo.EPILOG)
        case "serve":
            from changesource_cli.commands import serve

            return _command(name, serve.serve, serve.EPILOG, serve.ServeCommand)
        case "new":
            from changesource_cli.commands import new

            return _command(name, new.new, new.EPILOG)
        case "cache":
            from changesource_cli.commands import cache

            return _command(name, cache.cache, cache.EPILOG)
        case "check":
            from changesource_cli.commands import check

            return _command(name, check.check, check.EPILOG)
        case "tail":
            from changesource_cli.commands import tail

            return _command(name, tail.tail, tail.EPILOG)
        case "compact":
            from changesource_cli.commands import compact

            return _command(name, compact.compact, compact.EPILOG)
        case "seed":
            from changesource_cli.commands import seed

            return _command(name, seed.seed, seed.EPILOG)
        case "fetch-seed":
            from changesource_cli.commands import fetch_seed

            return _command(name, fetch_seed.fetch_seed, fetch_seed.EPILOG)
        case "inspect":
            from changesource_cli.commands import inspect

            return _command(name, inspect.inspect, inspect.EPILOG)
        case "skip":
            from changesource_cli.commands import skip

            return _command(name, skip.skip, skip.EPILOG)
        case "verify":
            from changesource_cli.commands import verify

            return _command(name, verify.verify, verify.EPILOG)
        case "replay":
            from changesource_cli.commands import replay

            return _command(name, replay.replay, replay.EPILOG)
        case "doctor":
            from changesource_cli.commands import doctor

            return _command(name, doctor.doctor, doctor.EPILOG)
    raise KeyError(name)


def _command(
    name: str, function: Callable[..., None], epilog: str, cls: type[TyperCommand] | None = None
) -> TyperCommand:
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name=name, cls=cls, epilog=epilog)(function)
    command = get_command(alone)
    assert isinstance(command, TyperCommand)
    return command


class CommandGroup(TyperGroup):
    """A group that can list its commands without importing them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": Commands()})

    def list_commands(self, ctx: object) -> list[str]:
        return list(NAMES)


app = typer.Typer(
    name="changesource",
    cls=CommandGroup,
    help="Put any datastore behind Rocicorp Zero.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def release() -> str:
    """Return the version of this distribution; `0+source` for a source tree that is not installed."""
    try:
        return version("zero-changesource")
    except PackageNotFoundError:
        return "0+source"


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and the supported Zero releases, and stop.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the version as JSON.")] = False,
) -> None:
    """Put any datastore behind Rocicorp Zero."""
    if not show_version:
        return
    if as_json:
        about = {"name": "zero-changesource", "version": release(), "paths": list(PATHS), "zero": list(ZERO_RELEASES)}
        print_json(about)
    else:
        typer.echo(f"changesource {release()}, for Zero {', '.join(ZERO_RELEASES)}")
    raise typer.Exit
