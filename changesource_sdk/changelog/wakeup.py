"""Pokes: the writer tells waiting readers, in other processes, that the log moved.

A reader listens on a UDP port of the loopback interface and leaves a file named after the port; the writer sends one
byte to each after a commit. A poke carries no data and may be lost, so readers also look by themselves every second: a
lost poke costs latency, never a transaction. No reader, no cost beyond listing an empty folder.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.wakeup_listener import SocketEar
from service_kit.private_files import opener, own_folder

LOOPBACK = "127.0.0.1"


class PokeReceiver(SocketEar):
    """An `Ear` on the loopback interface."""

    def __init__(self, folder: Path) -> None:
        super().__init__(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._socket.bind((LOOPBACK, 0))
        self._file = folder / str(self._socket.getsockname()[1])
        with disk_errors(folder):
            own_folder(folder)
            staged = self._file.with_name(f".{self._file.name}")
            with open(staged, "w", opener=opener) as file:
                file.write(str(os.getpid()))
            staged.replace(self._file)

    def close(self) -> None:
        """Stop listening."""
        self._file.unlink(missing_ok=True)
        super().close()


class PokeSender:
    """The writer's voice; forgets readers whose process is gone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._remove_dead()

    def poke(self) -> None:
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
        """Let go of the socket."""
        self._socket.close()


def _is_alive(file: Path) -> bool:
    try:
        os.kill(int(file.read_text()), 0)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True
