"""Empty AND and OR groups are simplified before queries are compared by their normal form."""

from protocol.sync.ast import Literal, Query, Simple
from protocol.sync.ast_json import parse, to_json
from protocol.sync.normal_form import normalize
from reference_cache.zql.query.canonical import canonical
from reference_cache.zql.query.simplify import NEVER, simplify
from reference_cache.zql.schema import schema, table
from reference_cache.zql.tables.memory import memory_source
from tests.support.zql.recording_engine import RecordingEngine

OPEN = {
    "type": "simple",
    "op": "=",
    "left": {"type": "column", "name": "open"},
    "right": {"type": "literal", "value": True},
}
NOTHING: dict[str, object] = {"type": "or", "conditions": []}
ANYTHING: dict[str, object] = {"type": "and", "conditions": []}


def where(condition: object) -> object:
    return simplify(parse({"table": "issue", "where": condition})).where


def test_an_empty_or_never_holds_and_takes_its_and_along() -> None:
    assert where(NOTHING) == NEVER
    assert where({"type": "and", "conditions": [OPEN, NOTHING]}) == NEVER
    assert normalize(simplify(parse({"table": "issue", "where": NOTHING}))).where == NEVER


def test_an_empty_and_always_holds_and_takes_its_or_along() -> None:
    assert where(ANYTHING) is None
    assert where({"type": "or", "conditions": [OPEN, ANYTHING]}) is None


def test_what_says_something_stays() -> None:
    query = parse({"table": "issue", "where": {"type": "and", "conditions": [OPEN, ANYTHING]}})
    assert to_json(normalize(simplify(query)))["where"] == OPEN


def test_a_query_that_never_holds_shares_nothing_with_one_that_has_no_condition() -> None:
    issue = table("issue", {"id": "number"})
    issues = schema([issue], {})
    engine = RecordingEngine(issues, lambda each: memory_source(each, [(1,)]))
    nothing, everything = (
        canonical(parse(each), issues) for each in ({"table": "issue", "where": NOTHING}, {"table": "issue"})
    )
    assert nothing != everything
    assert (engine.rows("nothing", nothing), len(engine.rows("everything", everything))) == ([], 1)


def test_a_comparison_of_two_literals_is_settled_once() -> None:
    true = Simple("LIKE", Literal("abc"), Literal("%b%"))
    false = Simple("LIKE", Literal("abc"), Literal("%x%"))
    assert simplify(Query("issue", where=true)).where is None
    assert simplify(Query("issue", where=false)).where == NEVER
