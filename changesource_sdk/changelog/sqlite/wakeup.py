"""Wake-ups between the processes of one host: a datagram per reader after each commit.

A reader listens on a UDP port of the loopback interface and writes a file that is named after the port and has the
process id. The writer lists these files and sends one byte to each port.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from changesource_sdk.changelog.coordination.wakeup import WakeupListener
from changesource_sdk.changelog.files.disk import disk_errors
from service_kit.private_files import opener, own_folder

LOOPBACK = "127.0.0.1"


def listen(folder: Path) -> WakeupListener:
    """Listen on a free port of the loopback interface and write its file in `folder`; `close` removes the file."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listening.bind((LOOPBACK, 0))
    file = folder / str(listening.getsockname()[1])
    with disk_errors(folder):
        own_folder(folder)
        # Written under another name first: a sender that read half a process id would take the reader for dead.
        staged = file.with_name(f".{file.name}")
        with open(staged, "w", opener=opener) as content:
            content.write(str(os.getpid()))
        staged.replace(file)
    return WakeupListener(listening, lambda: file.unlink(missing_ok=True))


class WakeupSender:
    """Sends a wake-up to every reader. The constructor removes the files of readers whose process has ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._remove_dead()

    def send(self) -> None:
        """Send one byte to every reader; never blocks, never fails."""
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._folder):
                if name.isdigit():
                    with contextlib.suppress(OSError):
                        self._socket.sendto(b"!", (LOOPBACK, int(name)))

    def _remove_dead(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for file in self._folder.iterdir():
                if file.name.isdigit() and not _is_alive(file):
                    file.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def _is_alive(file: Path) -> bool:
    try:
        os.kill(int(file.read_text()), 0)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True
