"""An adapter around an adapter: what it does not change is the inner one's, so that every lane runs it as any other."""

from __future__ import annotations

from changesource_sdk.adapter import Acknowledging, Adapter, Closing, MeasuringDistance, Position


def distance(adapter: Adapter, position: Position, head: Position) -> int | None:
    """How far a position is behind the head that the adapter reported; None if it cannot be counted."""
    if position == head:
        return 0
    if isinstance(adapter, MeasuringDistance):
        return adapter.distance(position, head)
    return max(0, head - position) if type(position) is int and type(head) is int else None


class AdapterWrapper:
    """The part that all such adapters share. Invariant: `inner` is set before any other attribute is read."""

    inner: Adapter

    def __getattr__(self, name: str) -> object:
        """Attributes of the inner adapter beyond the contract, such as its `poll_interval`."""
        if name == "inner":
            # Not there yet while an instance is unpickled.
            raise AttributeError(name)
        return getattr(self.inner, name)

    def acknowledge(self, position: Position) -> None:
        """Call the inner adapter's, if it has one."""
        if isinstance(self.inner, Acknowledging):
            self.inner.acknowledge(position)

    def close(self) -> None:
        """Call the inner adapter's, if it has one."""
        if isinstance(self.inner, Closing):
            self.inner.close()
