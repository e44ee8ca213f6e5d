"""Pokes across processes."""

import subprocess
import sys
from pathlib import Path

from changesource_sdk.changelog.wakeup import PokeReceiver, PokeSender


def test_a_poke_from_another_process_arrives(tmp_path: Path) -> None:
    receiver = PokeReceiver(tmp_path)
    script = "import sys; from pathlib import Path; from changesource_sdk.changelog.wakeup import PokeSender\n"
    script += "PokeSender(Path(sys.argv[1])).poke()"
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
    assert receiver.wait(60.0)
    assert not receiver.wait(0.0)
    receiver.close()


def test_many_pokes_are_one(tmp_path: Path) -> None:
    receiver, sender = PokeReceiver(tmp_path), PokeSender(tmp_path)
    for _ in range(5):
        sender.poke()
    assert receiver.wait(60.0)
    assert not receiver.wait(0.0)


def test_a_closed_receiver_leaves_no_file_and_a_dead_one_is_removed(tmp_path: Path) -> None:
    receiver = PokeReceiver(tmp_path)
    receiver.close()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "40000").write_text("999999999")
    (tmp_path / "40001").write_text("garbage")
    PokeSender(tmp_path).poke()
    assert list(tmp_path.iterdir()) == []


def test_poking_without_a_folder_is_harmless(tmp_path: Path) -> None:
    sender = PokeSender(tmp_path / "absent")
    sender.poke()
    sender.close()
    assert not (tmp_path / "absent").exists()
