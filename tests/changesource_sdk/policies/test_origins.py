"""Which requests a web browser may send: by origin, and by the name it used."""

from __future__ import annotations

import pytest

from changesource_sdk.policies.origins import BrowserRules, origin_problem
from service_kit.addresses import is_loopback

EVIL = "https://evil.example"


def rules(listen: str = "127.0.0.1", origins: tuple[str, ...] = (), hosts: tuple[str, ...] = ()) -> BrowserRules:
    return BrowserRules.of(listen, origins, hosts)


@pytest.mark.parametrize(
    ("allowed", "sent", "goes_on"),
    [
        ((), [], True),
        ((), [EVIL], False),
        ((), ["null"], False),
        ((), ["http://127.0.0.1:4810"], False),
        (("https://app.example",), ["https://app.example"], True),
        (("https://App.example/",), ["https://app.example"], True),
        (("https://app.example",), ["https://app.example", EVIL], False),
        (("https://app.example",), ["https://app.example.evil.example"], False),
        (("*",), [EVIL], True),
    ],
)
def test_an_origin_goes_on_if_it_is_allowed(allowed: tuple[str, ...], sent: list[str], goes_on: bool) -> None:
    assert rules(origins=allowed).allow_origins(sent) is goes_on


@pytest.mark.parametrize(
    "host", ["127.0.0.1:4810", "localhost:4810", "LOCALHOST", "[::1]:4810", "app.localhost:1", "10.1.2.3"]
)
def test_loopback_pages_are_served_under_addresses_and_localhost(host: str) -> None:
    assert rules().allow_host(host)


@pytest.mark.parametrize("host", [None, "", "evil.example:4810", "localhost.evil.example", "127.0.0.1.evil.example"])
def test_loopback_pages_are_not_served_under_any_other_name(host: str | None) -> None:
    assert not rules().allow_host(host)
    assert rules(hosts=("*",)).allow_host(host)


def test_names_are_checked_beyond_loopback_once_some_are_listed() -> None:
    assert rules("0.0.0.0").allow_host("changesource.prod.svc:4810")
    listed = rules("0.0.0.0", hosts=("changesource",))
    assert listed.allow_host("changesource:4810")
    assert not listed.allow_host("evil.example:4810")


def test_only_loopback_addresses_are_loopback() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "host.example"))


@pytest.mark.parametrize(
    ("origins", "is_wrong"),
    [(("https://a.example", "*"), False), (("a.example",), True), (("https://a.example/page",), True)],
)
def test_a_setting_that_is_no_origin_is_told(origins: tuple[str, ...], is_wrong: bool) -> None:
    assert (origin_problem(origins) is not None) is is_wrong
