"""Expressions evaluated elsewhere give what they give in place: the same mapping as SQL and as functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.memory import MemoryStore
from changesource_sdk.adapter import Change, Delete, Insert, Row, Update
from changesource_sdk.pipeline.mapping.change import ChangeMapper
from changesource_sdk.pipeline.mapping.declare import Function, MappedColumn, Sql, TableMapping
from changesource_sdk.pipeline.mapping.images import Image, images, with_slots
from changesource_sdk.pipeline.mapping.row import RowMapper, sql_slot
from changesource_sdk.pipeline.mapping.table import map_tables
from tests.changesource_sdk.pipeline.mapping import people
from tests.changesource_sdk.pipeline.mapping.people import PERSON
from tests.changesource_sdk.pipeline.mapping.test_change import Step, carry_out, steps

Evaluators = Mapping[str, Callable[[Row], object]]
"""What the SQL under each key of the mapping would compute."""

EVALUATORS: Evaluators = {"filter": people.is_adult, "columns.domain": people.domain}
FILTERED = TableMapping(
    filter=Function(people.is_adult), columns={"domain": MappedColumn(Function(people.domain), "text")}
)
BY_SQL = replace(
    FILTERED, filter=Sql("age >= 18"), columns={"domain": MappedColumn(Sql("split_part(email, '@', 2)"), "text")}
)


def evaluated(mapper: RowMapper, change: Change) -> Change:
    """What a lane does with SQL: take the images, evaluate, put the results back."""
    assert isinstance(change, Insert | Update | Delete)
    slots: dict[Image, Row] = {
        image: {sql_slot(key): evaluate(row) for key, evaluate in EVALUATORS.items()}
        for image, row in images(mapper, change).items()
    }
    return with_slots(change, slots)


@settings(max_examples=200, deadline=None)
@given(planned=steps, with_images=st.booleans())
def test_sql_and_functions_make_the_same_changes(planned: list[Step], with_images: bool) -> None:
    store = MemoryStore([PERSON])
    carry_out(store, planned, with_images)
    in_place, elsewhere = ({"person": mapping} for mapping in (FILTERED, BY_SQL))
    by_function = ChangeMapper(map_tables([PERSON], in_place), in_place)
    by_sql = ChangeMapper(map_tables([PERSON], elsewhere), elsewhere)
    mapper = RowMapper(map_tables([PERSON], elsewhere)["person"])
    for _, changes in store.history:
        expected = list(by_function.changes(changes))
        assert list(by_sql.changes(evaluated(mapper, change) for change in changes)) == expected


def test_only_whole_rows_are_images() -> None:
    mapper = RowMapper(map_tables([PERSON], {})["person"])
    whole = {"id": 1, "name": "Ada", "email": None, "age": 3}
    assert images(mapper, Insert("person", {"id": 1, "name": "Ada", "age": 3})) == {"after": whole}
    assert images(mapper, Update("person", {"id": 1, "age": 4})) == {}
    assert images(mapper, Update("person", {"id": 1, "age": 4}, whole)) == {
        "before": whole,
        "after": {**whole, "age": 4},
    }
    assert images(mapper, Delete("person", {"id": 1})) == {}
