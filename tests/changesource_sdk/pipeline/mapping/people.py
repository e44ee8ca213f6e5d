"""A small table and the functions its mappings use: importable by name, as a user's would be."""

from __future__ import annotations

from changesource_sdk.adapter import Row
from changesource_sdk.pipeline.mapping.declare import Function, MappedColumn, Mask, TableMapping
from changesource_sdk.schema import Column, Index, Table

PERSON = Table(
    "person",
    [Column("id", int), Column("name", str, optional=False), Column("email", str), Column("age", int)],
    indexes=[Index("person_age", ["age"])],
)
MAPPINGS = {
    "person": TableMapping(
        name="adult",
        select=["id", "name", "email"],
        rename={"name": "label"},
        filter=Function("tests.changesource_sdk.pipeline.mapping.people:is_adult"),
        columns={
            "email": MappedColumn(Mask("redact")),
            "label_length": MappedColumn(
                Function("tests.changesource_sdk.pipeline.mapping.people:name_length"), "int8"
            ),
        },
    )
}
NOT_MAPPINGS = ["person"]


def is_adult(row: Row) -> bool:
    age = row["age"]
    return isinstance(age, int) and age >= 18


def has_email(row: Row) -> bool:
    return row["email"] is not None


def name_length(row: Row) -> int:
    return len(str(row["name"]))


def domain(row: Row) -> str | None:
    email = row.get("email")
    return None if email is None else str(email).rpartition("@")[2]


def negative_id(row: Row) -> int:
    number = row["id"]
    assert isinstance(number, int)
    return -number


def broken(row: Row) -> object:
    raise RuntimeError("no such thing")
