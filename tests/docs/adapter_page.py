"""The part of docs/reference/adapter.md that is made from the code: every exported name, its fields and its methods.

The text before `MARKER` is written by hand; what follows it is what the docstrings say. Contract: as in
`reference_pages`, the same code makes the same bytes.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import Any

import changesource_sdk
from changesource_sdk import toolkit
from tests.docs.fences import ROOT

PAGE = ROOT / "docs" / "reference" / "adapter.md"
MARKER = "<!-- From here on made from docstrings, by `python -m tests.docs.reference_pages`. -->\n"
GROUPS: Mapping[str, tuple[str, ...]] = {
    "The contract": ("Adapter", "Snapshot", "Partition", "RowsPartition", "Transaction", "BadRow"),
    "Optional parts of an adapter": (
        "Acknowledging",
        "Closing",
        "Examining",
        "Check",
        "Publishing",
        "ReportingHead",
        "MeasuringDistance",
        "UsingSpark",
        "UsingTables",
    ),
    "Optional parts of a partition": ("JsonPartition", "ExplainingPartition"),
    "Changes of rows": ("Insert", "Update", "Delete", "Truncate"),
    "Changes of the schema": (
        "CreateTable",
        "DropTable",
        "RenameTable",
        "AddColumn",
        "DropColumn",
        "AlterColumn",
        "CreateIndex",
        "DropIndex",
    ),
    "Tables": ("Table", "Column", "Index", "JsonText", "table_of", "table_of_rows"),
    "An upstream without a log": ("ByDifference", "Cursor"),
    "Errors": (
        "ChangesourceError",
        "ConfigurationError",
        "AdapterError",
        "InvalidSchema",
        "InvalidChange",
        "ResyncRequired",
        "position_lost",
    ),
    "Warnings": ("warn", "clear_warning"),
    "Mappings": ("TableMapping", "MappedColumn", "Function", "Sql", "Mask"),
}
"""The order of the page. Names that are in no group come last; those that are no class or function are in a table."""


def adapter_page() -> str:
    """The whole page: its own text as it is, and the names as they are now."""
    written, marker, _ = PAGE.read_text().partition(MARKER)
    return f"{written if marker else written.rstrip() + chr(10) * 2}{MARKER}\n{_names()}"


def _names() -> str:
    described = {name: getattr(changesource_sdk, name) for name in changesource_sdk.__all__}
    groups = dict(GROUPS)
    grouped = {name for names in groups.values() for name in names}
    plain = {name: value for name, value in described.items() if not _has_section(value)}
    rest = tuple(name for name in described if name not in grouped and name not in plain)
    if rest:
        groups["Others"] = rest
    parts = ["## Every name of `changesource_sdk`\n"]
    for title, names in groups.items():
        parts.append(f"\n### {title}\n")
        parts += [_section(name, described[name]) for name in names]
    rows = [(f"`{name}`", _is(name), _about(name)) for name in plain]
    parts += ["\n### Types and values\n\n", _table(("name", "is", "meaning"), rows)]
    parts += ["\n## Every name of `changesource_sdk.toolkit`\n\n"]
    parts += [_table(("name", "meaning"), [(f"`{name}`", _summary(name)) for name in toolkit.__all__])]
    return "".join(parts)


def _has_section(value: object) -> bool:
    return inspect.isclass(value) or inspect.isfunction(value)


def _section(name: str, value: Any) -> str:
    parts = [f"\n#### `{name}`\n\n", _paragraphs(inspect.getdoc(value) or "")]
    if inspect.isfunction(value):
        parts += [f"\n`{name}{_signature(value)}`\n"]
        return "".join(parts)
    if attributes := list(_fields(value)):
        parts += ["\n", _table(("field", "type", "default", "meaning"), attributes)]
    if methods := list(_methods(value)):
        parts += ["\n", _table(("method", "meaning"), methods)]
    return "".join(parts)


def _fields(cls: type) -> Iterator[tuple[str, str, str, str]]:
    """Fields of a dataclass, or annotated attributes of another class, and the arguments of an error."""
    notes = _notes(cls)
    if is_dataclass(cls):
        for field in fields(cls):
            missing = field.default is MISSING and field.default_factory is MISSING
            default = "required" if missing else _code(repr(field.default) if field.default is not MISSING else "()")
            yield f"`{field.name}`", _code(field.type), default, notes.get(field.name, "")
        return
    for name, annotation in inspect.get_annotations(cls).items():
        if not name.startswith("_"):
            has_default = name in cls.__dict__
            default = _code(repr(cls.__dict__[name])) if has_default else ""
            yield f"`{name}`", _code(annotation), default, notes.get(name, "")


def _methods(cls: type) -> Iterator[tuple[str, str]]:
    """Public methods and properties that the class defines itself."""
    members = dict(cls.__dict__)
    if issubclass(cls, Exception) and not issubclass(cls.__bases__[0], changesource_sdk.ChangesourceError):
        members.setdefault("__init__", cls.__init__)
    for name, value in members.items():
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(value, property):
            yield f"`{name}`", _line(inspect.getdoc(value) or "")
        elif inspect.isfunction(value) and not (name == "__init__" and (is_dataclass(cls) or _is_protocol(cls))):
            shown = cls.__name__ if name == "__init__" else name
            yield _code(f"{shown}{_signature(value)}"), _line(value.__doc__ or "")


def _is_protocol(cls: type) -> bool:
    return bool(getattr(cls, "_is_protocol", False))


def _signature(function: Any) -> str:
    """The parameters without `self`, with their types and defaults."""
    signature = inspect.signature(function)
    parts: list[str] = []
    for name, parameter in signature.parameters.items():
        if name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        star = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        parts.append(f"{star}{name}: {parameter.annotation}{default}")
    returned = (
        "" if signature.return_annotation in ("None", inspect.Signature.empty) else f" -> {signature.return_annotation}"
    )
    return f"({', '.join(parts)}){returned}"


@cache
def _notes(cls: type) -> dict[str, str]:
    """The docstrings after the attributes of a class."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    assert isinstance(tree.body[0], ast.ClassDef)
    return dict(_noted(tree.body[0].body))


