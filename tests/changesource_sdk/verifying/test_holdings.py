"""What a stage holds, told without its rows."""

from __future__ import annotations

from changesource_sdk.verifying.holdings import holding
from changesource_sdk.verifying.sides import Side, digest


def test_a_holding_tells_watermark_rows_and_digest_of_every_table_in_order() -> None:
    rows: dict[tuple[object, ...], dict[str, object]] = {(1,): {"id": 1}, (2,): {"id": 2}}
    told = holding(Side("replica", "07", {"b": {}, "a": rows}), "replica.db").as_json()
    assert told == {
        "stage": "replica",
        "place": "replica.db",
        "watermark": "07",
        "tables": {"a": {"rows": 2, "digest": digest(rows)}, "b": {"rows": 0, "digest": digest({})}},
    }
    assert list(told["tables"]) == ["a", "b"]  # type: ignore[call-overload]
    assert holding(Side("log", "07", {})).as_json()["place"] is None
