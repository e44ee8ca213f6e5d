"""A table with a column of every type that clients can hold, and random values for it, ordinary and at the edges."""

from __future__ import annotations

import random

ZOO = """
CREATE TYPE mood AS ENUM ('sad', 'so so', 'it''s "fine"');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE zoo (
  id int PRIMARY KEY, i2 int2, i8 int8, f4 float4, f8 float8, n numeric, n2 numeric(20, 4), b bool,
  t text, v varchar(20), c char(6), u uuid, ip inet, net cidr, mac macaddr,
  d date, ts timestamp, tz timestamptz, tm time, tmz timetz, j json, jb jsonb, m mood, p positive,
  ia int[], ta text[], ba bool[], ma mood[], na numeric[], da date[], tza timestamptz[], ja jsonb[], ua uuid[],
  ipa inet[]
);"""

_TEXTS = [
    "",
    "plain",
    "tab\tnewline\nreturn\r",
    'quote"backslash\\',
    "\\N",
    "NULL",
    "ünïcödé 🎉\u2028",
    "%s {a,b}",
    "\x01",
]
_DATES = ["1970-01-01", "2024-02-29", "0999-12-31", "0044-03-15 BC", "12024-01-01", "infinity", "-infinity"]
_CLOCKS = ["00:00:00", "23:59:59.999999", "12:34:56.789", "12:34:56.7", "00:00:00.000001"]
_STAMPS = [f"{day} {clock}" for day in ("1969-12-31", "1970-01-01", "2024-02-29", "1890-05-05") for clock in _CLOCKS]
_STAMPS += ["2024-02-27 12:34:56.789 BC", "0044-03-15 00:00:00 BC", "12024-02-29 01:02:03.4", "infinity", "-infinity"]
_DOCUMENTS = ["null", "1", '"text"', '{"a": [1, 2.50, null], "b": {"c": "\\u00e9\\n"}}', "[]", "12345678901234567890"]
_NUMBERS = ["0", "-1.50", "12345678901234567890", "123456789012.123456789012", "1e-30", "9007199254740993", "NaN"]
_UUID = "{:08x}-1234-4234-8234-123456789abc"

COLUMNS = (
    *("id", "i2", "i8", "f4", "f8", "n", "n2", "b", "t", "v", "c", "u", "ip", "net", "mac"),
    *("d", "ts", "tz", "tm", "tmz", "j", "jb", "m", "p"),
    *("ia", "ta", "ba", "ma", "na", "da", "tza", "ja", "ua", "ipa"),
)


def literal(text: str) -> str:
    """Any text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def _array(chance: random.Random, values: list[str]) -> str:
    """An array of up to three of these values, some of them NULL."""
    picked = [chance.choice([*values, None]) for _ in range(chance.randrange(4))]
    escaped = ['"' + v.replace("\\", "\\\\").replace('"', '\\"') + '"' if v is not None else "NULL" for v in picked]
    return literal("{" + ",".join(escaped) + "}")


def random_values(chance: random.Random, number: int) -> list[str]:
    """One row as SQL literals, in the order of `COLUMNS`; about every fifth value is NULL."""
    pick = chance.choice
    uuids = [_UUID.format(chance.randrange(2**32)) for _ in range(3)]
    addresses = ["10.0.0.1", "::1", "192.168.1.0/24"]
    moods = ["sad", "so so", 'it\'s "fine"']
    values = [
        str(chance.randrange(-(2**15), 2**15)),
        str(chance.randrange(-(2**63), 2**63)),
        pick(["1.1", "3.4e38", "'-Infinity'", "'NaN'", "0.1"]),
        pick(["1.1", "1e300", "'Infinity'", "'NaN'", "123456789.123456789", repr(chance.random())]),
        literal(pick(_NUMBERS)),
        pick(["1.5", "-99.9999", "1234567890123456.7891"]),
        pick(["true", "false"]),
        literal(pick(_TEXTS)),
        literal(pick(_TEXTS)[:20]),
        literal(pick(["ab", "abcdef", ""])),
        literal(pick(uuids)),
        literal(pick(addresses)),
        literal(pick(["10.0.0.0/8", "::/0"])),
        "'08:00:2b:01:02:03'",
        literal(pick(_DATES)),
        literal(pick(_STAMPS)),
        literal(pick(_STAMPS)),
        literal(pick([*_CLOCKS, "24:00:00"])),
        literal(pick([*_CLOCKS, "24:00:00"]) + pick(["+00", "-01", "+05:30"])),
        literal(pick(_DOCUMENTS)),
        literal(pick(_DOCUMENTS)),
        literal(pick(moods)),
        str(chance.randrange(1, 9)),
        literal(pick(["{}", "{1,NULL,-3}", "{{1,2},{3,NULL}}", "[0:1]={7,8}"])),
        _array(chance, _TEXTS),
        _array(chance, ["t", "f"]),
        _array(chance, moods),
        _array(chance, ["1.5", "-2", "NaN"]),
        _array(chance, _DATES),
        _array(chance, _STAMPS),
        _array(chance, [text for text in _DOCUMENTS if "5678" not in text]),
        _array(chance, uuids),
        _array(chance, addresses),
    ]
    return [str(number), *("NULL" if chance.random() < 0.2 else value for value in values)]
