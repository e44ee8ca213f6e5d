"""Single rows as SQL, under the server's names, with keys and names checked."""

import pytest

from reference_cache.app_server.stores.dialect import MysqlDialect, SqliteDialect
from reference_cache.app_server.stores.row_statements import RowError, RowStatements
from reference_cache.zql.query.names import UnknownNameError
from reference_cache.zql.schema import ColumnType, Schema, TableSchema, hop, schema, table

ISSUE = TableSchema(
    "issue",
    {"id": ColumnType("string"), "owner": ColumnType("string"), "meta": ColumnType("json")},
    ("id",),
    server_name="app.issues",
    server_columns={"owner": "owner_id"},
)
LABELLED = table("labelled", {"issue": "string", "label": "string"}, ("issue", "label"))
SCHEMA: Schema = schema([ISSUE, LABELLED], {"issue": {"labels": hop("id", "labelled", "issue")}})


class MarkedJson(SqliteDialect):
    def json(self, value: object) -> str:
        return f"json {value}"


sql = RowStatements(SCHEMA, MarkedJson())
mysql = RowStatements(SCHEMA, MysqlDialect())


def test_an_insert_names_the_columns_given() -> None:
    expected = 'INSERT INTO "app.issues" ("id", "owner_id", "meta") VALUES (?, ?, ?)'
    assert sql.insert("issue", {"id": "i", "owner": "u", "meta": [1]}) == (expected, ["i", "u", "json [1]"])
    assert sql.insert("issue", {"id": "i", "meta": None})[1] == ["i", None]


def test_an_upsert_changes_what_is_not_key() -> None:
    statement, values = sql.upsert("issue", {"id": "i", "owner": "u"})
    assert statement.endswith('ON CONFLICT ("id") DO UPDATE SET "owner_id" = excluded."owner_id"')
    assert values == ["i", "u"]
    assert sql.upsert("labelled", {"issue": "i", "label": "l"})[0].endswith('ON CONFLICT ("issue", "label") DO NOTHING')


def test_an_update_finds_its_row_by_key() -> None:
    expected = 'UPDATE "app.issues" SET "owner_id" = ? WHERE "id" = ?'
    assert sql.update("issue", {"id": "i", "owner": "u"}) == (expected, ["u", "i"])
    assert sql.update("issue", {"id": "i"}) is None


def test_a_delete_looks_at_the_key_alone() -> None:
    expected = 'DELETE FROM "labelled" WHERE "issue" = ? AND "label" = ?'
    assert sql.delete("labelled", {"label": "l", "issue": "i"}) == (expected, ["i", "l"])


def test_names_and_keys_are_checked() -> None:
    with pytest.raises(RowError, match="lacks its key, label"):
        sql.delete("labelled", {"issue": "i"})
    with pytest.raises(RowError, match="lacks its key, id"):
        sql.update("issue", {"owner": "u"})
    with pytest.raises(UnknownNameError, match="did you mean 'owner'"):
        sql.insert("issue", {"id": "i", "ownr": "u"})
    with pytest.raises(UnknownNameError, match="unknown table"):
        sql.insert("nothing", {"id": "i"})
    with pytest.raises(UnknownNameError, match="unknown column"):
        sql.update("labelled", {"issue": "i", "label": "l", "x": 1})


def test_mysql_has_names_and_upserts_of_its_own() -> None:
    statement, values = mysql.upsert("issue", {"id": "i", "owner": "u", "meta": [1]})
    assert statement == (
        "INSERT INTO `app`.`issues` (`id`, `owner_id`, `meta`) VALUES (%s, %s, %s) "
        "ON DUPLICATE KEY UPDATE `owner_id` = VALUES(`owner_id`), `meta` = VALUES(`meta`)"
    )
    assert values == ["i", "u", "[1]"]
    only_keys, _ = mysql.upsert("labelled", {"issue": "i", "label": "l"})
    assert only_keys.endswith("ON DUPLICATE KEY UPDATE `issue` = `issue`")


def test_identifiers_cannot_break_out_of_their_quotes_or_pass_for_placeholders() -> None:
    assert MysqlDialect().quote("a`b%s") == "`a``b%%s`"
    assert SqliteDialect().quote('a"b') == '"a""b"'
