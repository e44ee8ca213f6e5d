"""API keys by name, from a file that may change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from changesource_sdk.endpoint.access.keys import KeyRing, parse_keys
from changesource_sdk.errors import ConfigurationError

FILE = Path("keys")


def test_a_file_has_a_name_and_a_key_per_line() -> None:
    text = "# who may read\n\nstaging: first-secret \nprod-2:second:with:colons\n"
    assert parse_keys(text, FILE) == {"staging": "first-secret", "prod-2": "second:with:colons"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no key"),
        ("# nothing\n", "no key"),
        ("just-a-secret-key", "line 1"),
        ("a:long-enough\nb c:long-enough", "line 2"),
        (f"{'n' * 65}:long-enough", "line 1"),
        ("a:short", "fewer than 8"),
        ("a:long-enough\na:other-secret", "taken"),
        ("api-key:long-enough", "taken"),
    ],
)
def test_a_wrong_file_is_told_by_line_and_never_shown(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        parse_keys(text, FILE)
    assert "secret" not in str(caught.value)
    assert "enough" not in str(caught.value)


def test_the_name_of_a_presented_key_is_found(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("a:key-of-alice\nb:key-of-bob\n")
    ring = KeyRing("single", file)
    for presented, name in ((b"key-of-bob", "b"), (b"key-of-alice", "a"), (b"single", "api-key")):
        use = ring.find([b"wrong", presented])
        assert use is not None
        assert use.name == name
    assert ring.find([b"key-of-alic", b""]) is None
    assert not KeyRing()


def rewrite(file: Path, text: str) -> None:
    file.write_text(text)
    stamp = file.stat()
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 1_000_000))


def test_rotation_adds_the_new_key_and_withdraws_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("a:first-key\n")
    ring = KeyRing(None, file)
    old = ring.find([b"first-key"])
    assert old is not None
    assert not ring.refresh(), "nothing has changed"
    rewrite(file, "a:first-key\na2:second-key\n")
    assert ring.refresh()
    assert ring.holds(old)
    rewrite(file, "a:second-key\n")
    assert ring.refresh()
    assert not ring.holds(old), "the name is the same, the key is not"
    assert ring.find([b"second-key"]) is not None


def test_a_file_that_goes_wrong_leaves_the_keys_in_force(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("a:first-key\n")
    ring = KeyRing(None, file)
    rewrite(file, "")
    with pytest.raises(ConfigurationError):
        ring.refresh()
    file.unlink()
    with pytest.raises(ConfigurationError):
        ring.refresh()
    assert ring.find([b"first-key"]) is not None
