"""Notes between the processes of one host, as small JSON files that are replaced whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from changesource_sdk.changelog.coordination.contract import Note, NoteKind
from changesource_sdk.changelog.files.atomic_json import read_json, write_json
from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.errors import StateError


class _Form(NamedTuple):
    """The names of a note's two values in its file."""

    watermark: str
    text: str


_FORMS = {
    "snapshot": _Form("above", "reason"),
    "prune": _Form("below", ""),
    "offer": _Form("directory", "base"),
    "skip": _Form("", "skips"),
    "seeds": _Form("newest", "seeds"),
}
_DURABLE = ("offer", "skip", "seeds")
"""Notes that are synced: what an offer names took long to make, a skip is an operator's decision, and a seed is lost
without the log after it.
"""


@dataclass(frozen=True, slots=True)
class FileNotes:
    """`Notes` of the kind "requests". `reports.Reports` writes files itself, so notes of that kind do nothing here.

    `only_higher` and `below` are compared before the file is replaced, without a lock. Endpoints of one host rarely
    write a request at the same moment, and one whose request was replaced writes it again.
    """

    layout: StateDirectory

    def leave(self, kind: NoteKind, name: str, note: Note, *, only_higher: bool = False) -> None:
        """Replace the file of a note."""
        if kind == "reports":
            return
        if only_higher and (pending := self._read(name)) is not None and pending.watermark >= note.watermark:
            return
        form, path = _FORMS[name], self._path(name)
        content = {key: value for key, value in zip(form, note, strict=True) if key}
        if name in _DURABLE:
            with disk_errors(path.parent):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, content, durable=True)
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, content)
        except OSError as error:
            raise StateError(
                "request-not-written",
                f"cannot leave a request for the pipeline: {error.strerror or error}",
                str(path.parent),
                "make room there, or make it writable",
            ) from error

    def notes(self, kind: NoteKind, name: str | None = None) -> dict[str, Note]:
        """The notes whose files can be read."""
        if kind == "reports":
            return {}
        read = {each: self._read(each) for each in ([name] if name else _FORMS)}
        return {each: note for each, note in read.items() if note is not None}

    def remove(self, kind: NoteKind, name: str, *, below: str | None = None) -> Note | None:
        """Delete the file of a note, or leave it if its watermark is not below."""
        note = self._read(name)
        if note is None or (below is not None and note.watermark >= below):
            return None
        self._path(name).unlink(missing_ok=True)
        return note

    def _read(self, name: str) -> Note | None:
        form, content = _FORMS[name], read_json(self._path(name))
        return None if content is None else Note(str(content.get(form.watermark, "")), str(content.get(form.text, "")))

    def _path(self, name: str) -> Path:
        # The offer of a compacted snapshot is next to its folder, on the spool's disk, which hosts may share.
        folder = self.layout.compaction if name == "offer" else self.layout.requests
        return folder / f"{name}.json"
