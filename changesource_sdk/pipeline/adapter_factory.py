"""Making adapters: from an import path and settings, as often and wherever needed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

from changesource_sdk.adapter import Adapter
from changesource_sdk.errors import ConfigurationError


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
