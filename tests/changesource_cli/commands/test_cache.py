"""`changesource cache`: settings, errors with remedies, and a clean end."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from changesource_cli.app import app
from tests.support.child_process import ChildProcess
from tests.support.peers.reference_cache import ReferenceCache
from tests.support.ports import free_port

UPSTREAM = "ws://127.0.0.1:9/changes/v0/stream"


def shown(*arguments: str, **variables: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["cache", *arguments], env=variables)
    return result.exit_code, result.output


def test_every_setting_is_shown_and_no_secret() -> None:
    given = {"ZERO_UPSTREAM_DB": f"{UPSTREAM}?apiKey=hush", "ZERO_PORT": "4999", "ZERO_NUM_SYNC_WORKERS": "2"}
    code, text = shown("--show-config", "--json", **given)
    document = json.loads(text)
    assert code == 0
    assert document["settings"]["ZERO_PORT"] == "4999"
    assert document["unused"] == ["ZERO_NUM_SYNC_WORKERS"]
    assert "hush" not in text
    assert "not used here: ZERO_NUM_SYNC_WORKERS" in shown("--show-config", **given)[1]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"ZERO_UPSTREAM_DB": ""}, "ZERO_UPSTREAM_DB"),
        ({"ZERO_UPSTREAM_DB": UPSTREAM, "ZERO_PORT": "x"}, "set ZERO_PORT to"),
        ({"ZERO_UPSTREAM_DB": UPSTREAM, "ZERO_PROT": "1"}, "did you mean ZERO_PORT?"),
        ({"ZERO_UPSTREAM_DB": UPSTREAM, "ZERO_AUTH_JWK": '{"kty":"OKP"}'}, "ZERO_AUTH_JWK"),
    ],
)
def test_a_bad_setting_is_told_with_its_remedy(variables: dict[str, str], message: str) -> None:
    code, text = shown(**variables)
    assert code == 2
    assert message in text


def test_a_port_in_use_is_told_with_its_remedy(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, text = shown(
            ZERO_UPSTREAM_DB=UPSTREAM,
            ZERO_PORT=str(taken.getsockname()[1]),
            ZERO_REPLICA_FILE=str(tmp_path / "replica.db"),
            CHANGESOURCE_CACHE_HOST="127.0.0.1",
        )
    assert code == 5
    assert "port-in-use" in text
    assert "ZERO_PORT" in text


def test_a_missing_extra_is_told_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "reference_cache.cache", raising=False)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    code, text = shown(ZERO_UPSTREAM_DB=UPSTREAM, ZERO_REPLICA_FILE=str(tmp_path / "replica.db"))
    assert code == 2
    assert "missing-extra" in text
    assert "the cache needs aiohttp" in text
    assert "zero-changesource[cache]" in text


def test_a_cache_without_its_source_listens_is_not_ready_and_ends_when_told(tmp_path: Path) -> None:
    with ReferenceCache(f"ws://127.0.0.1:{free_port()}/changes/v0/stream", tmp_path) as cache:
        cache.launch().wait_for_line('"event": "listening"')
        cache.process.wait_for_line("replication failed")
        assert cache.status()["ready"] is False
        assert cache.stop() == 0
        assert cache.process.tree() == []


def test_a_file_that_is_no_replica_ends_the_command(tmp_path: Path) -> None:
    file = tmp_path / "replica.db"
    file.write_text("these are not the bytes of a database, and nobody wants to lose them" * 100)
    env = {"ZERO_UPSTREAM_DB": UPSTREAM, "ZERO_REPLICA_FILE": str(file), "ZERO_PORT": "0"}
    with ChildProcess([sys.executable, "-m", "changesource_cli", "cache"], env=env) as process:
        assert process.wait() == 5
        assert "ZERO_REPLICA_FILE" in process.tail()
    assert file.read_text().startswith("these are not")
