"""Private files and folders; what they protect is tested in changesource_sdk/changelog/files/test_private.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from service_kit.private_files import new_folder, own_folder, private_database, private_file


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_file_is_made_private_and_its_content_kept(tmp_path: Path) -> None:
    path = tmp_path / "x"
    private_file(path)
    assert mode(path) == 0o600
    path.write_text("kept")
    path.chmod(0o644)
    private_file(path)
    assert (mode(path), path.read_text()) == (0o600, "kept")


def test_a_database_that_cannot_be_made_is_left_for_sqlite_to_report(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        private_file(tmp_path / "none" / "db")
    private_database(tmp_path / "none" / "db")


def test_only_our_own_folder_is_narrowed(tmp_path: Path) -> None:
    for make, expected in ((new_folder, 0o755), (own_folder, 0o700)):
        path = tmp_path / make.__name__
        path.mkdir(mode=0o755)
        make(path)
        assert mode(path) == expected
    new_folder(tmp_path / "a" / "b")
    assert mode(tmp_path / "a" / "b") == 0o700
