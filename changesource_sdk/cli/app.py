"""The commands, gathered; and the options every command line is expected to have."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from changesource_sdk.cli import doctor, inspect, serve, tail
from changesource_sdk.cli.output import EXIT_CODES, print_json

app = typer.Typer(
    name="changesource",
    help="Put any datastore behind Rocicorp Zero.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command(name="serve", cls=serve.ServeCommand, epilog=serve.EPILOG)(serve.serve)
app.command(name="tail", epilog=tail.EPILOG)(tail.tail)
app.command(name="inspect", epilog=inspect.EPILOG)(inspect.inspect)
app.command(name="doctor", epilog=doctor.EPILOG)(doctor.doctor)


def release() -> str:
    """The version of this distribution; `0+source` for a tree that is not installed."""
    try:
        return version("zero-changesource")
    except PackageNotFoundError:
        return "0+source"


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"changesource {release()}")
        raise typer.Exit


def _print_version_json(wanted: bool) -> None:
    if wanted:
        print_json({"name": "zero-changesource", "version": release(), "protocol": ["v0"]})
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    show_version_json: Annotated[
        bool,
        typer.Option("--version-json", callback=_print_version_json, is_eager=True, help="The same, as JSON."),
    ] = False,
) -> None:
    """Put any datastore behind Rocicorp Zero."""
