"""What pydantic says about a value that does not fit its model, as error messages of this project quote it."""

from pydantic import ValidationError

Location = tuple[int | str, ...]
"""The way from the whole value to the wrong part: names and indexes. Pydantic adds the tags of union members."""


def first_mistake(error: ValidationError) -> tuple[Location, str]:
    """Where the first mistake is, and what is wrong. The value itself is left out: it may be large, or a secret."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return first["loc"], first["msg"].removeprefix("Value error, ")
