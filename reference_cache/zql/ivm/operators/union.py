"""UnionFanOut and UnionFanIn: an OR with a flipped EXISTS in it, whose branches are streams of their own.

`UnionFanOut` gives one input to several branches; `UnionFanIn` merges the branches' outputs. A row that is in several
branches is in the output once, as the node of the *lowest* branch that has it, with that branch's relationships only.
Pushes follow the same rule. When a row moves to another branch, the union removes the old node and adds the new one, so
that receivers which count references to the rows below it count the same rows down that they counted up.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from reference_cache.zql.ivm.change import YIELD, Add, Change, Child, Edit, Node, Pause, Remove, Stream
from reference_cache.zql.ivm.operator import Input, InputSchema, Push, Request, first, no_output, to_nobody
from reference_cache.zql.ivm.operators.undo import undone
from reference_cache.zql.ordering import join_key
from reference_cache.zql.schema import Row


class UnionFanOut:
    """One input for several branches. Invariant: a change has gone through every branch before the union emits."""

    def __init__(self, input: Input) -> None:
        self._input = input
        # Written by `branch`, while the pipeline is built.
        self._branches: list[_BranchStart] = []
        # Set by `set_fan_in`; None again once all branches are destroyed.
        self._fan_in: UnionFanIn | None = None
        # How many branches are destroyed; with the last one the input is destroyed.
        self._destroyed = 0
        input.set_output(self._push)

    @property
    def schema(self) -> InputSchema:
        return self._input.schema

    def branch(self) -> Input:
        """Add a branch, and return what it reads."""
        start = _BranchStart(self, self._input)
        self._branches.append(start)
        return start

    def set_fan_in(self, fan_in: UnionFanIn) -> None:
        """Set the operator that merges the branches; called once, by its constructor."""
        self._fan_in = fan_in

    def _push(self, change: Change) -> None:
        fan_in = self._fan_in
        assert fan_in is not None
        fan_in.begin()
        for branch in self._branches:
            branch.output(change)
        fan_in.finish(change)

    def branch_destroyed(self) -> None:
        """Count a destroyed branch, and destroy the input with the last one."""
        self._destroyed += 1
        if self._destroyed == len(self._branches):
            self._fan_in = None
            self._branches.clear()
            self._input.destroy()


class _BranchStart:
    """What a branch reads: the fan-out's input."""

    def __init__(self, fan_out: UnionFanOut, input: Input) -> None:
        self._fan_out = fan_out
        self._input = input
        # Set by `set_output`, and again by `destroy`; called by the fan-out.
        self.output: Push = no_output

    @property
    def schema(self) -> InputSchema:
        return self._input.schema

    def set_output(self, push: Push) -> None:
        self.output = push

    def fetch(self, request: Request) -> Stream:
        return self._input.fetch(request)

    def node(self, row: Row) -> Node:
        return self._input.node(row)

    def destroy(self) -> None:
        self.output = to_nobody
        self._fan_out.branch_destroyed()


