"""The tables every consumer expects."""

from pathlib import Path

import pytest

from changesource_sdk.endpoint.stream.system_frames import permissions_row, system_frames
from changesource_sdk.errors import ConfigurationError
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.schema import Column, Table
from changesource_sdk.system_tables import Permissions, system_tables
from protocol.framing import unframe
from tests.changesource_sdk.pipeline.stream_fixtures import TABLES, Stream

SCHEMA = ConsumerSchema.of(TABLES)


def tags(frames: list[bytes]) -> list[bytes]:
    return [payload.split(b'"')[5] for item in frames for payload in unframe(item)]


def test_a_consumer_gets_three_tables_their_keys_and_one_row() -> None:
    frames = system_frames("my_app", 3, SCHEMA, Permissions())
    assert tags(frames) == [b"create-table", b"create-index"] * 3 + [b"insert"]
    text = b"".join(frames)
    assert b'"schema":"my_app_3","name":"clients"' in text
    assert b'"schema":"my_app","name":"permissions"' in text
    assert b'"new":{"lock":true,"permissions":null,"hash":null}' in text
    assert Stream().violations() == []


def test_tables_that_the_store_holds_are_not_synthesised() -> None:
    own = ConsumerSchema.of([*TABLES, Table("zero_0.clients", [Column("id", str)])])
    assert tags(system_frames("zero", 0, own, Permissions())).count(b"create-table") == 2
    everything = ConsumerSchema.of(system_tables("zero", 0))
    assert system_frames("zero", 0, everything, Permissions()) == []


def test_allow_all_names_every_table_and_its_hash_follows_the_document() -> None:
    allow = Permissions.parse("allow-all")
    row = permissions_row(SCHEMA, allow)
    rule = '{"row":{"select":[["allow",{"type":"and","conditions":[]}]]}}'
    assert row["permissions"] == f'{{"tables":{{"issue":{rule},"team.member":{rule}}}}}'
    assert row["hash"] != permissions_row(ConsumerSchema(), allow)["hash"]
    assert row["hash"] == permissions_row(SCHEMA, allow)["hash"]


def test_a_document_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "permissions.json"
    file.write_text('{ "tables": {} }')
    assert permissions_row(SCHEMA, Permissions.parse(str(file)))["permissions"] == '{"tables":{}}'


@pytest.mark.parametrize("content", ["[]", "{", None])
def test_a_file_that_is_no_document_is_a_clear_error(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "permissions.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigurationError) as refused:
        Permissions.parse(str(file))
    assert refused.value.where == str(file)
    assert refused.value.exit_code == 2
