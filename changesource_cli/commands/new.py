"""`changesource new`: a project for a new adapter, which can be installed and passes its tests unchanged.

The template is a working project called `my_store`, which is copied under the new name. Existing files are never
changed.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from changesource_cli.output import print_json, reported, stdout
from changesource_sdk.errors import ConfigurationError

EPILOG = "Examples:\n\nchangesource new ticket_store\n\nchangesource new ticket_store --into ~/projects"
TEMPLATE = ("changesource_sdk", "templates", "project")
HIDDEN = {"gitignore": ".gitignore", "github": ".github"}
"""Names that begin with a dot in a project; in the template they would affect this repository."""


def new(
    name: Annotated[str, typer.Argument(help="Name of the Python package, such as ticket_store.")],
    into: Annotated[Path, typer.Option(help="Folder to make the project's folder in.")] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print the files that were written as JSON.")] = False,
) -> None:
    """Write a project for an adapter of your own: package, conformance test, configuration, README and CI."""
    with reported(as_json=as_json):
        folder = into / _checked(name)
        written = write_project(name, folder)
        if as_json:
            print_json({"folder": str(folder), "files": written})
            return
        for file in written:
            stdout.print(f"  {folder / file}", markup=False)
        stdout.print(f"next:  cd {folder} && pip install -e '.[dev]' && pytest", markup=False)


def write_project(name: str, folder: Path) -> list[str]:
    """Write a project called `name` into a new or empty folder; return the paths in it. Raises `ConfigurationError`."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError("folder-in-use", "there is something already", str(folder), "choose another name")
    written = []
    for path, text in sorted(_template()):
        file = folder / renamed(path, name)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(renamed(text, name))
        except OSError as error:
            raise ConfigurationError("folder", f"cannot write: {error.strerror}", str(file), "correct --into") from None
        written.append(str(file.relative_to(folder)))
    return written


def renamed(text: str, name: str) -> str:
    """Return text of the template with the project's name replaced."""
    words = "".join(word.capitalize() for word in name.split("_"))
    return text.replace("my_store", name).replace("my-store", name.replace("_", "-")).replace("MyStore", words)


def _checked(name: str) -> str:
    if re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) and not keyword.iskeyword(name):
        return name
    likely = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    if not re.match(r"[a-z]", likely) or keyword.iskeyword(likely):
        likely = "ticket_store"
    raise ConfigurationError("bad-name", f"{name!r} cannot name a Python package", fix=f"for example {likely}")


def _template() -> Iterator[tuple[str, str]]:
    """Yield path in the project and text of each file of the template."""
    package, *path = TEMPLATE
    yield from _walk(files(package).joinpath(*path), "")


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        path = prefix + HIDDEN.get(entry.name, entry.name)
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _walk(entry, path + "/")
        else:
            yield path, entry.read_text()
