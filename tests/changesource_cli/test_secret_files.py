"""Secrets in files: for the log, for settings of adapters, and where both are set."""

from __future__ import annotations

from pathlib import Path

import pytest

from changesource_cli.adapter_choice import with_secret_files
from changesource_cli.commands.serve import effective_config
from changesource_sdk.config import load
from changesource_sdk.errors import ConfigurationError

URL = "postgresql://user:secret@host/db"


class Store:
    """Has a setting whose own name ends like a file's."""

    def __init__(self, url: str, password: str = "", key_file: str = "") -> None:
        pass


class OpenEnded:
    def __init__(self, url: str, **others: object) -> None:
        pass


def test_the_log_s_address_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text(f"{URL}\n")
    assert load(environment={"CHANGESOURCE_LOG_FILE": str(file)}, flags={}).config.log == URL
    assert load(toml=f'log_file = "{file}"', environment={}, flags={}).config.log == URL


def test_a_file_and_a_value_are_refused_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the value itself is set as well"):
        load(environment={"CHANGESOURCE_LOG_FILE": "x", "CHANGESOURCE_LOG": URL}, flags={})
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load(environment={"CHANGESOURCE_LOG_FILE": str(tmp_path / "absent")}, flags={})


def test_a_setting_of_an_adapter_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    path = str(file)
    assert with_secret_files(Store, {"password_file": path}) == {"password": "hunter2"}
    assert with_secret_files(Store, {"key_file": path}) == {"key_file": path}
    assert with_secret_files(OpenEnded, {"password_file": path, "ca_file": path}) == {
        "password": "hunter2",
        "ca_file": path,
    }
    with pytest.raises(ConfigurationError, match="the value itself is set as well"):
        with_secret_files(Store, {"password_file": path, "password": "x"})


def test_variables_of_settings_may_name_files_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "dsn"
    file.write_text(URL)
    monkeypatch.setenv("CHANGESOURCE_SET_DSN_FILE", str(file))
    assert effective_config(None, {"adapter": "postgres"}).config.settings == {"dsn": URL}
