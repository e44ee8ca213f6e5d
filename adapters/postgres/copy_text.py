"""COPY's text format to rows, a batch at a time and column by column. Pure.

Tabs separate values and newlines separate rows, and both are escaped inside values. So one `split` gives all values of
a batch, and a column is a slice of them. Working on columns keeps the work per value in C: one `map` per column and
batch, and one search for escapes per batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from adapters.postgres.types import Decoder

NULL = "\\N"
_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)", re.DOTALL)
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
Values = list[object]


class CopyReader:
    """Reads batches of complete COPY rows with these columns, in this order."""

    def __init__(self, names: Sequence[str], decoders: Sequence[Decoder]) -> None:
        self._names = tuple(names)
        self._decoders = tuple(decoders)

    def rows(self, batches: Iterable[bytes]) -> Iterator[dict[str, object]]:
        """The rows of batches. Each batch must end with a newline."""
        names = self._names
        for batch in batches:
            for values in self.values(batch):
                # No `strict=True`, for speed: `columns_of` makes rows of the right width.
                yield dict(zip(names, values))  # noqa: B905

    def values(self, batch: bytes) -> Iterator[tuple[object, ...]]:
        """The values of a batch, row by row."""
        text = batch.decode()
        read = _escaped_column if "\\" in text else _plain_column
        return zip(*map(read, columns_of(text, len(self._names)), self._decoders), strict=True)


def columns_of(text: str, width: int) -> list[list[str]]:
    """The values of a batch of complete rows, column by column, still escaped."""
    flat = text[:-1].replace("\n", "\t").split("\t")
    return [flat[i::width] for i in range(width)]


def _plain_column(texts: list[str], decode: Decoder) -> Iterable[object]:
    return texts if decode is str else map(decode, texts)


def _escaped_column(texts: list[str], decode: Decoder) -> Iterable[object]:
    """A column of a batch that has a NULL or an escape somewhere."""
    nulls = texts.count(NULL)
    if nulls == len(texts):
        return [None] * nulls
    if "\\" not in "".join(texts):
        return _plain_column(texts, decode)
    return [None if text == NULL else decode(unescaped(text) if "\\" in text else text) for text in texts]


def unescaped(text: str) -> str:
    return _ESCAPE.sub(_character, text)


def _character(escape: re.Match[str]) -> str:
    code = escape.group(1)
    if code[0] in "01234567":
        return chr(int(code, 8))
    if code[0] == "x" and len(code) > 1:
        return chr(int(code[1:], 16))
    return _CONTROLS.get(code, code)
