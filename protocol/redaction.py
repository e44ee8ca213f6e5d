"""Keeping secrets out of everything that is printed, logged, reported or answered.

Two ways together, since neither is enough alone. What looks like a secret is masked everywhere: the user and password
of a URL, the value of a parameter, field or option whose name suggests a secret, tokens and private keys. And the
values of secret settings are known to the process (`hide_setting`) and masked in any form, whole or in the pieces into
which a parser splits a password with `/`, `@` or `%` in it.

No I/O. The known values are the only state: written when a configuration is read, for the life of the process.
"""

import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote, unquote_plus

MASK = "***"
#: Shorter values are not looked for in texts: they would be found everywhere.
SHORTEST = 4

_NAMES = (
    r"pass(?:word|wd|phrase)|pwd|secret|token|authorization|cookie|signature"
    r"|(?:api|access|private|account|shared|auth|encryption)[_.-]?key"
)
#: Whole values of settings with these names are secret, unless they are a URL or a string of options.
_SECRET_NAME = re.compile(rf"(?i)(?:.*[^a-z])?\w*(?:{_NAMES}|credentials?|dsn|conninfo|jaas|jwk)(?:[^a-z].*)?")
_ASSIGNED = re.compile(
    rf"""(?i)(?P<name>[\w.-]*(?:{_NAMES})[\w.-]*["']?\s*[=:]\s*)(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s&,;)}}\]"']+)"""
)
_URL = re.compile(r"""(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]*://)(?P<rest>[^\s"'<>]+)""")
_JWK_MEMBER = re.compile(r"""(?P<name>"(?:k|d|p|q|dp|dq|qi)"\s*:\s*)"[^"]*\"""")
_TOKENS = re.compile(r"(?i)\beyJ[\w-]{5,}\.[\w-]+\.[\w-]*|\b(?:Bearer|Basic)\s+[\w+/=.~-]{12,}")
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_QUOTED_OR_WORD = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\S+"""
_OPTION = re.compile(rf"""(?i)[\w.-]*(?:{_NAMES})[\w.-]*\s*=\s*(?P<value>{_QUOTED_OR_WORD})""")
#: What our own hints write where a user and password go.
_PLACEHOLDERS = ("user:password", "user")

_known: set[str] = set()  # every form of every secret value this process was configured with
_known_pattern: re.Pattern[str] | None = None  # matches any of them; replaced as a whole by `hide`


def redact(text: str) -> str:
    """The text without secrets."""
    if _known_pattern is not None:
        text = _known_pattern.sub(MASK, text)
    text = _PRIVATE_KEY.sub(MASK, text)
    text = _URL.sub(_without_userinfo, text)
    text = _ASSIGNED.sub(_without_value, text)
    if '"kty"' in text:
        text = _JWK_MEMBER.sub(rf'\g<name>"{MASK}"', text)
    return _TOKENS.sub(MASK, text)


def redact_value(value: object) -> object:
    """A JSON-like value without secrets, in its texts and under names that suggest secrets, at any depth."""
    match value:
        case str():
            return redact(value)
        case Mapping():
            return {
                key: MASK if item and is_secret_name(str(key)) else redact_value(item) for key, item in value.items()
            }
        case list() | tuple():
            return [redact_value(item) for item in value]
    return value


def is_secret_name(name: str) -> bool:
    """Whether a setting, parameter or field of this name may hold a secret, and is better not shown."""
    return _SECRET_NAME.fullmatch(name) is not None or name.lower().endswith(("key", "url"))


def shown_url(url: str) -> str:
    """A URL for people: scheme, host and path, without user, password and query."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    userinfo, _, tail = rest.rpartition("@")
    # A `?` before the last `@` may be part of a password, or begin a query with an `@` in it: either may be secret.
    shown = MASK if "?" in userinfo or "#" in userinfo else re.split(r"[?#]", tail)[0]
    return f"{scheme}{separator}{shown}"


def shown_host(url: str) -> str:
    """Host and port of a URL, or of a bare `host:port`, for people."""
    return shown_url(url).rpartition("://")[2].partition("/")[0]


def hide(*secrets: str) -> None:
    """Mask these values in every text from now on, however they are escaped."""
    global _known_pattern
    for secret in secrets:
        _known.update(form for form in _forms(secret) if len(form) >= SHORTEST)
    if _known:
        _known_pattern = re.compile("|".join(map(_matching, sorted(_known, key=len, reverse=True))))


def hide_setting(name: str, value: object) -> None:
    """Mask what is secret in a setting: all of a value whose name suggests a secret, the password in a URL or DSN."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            hide_setting(str(key), item)
    elif isinstance(value, str):
        hide(*secrets_in(value))
        if _SECRET_NAME.fullmatch(name) and "://" not in value and not _OPTION.search(value):
            hide(value)


def secrets_in(text: str) -> list[str]:
    """The secrets that a URL, DSN, option string or JSON text holds."""
    secrets = [_unquoted(match["value"]) for match in _OPTION.finditer(text)]
    scheme, separator, rest = text.partition("://")
    if separator:
        userinfo, at, tail = rest.rpartition("@")
        user, _, password = userinfo.partition(":")
        # A development database whose password is its own name: masking that would hide nothing but the name.
        if at and password and password not in (user, scheme, *re.split(r"\W", tail)):
            pieces = re.split(r"\W", password) + re.split(r"\W", unquote(password))
            secrets += [password, *(piece for piece in pieces if len(piece) > SHORTEST)]
        secrets += [value for name, value in _parameters(rest) if is_secret_name(name)]
    if text.lstrip().startswith("{"):
        secrets += _json_secrets(text)
    return [secret for secret in secrets if secret]


def _matching(form: str) -> str:
    # A short one not within a longer word: it must not tear other words apart.
    return re.escape(form) if len(form) >= 8 else rf"(?<!\w){re.escape(form)}(?!\w)"


def _forms(secret: str) -> Iterable[str]:
    """A value as it may be repeated: as it is, percent-encoded or decoded, escaped in JSON or a Python literal."""
    plain = {secret, unquote(secret), unquote_plus(secret)}
    for form in plain:
        yield from (form, quote(form, safe=""), quote(form), json.dumps(form)[1:-1], repr(form)[1:-1])
        yield json.dumps(form, ensure_ascii=False)[1:-1]


def _parameters(rest: str) -> Iterable[tuple[str, str]]:
    query = rest.partition("?")[2]
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        yield name, value


def _json_secrets(text: str) -> list[str]:
    try:
        document = json.loads(text)
    except ValueError:
        return []
    members = document.items() if isinstance(document, dict) else ()
    private = ("k", "d", "p", "q", "dp", "dq", "qi") if isinstance(document, dict) and "kty" in document else ()
    return [value for name, value in members if isinstance(value, str) and (name in private or is_secret_name(name))]


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value[:1] in "'\"" and len(value) > 1 else value


def _without_userinfo(match: re.Match[str]) -> str:
    scheme, rest = match["scheme"], match["rest"]
    userinfo, at, tail = rest.rpartition("@")
    if not at or userinfo in _PLACEHOLDERS:
        return match[0]
    return f"{scheme}{MASK}" if "?" in userinfo or "#" in userinfo else f"{scheme}{MASK}@{tail}"


def _without_value(match: re.Match[str]) -> str:
    value = match["value"]
    if value[0] in "'\"":
        return f"{match['name']}{value[0]}{MASK}{value[0]}"
    # Part of a URL, which was redacted in an earlier step, or a hint that redaction itself inserted.
    return match[0] if value.startswith(("//", "…", MASK)) else f"{match['name']}{MASK}"
