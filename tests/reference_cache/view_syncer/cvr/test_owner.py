"""Who may join a group, by what the group knows and what a connection proves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protocol.sync.errors import ErrorKind
from reference_cache.view_syncer.cvr.owner import MOST_DIGESTS, GroupOwner, Proof

NOTHING, TOKEN, OTHER, VERIFIED = Proof(), Proof(secret="t"), Proof(secret="u"), Proof(verified=True, secret="v")
NOBODY = GroupOwner()
MISSING, START_OVER = ErrorKind.UNAUTHORIZED, ErrorKind.CLIENT_NOT_FOUND


def answer(owner: GroupOwner, proof: Proof, takes_credentials: bool = True) -> ErrorKind | None:
    refusal = owner.refusal(proof, takes_credentials)
    return None if refusal is None else refusal.kind


@pytest.mark.parametrize(
    ("owner", "answers"),
    [
        (NOBODY, [None, None, None, None]),
        (NOBODY.after(NOTHING), [None, None, None, None]),
        (NOBODY.after(TOKEN), [MISSING, None, START_OVER, None]),
        (NOBODY.after(VERIFIED), [MISSING, START_OVER, START_OVER, None]),
        (NOBODY.after(TOKEN).after(VERIFIED), [MISSING, None, START_OVER, None]),
        (GroupOwner(is_unknown=True), [START_OVER, START_OVER, START_OVER, None]),
        (GroupOwner(is_unknown=True).after(TOKEN), [MISSING, None, START_OVER, None]),
    ],
    ids=["nobody", "no credentials", "a token", "a verified user", "both", "not known", "not known, then a token"],
)
def test_a_group_is_joined_by_its_own_user_only(owner: GroupOwner, answers: list[ErrorKind | None]) -> None:
    assert [answer(owner, proof) for proof in (NOTHING, TOKEN, OTHER, VERIFIED)] == answers


def test_without_credentials_in_use_an_unknown_owner_refuses_no_client() -> None:
    assert answer(GroupOwner(is_unknown=True), NOTHING, takes_credentials=False) is None


def test_what_is_kept_of_a_secret_is_another_in_every_group() -> None:
    one, two = (GroupOwner().after(TOKEN).digests for _ in range(2))
    assert one != two
    assert b"t" not in one


def test_the_newest_credentials_are_known() -> None:
    owner = NOBODY
    for number in range(MOST_DIGESTS + 1):
        owner = owner.after(Proof(secret=str(number)))
    assert answer(owner, Proof(secret="0")) is START_OVER
    assert answer(owner, Proof(secret="1")) is None
    assert len(owner.digests) == MOST_DIGESTS


def test_what_is_known_already_changes_nothing() -> None:
    owner = NOBODY.after(VERIFIED)
    assert owner.after(VERIFIED) == owner
    assert owner.after(NOTHING) == replace(owner)
