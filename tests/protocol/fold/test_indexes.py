from protocol.fold.indexes import FoldedIndex, Indexes, renamed
from protocol.specs import IndexSpec


def made(*names: str, table: str = "t") -> Indexes:
    indexes = Indexes()
    for name in names:
        indexes.create(
            IndexSpec(schema_name="public", name=name, table_name=table, unique=True, columns={"a": "ASC", "b": "DESC"})
        )
    return indexes


def test_an_index_is_known_by_its_name_in_the_replica() -> None:
    spec = IndexSpec(schema_name="s", name="i", table_name="t", unique=False, columns={"a": "DESC"})
    assert Indexes().create(spec) == FoldedIndex("s.i", "s.t", False, {"a": "DESC"})


def test_indexes_follow_the_name_of_their_table() -> None:
    indexes = made("i", "j")
    indexes.rename_table("t", "u")
    assert indexes.of("t") == []
    assert [index.name for index in indexes.of("u")] == ["i", "j"]


def test_a_renamed_column_keeps_its_place_and_direction() -> None:
    indexes = made("i")
    indexes.rename_column("t", "a", "z")
    indexes.rename_column("other", "b", "y")
    assert list(indexes["i"].columns.items()) == [("z", "ASC"), ("b", "DESC")]


def test_dropped_indexes_are_returned_and_gone() -> None:
    indexes = made("i", "j")
    dropped = indexes.drop("i")
    assert dropped is not None
    assert dropped.name == "i"
    assert indexes.drop("i") is None
    indexes.drop_table("other")
    assert list(indexes) == ["j"]
    indexes.drop_table("t")
    assert indexes == {}


def test_renaming_a_name_that_is_not_there_changes_nothing() -> None:
    assert renamed({"a": 1}, "b", "c") == {"a": 1}
