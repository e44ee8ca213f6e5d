"""IP addresses. Pure."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def is_loopback(address: str) -> bool:
    """Whether an address to listen on, or one of a peer, is this machine's own and no other machine can reach it."""
    try:
        parsed = ip_address(address.partition("%")[0].strip("[]"))
    except ValueError:
        return address == "localhost"
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return parsed.is_loopback or (mapped is not None and mapped.is_loopback)
