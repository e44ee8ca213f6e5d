"""Rows through a real stream: what was committed is what a consumer gets."""

from __future__ import annotations

from collections.abc import Callable

from changesource_sdk.adapter import Delete, Insert, Update
from tests.adapters.postgres.following import Follower

MakeFollower = Callable[..., Follower]


def test_every_kind_of_row_change_arrives(following: MakeFollower) -> None:
    follower = following("CREATE TABLE item (id int PRIMARY KEY, name text, price numeric(8,2))")
    follower.run(
        "INSERT INTO item VALUES (1, 'one', 1.5), (2, NULL, 2)",
        "UPDATE item SET name = 'uno' WHERE id = 1",
        "DELETE FROM item WHERE id = 2",
    )
    assert follower.catch_up() == [
        [Insert("item", {"id": 1, "name": "one", "price": 1.5}), Insert("item", {"id": 2, "name": None, "price": 2.0})],
        [Update("item", {"id": 1, "name": "uno", "price": 1.5})],
        [Delete("item", {"id": 2})],
    ]
    follower.assert_same()
