"""Every change of the protocol description is read and written back without a difference."""

import pytest
from pydantic import TypeAdapter, ValidationError

from protocol.changes import BackfillChange, Change, RowChange, SchemaChange
from protocol.specs import JsonObject

ADAPTER: TypeAdapter[RowChange | SchemaChange | BackfillChange] = TypeAdapter(Change)
TABLE: JsonObject = {"schema": "public", "name": "issue"}
KEYED: JsonObject = {**TABLE, "rowKey": {"columns": ("id",), "type": "default"}}
COLUMN: JsonObject = {"name": "title", "spec": {"pos": 2, "dataType": "text"}}
METADATA: JsonObject = {"rowKey": {"any": ["thing"]}, "further": 1}
ROW: JsonObject = {"id": 1, "title": None}

CHANGES: list[JsonObject] = [
    {"tag": "insert", "relation": KEYED, "new": ROW},
    {"tag": "insert", "relation": {**TABLE, "keyColumns": ("id",), "replicaIdentity": "full"}, "new": ROW},
    {"tag": "update", "relation": KEYED, "key": None, "new": ROW},
    {"tag": "update", "relation": KEYED, "key": {"id": 0}, "new": ROW},
    {"tag": "delete", "relation": KEYED, "key": {"id": 1}},
    {"tag": "truncate", "relations": (KEYED, KEYED)},
    {"tag": "create-table", "spec": {**TABLE, "columns": {"id": {"pos": 1, "dataType": "int8"}}}},
    {"tag": "create-table", "spec": {**TABLE, "columns": {}}, "metadata": METADATA, "backfill": {"id": {"n": 1}}},
    {"tag": "rename-table", "old": TABLE, "new": TABLE},
    {"tag": "update-table-metadata", "table": TABLE, "old": METADATA, "new": METADATA},
    {"tag": "add-column", "table": TABLE, "column": COLUMN, "tableMetadata": METADATA, "backfill": {}},
    {"tag": "update-column", "table": TABLE, "old": COLUMN, "new": COLUMN},
    {"tag": "drop-column", "table": TABLE, "column": "title"},
    {"tag": "drop-table", "id": TABLE},
    {"tag": "create-index", "spec": {**TABLE, "tableName": "t", "unique": True, "columns": {"b": "DESC", "a": "ASC"}}},
    {"tag": "drop-index", "id": TABLE},
    {
        "tag": "backfill",
        "relation": KEYED,
        "columns": ("title",),
        "watermark": "01",
        "rowValues": [[1, "a"], [2, None]],
        "status": {"rows": 2, "totalRows": 9, "totalBytes": 12.5},
    },
    {"tag": "backfill-completed", "relation": KEYED, "columns": ("title",), "watermark": "01"},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change["tag"])
def test_a_change_is_read_and_written_back(change: JsonObject) -> None:
    assert ADAPTER.validate_python(change).to_json() == change


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change["tag"])
def test_an_unknown_field_passes(change: JsonObject) -> None:
    assert ADAPTER.validate_python({**change, "novelty": 1}).to_json()["novelty"] == 1


@pytest.mark.parametrize("tag", ["upsert", None])
def test_an_unknown_tag_stops(tag: str | None) -> None:
    with pytest.raises(ValidationError):
        ADAPTER.validate_python({"tag": tag, "relation": KEYED, "new": ROW})


def test_the_old_key_of_an_update_must_be_said_even_if_null() -> None:
    with pytest.raises(ValidationError, match="key"):
        ADAPTER.validate_python({"tag": "update", "relation": KEYED, "new": ROW})


def test_backfill_takes_the_newer_form_of_the_key_only() -> None:
    relation = {**TABLE, "keyColumns": ["id"]}
    with pytest.raises(ValidationError, match="rowKey"):
        ADAPTER.validate_python(
            {"tag": "backfill-completed", "relation": relation, "columns": ["title"], "watermark": "01"}
        )


def test_index_columns_keep_their_order() -> None:
    index = next(change for change in CHANGES if change["tag"] == "create-index")
    spec = ADAPTER.validate_python(index).to_json()["spec"]
    assert isinstance(spec, dict)
    assert list(spec["columns"]) == ["b", "a"]
