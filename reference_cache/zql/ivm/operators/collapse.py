"""Several branches saw one change; what comes out is at most one.

Shared by `fan` (OR of conditions on one stream) and `union` (OR whose branches are streams of their own).
"""

from __future__ import annotations

from collections.abc import Sequence

from reference_cache.zql.ivm.change import Add, Change, Child, Edit, Remove


def collapse(incoming: Change, emitted: Sequence[Change]) -> Change | None:
    """The one change that is the effect of what the branches made of `incoming`.

    A branch that kept the change's kind wins: the row was and is in the output. Otherwise branches agree on an add
    or a remove, except for an edit that one branch lost and another gained, which stays an edit.
    """
    if not emitted:
        return None
    if len(emitted) == 1:
        return emitted[0]
    kept = next((change for change in emitted if type(change) is type(incoming)), None)
    if kept is not None:
        return kept
    added = next((change for change in emitted if isinstance(change, Add)), None)
    removed = next((change for change in emitted if isinstance(change, Remove)), None)
    if added is None or removed is None:
        return added or removed
    if isinstance(incoming, Child):
        raise AssertionError(f"branches both added and removed {incoming.node.row!r} for one child change")
    return Edit(added.node, removed.node)
