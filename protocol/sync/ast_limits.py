"""How large a query may be, counted in its JSON before anything is made of it."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.sync.ast_json import AstError


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What the JSON of one query may consist of.

    `objects`: a comparison is three, a subquery three and its conditions. `values`: members of all objects and lists,
    so a list of IN counts each of its members. `characters`: of all strings together.
    """

    objects: int
    values: int
    characters: int


def check_size(value: object, limits: QueryLimits) -> None:
    """Raise `AstError` for a query that is too large; takes time in proportion to the limits, not to the query."""
    objects = values = characters = 0
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            characters += len(each)
        elif isinstance(each, dict | list):
            objects += isinstance(each, dict)
            values += len(each)
            if values <= limits.values:
                waiting.extend(each.values() if isinstance(each, dict) else each)
        _refuse(objects, limits.objects, "objects (conditions and subqueries)")
        _refuse(values, limits.values, "values (members of objects and of lists)")
        _refuse(characters, limits.characters, "characters of text")


def _refuse(count: int, most: int, what: str) -> None:
    if count > most:
        raise AstError("", f"the query is too large: at most {most} {what} are allowed; ask for less at once")
