"""The base of operators over one input, whose schema and nodes are those of the input."""

from __future__ import annotations

from abc import ABC, abstractmethod

from reference_cache.zql.ivm.change import Change, Node, Stream
from reference_cache.zql.ivm.operator import Input, InputSchema, Push, Request, no_output, to_nobody
from reference_cache.zql.schema import Row


class OneInput(ABC):
    """An `Input` that passes some nodes of another one, unchanged."""

    def __init__(self, input: Input) -> None:
        self._input = input
        # Set by `set_output`, and again by `destroy`.
        self._output: Push = no_output
        input.set_output(self._push)

    @property
    def schema(self) -> InputSchema:
        return self._input.schema

    def set_output(self, push: Push) -> None:
        self._output = push

    def node(self, row: Row) -> Node:
        return self._input.node(row)

    def destroy(self) -> None:
        self._output = to_nobody
        self._input.destroy()

    @abstractmethod
    def fetch(self, request: Request) -> Stream:
        """Open a stream of the nodes that pass."""

    @abstractmethod
    def _push(self, change: Change) -> None:
        """Handle a change of the input."""
