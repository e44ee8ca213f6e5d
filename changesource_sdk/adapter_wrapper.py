"""An adapter around an adapter: what it does not change is the inner one's, so that every lane runs it as any other."""

from __future__ import annotations

from changesource_sdk.adapter import Acknowledging, Adapter, Closing, Position


class AdapterWrapper:
    """The part that all such adapters share. Invariant: `inner` is set before anything else is asked for."""

    inner: Adapter

    def __getattr__(self, name: str) -> object:
        """What the adapter offers beyond the contract, such as its `poll_interval`."""
        if name == "inner":
            # Not there yet while an instance is unpickled.
            raise AttributeError(name)
        return getattr(self.inner, name)

    def acknowledge(self, position: Position) -> None:
        """Passed on, if the adapter wants to know."""
        if isinstance(self.inner, Acknowledging):
            self.inner.acknowledge(position)

    def close(self) -> None:
        """Passed on, if the adapter has something to close."""
        if isinstance(self.inner, Closing):
            self.inner.close()
