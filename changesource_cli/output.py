"""What the commands print, and the exit codes they end with.

Text for people, one JSON document (or one per line) for machines. A `ChangesourceError` is a user's business: it is
printed as what happened, where, and the fix, and never as a stack trace.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import typer
from rich.console import Console

from changesource_sdk.errors import ChangesourceError


class ExitCode(IntEnum):
    """How a command ended; documented in `--help`."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    ADAPTER = 3
    STATE = 4
    ENDPOINT = 5
    INTERRUPTED = 130


EXIT_CODES = (
    "Exit codes: 0 ok, 1 failure, 2 usage or configuration, 3 store or adapter refused, "
    "4 state directory or log, 5 endpoint or port, 130 interrupted."
)

stdout = Console(highlight=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(value: object) -> None:
    """One JSON document on one line of standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def print_error(error: ChangesourceError, *, as_json: bool) -> None:
    """The error on standard error, in the shape the caller asked for."""
    if as_json:
        sys.stderr.write(json.dumps({"error": error.as_json()}, ensure_ascii=False) + "\n")
        return
    place = f" ({error.where})" if error.where else ""
    stderr.print(f"[bold red]error\\[{error.code}][/]: ", end="")
    stderr.print(error.message + place, markup=False)
    if error.fix:
        stderr.print("[bold]fix[/]: ", end="")
        stderr.print(error.fix, markup=False)


@contextmanager
def reported(*, as_json: bool) -> Iterator[None]:
    """Turn the errors of a command into their message and exit code."""
    try:
        yield
    except ChangesourceError as error:
        print_error(error, as_json=as_json)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        # The reader of our output has gone (`… | head`): nothing is left to say, and nobody to say it to.
        sys.stderr.close()
        raise typer.Exit(ExitCode.OK) from None
