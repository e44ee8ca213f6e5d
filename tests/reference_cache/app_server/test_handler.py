"""Declaring handlers, and checking arguments before they run."""

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from reference_cache.app_server.errors import DeclarationError, InvalidArguments, UnknownHandler
from reference_cache.app_server.handler import Handlers


class Point(BaseModel):
    x: int
    y: int = 0


def handlers() -> Handlers:
    return Handlers("mutator", frozenset({"tx", "ctx"}))


async def test_a_handler_gets_what_its_parameters_name() -> None:
    declared = handlers()
    declared.add("all", lambda ctx, tx, args: (ctx, tx, args), Point)
    declared.add("some", lambda ctx: ctx)
    assert await declared.get("all")({"x": 1}, tx="t", ctx="c") == ("c", "t", Point(x=1))
    assert await declared.get("some")(None, tx="t", ctx="c") == "c"


async def test_async_and_plain_functions_are_the_same_to_the_caller() -> None:
    async def later(args: Point) -> int:
        return args.x

    declared = handlers()
    declared.add("later", later)
    assert await declared.get("later")({"x": 3}) == 3


async def test_arguments_may_be_of_any_type_pydantic_checks() -> None:
    @dataclass
    class Pair:
        a: int
        b: str

    declared = handlers()
    declared.add("text", lambda args: args, str)
    declared.add("pair", lambda args: args, Pair)
    declared.add("maybe", lambda args: args, Point | None)
    assert await declared.get("text")("hello") == "hello"
    assert await declared.get("pair")({"a": 1, "b": "x"}) == Pair(1, "x")
    assert await declared.get("maybe")(None) is None


@pytest.mark.parametrize(
    ("given", "path"), [(None, ""), ({}, "x"), ({"x": "many"}, "x"), ({"x": 1, "y": [2]}, "y"), ([1], "")]
)
async def test_wrong_arguments_are_refused_with_their_place(given: Any, path: str) -> None:
    declared = handlers()
    declared.add("move", lambda args: None, Point)
    with pytest.raises(InvalidArguments, match="invalid arguments for move") as caught:
        await declared.get("move")(given)
    assert caught.value.details[0]["path"] == path


async def test_a_handler_without_args_takes_no_argument() -> None:
    declared = handlers()
    declared.add("bare", lambda: "done")
    assert await declared.get("bare")(None) == "done"
    with pytest.raises(InvalidArguments, match="takes no argument"):
        await declared.get("bare")({"x": 1})


def test_names_of_older_clients_mean_the_same_handler() -> None:
    declared = handlers()
    declared.add("issue.close", lambda: None)
    assert declared.get("issue|close") is declared.get("issue.close")
    with pytest.raises(UnknownHandler, match=r"Mutator not found: issue\.open"):
        declared.get("issue.open")


def test_mistakes_in_a_declaration_are_reported_where_it_is() -> None:
    declared = handlers()
    declared.add("once", lambda: None)
    with pytest.raises(DeclarationError, match="declared twice"):
        declared.add("once", lambda: None)
    with pytest.raises(DeclarationError, match="did you mean 'args'"):
        declared.add("typo", lambda arg: None)
    with pytest.raises(DeclarationError, match="annotate `args`"):
        declared.add("untyped", lambda args: None)
    with pytest.raises(DeclarationError, match="takes no `args`"):
        declared.add("extra", lambda ctx: None, Point)
    with pytest.raises(DeclarationError, match="pydantic cannot check"):
        declared.add("odd", lambda args: None, type("Odd", (), {}))


def test_an_annotation_that_cannot_be_resolved_asks_for_the_type() -> None:
    def handler(args: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821
        pass

    with pytest.raises(DeclarationError, match="args=TheType"):
        handlers().add("lost", handler)