class UnionFanIn:
    """The merged branches.

    Invariant: a row is in the output iff some branch has it, with the relationships of the lowest such branch.
    """

    def __init__(self, fan_out: UnionFanOut, branches: list[Input]) -> None:
        self._branches = branches
        # What the branches make of a change that the fan-out pushes; None at other times.
        self._collected: list[Change] | None = None
        # Set by `set_output`, and again by `destroy`.
        self._output: Push = no_output
        self.schema = _merged_schema(fan_out.schema, branches)
        self._id_columns = self.schema.table.primary_key
        self._id = join_key(self._id_columns, self.schema.table)
        fan_out.set_fan_in(self)
        for number, branch in enumerate(branches):
            branch.set_output(partial(self._push, number))

    def set_output(self, push: Push) -> None:
        self._output = push

    def destroy(self) -> None:
        self._output = to_nobody
        for branch in self._branches:
            branch.destroy()

    def node(self, row: Row) -> Node:
        for branch in self._branches:
            node = self._in_branch(branch, row)
            if node is not None:
                return node
        raise AssertionError(f"{row!r} is in no branch of the union")

    def _in_branch(self, branch: Input, row: Row) -> Node | None:
        return first(branch.fetch(Request(self._id_columns, self._id(row))))

    def fetch(self, request: Request) -> Stream:
        """Merge the branches in order; on equal rows the lowest branch's node is taken and the others dropped."""
        order_key = self.schema.order_key
        streams = [iter(branch.fetch(request)) for branch in self._branches]
        heads: list[Node | None] = []
        for stream in streams:
            heads.append((yield from _next_node(stream)))
        while True:
            keys = {i: order_key(head.row) for i, head in enumerate(heads) if head is not None}
            if not keys:
                return
            # max and min both return the first of equals: the lowest branch.
            lead = (max if request.reverse else min)(keys, key=keys.__getitem__)
            node = heads[lead]
            assert node is not None
            yield node
            for i, key in keys.items():
                if key == keys[lead]:
                    heads[i] = yield from _next_node(streams[i])

    def begin(self) -> None:
        """Collect what the branches make of a change, until `finish`; called before the fan-out pushes the change."""
        self._collected = []

    def finish(self, incoming: Change) -> None:
        """Push what the change means for the union; the fan-out calls it when all branches have had the change."""
        collected, self._collected = self._collected, None
        assert collected is not None
        self._emit_collected(incoming, collected)

    def _emit_collected(self, incoming: Change, collected: list[Change]) -> None:
        before = next((change for change in collected if not isinstance(change, Add)), None)
        after = next((change for change in collected if not isinstance(change, Remove)), None)
        if before is after:
            if before is not None:
                self._output(before)
            return
        # The row stays but belongs to another branch now, with other relationships.
        if before is not None:
            self._output(Remove(self._node_before(before)))
        if after is not None:
            self._output(Add(after.node))

    def _node_before(self, change: Change) -> Node:
        if isinstance(change, Edit):
            return change.old_node
        if not isinstance(change, Child):
            return change.node
        return change.node.with_relationship(change.name, partial(self._children_before, change))

    def _children_before(self, change: Child) -> Stream:
        return undone(change.node.relationships[change.name](), change.change, self.schema.relationships[change.name])

    def _push(self, number: int, change: Change) -> None:
        if self._collected is not None:
            # Branches push in order; one that is a union itself may push a remove and then an add.
            self._collected.append(change)
            return
        self._push_from_inside(number, change)

    def _push_from_inside(self, number: int, change: Change) -> None:
        """Push a change that did not come through the fan-out, but from the child side of a branch's flipped EXISTS.

        The other branches have not seen it; what it does to the output depends on whether they have the row.
        """
        row = change.node.row
        if any(self._in_branch(branch, row) is not None for branch in self._branches[:number]):
            return
        if isinstance(change, Child):
            self._output(change)
            return
        higher = (self._in_branch(branch, row) for branch in self._branches[number + 1 :])
        other = next((node for node in higher if node is not None), None)
        if isinstance(change, Add) and other is not None:
            self._output(Remove(other))
        self._output(change)
        if isinstance(change, Remove) and other is not None:
            self._output(Add(other))


def _next_node(stream: Stream) -> Generator[Pause, None, Node | None]:
    """The next node of a stream, passing its pauses on."""
    for node in stream:
        if node is YIELD:
            yield node
        else:
            return node
    return None


def _merged_schema(base: InputSchema, branches: list[Input]) -> InputSchema:
    merged = base
    for branch in branches:
        schema = branch.schema
        if schema.table != base.table or schema.ordering != base.ordering or schema.system != base.system:
            raise AssertionError("the branches of a union must read the same table in the same order")
        for name, child in schema.relationships.items():
            merged = merged.with_relationship(name, child, hidden=child.hidden, system=child.system)
    if base.ordering is None:
        raise AssertionError("a union needs an ordered input")
    return merged
