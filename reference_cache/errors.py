"""What can be wrong with a cache for which its operator has a remedy; texts come out redacted."""

from __future__ import annotations

from protocol.redaction import redact


class CacheError(Exception):
    """What happened, where, and what to do next; `code` is stable, texts may improve."""

    def __init__(self, code: str, message: str, where: str = "", fix: str = "") -> None:
        super().__init__(code, redact(message), redact(where), redact(fix))
        self.code = code
        self.message = redact(message)
        self.where = redact(where)
        self.fix = redact(fix)

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.code}: {self.message}{place}"


class BadSetting(CacheError):
    """A variable that is missing, or that has a value it cannot have."""

    def __init__(self, variable: str, message: str, fix: str) -> None:
        super().__init__("bad-setting", message, variable, fix)
