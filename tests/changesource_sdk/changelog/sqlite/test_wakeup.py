"""Wake-ups across processes."""

import subprocess
import sys
from pathlib import Path

from changesource_sdk.changelog.sqlite.wakeup import WakeupSender, listen


def test_a_wake_up_from_another_process_arrives(tmp_path: Path) -> None:
    listener = listen(tmp_path)
    script = "import sys; from pathlib import Path; from changesource_sdk.changelog.sqlite.wakeup import WakeupSender\n"
    script += "WakeupSender(Path(sys.argv[1])).send()"
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
    assert listener.wait(60.0)
    assert not listener.wait(0.0)
    listener.close()


def test_many_wake_ups_are_one(tmp_path: Path) -> None:
    listener, sender = listen(tmp_path), WakeupSender(tmp_path)
    for _ in range(5):
        sender.send()
    assert listener.wait(60.0)
    assert not listener.wait(0.0)


def test_a_closed_listener_leaves_no_file_and_a_dead_one_is_removed(tmp_path: Path) -> None:
    listener = listen(tmp_path)
    listener.close()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "40000").write_text("999999999")
    (tmp_path / "40001").write_text("garbage")
    WakeupSender(tmp_path).send()
    assert list(tmp_path.iterdir()) == []


def test_sending_without_a_folder_is_harmless(tmp_path: Path) -> None:
    sender = WakeupSender(tmp_path / "absent")
    sender.send()
    sender.close()
    assert not (tmp_path / "absent").exists()
