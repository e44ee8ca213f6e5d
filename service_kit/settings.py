"""Settings of a service: a dataclass whose fields say how they are read, filled from several sources in turn.

    port: int = setting(4848, whole, "port to listen on", "APP_PORT", "APP_FORMER_PORT")

Pure: the caller passes in the sources (a file, the environment, flags), and gets every value with its origin. For an
invalid value, the caller makes the error (`Refuse`), which can name the setting, its origin and the fix. Secrets in
values are passed to `protocol.redaction`, so that neither an error nor a log line shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from protocol.redaction import hide_setting

DEFAULT = "default"
"""The origin of a value that no source has."""

Reader = Callable[[Any], Any]
"""Makes a field's value of what a source has: text, or a value of a TOML file. Raises `BadValue`."""


class BadValue(ValueError):
    """A value that a setting cannot have: what is `wanted`, or the whole `problem` and its `fix`."""

    def __init__(self, wanted: str = "", *, problem: str = "", fix: str = "") -> None:
        super().__init__(problem or wanted)
        self.wanted = wanted
        self.problem = problem
        self.fix = fix


Refuse = Callable[[str, object, str, BadValue], Exception]
"""The error for a setting, by its name, raw value, origin and what is wrong."""


def setting(default: object, read: Reader, about: str, *variables: str, secret: bool = False) -> Any:
    """A field of a settings dataclass. The first variable is the present name, the others are former ones."""
    variable, *old = variables or ("",)
    metadata = {"read": read, "about": about, "variable": variable, "old": tuple(old), "secret": secret}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


def declared(config: type) -> dict[str, Field[Any]]:
    """The settings of a dataclass by name, in their order; its other fields are left out."""
    return {each.name: each for each in fields(config) if "read" in each.metadata}


@dataclass(frozen=True, slots=True)
class SettingsSource:
    """Raw values by setting; `origin` names where the value of a setting is written."""

    values: Mapping[str, object]
    origin: Callable[[str], str]


def from_environment(environment: Mapping[str, str], variables: Mapping[str, Iterable[str]]) -> SettingsSource:
    """For each setting the first of its variables that is set."""
    written = {
        name: variable
        for name, names in variables.items()
        if (variable := next((each for each in names if each in environment), None)) is not None
    }
    return SettingsSource({name: environment[variable] for name, variable in written.items()}, written.__getitem__)


def secret_files(
    environment: Mapping[str, str],
    variables: Iterable[str],
    read: Callable[[str], str],
    refuse: Callable[[str, str, str], Exception],
) -> dict[str, str]:
    """The environment with the content of `NAME_FILE` for each of these variables, as containers mount secrets.

    One newline at the end of a file is not part of the secret. Raises what `refuse` returns, by variable, problem and
    fix, if both are set, or the file cannot be read or is empty.
    """
    extended = dict(environment)
    for variable in variables:
        name = f"{variable}_FILE"
        path = extended.pop(name, None)
        if path is None:
            continue
        if variable in environment:
            raise refuse(name, "the value itself is set as well", "set only one of them")
        try:
            secret = read(path).removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise refuse(name, f"its file cannot be read: {reason}", "correct the path") from None
        if not secret:
            # An empty value means "not set" in places, which must not turn a check of credentials off.
            raise refuse(name, "its file is empty", f"write the secret into the file, or unset {name}")
        extended[variable] = secret
    return extended


def load(config: type, sources: Iterable[SettingsSource], refuse: Refuse) -> tuple[dict[str, Any], dict[str, str]]:
    """The values that sources have, and the origin of every setting. A later source replaces the value of an earlier
    one, and adds to a table. Raises what `refuse` returns."""
    settings = declared(config)
    values: dict[str, Any] = {}
    origins = dict.fromkeys(settings, DEFAULT)
    for source in sources:
        for name, raw in source.values.items():
            try:
                value = settings[name].metadata["read"](raw)
            except BadValue as error:
                hide_setting(name, raw)
                raise refuse(name, raw, source.origin(name), error) from None
            # The path of a file with secrets is not a secret, whatever the setting's name.
            hide_setting("" if isinstance(value, Path) else name, raw)
            if isinstance(value, dict):
                if not value:
                    continue
                value = values.get(name, {}) | value
            values[name], origins[name] = value, source.origin(name)
    return values, origins


def checked(read: Reader, check: Callable[[Any], str | None]) -> Reader:
    """A reader that refuses a value for which `check` returns a problem."""

    def read_and_check(raw: object) -> Any:
        value = read(raw)
        problem = check(value)
        if problem:
            raise BadValue(problem=f"{problem}; it is {value!r}")
        return value

    return read_and_check


def text(raw: object) -> str:
    if not isinstance(raw, str):
        raise BadValue("text")
    return raw


def number(raw: object) -> float:
    """From a number or its text."""
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise BadValue("a number")
    try:
        return float(raw)
    except ValueError:
        raise BadValue("a number") from None


def whole(raw: object) -> int:
    """From a number or its text, if it has no fraction."""
    try:
        value = number(raw)
        if value == int(value):
            return int(value)
    except (ValueError, OverflowError):
        pass
    raise BadValue("a whole number")


def words(raw: object) -> tuple[str, ...]:
    """From a list, or a text with commas; empty words are left out."""
    items = raw if isinstance(raw, list | tuple) else text(raw).split(",")
    return tuple(word for item in items if (word := text(item).strip()))


def path(raw: object) -> Path:
    return raw if isinstance(raw, Path) else Path(text(raw))
