"""An operator that changes nothing and notes everything; for tests and for looking into a running pipeline.

A `Recorder` stands between two operators. Its messages, read together with those of others sharing the log, tell in
which order fetches and pushes happened. `plain_node` and `plain_change` turn nodes and changes into data that
compares and prints well; they read relationships, so apply them at the moment of interest.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from reference_cache.zql.ivm.change import Add, Change, Child, Edit, Node, Remove, Stream
from reference_cache.zql.ivm.one_input import OneInput
from reference_cache.zql.ivm.operator import Input, Request, nodes

Message: TypeAlias = tuple[Any, ...]


def plain_node(node: Node) -> Message:
    """The row, followed by its relationships if it has any."""
    below = {name: [plain_node(child) for child in nodes(children())] for name, children in node.relationships.items()}
    return (node.row, below) if below else (node.row,)


def plain_change(change: Change) -> Message:
    """The change's kind and content."""
    if isinstance(change, Add):
        return ("add", *plain_node(change.node))
    if isinstance(change, Remove):
        return ("remove", *plain_node(change.node))
    if isinstance(change, Edit):
        return ("edit", change.node.row, change.old_node.row)
    assert isinstance(change, Child)
    return ("child", change.node.row, change.name, plain_change(change.change))


def plain_request(request: Request) -> Message:
    """What a fetch asked for, defaults left out."""
    asked: dict[str, Any] = {}
    if request.columns:
        asked["where"] = (request.columns, request.key)
    if request.any_of:
        asked["any_of"] = [(any_of.columns, sorted(any_of.keys, key=repr)) for any_of in request.any_of]
    if request.start is not None:
        asked["at" if request.start.inclusive else "after"] = request.start.row
    if request.reverse:
        asked["reverse"] = True
    return ("fetch", asked)


class Recorder(OneInput):
    """Passes everything on, and appends `(name, ...)` to the log for each fetch and push that goes through."""

    def __init__(self, input: Input, name: str, log: list[Message]) -> None:
        super().__init__(input)
        self._name = name
        self._log = log

    def destroy(self) -> None:
        self._log.append((self._name, "destroy"))
        self._input.destroy()

    def fetch(self, request: Request) -> Stream:
        self._log.append((self._name, *plain_request(request)))
        return self._input.fetch(request)

    def _push(self, change: Change) -> None:
        self._log.append((self._name, *plain_change(change)))
        self._output(change)
