"""Which URLs a client may choose: the patterns of `ZERO_QUERY_URL` and `ZERO_MUTATE_URL`.

Supports the part of the web's URLPattern that applies to host and path: `*`, `:name` for one segment, `:name(regex)`,
and `?` after either. Query and fragment are not matched.

A URL is matched in its canonical form, and only that form may be requested: otherwise dot segments or percent-encoding
could reach a path that the pattern does not allow.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote, urlsplit, urlunsplit

_TOKEN = re.compile(r":(?P<name>[A-Za-z_]\w*)(?:\((?P<regex>[^)]*)\))?(?P<optional>\?)?|(?P<star>\*)|(?P<text>.)")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_UNRESERVED = frozenset(string.ascii_letters + string.digits + "-._~")
_ASCII = "".join(map(chr, range(0x21, 0x7F)))
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f]")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})|%[01][0-9A-Fa-f]|%7[Ff]")
_ODD_HOST = re.compile(r"[@%]")
_ENCODED_SEPARATOR = re.compile(r"%(2[Ff]|5[Cc])")
_PARTS = re.compile(
    r"(?P<scheme>[a-z*]+)://(?P<host>\[[0-9a-f:]+\]|[^/:]*(?::[A-Za-z_]\w*[^/:]*)*)"
    r"(?::(?P<port>[0-9*]+))?(?P<path>/[^#]*)?"
)


def canonical(url: str) -> str | None:
    """The canonical form of an http or https URL, without its fragment; None if it must not be requested.

    Host in lower case, no default port, no dot segments, unreserved characters decoded. Refused are user names,
    percent-encoded separators, and control characters.
    """
    if _FORBIDDEN.search(url):
        return None
    try:
        parts = urlsplit(quote(url.replace("\\", "/"), safe=_ASCII))
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if (
        parts.scheme not in _DEFAULT_PORTS
        or not host
        or _ODD_HOST.search(parts.netloc)
        or _ENCODED_SEPARATOR.search(parts.path)
    ):
        return None
    if _BAD_ESCAPE.search(parts.path) or _BAD_ESCAPE.search(parts.query):
        return None
    shown_host = f"[{host}]" if ":" in host else host
    shown_port = "" if port is None or port == _DEFAULT_PORTS[parts.scheme] else f":{port}"
    path = _without_dots(_ESCAPE.sub(_decoded, parts.path)) or "/"
    return urlunsplit((parts.scheme, shown_host + shown_port, path, parts.query, ""))


def _decoded(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    return character if character in _UNRESERVED else escape[0].upper()


def _without_dots(path: str) -> str:
    """Remove `.` and `..` segments as RFC 3986 does."""
    kept: list[str] = []
    *before, last = path.split("/")[1:] or [""]
    for segment in before:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if last == "..":
        del kept[-1:]
    return "/" + "/".join([*kept, "" if last in (".", "..") else last])


def is_allowed(url: str, patterns: Iterable[str]) -> bool:
    """Whether the canonical form of a URL matches one of the patterns."""
    canonical_url = canonical(url)
    if canonical_url is None:
        return False
    parts = urlsplit(canonical_url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    subject = f"{parts.scheme}://{host}:{parts.port or _DEFAULT_PORTS[parts.scheme]}{parts.path}"
    return any(_compiled(pattern).fullmatch(subject) is not None for pattern in patterns)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = _PARTS.match(pattern)
    if parts is None:
        return re.compile(r"(?!)")
    scheme = parts["scheme"]
    port = parts["port"] or str(_DEFAULT_PORTS.get(scheme, "*"))
    path = re.split(r"\?(?=[\w-]+=)", parts["path"] or "/")[0]
    # A `*` in the host must not match `/`, or it would match any other host that has the rest in its path.
    host = _expression(parts["host"], "[^./:]+", "[^/:]*")
    origin = f"{_expression(scheme, '[a-z]+', '[a-z]*')}://{host}:{_expression(port, '[0-9]+', '[0-9]*')}"
    return re.compile(origin + _expression(path, "[^/]+", ".*"))


def _expression(part: str, segment: str, anything: str) -> str:
    expression = ""
    for token in _TOKEN.finditer(part):
        if token["star"]:
            expression += anything
        elif token["name"]:
            group = f"(?:{token['regex'] or segment})"
            # The separator before an optional segment is optional with it.
            expression = (
                f"{expression[:-1]}(?:/{group})?"
                if token["optional"] and expression.endswith("/")
                else expression + group
            )
        else:
            expression += re.escape(token["text"])
    return expression
