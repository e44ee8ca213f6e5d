"""A row is the same row by the engine's key and by the one its clients know."""

from __future__ import annotations

import orjson
import pytest

from reference_cache.view_syncer.pipelines.row_keys import RowKeys
from reference_cache.zql.schema import schema, table


@pytest.mark.parametrize(
    ("key", "row", "text"),
    [
        (("id",), ("a", True, 1.5, None, "01"), '{"id":"a"}'),
        (("flag", "rank"), ("a", True, 1.5, None, "01"), '{"flag":true,"rank":1.5}'),
    ],
)
def test_a_row_is_found_again_by_the_key_its_clients_know(
    key: tuple[str, ...], row: tuple[object, ...], text: str
) -> None:
    columns = {"id": "string", "flag": "boolean", "rank": "number", "extra": "json?", "_0_version": "string"}
    keys = RowKeys(schema([table("100% item", columns, key)], {}))
    of_table = keys["100% item"]
    assert of_table.text(row) == text
    again = of_table.text(tuple(row))
    assert keys.row_id("100% item", again) == keys.row_id("100% item", text)
    put = orjson.loads(of_table.put(row))
    assert put == {
        "op": "put",
        "tableName": "100% item",
        "value": {"id": "a", "flag": True, "rank": 1.5, "extra": None},
    }
