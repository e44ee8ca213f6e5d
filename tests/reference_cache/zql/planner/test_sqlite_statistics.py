import sqlite3

from reference_cache.zql.planner.sqlite_statistics import DEFAULT_FANOUT, SqliteStatistics
from tests.reference_cache.zql.planner.statistics_database import (
    OFFICIAL,
    QUESTIONS,
    add_official_histograms,
    analyzed_database,
)


def test_row_counts_come_from_analyze_or_are_counted() -> None:
    connection = analyzed_database()
    connection.execute("DELETE FROM issue WHERE rowid > 10")
    assert SqliteStatistics(connection).rows("issue") == 5000
    connection.execute("DELETE FROM sqlite_stat1")
    assert SqliteStatistics(connection).rows("issue") == 10


def test_fanouts_with_histograms_equal_the_official_ones() -> None:
    connection = analyzed_database()
    add_official_histograms(connection)
    statistics = SqliteStatistics(connection)
    asked = [
        (question, cost)
        for question, cost in zip(QUESTIONS["questions"], OFFICIAL["costs"], strict=True)
        if "fanout" in cost
    ]
    assert len(asked) == 4
    for question, cost in asked:
        assert statistics.fanout(question["table"], question["fanout"]) == cost["fanout"], question["name"]


def test_without_histograms_nulls_count_into_the_average() -> None:
    statistics = SqliteStatistics(analyzed_database())
    assert statistics.fanout("issue", ["ownerId"]) == 239
    assert statistics.fanout("issueLabel", ["issueId"]) == 4


def test_a_compound_prefix_matches_in_any_order_and_case_but_without_gaps() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a, b, c)")
    connection.execute("CREATE INDEX t_abc ON t (a, b, c)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [(i // 20, i // 5, i) for i in range(100)])
    connection.execute("ANALYZE")
    statistics = SqliteStatistics(connection)
    assert statistics.fanout("t", ["a"]) == 20
    assert statistics.fanout("t", ["B", "a"]) == 5
    assert statistics.fanout("t", ["a", "c"]) == DEFAULT_FANOUT
    assert statistics.fanout("t", ["b"]) == DEFAULT_FANOUT


def test_a_column_of_nulls_only_fans_out_to_nothing() -> None:
    connection = analyzed_database()
    add_official_histograms(connection)
    null_record = bytes([2, 0])
    connection.execute("DELETE FROM sqlite_stat4 WHERE idx = 'issue_owner'")
    connection.execute(
        "INSERT INTO sqlite_stat4 VALUES ('issue', 'issue_owner', '5000 1', '0', '0', ?)", (null_record,)
    )
    assert SqliteStatistics(connection).fanout("issue", ["ownerId"]) == 0


def test_an_index_without_statistics_takes_sqlites_own_assumptions() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a, b, c UNIQUE)")
    connection.execute("CREATE INDEX t_ab ON t (a, b)")
    statistics = SqliteStatistics(connection)
    assert statistics.fanout("t", ["a"]) == DEFAULT_FANOUT
    assert [statistics.rows_per_key("t", "t_ab", depth) for depth in (1, 2)] == [10, 9]
    assert statistics.rows_per_key("t", "sqlite_autoindex_t_1", 1) == 1


def test_a_partial_unique_index_promises_nothing() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a)")
    connection.execute("CREATE UNIQUE INDEX t_a ON t (a) WHERE a > 5")
    assert not SqliteStatistics(connection).is_unique("t", "t_a", 1)
