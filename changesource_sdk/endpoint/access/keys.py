"""The API keys of an endpoint: named, compared in constant time, read again when their file changes.

A key file has one `name:key` per line; empty lines and lines that begin with `#` are skipped. The name is for logs and
metrics, the key is the secret. To rotate a key, add the new one, move consumers over, and remove the old one. If the
file becomes unreadable or wrong, the keys that were read before stay valid.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from changesource_sdk.errors import ConfigurationError

#: The name of the key of `--api-key`.
SINGLE = "api-key"
#: Shorter keys in a file are refused as a mistake.
SHORTEST = 8
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class KeyUse:
    """The key of a request: its name, and its digest, to check whether it is still valid after a rotation."""

    name: str
    digest: bytes


class KeyRing:
    """The valid keys. Invariant: they are replaced as a whole, and never become empty."""

    def __init__(self, single: str | None = None, file: Path | None = None) -> None:
        """Raises `ConfigurationError` if the file cannot be used."""
        self._single = {SINGLE: _digest(single.encode())} if single is not None else {}
        self._file = file
        # Inode, time and size of the file when it was last read; written by `refresh`, in a thread.
        self._stamp = _stamp(file)
        # Name -> digest; replaced as a whole by `refresh`, in a thread, and read on the event loop.
        self._digests = self._single | (read_keys(file) if file else {})

    def __bool__(self) -> bool:
        return bool(self._digests)

    def find(self, presented: Iterable[bytes]) -> KeyUse | None:
        """The valid key among the presented ones. The time taken does not depend on how much of a key is right."""
        match: KeyUse | None = None
        for key in presented:
            digest = _digest(key)
            for name, known in self._digests.items():
                if hmac.compare_digest(known, digest):
                    match = KeyUse(name, known)
        return match

    def holds(self, use: KeyUse) -> bool:
        """Whether this key is still valid."""
        return self._digests.get(use.name) == use.digest

    def refresh(self) -> bool:
        """Read the file again if it changed; returns whether the keys changed. Blocking.

        Raises `ConfigurationError` and keeps the old keys if the file cannot be used.
        """
        if self._file is None or (stamp := _stamp(self._file)) == self._stamp:
            return False
        digests = self._single | read_keys(self._file)
        changed = digests != self._digests
        self._digests, self._stamp = digests, stamp
        return changed

    @property
    def names(self) -> list[str]:
        """The names of the valid keys."""
        return sorted(self._digests)


def read_keys(file: Path) -> dict[str, bytes]:
    """The digests of a file's keys by name. Raises `ConfigurationError`, which contains no part of a line."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise _bad(file, f"cannot read the API keys: {reason}") from None
    return {name: _digest(key.encode()) for name, key in parse_keys(text, file).items()}


def parse_keys(text: str, file: Path) -> Mapping[str, str]:
    """The keys of a key file's text by name. Raises `ConfigurationError`, which contains no part of a line."""
    keys: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, key = (part.strip() for part in line.partition(":"))
        if not colon or not _NAME.fullmatch(name):
            raise _bad(file, f"line {number} is not name:key; a name has 1 to 64 letters, digits, '.', '_' or '-'")
        if len(key) < SHORTEST:
            raise _bad(file, f"line {number}: the key has fewer than {SHORTEST} characters")
        if name in keys or name == SINGLE:
            raise _bad(file, f"line {number}: the name {name!r} is taken")
        keys[name] = key
    if not keys:
        raise _bad(file, "there is no key in the file")
    return keys


def _bad(file: Path, message: str) -> ConfigurationError:
    return ConfigurationError("bad-key-file", message, str(file), "write one name:key per line")


def _digest(key: bytes) -> bytes:
    return sha256(key).digest()


def _stamp(file: Path | None) -> tuple[int, int, int] | None:
    """Inode, time and size, which change when a file is written or replaced; None if there is no file."""
    try:
        status = file.stat() if file is not None else None
    except OSError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size) if status else None
