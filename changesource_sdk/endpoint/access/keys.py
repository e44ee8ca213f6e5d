"""The API keys of an endpoint: by name, compared in constant time, read again when their file changes.

A key file has one `name:key` per line; empty lines and lines that begin with `#` are skipped. The name is for logs and
metrics, the key is the secret. Keys are rotated by adding the new one, moving consumers over, and removing the old
one. A file that becomes unreadable or wrong leaves the keys that were read before in force.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from changesource_sdk.errors import ConfigurationError

#: The name of the key that `--api-key` gives.
SINGLE = "api-key"
#: Shorter keys in a file are taken for a mistake.
SHORTEST = 8
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class KeyUse:
    """The key a request came with: its name, and a digest by which it is found again after a rotation."""

    name: str
    digest: bytes


class KeyRing:
    """The keys in force. Invariant: they change as a whole, and once there were any there is always one."""

    def __init__(self, single: str | None = None, file: Path | None = None) -> None:
        """Raises `ConfigurationError` if the file cannot be used."""
        self._single = {SINGLE: _digest(single.encode())} if single is not None else {}
        self._file = file
        self._stamp = _stamp(file)  # of the file's content as it was last read
        self._digests = self._single | (read_keys(file) if file else {})  # name -> digest, replaced by `refresh`

    def __bool__(self) -> bool:
        return bool(self._digests)

    def find(self, presented: Iterable[bytes]) -> KeyUse | None:
        """The key that one of these is. The time taken does not depend on how much of a key is right."""
        found: KeyUse | None = None
        for key in presented:
            digest = _digest(key)
            for name, known in self._digests.items():
                if hmac.compare_digest(known, digest):
                    found = KeyUse(name, known)
        return found

    def holds(self, use: KeyUse) -> bool:
        """Whether this key is still in force under its name."""
        return self._digests.get(use.name) == use.digest

    def refresh(self) -> bool:
        """Read the file again if it changed; whether the keys did. Keeps the old keys if it raises
        `ConfigurationError`.
        """
        if self._file is None or (stamp := _stamp(self._file)) == self._stamp:
            return False
        digests = self._single | read_keys(self._file)
        changed = digests != self._digests
        self._digests, self._stamp = digests, stamp
        return changed

    @property
    def names(self) -> list[str]:
        """The names of the keys in force."""
        return sorted(self._digests)


def read_keys(file: Path) -> dict[str, bytes]:
    """The digests of the keys in a file, by name. Raises `ConfigurationError`, which never shows a line's content."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise _bad(file, f"cannot read the API keys: {reason}") from None
    return {name: _digest(key.encode()) for name, key in parse_keys(text, file).items()}


def parse_keys(text: str, file: Path) -> Mapping[str, str]:
    """The keys in the text of a key file, by name. Raises `ConfigurationError`, which never shows a line's content."""
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
    """What differs when a file was written or replaced; None if it is not there."""
    try:
        found = file.stat() if file is not None else None
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size) if found else None
