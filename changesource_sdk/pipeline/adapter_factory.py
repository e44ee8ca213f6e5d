"""Making adapters from an import path and settings, in any process, and closing them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from changesource_sdk.adapter import Adapter, Closing
from changesource_sdk.errors import ConfigurationError
from changesource_sdk.pipeline.snapshot.take import adapter_call, close_quietly


def adapter_factory(path: str, settings: Mapping[str, object]) -> Callable[[], Adapter]:
    """Return a function that makes the adapter `module:Class` with these settings, a new one at each call.

    Raises `ConfigurationError` if it cannot be imported.
    """
    module, _, name = path.partition(":")
    try:
        adapter_class = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            "adapter-import", f"cannot load the adapter: {error}", where=path, fix="give it as module:Class"
        ) from error

    def make() -> Adapter:
        adapter: Adapter = adapter_class(**settings)
        return adapter

    return make


@contextmanager
def opened(make: Callable[[], Adapter]) -> Iterator[Adapter]:
    """Make an adapter and close it at the end of the block. Raises `AdapterError` if it cannot be made."""
    with adapter_call("creating the adapter"):
        adapter = make()
    try:
        yield adapter
    finally:
        if isinstance(adapter, Closing):
            close_quietly("closing the adapter", adapter.close)
