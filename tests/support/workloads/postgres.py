"""A seeded random history of a Postgres database: rows of every type, and schema changes, one transaction at a time.

Values are ordinary ones, on which the official server agrees with itself; what is odd has tests of its own. The
statements are a function of the seed alone, so a failure can be run again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

TYPES = {
    "int2": ("-7", "32767"),
    "int4": ("0", "2147483647"),
    "int8": ("9007199254740991", "-1"),
    "float4": ("1.5", "-0.25"),
    "float8": ("0.1", "1e300", "-123456.789"),
    "numeric": ("12.5", "1000000", "-0.001"),
    "numeric(12, 2)": ("99.99", "0"),
    "bool": ("true", "false"),
    "text": ("''", "'plain'", "E'tab\\t quote\" \\\\ newline\\n'", "'ünïcödé 🎉'", "'null'"),
    "varchar(40)": ("'short'", "'0042'"),
    "char(6)": ("'ab'", "'abcdef'"),
    "uuid": ("'11111111-2222-4333-8444-555555555555'", "'00000000-0000-0000-0000-000000000000'"),
    "inet": ("'10.0.0.1/24'", "'::1/64'"),
    "cidr": ("'10.0.0.0/8'",),
    "macaddr": ("'08:00:2b:01:02:03'",),
    "date": ("'2024-02-29'", "'1969-07-20'"),
    "timestamp": ("'2024-02-29 12:34:56.789123'", "'2001-01-01 00:00:00'"),
    "timestamptz": ("'2024-02-29 12:34:56.5+02'", "'1999-12-31 23:59:59Z'"),
    "time": ("'12:34:56.789'", "'00:00:00'"),
    "timetz": ("'12:34:56+02'",),
    "json": ("""'{"b": 1, "a": [1, 2.5, null, "x"]}'""", "'[]'", "'\"text\"'"),
    "jsonb": ("""'{"deep": {"er": [true]}}'""", "'17'"),
    "mood": ("'happy'", "'so so'"),
    "int4[]": ("'{1,2,3}'", "'{}'"),
    "text[]": ("""'{a,"b c","d,e"}'""",),
    "bool[]": ("'{t,f}'",),
    "numeric[]": ("'{1.5,2}'",),
    "timestamptz[]": ("'{2024-02-29 12:00:00Z}'",),
    "jsonb[]": ("""ARRAY['{"a": 1}'::jsonb]""",),
    "uuid[]": ("'{11111111-2222-4333-8444-555555555555}'",),
    "int8[]": ("'{9007199254740991,-1}'",),
    "float8[]": ("'{0.1,1e100}'",),
    "date[]": ("'{2024-02-29,1969-07-20}'",),
    "timestamp[]": ("'{2024-02-29 12:34:56.789123}'",),
    "varchar(9)[]": ("'{ab,cd}'",),
    "mood[]": ("'{happy,so so}'",),
    "json[]": ("""ARRAY['{"a": 1}'::json]""",),
    "macaddr8": ("'08:00:2b:01:02:03:04:05'",),
    "pg_lsn": ("'16/B374D848'",),
}
"""Types, each with literals of ordinary values."""

SETUP = (
    "CREATE TYPE mood AS ENUM ('happy', 'so so')",
    "CREATE TABLE zoo (id int PRIMARY KEY, "
    + ", ".join(f'"c_{n}" {name}' for n, name in enumerate(TYPES))
    + ", raw bytea)",
    'CREATE SCHEMA "Shop"',
    'CREATE TABLE "Shop"."OrderLine" ("Order" int, line int, "unitPrice" numeric(10, 2), PRIMARY KEY ("Order", line))',
    "CREATE TABLE by_index (code text NOT NULL, n int)",
    "CREATE UNIQUE INDEX by_index_code ON by_index (code)",
    "ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_code",
    "CREATE TABLE whole (id int PRIMARY KEY, a text, b text)",
    "ALTER TABLE whole REPLICA IDENTITY FULL",
    "CREATE TABLE parted (id int PRIMARY KEY, a text) PARTITION BY RANGE (id)",
    "CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (0) TO (50)",
    "CREATE TABLE parted_high PARTITION OF parted FOR VALUES FROM (50) TO (1000)",
    "CREATE TABLE listed (id int PRIMARY KEY, shown text, hidden text)",
    "CREATE TABLE filtered (id int PRIMARY KEY, a int)",
    "CREATE TABLE big (id int PRIMARY KEY, n int, body text)",
    "ALTER TABLE big ALTER body SET STORAGE EXTERNAL",
    "CREATE TABLE changing (id int PRIMARY KEY, a int)",
    "CREATE TABLE marker (id int PRIMARY KEY, n int NOT NULL)",
    "INSERT INTO marker VALUES (1, 0)",
    "CREATE TABLE counter (id int PRIMARY KEY, n int)",
)
PUBLICATION = (
    'CREATE PUBLICATION common FOR TABLES IN SCHEMA "Shop", TABLE zoo, by_index, whole, parted, big, marker, counter, '
    "changing, filtered WHERE (id % 2 = 0) WITH (publish_via_partition_root = true)",
    "CREATE PUBLICATION lists FOR TABLE listed (id, shown)",
)


class Workload:
    """Statements of one history. `chance` decides everything; ids stay small, so that rows are met again."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._columns = ["a"]
        self._made = 0
        self._extra: list[str] = []
        self._tables: list[str] = []

    def first_rows(self) -> Iterator[str]:
        """What is there before anyone looks."""
        for number in range(40):
            yield self._zoo(number)
        for number in range(60):
            yield from self._rows(number)

    def transactions(self, count: int) -> Iterator[list[str]]:
        """So many transactions; about every sixth changes a schema."""
        for _ in range(count):
            if self.chance.random() < 0.17:
                yield self._schema_change()
            else:
                yield [s for _ in range(self.chance.randint(1, 5)) for s in self._row_change()]

    def _value(self, name: str) -> str:
        return "NULL" if self.chance.random() < 0.15 else self.chance.choice(TYPES[name])

    def _zoo(self, number: int) -> str:
        values = ", ".join([str(number), *map(self._value, TYPES), "'\\xdeadbeef'"])
        return f"INSERT INTO zoo VALUES ({values}) ON CONFLICT DO NOTHING"

    def _rows(self, number: int) -> Iterator[str]:
        n = self.chance.randrange(1000)
        yield f"""INSERT INTO "Shop"."OrderLine" VALUES ({number}, {n % 3}, {n}.25) ON CONFLICT DO NOTHING"""
        yield f"INSERT INTO by_index VALUES ('k{number}', {n}) ON CONFLICT DO NOTHING"
        yield f"INSERT INTO whole VALUES ({number}, 'a{n}', NULL) ON CONFLICT DO NOTHING"
        yield f"INSERT INTO parted VALUES ({number}, 'p{n}') ON CONFLICT DO NOTHING"
        yield f"INSERT INTO listed VALUES ({number}, 's{n}', 'h') ON CONFLICT DO NOTHING"
        yield f"INSERT INTO filtered VALUES ({number}, {n}) ON CONFLICT DO NOTHING"
        yield f"INSERT INTO big VALUES ({number}, {n}, repeat('{n}-', 3000)) ON CONFLICT DO NOTHING"
        yield f"INSERT INTO changing (id) VALUES ({number}) ON CONFLICT DO NOTHING"

    def _row_change(self) -> list[str]:
        id_, other, n = self.chance.randrange(80), self.chance.randrange(100, 900), self.chance.randrange(1000)
        column, name = self.chance.choice([(f"c_{n}", name) for n, name in enumerate(TYPES)])
        return self.chance.choice(
            [
                [self._zoo(id_ + 40)],
                [f'UPDATE zoo SET "{column}" = {self._value(name)} WHERE id % 7 = {id_ % 7}'],
                [f"DELETE FROM zoo WHERE id = {id_}"],
                list(self._rows(id_)),
                [f"UPDATE whole SET b = 'b{n}' WHERE id = {id_}", f"DELETE FROM whole WHERE id = {id_ + 1}"],
                [f"UPDATE whole SET id = {other} WHERE id = {id_}"] if self._once(f"w{other}") else [],
                [
                    f"UPDATE by_index SET n = {n} WHERE code = 'k{id_}'",
                    f"DELETE FROM by_index WHERE n < {id_}",
                ],
                [f"UPDATE by_index SET code = 'm' || {other} WHERE code = 'k{id_}'"]
                if self._once(f"m{other}")
                else [f"DELETE FROM by_index WHERE code = 'm{other}'"],
                [f"UPDATE parted SET a = 'q{n}' WHERE id = {id_}", f"DELETE FROM parted WHERE id = {id_ + 1}"],
                [f"UPDATE parted SET id = {other} WHERE id = {id_}"] if self._once(f"p{other}") else [],
                [f"UPDATE big SET n = {n} WHERE id = {id_}"],
                [f"UPDATE listed SET shown = 't{n}', hidden = 'x' WHERE id = {id_}"],
                [f"UPDATE filtered SET a = {n} WHERE id < {id_}"],
                [f'UPDATE "Shop"."OrderLine" SET "unitPrice" = {n} WHERE "Order" = {id_}'],
                [f"INSERT INTO changing (id, {self._columns[0]}) VALUES ({other}, NULL) ON CONFLICT DO NOTHING"],
                ["SAVEPOINT s", "DELETE FROM big", "ROLLBACK TO s", f"UPDATE big SET n = {n} WHERE id < {id_}"],
                ["TRUNCATE listed, filtered"] if n < 150 else [f"DELETE FROM filtered WHERE id = {id_}"],
            ]
        )

    def _once(self, what: str) -> bool:
        """Whether this was not asked before."""
        is_new = what not in self._extra
        self._extra.append(what)
        return is_new

    def _schema_change(self) -> list[str]:
        self._made += 1
        name, victim = f"x{self._made}", self.chance.choice(self._columns)
        table = f'"Shop".t{self._made}'
        kind = self.chance.choice(["add", "add", "drop", "rename", "retype", "table", "gone", "late", "index"])
        if kind == "add":
            self._columns.append(name)
            type_ = self.chance.choice(["int", "text", "jsonb", "timestamptz", "text[]"])
            default = {"int": " DEFAULT 7", "text": " DEFAULT 'new'"}.get(type_, "")
            return [
                f"ALTER TABLE changing ADD {name} {type_}{default}",
                f"INSERT INTO changing (id) VALUES ({1000 + self._made})",
            ]
        if kind == "drop" and len(self._columns) > 1:
            self._columns.remove(victim)
            return [f"ALTER TABLE changing DROP {victim}"]
        if kind == "rename":
            self._columns[self._columns.index(victim)] = name
            return [f"ALTER TABLE changing RENAME {victim} TO {name}", "UPDATE changing SET id = id WHERE id < 5"]
        if kind == "retype":
            self._columns.append(name)
            return [
                f"ALTER TABLE changing ADD {name} int DEFAULT 5",
                f"ALTER TABLE changing ALTER {name} TYPE int8",
                f"UPDATE changing SET {name} = id WHERE id < 20",
            ]
        if kind == "index":
            return [f"CREATE INDEX changing_{name} ON changing ({victim})"] if victim == "a" else ["SELECT 1"]
        if kind == "gone" and self._tables:
            return [f"DROP TABLE {self._tables.pop()}"]
        if kind == "late":
            late = f"public.late{self._made}"
            rows = f"CREATE TABLE {late} AS SELECT n AS id, 'l' || n AS a FROM generate_series(1, 30) n"
            return [rows, f"ALTER TABLE {late} ADD PRIMARY KEY (id)", f"ALTER PUBLICATION common ADD TABLE {late}"]
        renamed = [f"ALTER TABLE {table} RENAME TO r{self._made}"] if self.chance.random() < 0.4 else []
        self._tables.append(f'"Shop".r{self._made}' if renamed else table)
        return [
            f"CREATE TABLE {table} (id int PRIMARY KEY, a text)",
            f"INSERT INTO {table} SELECT n, 'r' || n FROM generate_series(1, 20) n",
            *renamed,
        ]
