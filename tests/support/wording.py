"""Checks the wording of the product's docstrings, comments, messages and names; `make style` runs it.

`python -m tests.support.wording` fails where a listed word is used, and where an attribute that changes after
`__init__` has no comment. `--count [PATH ...]` prints figures instead, for the whole product or for some folders or
files. CONTRIBUTING.md has the words to use instead.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests import rooms
from tests.support.tools import REPOSITORY

PROSE = (
    "told",
    "tells?",
    "whoever",
    "whomever",
    "anew",
    "for ever",
    "let(?:s|ting)? go",
    "besides?",
    "stands?(?! for)(?!-)",
    "wish(?:es)?",
    "gone on",
    "go(?:es|ing)? on",
    "thereby",
    "of which",
    "in vain",
    "somebody",
    "everybody",
    "look(?:s|ed|ing)? at",
    "an? look",
    "ears?",
    "though it be",
)
"""Patterns of words in docstrings, comments and messages. What is in backquotes is code and not examined."""

NAMES = ("found", "given", "asked", "told", "awaited", "look", "looks", "share", "shares", "trouble", "troubles")
"""Whole names, without leading and trailing underscores. `not_found` is a good name, `found` is not."""

WORDS_IN_NAMES = ("told", "tell", "tells", "anew", "ear", "place", "places", "wish", "wishes", "whoever", "beside")
"""Words that no name has, in any case: `PartPlace`, `place_of`. `in_place` and `replace` are fine."""

PHRASES_IN_NAMES = ("let_go", "gone_on", "naming_the_cause")

# fmt: off
CHANGING_CALLS = frozenset({
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "move_to_end", "pop", "popitem", "popleft",
    "remove", "setdefault", "update",
})
# fmt: on
MAKERS = ("__init__", "__post_init__", "__new__")
CONTAINERS = frozenset({"dict", "list", "set", "deque", "defaultdict", "Counter", "OrderedDict"})

_PROSE = re.compile(rf"(?<![\w-])(?:{'|'.join(PROSE)})(?![\w-])", re.IGNORECASE)
_CODE = re.compile(r"``[^`]*``|`[^`]*`")
_NAME_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class Finding(NamedTuple):
    """A word that is not to be used: `what` is the word with its surroundings, or the name."""

    line: int
    what: str


class Attribute(NamedTuple):
    """An attribute that changes after `__init__`, and whether a comment says what it is."""

    owner: str
    name: str
    line: int
    explained: bool


# --- words ---


def findings(source: str, stem: str) -> list[Finding]:
    """Where a module uses listed words; `stem` is its file name without the ending."""
    tree = ast.parse(source)
    wrong = [Finding(1, f"module name {stem}")] if _is_dialect(stem) else []
    for line, text in (*_docstrings(tree), *_messages(tree), *_comments(source)):
        for match in _PROSE.finditer(_CODE.sub(lambda code: "`" * len(code[0]), text)):
            around = text[max(0, match.start() - 30) : match.end() + 30].replace("\n", " ")
            wrong.append(Finding(line + text.count("\n", 0, match.start()), f"{match[0]!r} in “{around}”"))
    wrong += {Finding(line, f"name {name}") for line, name in _names(tree) if _is_dialect(name)}
    return sorted(wrong)


def _is_dialect(name: str) -> bool:
    lower = name.strip("_").lower()
    words = [word.lower() for word in _NAME_WORDS.findall(name)]
    return (
        lower in NAMES
        or any(phrase in lower for phrase in PHRASES_IN_NAMES)
        or (any(word in WORDS_IN_NAMES for word in words) and "in_place" not in lower)
    )


def _docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every string that is a statement: docstrings, and those below a constant or an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def _messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every other string of several words: errors, log lines, help texts. A single word may be a name or a code."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from [(node.lineno, node.value)] if " " in node.value else []


def _comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The names that a module defines; those it only uses are some other module's."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield node.lineno, node.asname
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.lineno, node.name


# --- state ---


def changing_attributes(source: str) -> list[Attribute]:
    """Attributes of `self` that a method other than `__init__` sets or, where they are containers, changes.

    One is explained by a comment on its line or the line above, by a string below it, or by its name in backquotes in
    the docstring of its class.
    """
    lines = source.split("\n")
    result = []
    for owner in ast.walk(ast.parse(source)):
        if isinstance(owner, ast.ClassDef):
            declared, containers = _declared(owner)
            for name in sorted(_changed(owner, containers)):
                at = declared.get(name)
                explained = at is not None and _explained(lines, at, name, ast.get_docstring(owner) or "")
                result.append(Attribute(owner.name, name, at.lineno if at else owner.lineno, explained))
    return result


def _declared(owner: ast.ClassDef) -> tuple[dict[str, ast.stmt], set[str]]:
    """Where each attribute is first set (the class body or `__init__` where it is), and which are containers."""
    declared: dict[str, ast.stmt] = {}
    containers = set()
    makers = [node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name in MAKERS]
    others = [node for node in owner.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    statements = [*owner.body, *(each for maker in (*makers, *others) for each in ast.walk(maker))]
    for node in statements:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets: Sequence[ast.expr] = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in _all_set(targets, in_body=node in owner.body):
                declared.setdefault(name, node)
                if node.value is not None and _is_container(node.value):
                    containers.add(name)
    return declared, containers


def _all_set(targets: Sequence[ast.expr], *, in_body: bool) -> Iterator[str]:
    for target in targets:
        if isinstance(target, (ast.Tuple, ast.List)):
            yield from _all_set(target.elts, in_body=in_body)
        elif isinstance(target, ast.Name) and in_body:
            yield target.id
        elif name := _own_attribute(target):
            yield name


def _is_container(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        calls = (value.func, *(keyword.value for keyword in value.keywords if keyword.arg == "default_factory"))
        return any(isinstance(each, ast.Name) and each.id in CONTAINERS for each in calls)
    return isinstance(value, (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp))


def _changed(owner: ast.ClassDef, containers: set[str]) -> set[str]:
    changed = set()
    for method in owner.body:
        if not isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) or method.name in MAKERS:
            continue
        for node in ast.walk(method):
            match node:
                case ast.Attribute(ctx=ast.Store() | ast.Del()):
                    changed.add(_own_attribute(node))
                case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
                    changed |= {_own_attribute(value)} & containers
                case ast.Call(func=ast.Attribute(attr=called, value=value)) if called in CHANGING_CALLS:
                    changed |= {_own_attribute(value)} & containers
    return {name for name in changed if name}


def _own_attribute(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return ""


def _explained(lines: list[str], at: ast.stmt, name: str, docstring: str) -> bool:
    first, last = at.lineno - 1, at.end_lineno or at.lineno
    below = lines[last].strip() if last < len(lines) else ""
    return (
        "#" in lines[first]
        or "#" in lines[last - 1]
        or lines[first - 1].strip().startswith("#")
        or below.startswith('"""')
        or f"`{name}`" in docstring
    )


