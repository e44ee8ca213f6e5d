"""Handlers of queries and mutators: which of `tx`, `args` and `ctx` they take, and validation of their arguments.

A handler is a plain or async function with parameters of these names. The annotation of `args` (a pydantic model, a
dataclass, any type pydantic can validate) is the type of a client's argument; a handler without `args` takes no
argument. Mistakes in a declaration are raised at import, not at the first request.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError

from reference_cache.app_server.errors import DeclarationError, InvalidArguments, UnknownHandler
from reference_cache.zql.nearest import unknown

ARGUMENTS = "args"
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Handler:
    """A declared function; `parameters` are the names it takes, `arguments` validates `args`."""

    name: str
    function: Callable[..., Any]
    parameters: frozenset[str]
    arguments: TypeAdapter[Any] | None

    async def __call__(self, argument: object, **available: object) -> Any:
        """Validate the client's argument and run the function with those of `available` that it takes."""
        kwargs: dict[str, object] = {name: value for name, value in available.items() if name in self.parameters}
        validated = self._validated(argument)
        if ARGUMENTS in self.parameters:
            kwargs[ARGUMENTS] = validated
        result = self.function(**kwargs)
        return await result if inspect.isawaitable(result) else result

    def _validated(self, argument: object) -> object:
        if self.arguments is None:
            if argument is None:
                return None
            raise InvalidArguments(f"{self.name} takes no argument", [{"path": "", "message": "not expected"}])
        try:
            return self.arguments.validate_python(argument)
        except ValidationError as error:
            raise _invalid_arguments(self.name, error) from None


def _invalid_arguments(name: str, error: ValidationError) -> InvalidArguments:
    mismatches = [
        {"path": ".".join(map(str, each["loc"])), "message": each["msg"]}
        for each in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    first = mismatches[0]
    path = f"{first['path']}: " if first["path"] else ""
    return InvalidArguments(f"invalid arguments for {name}: {path}{first['message']}", mismatches)


class Handlers:
    """Handlers by name, each declared once. Names that older clients write `a|b` mean `a.b`.

    `available` are the parameters that a handler may take in addition to `args`.
    """

    def __init__(self, kind: str, available: frozenset[str]) -> None:
        self._kind = kind
        self._available = available
        # By canonical name, in the order of declaration; filled by `add` while the application is imported.
        self._handlers: dict[str, Handler] = {}

    def add(self, name: str, function: Callable[..., Any], arguments: Any = None) -> None:
        """Declare a function; `arguments` overrides the annotation of `args`. Raises `DeclarationError`."""
        if canonical(name) in self._handlers:
            raise DeclarationError(f"{self._kind} {name!r} is declared twice")
        self._handlers[canonical(name)] = _handler(self._kind, canonical(name), function, self._available, arguments)

    def declare(self, name: str, arguments: Any = None) -> Callable[[Function], Function]:
        """`add` as a decorator."""

        def declare(function: Function) -> Function:
            self.add(name, function, arguments)
            return function

        return declare

    def get(self, name: str) -> Handler:
        """Raises `UnknownHandler`."""
        handler = self._handlers.get(canonical(name))
        if handler is None:
            raise UnknownHandler(f"{self._kind.capitalize()} not found: {name}")
        return handler

    @property
    def names(self) -> tuple[str, ...]:
        """All declared names, in the order of declaration."""
        return tuple(self._handlers)


def canonical(name: str) -> str:
    """The name in its dotted form."""
    return name.replace("|", ".")


def _handler(kind: str, name: str, function: Callable[..., Any], available: frozenset[str], arguments: Any) -> Handler:
    where = f"{kind} {name!r}"
    parameters = inspect.signature(function).parameters
    known = available | {ARGUMENTS}
    for parameter in parameters.values():
        optional = parameter.default is not parameter.empty
        if parameter.name not in known and not optional:
            raise DeclarationError(f"{where}: {unknown('parameter', parameter.name, known)}")
    if ARGUMENTS not in parameters:
        if arguments is not None:
            raise DeclarationError(f"{where}: a type of arguments is given, and the function takes no `args`")
        return Handler(name, function, known & parameters.keys(), None)
    annotation = arguments if arguments is not None else _annotation(where, function, parameters)
    return Handler(name, function, known & parameters.keys(), _type_adapter(where, annotation))


def _annotation(where: str, function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]) -> Any:
    if parameters[ARGUMENTS].annotation is inspect.Parameter.empty:
        raise DeclarationError(f"{where}: annotate `args` with the type that arguments must fit")
    annotation = parameters[ARGUMENTS].annotation
    if not isinstance(annotation, str):
        return annotation
    try:
        return get_type_hints(function)[ARGUMENTS]
    except NameError as error:
        raise DeclarationError(
            f"{where}: the annotation of `args` cannot be resolved ({error}); give define(…, args=TheType)"
        ) from None


def _type_adapter(where: str, annotation: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotation)
    except PydanticSchemaGenerationError as error:
        raise DeclarationError(f"{where}: pydantic cannot check {annotation!r}: {error}") from None
