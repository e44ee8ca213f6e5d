"""Authenticates consumers by API key and client certificate, and makes the TLS context.

zero-cache sends no header of its own, so the key is the `apiKey` query parameter, or the password of
`ws://user:password@host/…`, which arrives as HTTP Basic; both are accepted. A client certificate is requested if an
authority for them is configured. With neither configured, anyone may connect; with both, both are required.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from changesource_sdk.endpoint.access.keys import KeyRing, KeyUse
from changesource_sdk.errors import ConfigurationError
from service_kit import listening
from service_kit.pages import basic_password

PARAMETER = "apiKey"

tls_context = partial(listening.tls_context, kind=ConfigurationError, where="TLS")
"""`Access` refuses requests without a client certificate, so that probes of `/healthz` and `/readyz` need none."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated sender of a request: names of its key and certificate, which may appear in logs."""

    key: KeyUse | None = None
    certificate: str | None = None


@dataclass(frozen=True, slots=True)
class AccessRules:
    """What a caller must present: one of the keys, if there are any, and a certificate, if required."""

    keys: KeyRing
    certificates: bool = False

    @property
    def is_open(self) -> bool:
        """Whether anyone may connect."""
        return not self.keys and not self.certificates

    def identify(
        self, query: Mapping[str, Sequence[str]], authorization: str | None, certificate: str | None
    ) -> Caller | str:
        """The caller, or the text of the refusal."""
        if self.certificates and certificate is None:
            return "missing client certificate; present one that the authority of --tls-client-ca has signed"
        if not self.keys:
            return Caller(None, certificate)
        key = self.keys.find(presented_keys(query, authorization))
        if key is None:
            return f"missing or wrong key; send it as {PARAMETER}=… or as the password of the URL"
        return Caller(key, certificate)


def presented_keys(query: Mapping[str, Sequence[str]], authorization: str | None) -> list[bytes]:
    """All keys of a request: the query parameters, then the Basic password."""
    keys = [value.encode(errors="surrogateescape") for value in query.get(PARAMETER, ())]
    password = basic_password(authorization)
    return keys if password is None else [*keys, password]


def certificate_name(peer: Mapping[str, object] | None) -> str | None:
    """The common name of a verified client certificate (the result of `getpeercert`); None if there is none."""
    if not peer:
        return None
    subject = peer.get("subject", ())
    names = dict(pair for rdn in subject for pair in rdn) if isinstance(subject, tuple) else {}
    return str(names.get("commonName") or "(unnamed)")
