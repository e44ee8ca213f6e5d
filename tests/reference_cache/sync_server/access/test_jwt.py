"""Tokens: a right one is read, anything else is refused; public-key cases are the examples of RFC 7515."""

from __future__ import annotations

from typing import Any

import jwt
import pytest

from reference_cache.sync_server.access.jwt import BadToken, TokenRules, decode, with_jwk, with_secret
from tests.reference_cache.sync_server.signed_by_jose import OTHERS, RSA, Signed, sign
from tests.reference_cache.sync_server.tokens import b64, hs256, hs256_of, unsigned

RULES = TokenRules(with_secret(b"s3cret"))

# RFC 7515, appendices A.2 and A.3: the payload is {"iss":"joe", "exp":1300819380, "http://example.com/is_root":true}.
PAYLOAD = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
RSA_KEY = {
    "kty": "RSA",
    "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS"
    "-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg66"
    "5xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ",
    "e": "AQAB",
}
RSA_TOKEN = (
    f"eyJhbGciOiJSUzI1NiJ9.{PAYLOAD}.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_"
    "O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_e"
    "SN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVr"
    "Bp0igcN_IoypGlUPQGe77Rw"
)
EC_KEY = {
    "kty": "EC",
    "crv": "P-256",
    "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
}
EC_TOKEN = (
    f"eyJhbGciOiJFUzI1NiJ9.{PAYLOAD}.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6"
    "NU1Q"
)


def test_a_token_signed_with_the_secret_gives_its_claims() -> None:
    assert decode(hs256("s3cret", sub="ann", role="admin"), RULES, "ann", 0) == {"sub": "ann", "role": "admin"}


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (hs256("other", sub="ann"), "signature"),
        (hs256("s3cret", sub="bob"), '"sub"'),
        (hs256("s3cret"), '"sub"'),
        (hs256("s3cret", sub="ann", exp=100), '"exp"'),
        (hs256("s3cret", sub="ann", exp="soon"), '"exp"'),
        (hs256("s3cret", sub="ann", nbf=101), '"nbf"'),
        (f"{unsigned('none', {'sub': 'ann'})}.", "signature"),
        (f"{unsigned('RS256', {'sub': 'ann'})}.{b64(b'x')}", "signature"),
        ("opaque", "not a signed"),
        ("a.b.c", "JSON Web Token|base64"),
        ("..", "JSON Web Token"),
        ("é.é.é", "JSON Web Token"),
        ("\ud800.a.b", "JSON Web Token"),
        (hs256("s3cret", header={"crit": ["exp"]}, sub="ann", exp=101), "crit"),
        (hs256("s3cret", header={"crit": []}, sub="ann"), "JSON Web Token|crit"),
        (hs256("s3cret", header={"crit": ["b64"], "b64": True}, sub="ann"), "crit"),
        (hs256("s3cret", header={"b64": False}, sub="ann"), "JSON Web Token"),
        (hs256("s3cret", header={"kid": 7}, sub="ann"), "JSON Web Token"),
        (f"{b64(b'[' * 9000)}.{b64(b'{}')}.", "JSON Web Token"),
        (hs256_of("s3cret", b"[" * 9000), "JSON Web Token"),
        (hs256_of("s3cret", b'{"sub":"ann","exp":1e400}'), '"exp"'),
    ],
)
def test_any_other_proves_nothing(token: str, why: str) -> None:
    with pytest.raises(BadToken, match=why):
        decode(token, RULES, "ann", 100)


@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("time", [float("nan"), float("inf"), float("-inf"), 10**400, -(10**400), True, "1", None, []])
def test_a_time_is_a_finite_number(name: str, time: Any) -> None:
    with pytest.raises(BadToken, match=f'"{name}" claim must be a number|is not a JSON Web Token'):
        decode(hs256("s3cret", sub="ann", **{name: time}), RULES, "ann", 100)


