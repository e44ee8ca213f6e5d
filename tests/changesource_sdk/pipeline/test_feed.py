"""The feed between reader and writer."""

import threading

import pytest

from changesource_sdk.changelog.log import EncodedTransaction
from changesource_sdk.pipeline.feed import FeedClosed, TransactionFeed


def transaction(position: int, size: int = 1) -> EncodedTransaction:
    return EncodedTransaction(position, None, None, b"x" * size, 1)


def test_the_writer_takes_all_that_is_queued_in_order() -> None:
    feed = TransactionFeed()
    for position in range(5):
        feed.put(transaction(position))
    assert [t.position for t in feed.take(1.0)] == list(range(5))
    assert feed.take(0.0) == []


def test_what_was_put_before_an_error_comes_before_the_error() -> None:
    feed = TransactionFeed()
    feed.put(transaction(1))
    feed.fail(ValueError("broken"))
    assert len(feed.take(1.0)) == 1
    with pytest.raises(ValueError, match="broken"):
        feed.take(1.0)


def test_a_full_feed_holds_the_reader_until_the_writer_takes() -> None:
    feed = TransactionFeed(capacity_bytes=10)
    feed.put(transaction(1, 10))
    put = threading.Event()

    def put_another() -> None:
        feed.put(transaction(2))
        put.set()

    reader = threading.Thread(target=put_another)
    reader.start()
    assert not put.wait(0.05)
    assert [t.position for t in feed.take(1.0)] == [1]
    assert put.wait(60.0)
    reader.join()
    assert [t.position for t in feed.take(1.0)] == [2]


def test_a_closed_feed_lets_go_of_a_waiting_reader() -> None:
    feed = TransactionFeed(capacity_bytes=1)
    feed.put(transaction(1))
    ended = threading.Event()

    def read() -> None:
        with pytest.raises(FeedClosed):
            feed.put(transaction(2))
        ended.set()

    reader = threading.Thread(target=read)
    reader.start()
    feed.close()
    assert ended.wait(60.0)
    reader.join()


def test_a_position_is_pending_from_put_to_done() -> None:
    feed = TransactionFeed()
    feed.put(transaction(1))
    taken = feed.take(1.0)
    assert feed.is_pending(1)
    feed.done(taken)
    assert not feed.is_pending(1)
