"""What the commands print, and their exit codes.

Text for people; with `--json`, one JSON document, or one per line. A `ChangesourceError` is something the user can fix:
it is printed as what happened, where, and the fix, never as a stack trace.
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
    "Exit codes: 0 ok, 1 failure, 2 usage or configuration, 3 upstream or adapter refused, "
    "4 state directory or log, 5 endpoint or port, 130 interrupted."
)

stdout = Console(highlight=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(value: object) -> None:
    """Print a value as one line of JSON on standard output, and flush."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def print_error(error: ChangesourceError, *, as_json: bool) -> None:
    """Print an error on standard error, as text or as one line of JSON."""
    if as_json:
        sys.stderr.write(json.dumps({"error": error.as_json()}, ensure_ascii=False) + "\n")
        return
    where = f" ({error.where})" if error.where else ""
    stderr.print(f"[bold red]error\\[{error.code}][/]: ", end="")
    stderr.print(error.message + where, markup=False)
    if error.fix:
        stderr.print("[bold]fix[/]: ", end="")
        stderr.print(error.fix, markup=False)


@contextmanager
def reported(*, as_json: bool) -> Iterator[None]:
    """Print the errors of a command and raise `typer.Exit` with their exit code."""
    try:
        yield
    except ChangesourceError as error:
        print_error(error, as_json=as_json)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        # The reader of our output has exited (`… | head`). Python would print a second error for stderr at exit.
        sys.stderr.close()
        raise typer.Exit(ExitCode.OK) from None
