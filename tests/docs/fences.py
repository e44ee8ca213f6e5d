"""The fenced blocks of the project's documents, and which of them a test takes.

Tests take what a page prints by `block(page, opening)` or `blocks(page, language)`, and run it. Contract: the page and
the opening (or language) of such a call are string constants, or names that the module or the function gives one; so
`taken()` can read from the tests' source which blocks are run, and a block that nobody takes is found.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "examples")
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
RUNNABLE = {"sh", "python", "toml", "sql", "js", "ts", "html", "json", "ini", "yaml"}
COMMAND = re.compile(
    r"^(?:\$ )?(?:[A-Z][A-Z_]+=\S|(?:changesource|pip|python3?|make|git|npm|npx|cd|export|docker) )", re.M
)


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


def pages() -> dict[str, str]:
    """Every document a user reads, by its path."""
    files = [*ROOT.glob("*.md"), *(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.md"))]
    return {str(file.relative_to(ROOT)): file.read_text() for file in sorted(files)}


def blocks_of(page: str) -> list[Block]:
    return [Block(page, language, text) for language, text in FENCE.findall((ROOT / page).read_text())]


def blocks(page: str, language: str) -> list[str]:
    """All blocks of a page in one language."""
    return [block.text for block in blocks_of(page) if block.language == language]


def block(page: str, opening: str) -> str:
    """The one block of a page that starts so."""
    (found,) = [block.text for block in blocks_of(page) if block.text.startswith(opening)]
    return found


@cache
def taken() -> frozenset[Block]:
    """Every block that some test takes."""
    found: set[Block] = set()
    sources = [file.read_text() for file in (ROOT / "tests").rglob("*.py")]
    for source in (source for source in sources if "tests.docs.fences" in source):
        for taker, page, word in _calls(ast.parse(source)):
            found |= {
                each
                for each in blocks_of(page)
                if (each.language == word if taker == "blocks" else each.text.startswith(word))
            }
    return frozenset(found)


def _calls(module: ast.Module) -> Iterator[tuple[str, str, str]]:
    """The name, page and second argument of every call of `block` and `blocks`, with names looked up where it is."""
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
    for scope in (module, *functions):
        named = _assigned(module) | _assigned(scope)
        for node in ast.walk(scope):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("block", "blocks"):
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
