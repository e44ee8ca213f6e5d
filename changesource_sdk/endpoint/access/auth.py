"""Who may open a stream: API keys, client certificates, and the TLS context.

zero-cache sends no header of its own: the key travels as the `apiKey` query parameter, or as the password of
`ws://user:password@host/…`, which arrives as HTTP Basic. Both are accepted. A client certificate is asked for where an
authority for them is configured. With neither configured anyone may connect; with both, both are needed.
"""

from __future__ import annotations

import base64
import binascii
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.endpoint.access.keys import KeyRing, KeyUse
from changesource_sdk.errors import ConfigurationError

PARAMETER = "apiKey"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request, as far as it was asked for; shown in logs, where names are no secret."""

    key: KeyUse | None = None
    certificate: str | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """What a caller must show: one of the keys, where there are any, and a certificate where they are required."""

    keys: KeyRing
    certificates: bool = False

    @property
    def is_open(self) -> bool:
        """Whether anyone may connect."""
        return not self.keys and not self.certificates

    def identify(
        self, query: Mapping[str, Sequence[str]], authorization: str | None, certificate: str | None
    ) -> Caller | str:
        """The caller, or what it lacks."""
        if self.certificates and certificate is None:
            return "missing client certificate; present one that the authority of --tls-client-ca has signed"
        if not self.keys:
            return Caller(None, certificate)
        key = self.keys.find(presented_keys(query, authorization))
        if key is None:
            return f"missing or wrong key; send it as {PARAMETER}=… or as the password of the URL"
        return Caller(key, certificate)


def presented_keys(query: Mapping[str, Sequence[str]], authorization: str | None) -> list[bytes]:
    """Every key a request carries: the query parameters, then the Basic password."""
    keys = [value.encode(errors="surrogateescape") for value in query.get(PARAMETER, ())]
    scheme, _, credentials = (authorization or "").partition(" ")
    if scheme.lower() == "basic":
        try:
            user_and_password = base64.b64decode(credentials.strip(), validate=True)
        except (binascii.Error, ValueError):
            return keys
        keys.append(user_and_password.partition(b":")[2])
    return keys


def certificate_name(peer: Mapping[str, object] | None) -> str | None:
    """The common name in a verified client certificate, as `getpeercert` gives it; None if there is none."""
    if not peer:
        return None
    subject = peer.get("subject", ())
    names = dict(pair for rdn in subject for pair in rdn) if isinstance(subject, tuple) else {}
    return str(names.get("commonName") or "(unnamed)")


def tls_context(cert: Path | None, key: Path | None, client_ca: Path | None = None) -> ssl.SSLContext | None:
    """The server's TLS context, or None for plain text. Raises `ConfigurationError` naming the file at fault.

    Client certificates are verified where they are presented; `Access` refuses requests without one, so that probes
    of `/healthz` and `/readyz` need none.
    """
    if cert is None or key is None:
        return None
    for path in (cert, key, *((client_ca,) if client_ca else ())):
        if not path.is_file():
            raise ConfigurationError("bad-tls", f"no such file: {path}", where="TLS", fix="give PEM files that exist")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except (ssl.SSLError, OSError) as error:
        fix = "give a PEM certificate chain and the unencrypted key that belongs to it"
        raise ConfigurationError("bad-tls", f"cannot use {cert} with {key}: {error}", "TLS", fix) from None
    if client_ca is not None:
        _verify_clients(context, client_ca)
    return context


def _verify_clients(context: ssl.SSLContext, client_ca: Path) -> None:
    try:
        context.load_verify_locations(client_ca)
    except (ssl.SSLError, OSError) as error:
        fix = "give a PEM file with the certificates of the authorities that sign client certificates"
        raise ConfigurationError("bad-tls", f"cannot use {client_ca}: {error}", "TLS", fix) from None
    context.verify_mode = ssl.CERT_OPTIONAL
