"""Handlers of queries and mutators: which of `tx`, `args` and `ctx` they take, and arguments checked before they run.

A handler is a plain or async function whose parameters are named after what it wants. The annotation of `args` (a
pydantic model, a dataclass, any type pydantic can check) is what a client's argument must fit; a handler without `args`
takes no argument. Mistakes in a declaration are raised where it stands, not at the first request.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError

from reference_cache.app_server.errors import DeclarationError, InvalidArguments, UnknownName
from reference_cache.zql.nearest import unknown

ARGUMENTS = "args"
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Handler:
    """A declared function. Invariant: `wants` are names its caller can give, and `arguments` checks `args`."""

    name: str
    function: Callable[..., Any]
    wants: frozenset[str]
    arguments: TypeAdapter[Any] | None

    async def __call__(self, given: object, **offered: object) -> Any:
        """Check the argument, run the function with what it wants of the rest; what it returns."""
        chosen: dict[str, object] = {name: value for name, value in offered.items() if name in self.wants}
        argument = self._checked(given)
        if ARGUMENTS in self.wants:
            chosen[ARGUMENTS] = argument
        result = self.function(**chosen)
        return await result if inspect.isawaitable(result) else result

    def _checked(self, given: object) -> object:
        if self.arguments is None:
            if given is None:
                return None
            raise InvalidArguments(f"{self.name} takes no argument", [{"path": "", "message": "not expected"}])
        try:
            return self.arguments.validate_python(given)
        except ValidationError as error:
            raise _misfit(self.name, error) from None


def _misfit(name: str, error: ValidationError) -> InvalidArguments:
    found = [
        {"path": ".".join(map(str, each["loc"])), "message": each["msg"]}
        for each in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    first = found[0]
    place = f"{first['path']}: " if first["path"] else ""
    return InvalidArguments(f"invalid arguments for {name}: {place}{first['message']}", found)


class Handlers:
    """Handlers by name. Invariant: a name is declared once; `a|b`, as older clients write it, is `a.b`."""

    def __init__(self, kind: str, offers: frozenset[str]) -> None:
        self._kind = kind
        self._offers = offers
        self._handlers: dict[str, Handler] = {}

    def add(self, name: str, function: Callable[..., Any], arguments: Any = None) -> None:
        """Declare a function; `arguments` is the type of `args` where its annotation does not say it."""
        if canonical(name) in self._handlers:
            raise DeclarationError(f"{self._kind} {name!r} is declared twice")
        self._handlers[canonical(name)] = _handler(self._kind, canonical(name), function, self._offers, arguments)

    def declare(self, name: str, arguments: Any = None) -> Callable[[Function], Function]:
        """As `add`, by decorating the function."""

        def declare(function: Function) -> Function:
            self.add(name, function, arguments)
            return function

        return declare

    def get(self, name: str) -> Handler:
        """The handler; `UnknownName` if nobody declared it."""
        found = self._handlers.get(canonical(name))
        if found is None:
            raise UnknownName(f"{self._kind.capitalize()} not found: {name}")
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """All declared names, in the order of their declaration."""
        return tuple(self._handlers)


def canonical(name: str) -> str:
    """A name as it is declared."""
    return name.replace("|", ".")


def _handler(kind: str, name: str, function: Callable[..., Any], offers: frozenset[str], arguments: Any) -> Handler:
    where = f"{kind} {name!r}"
    parameters = inspect.signature(function).parameters
    known = offers | {ARGUMENTS}
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
