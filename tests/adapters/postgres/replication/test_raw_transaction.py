"""Payloads wait for their commit in memory, and beyond a limit on disk."""

import pytest

from adapters.postgres.replication.raw_transaction import RawTransaction


@pytest.mark.parametrize("limit", [0, 10, 100, 1 << 20])
def test_payloads_come_back_in_order_wherever_they_waited(limit: int) -> None:
    payloads = [bytes([number % 256]) * (number % 7) for number in range(300)]
    raw = RawTransaction(limit)
    for payload in payloads:
        raw.add(payload)
    assert list(raw.payloads()) == payloads
    assert list(raw.payloads()) == []
