"""The example adapter keeps every rule of the suite, in as many lines as promised."""

from pathlib import Path

from changesource_sdk import Insert
from changesource_sdk.testing.conformance import conformance
from examples.git_tickets import git_tickets
from examples.git_tickets.git_tickets import GitTickets
from tests.examples.git_harness import GitHarness, git

TestGitTickets = conformance(GitHarness)


def test_the_adapter_is_as_short_as_promised() -> None:
    assert len(Path(git_tickets.__file__).read_text().splitlines()) <= 60


def test_a_merge_is_one_transaction_and_shows_no_state_of_its_branch(tmp_path: Path) -> None:
    harness = GitHarness()
    harness.create(tmp_path)
    adapter = GitTickets(str(tmp_path))
    start = adapter.snapshot().position
    git(tmp_path, "checkout", "-q", "-b", "side")
    for name in ("a", "b"):
        harness.commit([Insert("ticket", {"id": name, "title": name, "is_open": True})])
    git(tmp_path, "checkout", "-q", "main")
    harness.commit([Insert("ticket", {"id": "c", "title": "c", "is_open": True})])
    git(tmp_path, "merge", "-q", "--no-ff", "-m", "merged", "side")
    found = [[change.row["id"] for change in transaction.changes] for transaction in adapter.changes(start)]
    assert found == [["c"], ["a", "b"]]


def test_any_name_of_a_file_is_an_id(tmp_path: Path) -> None:
    harness = GitHarness()
    harness.create(tmp_path)
    adapter = GitTickets(str(tmp_path))
    start = adapter.snapshot().position
    names = ["ünï", 'quo"ted', "with space", "tab\tbed"]
    harness.commit([Insert("ticket", {"id": name, "title": name, "is_open": True}) for name in names])
    (transaction,) = adapter.changes(start)
    assert {change.row["id"] for change in transaction.changes} == set(names)
    rows = [row for partition in adapter.snapshot().partitions for row in partition.rows()]
    assert {row["id"] for row in rows} == set(names)
