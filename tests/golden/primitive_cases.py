"""The primitives part of a golden corpus: truth tables of comparison, conditions and LIKE, and query hashes."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from protocol.sync.ast import Column, Literal, Simple
from protocol.sync.ast_json import parse
from reference_cache.zql.like import LikePatternError, like
from reference_cache.zql.predicate import compile_predicate, evaluate
from reference_cache.zql.query.query_id import normal_text, query_id
from reference_cache.zql.schema import TableSchema, table
from reference_cache.zql.values import compare, kind
from tests.golden.corpus_files import read_json, read_lines


def simple(op: Any, left: Any, right: Any) -> tuple[bool, bool]:
    """A comparison by definition, and compiled for a column of the left value's type."""
    kinds = [kind(value) for value in (left, *(right if isinstance(right, list) else [right])) if value is not None]
    thing: TableSchema = table("thing", {"id": "string", "x": f"{kinds[0] if kinds else 'string'}?"})
    literal = Literal(tuple(right) if isinstance(right, list) else right)
    compiled = compile_predicate(Simple(op, Column("x"), literal), thing)
    return evaluate(op, left, right), compiled(("k", left))


def rejected(pattern: str) -> bool:
    try:
        like(pattern)
    except LikePatternError:
        return True
    return False


def query_hash(ast: Any) -> str:
    return query_id(parse(ast))


def hashed(ast: Any) -> tuple[str, str]:
    query = parse(ast)
    return normal_text(query), query_id(query)


Case = tuple[object, Callable[[], object]]


def case_of(section: str, entry: Any) -> Case:
    """What an entry of a section expects, and how to find what we make of it."""
    match section:
        case "compare":
            return entry[2], lambda: compare(entry[0], entry[1])
        case "simple":
            return (entry[3], entry[3]), lambda: simple(*entry[:3])
        case "like":
            return (entry[2], entry[3]), lambda: (
                like(entry[0])(entry[1]),
                like(entry[0], ignore_case=True)(entry[1]),
            )
        case "likeErrors":
            return entry[1], lambda: rejected(entry[0])
        case "hashes":
            return (entry["normalizedJSON"], entry["hash"]), lambda: hashed(entry["ast"])
        case _:
            return "a section known here", lambda: section


def all_cases(corpus: Path) -> Iterator[tuple[str, Case]]:
    for section, entries in (read_json(corpus, "primitives.json") or {}).items():
        for number, entry in enumerate(entries):
            yield f"{section}[{number}]", case_of(section, entry)
    for query in read_lines(corpus, "queries.jsonl"):
        if "hash" in query:
            yield f"hash of {query['id']}", (query["hash"], partial(query_hash, query["ast"]))


def run(corpus: Path) -> tuple[int, list[str]]:
    """How many primitive cases pass, and what is wrong with the others."""
    passed, failures = 0, []
    for name, (expected, find) in all_cases(corpus):
        try:
            found = find()
        except Exception as error:
            found = error
        if found == expected:
            passed += 1
        else:
            failures.append(f"{name}: expected {expected!r}, got {found!r}")
    return passed, failures
