"""Adapters are found by name or path, and their settings are judged before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from changesource_cli.adapter_choice import check_settings, load_class, resolve, try_settings, with_own_folder
from changesource_sdk.errors import ChangesourceError, ConfigurationError


class Store:
    """Just enough of an adapter."""

    def __init__(self, path: str, poll: float = 1.0) -> None:
        if path == "refused":
            raise ValueError("no such thing")
        self.closed = False

    def tables(self) -> None: ...

    def snapshot(self) -> None: ...

    def changes(self) -> None: ...


def code_and_fix(error: pytest.ExceptionInfo[ChangesourceError]) -> tuple[str, str]:
    return error.value.code, error.value.fix


def test_bundled_adapters_and_paths_resolve() -> None:
    assert resolve("memory") == "adapters.memory:MemoryAdapter"
    assert resolve("my.module:Thing") == "my.module:Thing"
    assert load_class(resolve("memory")).__name__ == "MemoryAdapter"


@pytest.mark.parametrize(
    ("name", "code", "hint"),
    [("memry", "unknown-adapter", "did you mean 'memory'?"), ("", "no-adapter", "memory")],
)
def test_unknown_names_get_the_nearest(name: str, code: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve(name)
    assert caught.value.code == code
    assert hint in caught.value.fix


@pytest.mark.parametrize(
    ("path", "code", "hint"),
    [
        ("no_such_module:X", "adapter-import", "install it"),
        ("adapters.memory:MemoryAdaptor", "adapter-import", "did you mean 'MemoryAdapter'?"),
        ("tests.regressions:X", "adapter-import", "define it there"),
        ("adapters.memory:MemoryStore", "not-an-adapter", "docs/reference/adapter.md"),
    ],
)
def test_paths_that_lead_nowhere_say_so(path: str, code: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_class(path)
    assert caught.value.code == code
    assert hint in caught.value.fix


def test_settings_are_compared_with_the_constructor() -> None:
    check_settings(Store, {"path": "a", "poll": "2"})
    with pytest.raises(ConfigurationError) as unknown:
        check_settings(Store, {"path": "a", "pol": "2"})
    assert code_and_fix(unknown) == ("unknown-setting", "did you mean 'poll'?")
    with pytest.raises(ConfigurationError) as missing:
        check_settings(Store, {})
    assert code_and_fix(missing) == ("missing-setting", "add --set path=…")


def test_settings_the_adapter_refuses_are_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="ValueError: no such thing"):
        try_settings(Store, {"path": "refused"})


@pytest.mark.parametrize(
    ("source", "code", "said", "fix"),
    [
        ("class Store: pass", "not-an-adapter", "no method tables, snapshot, changes", "changes(self, after)"),
        ("import nowhere_to_be_found", "adapter-import", "No module named 'nowhere_to_be_found'", "install it"),
        ("class Store:\n    def tables(self)\n", "adapter-import", "SyntaxError", "correct that line"),
        ("import os\nSTORE = os.environ['NOT_SET']", "adapter-import", "KeyError: 'NOT_SET'", "correct that line"),
        (
            "class Store:\n    tables = snapshot = lambda self: []\n    def changes(self): ...",
            "wrong-signature",
            "Store.changes cannot be called",
            "changes(self, after)",
        ),
    ],
)
def test_a_module_that_holds_no_usable_adapter_is_told_with_the_fix(
    source: str, code: str, said: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"store_{abs(hash(source))}"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigurationError) as raised:
        load_class(f"{name}:Store")
    assert raised.value.code == code
    assert said in raised.value.message
    assert fix in raised.value.fix


class Remembering:
    """An adapter that keeps things in a folder."""

    def __init__(self, state: str = "somewhere") -> None:
        self.state = state


def test_an_adapter_that_remembers_gets_a_folder_in_the_state_directory(tmp_path: Path) -> None:
    assert with_own_folder(Remembering, {}, tmp_path) == {"state": str(tmp_path / "adapter")}
    assert with_own_folder(Remembering, {"state": "/mine"}, tmp_path) == {"state": "/mine"}
    assert with_own_folder(Store, {"path": "x"}, tmp_path) == {"path": "x"}
