"""The commands, gathered; and the options every command line is expected to have."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from changesource_sdk.cli import cache, check, compact, demo, doctor, inspect, new, replay, serve, tail, verify
from changesource_sdk.cli.output import EXIT_CODES, print_json
from protocol.handshake import PATHS

app = typer.Typer(
    name="changesource",
    help="Put any datastore behind Rocicorp Zero.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(name="demo", epilog=demo.EPILOG)(demo.demo)
app.command(name="serve", cls=serve.ServeCommand, epilog=serve.EPILOG)(serve.serve)
app.command(name="new", epilog=new.EPILOG)(new.new)
app.command(name="cache", epilog=cache.EPILOG)(cache.cache)
app.command(name="check", epilog=check.EPILOG)(check.check)
app.command(name="tail", epilog=tail.EPILOG)(tail.tail)
app.command(name="compact", epilog=compact.EPILOG)(compact.compact)
app.command(name="inspect", epilog=inspect.EPILOG)(inspect.inspect)
app.command(name="verify", epilog=verify.EPILOG)(verify.verify)
app.command(name="replay", epilog=replay.EPILOG)(replay.replay)
app.command(name="doctor", epilog=doctor.EPILOG)(doctor.doctor)


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
