"""From the adapter's name on the command line to its class, with the settings checked before anything starts.

A name is an entry point of the group `changesource.adapters`, an adapter of this distribution (so that a source tree
works without being installed), or `module:Class`. The settings are compared with the constructor's parameters, so an
unknown or missing one is reported with the nearest match instead of crashing the pipeline's process.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

from changesource_sdk.adapter import Publishing
from changesource_sdk.config import ServeConfig
from changesource_sdk.errors import ChangesourceError, ConfigurationError
from changesource_sdk.pipeline.source import SourceSpec
from protocol.redaction import hide_setting, is_secret_name
from service_kit.settings import secret_files
from service_kit.suggestions import nearest

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
    """Return `module:Class` of every adapter that has a name."""
    return BUNDLED | {point.name: point.value for point in entry_points(group=GROUP)}


def resolve(name: str) -> str:
    """Return the `module:Class` of an adapter. Raises `ConfigurationError` with the nearest name."""
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
    """Import `module:Class`, also from the current directory, as `python -m` does. Raises `ConfigurationError`."""
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
    value = getattr(module, class_name, None)
    if not isinstance(value, type):
        classes = [name for name, value in vars(module).items() if isinstance(value, type)]
        fix = nearest(class_name, classes) if classes else f"define it there, or name another module than {module_name}"
        raise ConfigurationError("adapter-import", f"{module_name} has no class {class_name!r}", fix=fix)
    return value


def load_class(path: str) -> type:
    """Import an adapter's `module:Class`. Raises `ConfigurationError` if a method is missing or differs."""
    adapter = import_class(path)
    lacking = [name for name in METHODS if not callable(getattr(adapter, name, None))]
    if lacking:
        raise ConfigurationError(
            "not-an-adapter",
            f"{adapter.__name__} has no method {', '.join(lacking)}",
            path,
            f"define {', '.join(f'{name}({METHODS[name]})' for name in lacking)}: see docs/reference/adapter.md",
        )
    for name, parameters in METHODS.items():
        _check_signature(adapter, name, parameters)
    return adapter


def _check_signature(adapter: type, name: str, parameters: str) -> None:
    """Raise `ConfigurationError` unless a method can be called as the pipeline calls it."""
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
        return  # a method written in C has no signature


def _where(error: Exception) -> str:
    """Return file and line at which an import failed."""
    if isinstance(error, SyntaxError):
        return f"{os.path.basename(error.filename or '?')} line {error.lineno}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{os.path.basename(frame.filename)} line {frame.lineno}"


def check_settings(adapter: type, settings: Mapping[str, object]) -> None:
    """Compare settings with the constructor's parameters. Raises `ConfigurationError`."""
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


def with_own_folder(
    adapter: type, settings: Mapping[str, object], state: Path, source: str = ""
) -> Mapping[str, object]:
    """Return the settings, with `state` set to a folder in the state directory if the adapter has that setting and the
    user did not set it. Each named source has a folder of its own.
    """
    if "state" in settings or "state" not in inspect.signature(adapter).parameters:
        return settings
    return {**settings, "state": str(state.absolute() / ("adapter" if not source else f"adapter-{source}"))}


def source_specs(config: ServeConfig) -> list[SourceSpec]:
    """Return what a configuration reads: its adapter, or its named sources; nothing if it names none.

    Raises `ConfigurationError` for an adapter that there is not.
    """
    if not config.sources:
        ledger = str(config.ledger or "")
        policy = config.on_bad_value or ""
        spec = SourceSpec(config.adapter, config.settings, ledger, config.mapping, config.mappings, policy)
        return [replace(spec, adapter=resolve(config.adapter))] if config.adapter else []
    return [
        SourceSpec(
            resolve(source.adapter),
            source.settings,
            source.ledger,
            source.mapping,
            source.mappings,
            on_bad_value=source.on_bad_value or config.on_bad_value or "",
            name=name,
            prefix=source.prefix,
        )
        for name, source in config.sources.items()
    ]


def chosen_sources(config: ServeConfig, name: str | None) -> list[SourceSpec]:
    """Return the sources of a configuration, or the one of this name. Raises `ConfigurationError` if there is none."""
    specs = source_specs(config)
    if not name:
        return specs
    chosen = [spec for spec in specs if spec.name == name]
    if not chosen:
        fix = nearest(name, list(config.sources)) if config.sources else "leave it out: there are no [sources]"
        raise ConfigurationError("unknown-source", f"no source is called {name!r}", "--source", fix)
    return chosen


@contextmanager
def named_source(name: str) -> Iterator[None]:
    """Let a `ConfigurationError` raised inside say which source it is about; "" is a single upstream."""
    try:
        yield
    except ConfigurationError as error:
        if not name:
            raise
        where = f"[sources.{name}]" + (f", {error.where}" if error.where else "")
        raise ConfigurationError(error.code, error.message, where, error.fix) from error


def with_secret_files(adapter: type, settings: Mapping[str, object]) -> Mapping[str, object]:
    """Return the settings, with the content of the file for each `NAME_file` that is no setting of the adapter while
    `NAME` is one. Of an adapter that takes any name, only those of secrets (`password`, `token`) count.

    Raises `ConfigurationError` if a file cannot be read, or if both are set.
    """
    parameters = inspect.signature(adapter).parameters
    is_open_ended = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    opened = dict(settings)
    for key in settings:
        name = key.removesuffix("_file")
        is_known = name in parameters or (is_open_ended and is_secret_name(name))
        if name == key or key in parameters or not is_known:
            continue
        named = {f"{name}_FILE": str(opened.pop(key))} | ({name: ""} if name in settings else {})
        opened |= secret_files(named, [name], lambda path: Path(path).read_text(), _bad_file)
        hide_setting(name, opened[name])
    return opened


def _bad_file(name: str, problem: str, fix: str) -> ConfigurationError:
    return ConfigurationError("bad-secret-file", problem, f"--set {name}", fix)


def try_settings(adapter: type, settings: Mapping[str, object]) -> frozenset[str] | None:
    """Construct and close the adapter in this process; return the publications it follows, if it has any.

    So settings that it refuses are reported at once, not by a child process that is restarted in a loop. An adapter
    does not connect when it is constructed, so the upstream may be down. Raises `ConfigurationError`.
    """
    check_settings(adapter, settings)
    try:
        instance = adapter(**settings)
    except ChangesourceError:
        raise
    except Exception as error:
        raise ConfigurationError(
            "settings-refused",
            f"{adapter.__name__} refuses its settings: {type(error).__name__}: {error}",
            "--set",
            "correct the setting it names",
        ) from error
    if callable(close := getattr(instance, "close", None)):
        close()
    return instance.publications if isinstance(instance, Publishing) else None
