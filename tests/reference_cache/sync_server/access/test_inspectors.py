"""Who may ask the inspector's questions."""

from __future__ import annotations

from typing import Any

from reference_cache.config import CacheConfig
from reference_cache.sync_server.access.inspectors import Inspectors


def inspectors(**settings: Any) -> Inspectors:
    return Inspectors(CacheConfig(upstream_db="ws://x", **settings))


def test_a_group_is_let_in_with_the_password_until_it_gives_a_wrong_one_or_leaves() -> None:
    made = inspectors(admin_password="hush")
    assert not made.admits("g")
    assert made.authenticate("g", "hush")
    assert made.admits("g")
    assert not made.admits("other")
    assert not made.authenticate("g", "wrong")
    assert not made.admits("g")
    made.authenticate("g", "hush")
    made.forget("g")
    assert not made.admits("g")


def test_without_a_password_only_development_is_open() -> None:
    assert not inspectors().authenticate("g", "")
    assert not inspectors().admits("g")
    assert inspectors(development=True).admits("g")
    assert inspectors(development=True).authenticate("g", "")
    assert not inspectors(development=True, admin_password="hush").admits("g")
