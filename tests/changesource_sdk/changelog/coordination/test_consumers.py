"""Which initial syncs were issued and what consumers acknowledged, in every store."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from changesource_sdk.changelog.coordination.consumers import (
    Consumer,
    ConsumerKey,
    highest_held,
    is_beyond,
    next_version,
    transaction_of,
)
from tests.changesource_sdk.changelog.logs_under_test import LogUnderTest

KEY = ConsumerKey("zero", 0, "0a")


def test_acknowledgements_are_cumulative_and_never_go_back(log: LogUnderTest) -> None:
    coordination = log.consumers()
    coordination.acknowledge(KEY, "0c", 10.0)
    coordination.acknowledge(KEY, "0b", 20.0)
    assert coordination.consumers() == [Consumer(KEY, "0c", 20.0)]


def test_consumers_survive_a_restart_and_can_be_forgotten(log: LogUnderTest) -> None:
    first = log.consumers()
    other = ConsumerKey("other", 1, "0a")
    first.acknowledge(KEY, "0c", 1.0)
    first.acknowledge(other, "0d", 1.0)
    again = log.consumers()
    assert [each.key for each in again.consumers()] == [other, KEY]
    again.forget(other)
    assert [each.key for each in again.consumers()] == [KEY]


def test_an_issued_version_is_kept_with_what_it_holds(log: LogUnderTest) -> None:
    version = log.consumers().issue("zero", 0, head="0k", held="0c", now_ms=7.0)
    assert log.consumers().consumers("zero", 0) == [Consumer(ConsumerKey("zero", 0, version), "0c", 7.0)]
    assert log.consumers().consumers("zero", 1) == []
    assert "0k" < version < "0l"


def test_versions_issued_at_once_by_several_endpoints_differ_and_grow(log: LogUnderTest) -> None:
    endpoints = [log.consumers() for _ in range(4)]

    def issue(number: int) -> list[str]:
        return [endpoints[number].issue("zero", 0, head="0k", held="0c", now_ms=1.0) for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        issued = list(pool.map(issue, range(4)))
    assert len({version for versions in issued for version in versions}) == 40
    assert all(versions == sorted(versions) for versions in issued)


@pytest.mark.parametrize(
    ("head", "newest_issued", "now_us", "version"),
    [
        ("0k", "", 5, "0k.05"),
        ("0k", "0k.07", 5, "0k.08"),
        ("0k", "0k.07", 9, "0k.09"),
        ("0l", "0k.07", 5, "0l.05"),
        ("0k.0a", "0k.07", 5, "0k.0b"),
        ("0k", "0k", 0, "0k.01"),
        ("0k", "no watermark", 5, "0k.05"),
    ],
)
def test_a_version_lies_between_the_head_and_the_next_transaction(
    head: str, newest_issued: str, now_us: int, version: str
) -> None:
    assert next_version(head, newest_issued, now_us) == version


def test_the_record_proves_what_was_sent() -> None:
    known = [Consumer(ConsumerKey("zero", 0, "0k.05"), "0c", 0.0), Consumer(KEY, "0j", 0.0)]
    assert highest_held(known) == "0k.05"
    assert highest_held([]) == "00"
    assert not is_beyond("0k.05", "0k")
    assert is_beyond("0l", "0k.05")
    assert transaction_of("0k.05") == transaction_of("0k") == "0k"
