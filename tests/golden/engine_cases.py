"""The engine part of a golden corpus: `queries.jsonl`, `scenarios.jsonl` and `multi.jsonl`.

Each function runs one file and returns how many cases passed and what the others did wrong. `Setting` says on which
source, with which flips: as the query has them, as the planner sets them, or all of them. Row changes depend on
flips, so they are compared only as given; results never do.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from protocol.sync.ast import Condition, CorrelatedSubquery, Exists, Query, Simple, map_leaves
from protocol.sync.ast_json import parse
from reference_cache.zql.format import Format
from reference_cache.zql.ivm.change import SourceChange, add, edit, remove
from reference_cache.zql.ivm.view import View
from reference_cache.zql.planner.cost import CostModel
from reference_cache.zql.query.parameters import bind
from reference_cache.zql.schema import Schema
from tests.golden.compare import Emission, Holder, counts, emission, same, same_effect, visible_rows
from tests.golden.corpus_files import read_json, read_lines
from tests.golden.drifting_union import drifting
from tests.support.workloads.tables import SourceKind, Tables
from tests.support.zql.recording_engine import RecordingEngine, RowChange

Flips = Literal["given", "planned", "all"]
Outcome = tuple[int, list[str]]


@dataclass(frozen=True)
class Setting:
    """Where and how the cases run.

    `strict` compares row changes as ordered lists; `paused` puts a pause at the beginning of every stream.
    """

    source: SourceKind = "memory"
    flips: Flips = "given"
    strict: bool = False
    paused: bool = False


class Case:
    """One case's engine: its own tables, filled from the data set."""

    def __init__(self, dataset: dict[str, Any], setting: Setting) -> None:
        self.schema = Schema.from_json(dataset["schema"])
        self.setting = setting
        expired = (lambda: True) if setting.paused else None
        self.tables = Tables(self.schema, dataset["rows"], setting.source, expired=expired)
        model: CostModel | None = self.tables.cost_model() if setting.flips == "planned" else None
        self._engine = RecordingEngine(self.schema, self.tables.open_source, cost_model=model)

    @property
    def drifts(self) -> bool:
        """Whether the official engine's drifting reference counts are reproduced, to compare row changes with them."""
        return self.setting.flips == "given"

    def query(self, case: dict[str, Any]) -> Query:
        query = bind(parse(case["ast"]), case.get("params"))
        return flipped(query) if self.setting.flips == "all" else query

    def rows(self, query_id: str, query: Query) -> list[RowChange]:
        with drifting() if self.drifts else nullcontext():
            return self._engine.rows(query_id, query)

    def view(self, query: Query, format: Format) -> View:
        with drifting() if self.drifts else nullcontext():
            return self._engine.materialize(query, format)

    def push(self, changes: Iterable[dict[str, Any]]) -> list[RowChange]:
        found: list[RowChange] = []
        for change in changes:
            found += self._engine.change(change["table"], self.source_change(change))
        return found

    def source_change(self, change: dict[str, Any]) -> SourceChange:
        row = self.schema.tables[change["table"]].row
        if change["op"] == "edit":
            return edit(row(change["row"]), row(change["oldRow"]))
        return (add if change["op"] == "add" else remove)(row(change["row"]))


def flipped(query: Query) -> Query:
    """The query with every EXISTS evaluated child first."""

    def flip(leaf: Simple | Exists) -> Condition:
        if isinstance(leaf, Simple):
            return leaf
        return replace(leaf, flip=True if leaf.op == "EXISTS" else leaf.flip, related=below(leaf.related))

    def below(related: CorrelatedSubquery) -> CorrelatedSubquery:
        return replace(related, subquery=flipped(related.subquery))

    where = None if query.where is None else map_leaves(query.where, flip)
    return replace(query, where=where, related=tuple(map(below, query.related)))


def run_file(
    corpus: Path, name: str, setting: Setting, problems: Callable[[Case, dict[str, Any]], Iterator[str]]
) -> Outcome:
    datasets: dict[str, Any] = {}
    passed, failures = 0, []
    for case in read_lines(corpus, name):
        dataset = case["dataset"]
        if dataset not in datasets:
            datasets[dataset] = read_json(corpus / "datasets", f"{dataset}.json")
        problem = first_problem(datasets[dataset], case, setting, problems)
        if problem is None:
            passed += 1
        else:
            failures.append(f"{case['id']} ({case.get('name', '')}): {problem}")
    return passed, failures


def first_problem(
    dataset: dict[str, Any],
    case: dict[str, Any],
    setting: Setting,
    problems: Callable[[Case, dict[str, Any]], Iterator[str]],
) -> str | None:
    try:
        return next(problems(Case(dataset, setting), case), None)
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"


