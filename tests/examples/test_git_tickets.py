"""The example adapter keeps every rule of the suite, in as many lines as promised."""

from pathlib import Path

from changesource_sdk.testing.conformance import conformance
from examples.git_tickets import git_tickets
from tests.examples.git_harness import GitHarness

TestGitTickets = conformance(GitHarness)


def test_the_adapter_is_as_short_as_promised() -> None:
    assert len(Path(git_tickets.__file__).read_text().splitlines()) <= 60