def _noted(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement, after in pairwise(body):
        match statement, after:
            case (
                ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, _line(inspect.cleandoc(text))


def _assignment(name: str) -> tuple[str, str]:
    """Where a name that is no class is assigned: its value as source, and the docstring after it."""
    for module in _modules():
        body = ast.parse(inspect.getsource(module)).body
        for statement in body:
            match statement:
                case (
                    ast.AnnAssign(target=ast.Name(target), value=ast.expr() as value)
                    | ast.Assign(targets=[ast.Name(target)], value=value)
                ) if target == name:
                    return ast.unparse(value), dict(_noted(body)).get(name, "")
    return "", ""


@cache
def _modules() -> tuple[ModuleType, ...]:
    names = ("adapter", "schema", "positions", "by_difference.listing", "observe.warnings")
    return tuple(importlib.import_module(f"changesource_sdk.{name}") for name in names)


def _is(name: str) -> str:
    value = _assignment(name)[0].strip("'")
    return _code(" ".join(value.split()))


def _about(name: str) -> str:
    return _assignment(name)[1]


def _summary(name: str) -> str:
    """The first paragraph of a docstring of the toolkit's, or the type of a value."""
    value = getattr(toolkit, name)
    if _has_section(value):
        return _line((inspect.getdoc(value) or "").split("\n\n")[0])
    return _about(name) or _is(name)


def _code(value: object) -> str:
    text = " ".join(str(value if not inspect.isclass(value) else value.__name__).split())
    return f"`{text}`".replace("|", r"\|")


def _paragraphs(text: str) -> str:
    """A docstring as Markdown: paragraphs of one line each, blocks of code as they are."""
    parts = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        is_code = all(line.startswith("    ") for line in paragraph.splitlines())
        parts.append(paragraph if is_code else _line(paragraph, in_table=False))
    return "\n\n".join(parts) + "\n"


def _line(text: str, *, in_table: bool = True) -> str:
    """One line; outside of backquotes nothing passes for Markdown, and in a table nothing ends a cell."""
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()))
    escaped = [piece if index % 2 else re.sub(r"([<>*_\[\]])", r"\\\1", piece) for index, piece in enumerate(pieces)]
    line = "".join(escaped)
    return line.replace("|", r"\|") if in_table else line


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table without the columns in which no row has anything."""
    used = [number for number in range(len(head)) if any(row[number] for row in rows)]
    lines = [[line[number] for number in used] for line in (head, ("---",) * len(head), *rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
