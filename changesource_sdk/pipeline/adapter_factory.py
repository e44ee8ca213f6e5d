"""Making adapters from an import path and settings, in any process, and closing them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from changesource_sdk.adapter import Adapter, Closing
from changesource_sdk.errors import ConfigurationError
from changesource_sdk.pipeline.snapshot.take import adapter_call, let_go


def adapter_factory(path: str, settings: Mapping[str, object]) -> Callable[[], Adapter]:
    """What makes the adapter `module:Class` with these settings, as often as needed."""
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            "adapter-import", f"cannot load the adapter: {error}", where=path, fix="give it as module:Class"
        ) from error

    def make() -> Adapter:
        adapter: Adapter = found(**settings)
        return adapter

    return make


@contextmanager
def opened(make: Callable[[], Adapter]) -> Iterator[Adapter]:
    """An adapter, closed at the end of the block."""
    with adapter_call("creating the adapter"):
        adapter = make()
    try:
        yield adapter
    finally:
        if isinstance(adapter, Closing):
            let_go("closing the adapter", adapter.close)
