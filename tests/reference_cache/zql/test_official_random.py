"""Random queries have the normal form, the id and the plan that the official code gives them."""

import gzip
import json
from typing import Any

from protocol.sync.ast_json import parse, to_json
from reference_cache.zql.planner.planner import plan
from reference_cache.zql.query.query_id import normal_text, query_id
from tests.golden.planner_cases import DeclaredModel, flips
from tests.reference_cache.zql.official import FIXTURES
from tests.reference_cache.zql.random_cases import Cases

SEED = 20
LINES = gzip.decompress((FIXTURES / "official_random.jsonl.gz").read_bytes()).decode().splitlines()
CASES: list[dict[str, Any]] = [json.loads(line) for line in LINES]


def test_the_cases_are_those_of_the_seed() -> None:
    cases = Cases(SEED)
    assert len(CASES) == 200
    for case in CASES:
        written = json.loads(json.dumps(cases.case()))
        assert (written["ast"], written["model"]) == (case["ast"], case["model"])


def test_normal_forms_and_ids_agree() -> None:
    for case in CASES:
        query = parse(case["ast"])
        assert normal_text(query) == case["normalizedJSON"]
        assert query_id(query) == case["hash"]


def test_plans_agree_wherever_the_official_planner_finds_one() -> None:
    decided = [case for case in CASES if case["planned"] is not None]
    assert len(decided) > 190
    for case in decided:
        planned = plan(parse(case["ast"]), DeclaredModel(case["model"]["tables"]))
        assert list(flips(planned)) == list(flips(parse(case["planned"])))


def test_reading_and_writing_keeps_every_key_in_place() -> None:
    for case in CASES:
        assert json.dumps(to_json(parse(case["ast"]))) == json.dumps(case["ast"])
