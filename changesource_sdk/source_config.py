"""The table `[sources]` of the configuration file: several upstreams behind one endpoint. Pure.

    [sources.crm]
    adapter = "postgres"
    set = { url = "postgresql://…" }

    [sources.events]
    adapter = "kafka"
    prefix = "events_"
    set = { servers = "…", topics = "…" }

`set`, `mapping`, `mappings` and `ledger` are as in a file for one upstream. `prefix` is put before the names of the
source's tables and indexes. `on_bad_value` counts for this source instead of the setting of the endpoint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from changesource_sdk.errors import ConfigurationError
from changesource_sdk.policies.bad_values import POLICIES
from service_kit.settings import BadValue
from service_kit.suggestions import nearest

MOST_SOURCES = 32
_NAME = re.compile(r"[a-z](?:_?[a-z0-9])*")
_PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """One source: `adapter` is an installed name or `module:Class`, `settings` are the adapter's own."""

    adapter: str
    settings: Mapping[str, object] = field(default_factory=dict)
    prefix: str = ""
    mapping: Mapping[str, object] = field(default_factory=dict)
    mappings: str = ""
    ledger: str = ""
    on_bad_value: str = ""


_KEYS = {"set": "settings", **{each.name: each.name for each in fields(SourceConfig) if each.name != "settings"}}
_TABLES = ("set", "mapping")


def read_sources(raw: object) -> dict[str, SourceConfig]:
    """The sources by name. Raises `BadValue` with the problem and the fix."""
    if not isinstance(raw, Mapping) or not all(isinstance(entry, Mapping | SourceConfig) for entry in raw.values()):
        fix = 'write [sources.NAME], then adapter = "…"'
        raise BadValue(problem="'sources' must be a table of tables", fix=fix)
    if len(raw) > MOST_SOURCES:
        raise BadValue(problem=f"there are {len(raw)} sources", fix=f"have {MOST_SOURCES} at most in one endpoint")
    return {name: entry if isinstance(entry, SourceConfig) else _source(name, entry) for name, entry in raw.items()}


def underscored(entry: Mapping[str, object]) -> dict[str, object]:
    """The keys of a table as settings are named here: a flag's spelling (`on-bad-value`) is the same setting.

    Raises `BadValue` if both spellings of one are there.
    """
    renamed = {key.replace("-", "_"): value for key, value in entry.items()}
    if len(renamed) < len(entry):
        twice = next(key for key in entry if "-" in key and key.replace("-", "_") in entry)
        raise BadValue(problem=f"{twice!r} is given in two spellings", fix="leave one of them out")
    return renamed


def _source(name: str, entry: Mapping[str, object]) -> SourceConfig:
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        fix = f"use up to {LONGEST_NAME} lower-case letters, digits and single underscores, beginning with a letter"
        raise BadValue(problem=f"{name!r} cannot be the name of a source", fix=fix)
    entry = underscored(entry)
    for key, value in entry.items():
        if key not in _KEYS:
            raise BadValue(problem=f"[sources.{name}] has the unknown key {key!r}", fix=nearest(key, list(_KEYS)))
        if not isinstance(value, Mapping if key in _TABLES else str):
            wanted = "a table" if key in _TABLES else "text"
            raise BadValue(problem=f"{key} in [sources.{name}] must be {wanted}", fix=f"write it as {wanted}")
    if not entry.get("adapter"):
        raise BadValue(problem=f"[sources.{name}] has no adapter", fix=f'add adapter = "…" to [sources.{name}]')
    made = SourceConfig(**{_KEYS[key]: value for key, value in entry.items()})  # type: ignore[arg-type]
    if "on_bad_value" in entry and made.on_bad_value not in POLICIES:
        raise BadValue(problem=f"on_bad_value in [sources.{name}] is no policy", fix=f"use {', '.join(POLICIES)}")
    if made.prefix and not _PREFIX.fullmatch(made.prefix):
        raise BadValue(problem=f"the prefix in [sources.{name}] is no name", fix="use letters, digits and underscores")
    if made.prefix and (made.mapping or made.mappings):
        fix = "leave the prefix out, and name the tables in the mapping"
        raise BadValue(problem=f"[sources.{name}] has a prefix and a mapping", fix=fix)
    return made


def with_settings(
    sources: Mapping[str, SourceConfig], pairs: Mapping[str, object], where: str
) -> dict[str, SourceConfig]:
    """The sources with settings from flags and variables, whose keys are `NAME.setting` or `NAME__setting`.

    Raises `ConfigurationError` for a key that names no source.
    """
    merged = dict(sources)
    for key, value in pairs.items():
        name, dot, setting = key.partition(".")
        if not dot:
            name, _, setting = key.partition("__")
        if name not in merged or not setting:
            message = f"the setting {key!r} belongs to none of the sources {', '.join(sources)}"
            fix = "write --set NAME.setting=value, or CHANGESOURCE_SET_NAME__SETTING"
            raise ConfigurationError("unknown-source", message, where, fix)
        merged[name] = replace(merged[name], settings={**merged[name].settings, setting: value})
    return merged
