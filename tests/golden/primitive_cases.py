"""The primitives part of a golden corpus: truth tables of comparison, conditions and LIKE, and query hashes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from protocol.sync.ast import Column, Literal, Simple
from protocol.sync.ast_json import parse
from reference_cache.query.like import LikePatternError, like
from reference_cache.query.predicate import compile_predicate, evaluate
from reference_cache.query.query_id import normal_text, query_id
from reference_cache.query.schema import TableSchema, table
from reference_cache.query.values import compare, kind
from tests.golden.corpus_files import read_json, read_lines

Outcome = tuple[bool, str]


def compare_cases(cases: list[list[Any]]) -> Iterator[Outcome]:
    for left, right, sign in cases:
        yield compare(left, right) == sign, f"compare {left!r} {right!r}: expected {sign}"


def simple_cases(cases: list[list[Any]]) -> Iterator[Outcome]:
    """Each comparison by definition, and compiled for a column of the left value's type."""
    for op, left, right, expected in cases:
        found = evaluate(op, left, right), compiled(op, left, right)
        yield found == (expected, expected), f"{left!r} {op} {right!r}: expected {expected}, got {found}"


def compiled(op: Any, left: Any, right: Any) -> bool:
    kinds = [kind(value) for value in (left, *(right if isinstance(right, list) else [right])) if value is not None]
    thing: TableSchema = table("thing", {"id": "string", "x": f"{kinds[0] if kinds else 'string'}?"})
    literal = Literal(tuple(right) if isinstance(right, list) else right)
    return compile_predicate(Simple(op, Column("x"), literal), thing)(("k", left))


def like_cases(cases: list[list[Any]]) -> Iterator[Outcome]:
    for pattern, value, sensitive, insensitive in cases:
        found = like(pattern)(value), like(pattern, ignore_case=True)(value)
        yield found == (sensitive, insensitive), f"{value!r} LIKE {pattern!r}: got {found}"


def like_error_cases(cases: list[list[Any]]) -> Iterator[Outcome]:
    for pattern, rejected in cases:
        try:
            like(pattern)
            found = False
        except LikePatternError:
            found = True
        yield found == rejected, f"pattern {pattern!r}: expected {'an error' if rejected else 'no error'}"


def hash_cases(cases: list[dict[str, Any]]) -> Iterator[Outcome]:
    for case in cases:
        query = parse(case["ast"])
        same = normal_text(query) == case["normalizedJSON"] and query_id(query) == case["hash"]
        yield same, f"hash {case['hash']}: got {query_id(query)} of {normal_text(query)}"


SECTIONS: dict[str, Callable[[Any], Iterator[Outcome]]] = {
    "compare": compare_cases,
    "simple": simple_cases,
    "like": like_cases,
    "likeErrors": like_error_cases,
    "hashes": hash_cases,
}


def query_hash_cases(corpus: Path) -> Iterator[Outcome]:
    """The hash of every query of the corpus that has one."""
    for case in read_lines(corpus, "queries.jsonl"):
        if "hash" in case:
            yield query_id(parse(case["ast"])) == case["hash"], f"{case['id']}: hash of the query differs"


def run(corpus: Path) -> tuple[int, list[str]]:
    """How many primitive cases pass, and what is wrong with the others."""
    sections = read_json(corpus, "primitives.json") or {}
    outcomes = [outcome for name, cases in sections.items() for outcome in SECTIONS[name](cases)]
    outcomes += query_hash_cases(corpus)
    return sum(passed for passed, _ in outcomes), [reason for passed, reason in outcomes if not passed]