def run_queries(corpus: Path, setting: Setting) -> Outcome:
    return run_file(corpus, "queries.jsonl", setting, query_problems)


def run_scenarios(corpus: Path, setting: Setting) -> Outcome:
    return run_file(corpus, "scenarios.jsonl", setting, scenario_problems)


def run_multi(corpus: Path, setting: Setting) -> Outcome:
    return run_file(corpus, "multi.jsonl", setting, multi_problems)


def query_problems(run: Case, case: dict[str, Any]) -> Iterator[str]:
    query, format = run.query(case), Format.from_json(case["format"])
    yield from hydration_problems(run, query, format, case)


def hydration_problems(run: Case, query: Query, format: Format, expected: dict[str, Any]) -> Iterator[str]:
    result = run.view(query, format).result
    if not same(result, expected["result"]):
        yield f"result is {result!r}, expected {expected['result']!r}"
    rows = counts(run.rows("q", query), run.schema)
    accepted = [expected["rows"], expected.get("driverRows")]
    if run.setting.flips == "given" and not any(same(rows, each) for each in accepted):
        yield f"rows are {rows!r}, expected {expected['rows']!r}"


def scenario_problems(run: Case, case: dict[str, Any]) -> Iterator[str]:
    query, format = run.query(case), Format.from_json(case["format"])
    view = run.view(query, format)
    held = Holder(run.schema)
    hydrated = run.rows("q", query)
    held.receive(emission(change, run.schema) for change in hydrated)
    if not same(view.result, case["initial"]["result"]):
        yield f"initial result is {view.result!r}, expected {case['initial']['result']!r}"
    accepted = [case["initial"]["rows"], case["initial"].get("driverRows")]
    rows = counts(hydrated, run.schema)
    if run.setting.flips == "given" and not any(same(rows, each) for each in accepted):
        yield f"initial rows are {rows!r}, expected {case['initial']['rows']!r}"
    expected = case["initial"]["result"]
    for number, step in enumerate(case["steps"], 1):
        emitted = [emission(change, run.schema) for change in run.push(step["changes"])]
        expected = expected if step.get("unchanged") else step["result"]
        if not same(view.result, expected):
            yield f"step {number}: result is {view.result!r}, expected {expected!r}"
        if run.setting.flips == "given":
            yield from (f"step {number}: {problem}" for problem in step_problems(run, held, emitted, step))
        held.receive(emitted)
        missing = held.missing(visible_rows(expected, query, format, run.schema))
        if missing and not run.drifts:  # where counts drift, a visible row may have none
            yield f"step {number}: visible rows {missing} are not referenced"


def step_problems(run: Case, held: Holder, emitted: list[Emission], step: dict[str, Any]) -> Iterator[str]:
    """Compare a step's row changes; where the official counts are known to drift, only visibility is asked."""
    if step.get("countsDiverge") or step.get("driverNetDiffers"):
        return
    wanted: list[Emission] = [corpus_emission(run.schema, each) for each in step["rowChanges"]]
    if run.setting.strict:
        if not same([list(each) for each in emitted], [list(each) for each in wanted]):
            yield f"row changes are {emitted}, expected {wanted}"
    elif not same_effect(held.effect(emitted), held.effect(wanted)):
        yield f"row changes are {emitted}, expected the effect of {wanted}"


def corpus_emission(schema: Schema, written: list[Any]) -> Emission:
    op, table, row = written
    if op == "remove" and isinstance(row, list):
        row = dict(zip(schema.tables[table].primary_key, row, strict=True))
    return (op, table, row)


def multi_problems(run: Case, case: dict[str, Any]) -> Iterator[str]:
    held: dict[str, Holder] = {}
    for query_id, asked in case["queries"].items():
        hydrated = run.rows(query_id, run.query(asked))
        held[query_id] = Holder(run.schema)
        held[query_id].receive(emission(change, run.schema) for change in hydrated)
        rows = counts(hydrated, run.schema)
        if run.setting.flips == "given" and not same(rows, case["initialRows"][query_id]):
            yield f"{query_id}: initial rows are {rows!r}, expected {case['initialRows'][query_id]!r}"
    for number, step in enumerate(case["steps"], 1):
        found = run.push(step["changes"])
        for query_id, holder in held.items():
            emitted = [emission(change, run.schema) for change in found if change.query_id == query_id]
            wanted = [corpus_emission(run.schema, each[1:]) for each in step["rowChanges"] if each[0] == query_id]
            if run.setting.flips == "given" and not same_effect(holder.effect(emitted), holder.effect(wanted)):
                yield f"step {number}, {query_id}: row changes are {emitted}, expected the effect of {wanted}"
            holder.receive(emitted)
