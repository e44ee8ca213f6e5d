"""A union that announces EXISTS rows exactly as the official engine does, drift included.

The official union forgets which branch a row came from: hydration announces the rows below the lowest branch only, a
later remove takes back those of every branch, and a branch that gains or loses a row which another branch has says
nothing. Trees are unaffected, but running reference counts of EXISTS rows drift away from those of a fresh hydration
and may even become negative. `UnionFanIn` does not drift and is what pipelines use; this class is for comparing with
recordings of the official engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from reference_cache.zql.engine import build
from reference_cache.zql.ivm.change import Add, Change, Child, Edit, Node, Remove
from reference_cache.zql.ivm.operators.fan import collapse
from reference_cache.zql.ivm.operators.union import UnionFanIn


class DriftingUnionFanIn(UnionFanIn):
    """As `UnionFanIn`, except for which relationships changed nodes carry: those of all branches, merged."""

    def _emit_collected(self, incoming: Change, collected: list[Change]) -> None:
        change = collapse(incoming, collected)
        if isinstance(change, Add):
            self._output(Add(_merged([each.node for each in collected if isinstance(each, Add)])))
        elif isinstance(change, Remove):
            self._output(Remove(_merged([each.node for each in collected if isinstance(each, Remove)])))
        elif isinstance(change, Edit):
            new = [each.node for each in collected if isinstance(each, Edit | Add)]
            old = [each.old_node for each in collected if isinstance(each, Edit)]
            old += [each.node for each in collected if isinstance(each, Remove)]
            self._output(Edit(_merged(new), _merged(old)))
        elif change is not None:
            self._output(change)

    def _push_from_inside(self, number: int, change: Change) -> None:
        others = (branch for i, branch in enumerate(self._branches) if i != number)
        if isinstance(change, Child) or all(self._in_branch(branch, change.node.row) is None for branch in others):
            self._output(change)


@contextmanager
def drifting() -> Iterator[None]:
    """Pipelines that are built meanwhile have the drifting union."""
    with patch.object(build, "UnionFanIn", DriftingUnionFanIn):
        yield


def _merged(nodes: list[Node]) -> Node:
    """One node with all relationships; of equal names the first counts."""
    relationships = dict(nodes[0].relationships)
    for node in nodes[1:]:
        for name, children in node.relationships.items():
            relationships.setdefault(name, children)
    return Node(nodes[0].row, relationships)
