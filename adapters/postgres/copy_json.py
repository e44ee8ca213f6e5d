"""COPY's text format straight to JSON objects: the innermost loop of a snapshot. Pure.

Most of what Postgres writes is almost JSON: integers and finite numbers are, and text needs quotes. So a batch is split
into columns (`copy_text`), each column becomes JSON with as few calls per value as its type allows, and a row is one
`%` of a template. Other types are converted value by value, by the decoder and the SDK's converter that rows of the
stream go through. A test compares both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from json.encoder import encode_basestring as quote

import orjson

from adapters.postgres.copy_text import NULL, columns_of, unescaped
from adapters.postgres.types import Decoder, Types, boolean, decoder, number, timestamp_ms
from changesource_sdk import Column, JsonText
from changesource_sdk.toolkit import converter

Texts = list[str]
Fragments = Iterable[str]
ColumnWriter = Callable[[Texts], Fragments]
"""Converts the texts of a column, none of them NULL, to JSON."""

_SAFE_DIGITS = 15
"""An integer of at most so many characters is exact as a double. A longer one is written as a double would print."""

_DOUBLE_DIGITS = 300
"""A number of fewer characters is within the range of a double."""

_BOOLEANS = {"t": "true", "f": "false"}


class UnexpectedNull(Exception):
    """A batch has a null in a NOT NULL column: the caller converts it row by row, which reports the row."""


class JsonWriter:
    """Writes COPY rows as JSON objects. `columns` have their type oids and are in the order of the COPY.

    `absent` are names of columns that consumers expect and the database does not have; they are null.
    """

    def __init__(self, columns: Sequence[tuple[Column, int]], types: Types, absent: Sequence[str] = ()) -> None:
        self._writers = [column_writer(column, decoder(oid, types)) for column, oid in columns]
        self._optional = [column.optional for column, _ in columns]
        pairs = [f"{_key(column.name)}:%s" for column, _ in columns] + [f"{_key(name)}:null" for name in absent]
        self._template = "{" + ",".join(pairs) + "}"

    def objects(self, batch: bytes) -> list[bytes]:
        """One JSON object for each row of a batch of complete rows. Raises `UnexpectedNull`."""
        text = batch.decode()
        columns = columns_of(text, len(self._writers))
        if "\\" in text:
            written = map(_escaped, columns, self._writers, self._optional)
        else:
            written = map(_plain, columns, self._writers)
        return list(map(str.encode, map(self._template.__mod__, zip(*written, strict=True))))


def _key(name: str) -> str:
    return quote(name).replace("%", "%%")


def _plain(texts: Texts, write: ColumnWriter) -> Fragments:
    return write(texts)


def _escaped(texts: Texts, write: ColumnWriter, optional: bool) -> Fragments:
    """A column of a batch that has a NULL or an escape somewhere."""
    if "\\" not in "".join(texts):
        return write(texts)
    present = [unescaped(text) if "\\" in text else text for text in texts if text != NULL]
    if len(present) == len(texts):
        return write(present)
    if not optional:
        raise UnexpectedNull
    fragments = iter(write(present))
    return ["null" if text == NULL else next(fragments) for text in texts]


def column_writer(column: Column, decode: Decoder) -> ColumnWriter:
    """The fastest conversion from a column's texts to JSON."""
    if decode is int:
        return list
    if decode is boolean:
        return lambda texts: map(_BOOLEANS.__getitem__, texts)
    if decode is str or decode is JsonText:
        return lambda texts: map(quote, texts)
    if decode is number:
        return _numbers(column.optional)
    if decode is timestamp_ms:
        return partial(_timestamps, "" if column.data_type == "timestamptz" else "+00")
    return _any_values(column, decode)


def _numbers(optional: bool) -> ColumnWriter:
    def write(texts: Texts) -> Fragments:
        if not _has_letters(texts):
            return [t if len(t) <= _SAFE_DIGITS or _is_short_fraction(t) else repr(number(t)) for t in texts]
        values = list(map(number, texts))
        if None in values and not optional:
            raise UnexpectedNull
        return ["null" if value is None else repr(value) for value in values]

    return write


def _is_short_fraction(text: str) -> bool:
    """Whether a number has a fraction and is in the range of a double, so that JSON readers read it as one."""
    return len(text) < _DOUBLE_DIGITS and "." in text


def _has_letters(texts: Texts) -> bool:
    """Whether NaN or Infinity is among the numbers."""
    joined = "".join(texts)
    return "N" in joined or "I" in joined


def _timestamps(missing_zone: str, texts: Texts) -> Fragments:
    """Epoch milliseconds.

    Within about a century of 1970, seconds as doubles have microsecond precision, so that rounding to three digits of a
    millisecond is exact. A batch with a timestamp outside that range is converted value by value.
    """
    try:
        seconds = list(map(_seconds, map(_moment, [text + missing_zone for text in texts] if missing_zone else texts)))
    except ValueError:
        return map(_repr_timestamp, texts)
    if not -_EXACT_SECONDS < min(seconds, default=0) <= max(seconds, default=0) < _EXACT_SECONDS:
        return map(_repr_timestamp, texts)
    return [f"{second * 1000:.3f}" for second in seconds]


_EXACT_SECONDS = 2.0**32
_moment, _seconds = datetime.fromisoformat, datetime.timestamp


def _repr_timestamp(text: str) -> str:
    return repr(timestamp_ms(text))


def _any_values(column: Column, decode: Decoder) -> ColumnWriter:
    convert = converter(column)

    def write(texts: Texts) -> Fragments:
        return [orjson.dumps(convert(decode(text))).decode() for text in texts]

    return write
