from reference_cache.zql.ordering import complete_query
from reference_cache.zql.planner.planner import explain
from reference_cache.zql.planner.report import as_mermaid, as_text
from reference_cache.zql.query.builder import Queries
from reference_cache.zql.query.expression import exists, not_
from tests.reference_cache.zql.official import SCHEMA
from tests.reference_cache.zql.planner.test_planner import Sizes

QUERY = (
    Queries(SCHEMA)
    .table("issue")
    .where_exists("owner", lambda q: q.where("name", "Ann"))
    .where(not_(exists("comments")))
    .related("comments", lambda q: q.where_exists("author").limit(3))
)
PLAN = explain(complete_query(QUERY.ast, SCHEMA), Sizes(distinct=100, issue=100_000, user=100))


def test_the_text_tells_the_decision_the_costs_and_every_level() -> None:
    lines = as_text(PLAN).splitlines()
    assert lines[0].startswith("issue: pattern F of 2, cost ")
    assert "  EXISTS issue ⋈ user: child first" in lines
    assert "  NOT EXISTS issue ⋈ user ⋈ comment: parent first (fixed)" in lines
    assert any(line.startswith("  * F  cost ") for line in lines)
    assert any(line.startswith("    s  cost ") for line in lines)
    assert any(line.startswith("  related comments (comment): pattern ") for line in lines)


def test_the_text_says_when_there_was_nothing_or_too_much_to_decide() -> None:
    issue = Queries(SCHEMA).table("issue")
    assert as_text(explain(issue.ast, Sizes())) == "issue: nothing to decide"
    for _ in range(10):
        issue = issue.where_exists("comments")
    assert "10 undecided EXISTS are too many to try" in as_text(explain(issue.ast, Sizes()))


def test_the_chart_points_from_what_is_read_first() -> None:
    assert as_mermaid(PLAN).splitlines() == [
        "flowchart TD",
        '  q0["issue"]',
        '  q1["user"]',
        '  q1 -- "EXISTS zsubq_owner" --> q0',
        '  q2["comment"]',
        '  q0 -- "NOT EXISTS zsubq_comments" --> q2',
        '  q3["comment<br/>limit 3"]',
        '  q4["user"]',
        '  q3 -- "EXISTS zsubq_author" --> q4',
        '  q0 -. "comments" .-> q3',
    ]


def test_only_the_cheapest_patterns_are_listed() -> None:
    issue = Queries(SCHEMA).table("issue").where_exists("owner").where_exists("comments").where_exists("milestone")
    issue = issue.where_exists("labels", flip=False)
    lines = as_text(explain(issue.where_exists("comments").ast, Sizes())).splitlines()
    assert lines[-1] == "    and 8 more expensive patterns"
