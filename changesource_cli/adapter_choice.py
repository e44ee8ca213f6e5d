"""From the adapter's name on the command line to a class, with its settings checked before anything starts.

A name is an entry point of the group `changesource.adapters`, one of the adapters that come with this distribution (so
that a source tree works without being installed), or `module:Class` for one's own. The settings are compared with the
class's constructor: an unknown or missing one is told with the nearest match, not found out by a crash in a child.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

from changesource_sdk.adapter import Publishing
from changesource_sdk.config import nearest
from changesource_sdk.errors import ChangesourceError, ConfigurationError

GROUP = "changesource.adapters"
METHODS = {"tables": "self", "snapshot": "self", "changes": "self, after"}
BUNDLED = {
    "kafka": "adapters.kafka:KafkaAdapter",
    "memory": "adapters.memory:MemoryAdapter",
    "postgres": "adapters.postgres:PostgresAdapter",
    "spark-tables": "adapters.spark_tables:SparkTablesAdapter",
    "sqlite": "adapters.sqlite:SqliteAdapter",
}


def known_adapters() -> dict[str, str]:
    """Every adapter that can be named, with the `module:Class` behind it."""
    return BUNDLED | {point.name: point.value for point in entry_points(group=GROUP)}


def resolve(name: str) -> str:
    """The `module:Class` of an adapter. Raises `ConfigurationError` with the nearest name."""
    if not name:
        raise ConfigurationError(
            "no-adapter", "no adapter given", "the command line", f"known: {', '.join(sorted(known_adapters()))}"
        )
    if ":" in name:
        return name
    known = known_adapters()
    if name not in known:
        hint = nearest(name, list(known))
        raise ConfigurationError("unknown-adapter", f"no adapter is called {name!r}", fix=f"{hint} (or module:Class)")
    return known[name]


def import_class(path: str) -> type:
    """Import `module:Class`; the current directory counts, as it does for `python -m`."""
    module_name, _, class_name = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigurationError(
            "adapter-import",
            f"cannot import {module_name}: {error}",
            fix="install it, or run from the directory that holds it",
        ) from None
    except Exception as error:
        raise ConfigurationError(
            "adapter-import",
            f"importing {module_name} fails: {type(error).__name__}: {error}",
            where=_where(error),
            fix="correct that line",
        ) from None
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        classes = [name for name, value in vars(module).items() if isinstance(value, type)]
        fix = nearest(class_name, classes) if classes else f"define it there, or name another module than {module_name}"
        raise ConfigurationError("adapter-import", f"{module_name} has no class {class_name!r}", fix=fix)
    return found


def load_class(path: str) -> type:
    """Import an adapter's `module:Class` and see that it is one."""
    found = import_class(path)
    class_name = found.__name__
    lacking = [name for name in METHODS if not callable(getattr(found, name, None))]
    if lacking:
        raise ConfigurationError(
            "not-an-adapter",
            f"{class_name} has no method {', '.join(lacking)}",
            path,
            f"define {', '.join(f'{name}({METHODS[name]})' for name in lacking)}: see docs/reference/adapter.md",
        )
    for name, parameters in METHODS.items():
        _check_signature(found, name, parameters)
    return found


def _check_signature(adapter: type, name: str, parameters: str) -> None:
    """Raise unless a method can be called as the pipeline does."""
    method = getattr(adapter, name)
    try:
        inspect.signature(method).bind(*parameters.split(", "))
    except TypeError as error:
        raise ConfigurationError(
            "wrong-signature",
            f"{adapter.__name__}.{name} cannot be called: {error}",
            fix=f"define it as {name}({parameters})",
        ) from None
    except ValueError:
        return  # no signature to be had: a method written in C


def _where(error: Exception) -> str:
    """File and line that an import failed at."""
    if isinstance(error, SyntaxError):
        return f"{os.path.basename(error.filename or '?')} line {error.lineno}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{os.path.basename(frame.filename)} line {frame.lineno}"


def check_settings(adapter: type, settings: Mapping[str, object]) -> None:
    """Compare settings with the constructor's parameters."""
    parameters = [p for p in inspect.signature(adapter).parameters.values() if p.kind is not p.VAR_POSITIONAL]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    names = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    for key in settings:
        if key not in names and not open_ended:
            hint = nearest(key, names) if names else "it takes no settings"
            raise ConfigurationError("unknown-setting", f"{adapter.__name__} has no setting {key!r}", "--set", hint)
    for parameter in parameters:
        required = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        if required and parameter.name not in settings:
            raise ConfigurationError(
                "missing-setting",
                f"{adapter.__name__} needs the setting {parameter.name!r}",
                fix=f"add --set {parameter.name}=…",
            )


def with_own_folder(adapter: type, settings: Mapping[str, object], state: Path) -> Mapping[str, object]:
    """The settings of an adapter that remembers things (it has a setting `state`), with a folder for them in the
    state directory unless one is given.
    """
    if "state" in settings or "state" not in inspect.signature(adapter).parameters:
        return settings
    return {**settings, "state": str(state.absolute() / "adapter")}


def try_settings(adapter: type, settings: Mapping[str, object]) -> frozenset[str] | None:
    """Make the adapter once, here, so that settings it refuses are told at once and not by a child in a loop; the
    publications it follows, if it knows any.

    Adapters are cheap to make and may be made any number of times; the store itself may be down, which is no mistake.
    """
    check_settings(adapter, settings)
    try:
        made = adapter(**settings)
    except ChangesourceError:
        raise
    except Exception as error:
        raise ConfigurationError(
            "settings-refused",
            f"{adapter.__name__} refuses its settings: {type(error).__name__}: {error}",
            "--set",
            "correct the setting it names",
        ) from error
    if callable(close := getattr(made, "close", None)):
        close()
    return made.publications if isinstance(made, Publishing) else None
