from pathlib import Path

import protocol
from protocol.codec import parse_downstream
from protocol.messages import Data
from protocol.rules.replica import CheckedReplica
from protocol.rules.required_tables import missing, required_tables
from protocol.stream.transcript import Frame, read
from protocol.values import loads
from tests.protocol.rules.test_changes import change, column

FIXTURES = Path(protocol.__file__).parent / "fixtures"


def complete_replica() -> CheckedReplica:
    """What the initial sync of a golden transcript leaves."""
    replica = CheckedReplica(complete=True)
    for entry in read((FIXTURES / "reset.jsonl").read_bytes().splitlines()):
        message = parse_downstream(loads(entry.text)) if isinstance(entry, Frame) else None
        if message is not None and message.name == "commit":
            return replica
        if isinstance(message, Data):
            replica.apply_change(message.change)
    raise AssertionError("the transcript has no commit")


def told(replica: CheckedReplica, app_id: str = "zero", shard_num: int = 0) -> list[str]:
    return [problem.message for problem in missing(replica, app_id, shard_num)]


def test_a_golden_initial_sync_lacks_nothing() -> None:
    assert told(complete_replica()) == []


def test_tables_are_those_of_the_app_and_shard() -> None:
    assert list(required_tables("my_app", 3)) == ["my_app_3.clients", "my_app_3.mutations", "my_app.permissions"]
    assert told(complete_replica(), "zero", 1) == ["zero_1.clients is missing", "zero_1.mutations is missing"]
    assert len(told(complete_replica(), "other")) == 3


def test_a_missing_or_mistyped_column_is_named() -> None:
    replica = complete_replica()
    clients = {"schema": "zero_0", "name": "clients"}
    replica.apply_change(change("drop-column", table=clients, column="userID"))
    replica.apply_change(
        change("update-column", table=clients, old=column("lastMutationID"), new=column("lastMutationID", "text"))
    )
    assert told(replica) == [
        "zero_0.clients.lastMutationID is text, clients need a number",
        "zero_0.clients.userID is missing",
    ]


def test_a_table_without_a_key_is_named() -> None:
    replica = complete_replica()
    replica.apply_change(change("drop-index", id={"schema": "zero_0", "name": "mutations_pkey"}))
    assert told(replica) == ["zero_0.mutations has no unique index over not-null columns"]


def test_permissions_hold_exactly_one_row() -> None:
    replica = complete_replica()
    relation = {"schema": "zero", "name": "permissions", "rowKey": {"columns": ["lock"]}}
    replica.apply_change(change("insert", relation=relation, new={"lock": False}))
    assert told(replica) == ["zero.permissions has 2 rows instead of one"]


def test_rows_that_cannot_be_told_apart_are_not_counted() -> None:
    replica = complete_replica()
    relation = {"schema": "zero", "name": "permissions", "rowKey": {"columns": []}}
    replica.apply_change(change("insert", relation=relation, new={"lock": True}))
    assert told(replica) == []