def test_a_time_may_have_a_fraction() -> None:
    token = hs256("s3cret", sub="ann", exp=100.5, nbf=99.5, iat=200)
    assert decode(token, RULES, "ann", 100)["exp"] == 100.5
    with pytest.raises(BadToken, match='"exp"'):
        decode(token, RULES, "ann", 100.6)


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_short_secret_is_the_operators_choice(algorithm: str, recwarn: pytest.WarningsRecorder) -> None:
    token = jwt.PyJWT().encode({"sub": "ann"}, "s3cret", algorithm=algorithm)
    recwarn.clear()
    assert decode(token, RULES, "ann", 0) == {"sub": "ann"}
    assert not recwarn


@pytest.mark.parametrize("key", ["-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----", '{"kty":"RSA"}', ""])
def test_a_public_key_is_no_secret(key: str) -> None:
    with pytest.raises(BadToken, match="the secret cannot be used"):
        with_secret(key.encode())


def test_issuer_and_audience_are_checked_if_set() -> None:
    rules = TokenRules(with_secret(b"s3cret"), issuer="us", audience="app")
    right: list[dict[str, Any]] = [{"iss": "us", "aud": "app"}, {"iss": "us", "aud": ["other", "app"]}]
    wrong: list[dict[str, Any]] = [
        {"iss": "them", "aud": "app"},
        {"iss": "us", "aud": "other"},
        {"iss": "us"},
        {"aud": "app"},
    ]
    for claims in right:
        assert decode(hs256("s3cret", sub="ann", **claims), rules, "ann", 0)["iss"] == "us"
    for claims in wrong:
        with pytest.raises(BadToken):
            decode(hs256("s3cret", sub="ann", **claims), rules, "ann", 0)


@pytest.mark.parametrize(("key", "token"), [(RSA_KEY, RSA_TOKEN), (EC_KEY, EC_TOKEN)], ids=["RS256", "ES256"])
def test_the_standards_own_examples_are_verified(key: dict[str, str], token: str) -> None:
    rules = TokenRules(with_jwk(key))
    # The examples have no subject, so the signature is all that can be right about them.
    with pytest.raises(BadToken, match='"sub"'):
        decode(token, rules, "ann", 0)
    header, payload, signature = token.split(".")
    flipped = ("A" if signature[0] != "A" else "B") + signature[1:]
    with pytest.raises(BadToken, match="signature"):
        decode(f"{header}.{payload}.{flipped}", rules, "ann", 0)


def test_a_public_key_is_never_taken_for_a_secret() -> None:
    key = with_jwk(RSA_KEY)
    with pytest.raises(BadToken, match="signature"):
        decode(hs256(RSA_KEY["n"], sub="ann"), TokenRules(key), "ann", 0)


@pytest.fixture(scope="module")
def signed() -> dict[str, Signed]:
    return sign(*RSA, *OTHERS)


@pytest.mark.parametrize("algorithm", [*RSA, *OTHERS])
def test_what_the_official_library_signs_is_verified(signed: dict[str, Signed], algorithm: str) -> None:
    made = signed[algorithm]
    rules = TokenRules(with_jwk(made.key))
    assert decode(made.token, rules, "ann", 0)["role"] == "admin"
    with pytest.raises(BadToken, match="signature"):
        decode(made.forged, rules, "ann", 0)


@pytest.mark.parametrize("algorithm", [*RSA, *OTHERS])
def test_a_key_verifies_nothing_that_another_signed(signed: dict[str, Signed], algorithm: str) -> None:
    rules = TokenRules(with_jwk(signed[algorithm].key))
    for other in (each for each in signed.values() if each.alg != algorithm):
        with pytest.raises(BadToken, match="signature"):
            decode(other.token, rules, "ann", 0)


def test_a_short_rsa_key_is_refused() -> None:
    with pytest.raises(BadToken, match="2048"):
        with_jwk({**RSA_KEY, "n": RSA_KEY["n"][:171]})


@pytest.mark.parametrize("key", [{"kty": "OKP", "crv": "Ed25519"}, {"kty": "EC", "crv": "P-384"}, {"kty": "RSA"}, {}])
def test_other_keys_are_refused(key: dict[str, str]) -> None:
    with pytest.raises(BadToken):
        with_jwk(key)


def test_a_point_that_is_not_on_the_curve_is_refused() -> None:
    with pytest.raises(BadToken, match="curve"):
        with_jwk({**EC_KEY, "x": EC_KEY["y"]})
