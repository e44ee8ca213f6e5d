"""The fenced blocks of the project's documents, and which of them a test takes and runs.

Tests take what a page prints by `block(page, opening)`, `blocks(page, language)` or, for one line of a block,
`command(page, opening)`. Contract: whoever takes must run. What is taken is owed by the test that is running, and
`receipts` fails a test at whose end something owed was not told to `ran`, which those call that do run things: `Reader`
for what is typed, `execute` and `as_module` for Python, `configuration` for settings. The page and the opening (or
language) of a call are string constants, or names that the module or the function gives one; so `taken()` can read from
the tests' source what is run, and a command that nobody takes is found.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from changesource_sdk import config

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "examples")
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
RUNNABLE = {"sh", "python", "toml", "sql", "js", "ts", "html", "json", "ini", "yaml"}
COMMAND = re.compile(
    r"^(?:\$ )?(?:[A-Z][A-Z_]+=\S|(?:changesource|pip|python3?|make|git|npm|npx|cd|export|docker) )", re.M
)
TAKERS = ("block", "blocks", "command")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; `page` is its file's path in the repository."""

    page: str
    language: str
    text: str

    @property
    def can_be_run(self) -> bool:
        """Whether it is code, configuration or commands; a block without a language is, if it holds a command."""
        return self.language in RUNNABLE or (not self.language and COMMAND.search(self.text) is not None)

    @property
    def is_shell(self) -> bool:
        return self.language in ("", "sh")

    @property
    def parts(self) -> list[str]:
        """What is run one by one: commands, else the whole text."""
        return commands(self.text) if self.is_shell else [self.text]


def pages() -> dict[str, str]:
    """Every document a user reads, by its path."""
    files = [*ROOT.glob("*.md"), *(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.md"))]
    return {str(file.relative_to(ROOT)): file.read_text() for file in sorted(files)}


def blocks_of(page: str) -> list[Block]:
    return [Block(page, language, text) for language, text in FENCE.findall((ROOT / page).read_text())]


def blocks(page: str, language: str) -> list[str]:
    """All blocks of a page in one language."""
    return _owe([block for block in blocks_of(page) if block.language == language])


def block(page: str, opening: str) -> str:
    """The one block of a page that starts so."""
    (found,) = _owe([block for block in blocks_of(page) if block.text.startswith(opening)])
    return found


def command(page: str, opening: str) -> str:
    """The one command of a page that starts so; the one that is nothing else, if there is such a one."""
    (found,) = _commands(page, opening)
    OWED.append(found)
    return found


def commands(text: str) -> list[str]:
    """The commands of a block, one by one: without prompts and comments, continued lines joined."""
    lines = [re.sub(r"\s+#\s.*$", "", line) for line in text.replace("\\\n", " ").splitlines()]
    return [line.removeprefix("$ ").strip() for line in lines if line.strip()]


# --- What was taken is owed until it ran ---

OWED: list[str] = []
"""What the running test has taken: whole texts, and commands one by one."""
RAN: list[str] = []
"""What ran in it."""
ONLY_LOOKED_AT = re.compile(r"--(?:show-config|help|version)\b")


def ran(text: str) -> None:
    """Give the receipt for a text that was typed, executed or read by the program it is for."""
    if not ONLY_LOOKED_AT.search(text):
        RAN.append(text)


def unpaid() -> list[str]:
    """What is owed and did not run; from here on nothing is owed."""
    left = [text for text in OWED if not any(text in done for done in RAN)]
    OWED.clear()
    RAN.clear()
    return left


def _owe(found: list[Block]) -> list[str]:
    for block in found:
        if block.can_be_run:
            OWED.extend(block.parts)
    return [block.text for block in found]


def execute(source: str, names: dict[str, Any], name: str = "a page") -> None:
    """Run Python in these names."""
    exec(compile(source, name, "exec", dont_inherit=True), names)
    ran(source)


def as_module(source: str, file: Path) -> ModuleType:
    """Run Python as the module that would be imported from a file."""
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    ran(source)
    return module


def configuration(toml: str) -> config.ServeConfig:
    """What `serve` makes of a file."""
    found = config.load(toml=toml, environment={}, flags={}).config
    ran(toml)
    return found


# --- Who takes what, from the source of the tests ---


def _commands(page: str, opening: str) -> list[str]:
    all_of_them = [part for block in blocks_of(page) if block.is_shell for part in block.parts]
    return [part for part in all_of_them if part == opening] or [
        part for part in all_of_them if part.startswith(opening)
    ]


@cache
def taken() -> frozenset[tuple[str, str]]:
    """Every text that some test takes, with its page."""
    found: set[tuple[str, str]] = set()
    sources = [file.read_text() for file in (ROOT / "tests").rglob("*.py")]
    for source in (source for source in sources if "tests.docs.fences" in source):
        for taker, page, word in _calls(ast.parse(source)):
            found |= {(page, part) for part in _parts(taker, page, word)}
    return frozenset(found)


def _parts(taker: str, page: str, word: str) -> list[str]:
    if taker == "command":
        return _commands(page, word)
    return [
        part
        for each in blocks_of(page)
        if (each.language == word if taker == "blocks" else each.text.startswith(word))
        for part in each.parts
    ]


def _calls(module: ast.Module) -> Iterator[tuple[str, str, str]]:
    """The name, page and second argument of every call that takes, with names looked up where it is."""
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
    scopes: list[ast.Module | ast.FunctionDef] = [module, *functions]
    for scope in scopes:
        named = _assigned(module) | _assigned(scope)
        for node in ast.walk(scope):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TAKERS:
                given = [named.get(value.id, value) if isinstance(value, ast.Name) else value for value in node.args]
                match given:
                    case [ast.Constant(value=str(page)), ast.Constant(value=str(word))]:
                        yield node.func.id, page, word


def _assigned(scope: ast.Module | ast.FunctionDef) -> dict[str, ast.expr]:
    return {
        target.id: statement.value
        for statement in scope.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