# --- the product ---


def product_files(only: Iterable[str] = ()) -> dict[str, Path]:
    """Every module of the packages in the wheel, by its path in the repository; `only` names folders or files."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    paths = sorted(path for package in packages for path in (REPOSITORY / package).rglob("*.py"))
    named = {path.relative_to(REPOSITORY).as_posix(): path for path in paths}
    wanted = tuple(each.rstrip("/") for each in only)
    return {name: path for name, path in named.items() if not wanted or _is_under(name, wanted)}


def _is_under(name: str, paths: Iterable[str]) -> bool:
    return any(name == path or name.startswith(f"{path}/") for path in paths)


def check() -> list[str]:
    """What `make style` complains about: listed words, and changing attributes without a comment."""
    complaints = []
    for name, path in product_files().items():
        source = path.read_text()
        stem = path.parent.name if path.stem == "__init__" else path.stem
        complaints += [f"{name}:{finding.line}: {finding.what}" for finding in findings(source, stem)]
        complaints += [
            f"{name}:{each.line}: {each.owner}.{each.name} changes; say what it is, and who writes it when"
            for each in changing_attributes(source)
            if not each.explained
        ]
    return complaints


def figures(only: Iterable[str] = ()) -> dict[str, int]:
    """What `--count` prints."""
    files = product_files(only)
    sources = {name: path.read_text() for name, path in files.items()}
    attributes = [each for source in sources.values() for each in changing_attributes(source)]
    return {
        "modules": len(files),
        "lines": sum(source.count("\n") for source in sources.values()),
        "listed words": sum(len(findings(source, files[name].stem)) for name, source in sources.items()),
        "comment lines": sum(len(re.findall(r"^\s*#", source, re.MULTILINE)) for source in sources.values()),
        "changing attributes": len(attributes),
        "of those explained": sum(each.explained for each in attributes),
        "class names used twice": sum(any(path in files for path in paths) for paths in repeated_classes().values()),
        "modules with one importer": sum(path in files for path in single_importers()),
    }


def repeated_classes() -> dict[str, list[str]]:
    """Public classes with the same name in several modules of the product, and those modules."""
    modules = defaultdict(list)
    for name, path in product_files().items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(name)
    return {name: paths for name, paths in sorted(modules.items()) if len(paths) > 1}


def single_importers() -> dict[str, str]:
    """Modules that exactly one other module imports, and that module. Imports by an `__init__.py` do not count."""
    importers = defaultdict(list)
    for module, imported in rooms.imports():
        importers[imported].append(module)
    files = {name: path.relative_to(REPOSITORY).as_posix() for name, path in rooms.modules().items()}
    return {files[name]: files[users[0]] for name, users in sorted(importers.items()) if len(users) == 1}


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--count"]:
        only = arguments[1:]
        for label, number in figures(only).items():
            print(f"{number:7}  {label}")
        if only:
            _print_details(only)
        return 0
    complaints = check()
    print("\n".join(complaints) or "wording: nothing to complain about")
    return 1 if complaints else 0


def _print_details(only: list[str]) -> None:
    files = product_files(only)
    for name, path in files.items():
        for each in changing_attributes(path.read_text()):
            if not each.explained:
                print(f"{name}:{each.line}: {each.owner}.{each.name} is not explained")
    for class_name, paths in repeated_classes().items():
        if any(path in files for path in paths):
            print(f"class {class_name}: {', '.join(paths)}")
    for name, importer in single_importers().items():
        if name in files:
            print(f"{name}: imported by {importer} only")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
