"""Which clients may join a client group.

The rows of a group go to all of its clients, so all of them must belong to the same user. A group keeps what its
connections have proved: whether its user id was confirmed (by a signed token, or by the application's answer), and
salted hashes of the credentials that the application accepted without naming a user. A group that was ever opened with
credentials can be joined by the confirmed user, or with credentials it knows. Pure; `cvr.groups` stores the record.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field, replace

from protocol.sync.errors import ErrorKind, SyncError, unauthorized

MOST_DIGESTS = 32
"""How many credentials a group knows; of more, the newest."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What a connection proves about its user: a confirmed user id, the credentials it presented, both or neither."""

    verified: bool = False
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class GroupOwner:
    """What a group knows about its user; `is_unknown` for groups stored by a version without this record."""

    verified: bool = False
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    digests: tuple[bytes, ...] = ()
    is_unknown: bool = False

    @property
    def has_credentials(self) -> bool:
        """Whether the group was ever opened with credentials."""
        return self.verified or bool(self.digests)

    def refusal(self, proof: Proof, takes_credentials: bool) -> SyncError | None:
        """Why a connection with the group's user id may not join, or None.

        `takes_credentials`: whether clients of this cache can present any. If they can, a group whose owner is not
        recorded may have had some. A client with good credentials other than the group's starts over with a new group.
        """
        if proof.verified or self._knows(proof.secret):
            return None
        if self.is_unknown:
            return _start_over() if takes_credentials or proof.secret is not None else None
        if not self.has_credentials:
            return None
        if proof.secret is None:
            return unauthorized(
                "No token provided. An unauthenticated client cannot connect to an authenticated client group."
            )
        return _start_over()

    def after(self, proof: Proof) -> GroupOwner:
        """The owner once a connection with this proof is one of the group's."""
        digests = self.digests
        if proof.secret is not None and not self._knows(proof.secret):
            digests = (*digests, self._digest(proof.secret))[-MOST_DIGESTS:]
        return replace(self, verified=self.verified or proof.verified, digests=digests, is_unknown=False)

    def _knows(self, secret: str | None) -> bool:
        if secret is None or not self.digests:
            return False
        digest = self._digest(secret)
        return any(hmac.compare_digest(digest, known) for known in self.digests)

    def _digest(self, secret: str) -> bytes:
        return hashlib.blake2b(secret.encode("utf-8", "surrogatepass"), key=self.salt, digest_size=32).digest()


def _start_over() -> SyncError:
    return SyncError(
        ErrorKind.CLIENT_NOT_FOUND,
        "Client not found: these credentials are not those of the client group, and the application names no user",
    )
