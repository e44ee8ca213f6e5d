from protocol.sync.ast import Condition, Ordering
from reference_cache.zql.planner.build import build_graph, union_candidates
from reference_cache.zql.planner.cost import Constraint, TableCost
from reference_cache.zql.planner.graph import FanIn, FanOut, PlanGraph
from reference_cache.zql.query.builder import Queries, QueryBuilder
from reference_cache.zql.query.expression import and_, cmp, exists, not_, or_
from tests.reference_cache.zql.official import SCHEMA

issue = Queries(SCHEMA).table("issue")


def flat_model(table: str, ordering: Ordering, filters: Condition | None, constraint: Constraint | None) -> TableCost:
    return TableCost(100, 0, lambda columns: 3)


def graph(query: QueryBuilder) -> PlanGraph:
    return build_graph(query.ast, flat_model)


def names(built: PlanGraph) -> list[str]:
    return [join.name for join in built.joins]


def test_a_plain_table_is_one_connection() -> None:
    built = graph(issue.where("open", True).limit(7))
    assert built.end is built.connections[0]
    assert built.connections[0].limit == 7
    assert built.joins == []


def test_and_chains_its_joins() -> None:
    built = graph(issue.where_exists("owner").where("open", True).where_exists("comments"))
    assert names(built) == ["issue ⋈ user", "issue ⋈ user ⋈ comment"]
    assert built.end is built.joins[1]


def test_a_childs_own_joins_come_before_its_join() -> None:
    built = graph(issue.where_exists("comments", lambda q: q.where_exists("author")))
    assert names(built) == ["comment ⋈ user", "issue ⋈ comment ⋈ user"]


def test_or_fans_out_only_for_members_with_subqueries() -> None:
    built = graph(issue.where(or_(cmp("open", True), exists("owner"), and_(cmp("priority", 1), exists("comments")))))
    assert isinstance(built.end, FanIn)
    assert len(built.end.branches) == 2
    assert graph(issue.where(or_(cmp("open", True), cmp("open", False)))).fan_outs == []


def test_limits_are_the_querys_own_one_for_exists_and_none_for_not_exists() -> None:
    built = graph(issue.where_exists("owner").where(not_(exists("comments"))).limit(5))
    assert [connection.limit for connection in built.connections] == [5, 1, None]


def test_only_an_undecided_exists_may_be_flipped() -> None:
    built = graph(
        issue.where_exists("owner")
        .where_exists("comments", flip=True)
        .where_exists("milestone", flip=False)
        .where(not_(exists("comments", flip=True)))
    )
    assert [(join.flippable, join.flipped) for join in built.joins] == [
        (True, False),
        (False, True),
        (False, False),
        (False, False),
    ]


def test_reset_restores_what_was_set_by_hand() -> None:
    built = graph(issue.where_exists("owner").where_exists("comments", flip=True))
    built.joins[0].flipped = True
    built.joins[1].child.unlimit()
    built.reset()
    assert [join.flipped for join in built.joins] == [False, True]
    assert built.connections[2].limit == 1


def test_a_flat_or_is_paired_with_its_own_fan_in() -> None:
    built = graph(issue.where(or_(exists("owner"), exists("comments"))))
    fan_in, joins = union_candidates(built.fan_outs[0])
    assert fan_in is built.end
    assert joins == built.joins


def test_with_nested_ors_the_last_fan_in_met_is_taken() -> None:
    built = graph(
        issue.where(or_(exists("owner"), and_(exists("comments"), or_(exists("labels"), exists("milestone")))))
    )
    outer, inner = built.fan_ins[-1], built.fan_ins[0]
    assert built.end is outer
    assert union_candidates(built.fan_outs[0])[0] in (outer, inner)
    assert union_candidates(built.fan_outs[1])[0] is inner
    assert isinstance(built.fan_outs[1], FanOut)
