"""Errors that a user can act on: a stable code, what happened, where, and how to fix it.

Codes are part of the public interface: texts may improve, codes stay. Texts are redacted: they may quote a driver's
message, and that may quote a password.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from protocol.redaction import redact

Cause = TypeVar("Cause", bound=Exception)


class CodedError(Exception):
    """Base of `ChangesourceError` and `CacheError`. `where` and `fix` may be empty."""

    def __init__(self, code: str, message: str, where: str = "", fix: str = "") -> None:
        super().__init__(code, redact(message), redact(where), redact(fix))
        self.code = code
        self.message = redact(message)
        self.where = redact(where)
        self.fix = redact(fix)

    def __str__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        return f"{self.code}: {self.message}{where}"

    def as_json(self) -> dict[str, str]:
        """The fields as they are in stage files and `--json` output."""
        return {"code": self.code, "message": self.message, "where": self.where, "fix": self.fix}


@contextmanager
def translated_errors(kind: type[Cause], translate: Callable[[Cause], Exception]) -> Iterator[None]:
    """Raise `translate(error)` for an error of this kind in the block."""
    try:
        yield
    except kind as error:
        raise translate(error) from error
