"""The commands, gathered; and the options every command line is expected to have.

A command's module is imported when the command is asked for: `serve` listens before the modules of `check` would have
been read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from changesource_cli.output import EXIT_CODES, print_json
from protocol.handshake import PATHS

NAMES = ("demo", "serve", "new", "cache", "check", "tail", "compact", "inspect", "verify", "replay", "doctor")
"""Each a module of `commands`, with a function of that name, an `EPILOG` and, if it has one, a `COMMAND` class."""
ELSEWHERE = {"demo": "changesource_demo.command"}
"""Commands whose module is not in `commands`."""


@cache
def _command(name: str) -> Any:
    module = import_module(ELSEWHERE.get(name, f"changesource_cli.commands.{name}"))
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name=name, cls=getattr(module, "COMMAND", None), epilog=module.EPILOG)(getattr(module, name))
    return get_command(alone)


class Commands(Mapping[str, Any]):
    """The commands by name, in the order in which help lists them."""

    def __getitem__(self, name: str) -> Any:
        if name not in NAMES:
            raise KeyError(name)
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


class CommandGroup(TyperGroup):
    """A group that knows its commands' names without having imported them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": Commands()})

    def list_commands(self, ctx: Any) -> list[str]:
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
    """The version of this distribution; `0+source` for a tree that is not installed."""
    try:
        return version("zero-changesource")
    except PackageNotFoundError:
        return "0+source"


@app.callback()
def options(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the version as JSON.")] = False,
) -> None:
    """Put any datastore behind Rocicorp Zero."""
    if not show_version:
        return
    if as_json:
        print_json({"name": "zero-changesource", "version": release(), "paths": list(PATHS)})
    else:
        typer.echo(f"changesource {release()}")
    raise typer.Exit
