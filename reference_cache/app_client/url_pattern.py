"""Which URLs a client may name: the patterns of `ZERO_QUERY_URL` and `ZERO_MUTATE_URL`.

The part of the web's URLPattern that makes sense in a host and a path: `*` for anything, `:name` for one segment,
`:name(regex)`, and a `?` after either. Query and fragment play no part.

What is matched is the URL as the application will see it (`canonical`), and that form is what must be requested: a path
with dot segments, in whatever spelling, is not what it looks like.
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
    """The one spelling of an http or https URL, without its fragment; None for one that no request should go to.

    Host in lower case, no default port, no dot segments, characters that need no percent-encoding decoded. Refused are
    user names, separators hidden by percent-encoding, and characters that have no place in a URL.
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
    """The path with `.` and `..` carried out, as RFC 3986 has it."""
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
    """Whether a URL, in its canonical form, matches one of the patterns."""
    spelled = canonical(url)
    if spelled is None:
        return False
    parts = urlsplit(spelled)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    subject = f"{parts.scheme}://{host}:{parts.port or _DEFAULT_PORTS[parts.scheme]}{parts.path}"
    return any(_compiled(pattern).fullmatch(subject) is not None for pattern in patterns)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    found = _PARTS.match(pattern)
    if found is None:
        return re.compile(r"(?!)")
    scheme = found["scheme"]
    port = found["port"] or str(_DEFAULT_PORTS.get(scheme, "*"))
    path = re.split(r"\?(?=[\w-]+=)", found["path"] or "/")[0]
    # What stands for anything in a host must not reach into the path, or any host would do.
    host = _expression(found["host"], "[^./:]+", "[^/:]*")
    place = f"{_expression(scheme, '[a-z]+', '[a-z]*')}://{host}:{_expression(port, '[0-9]+', '[0-9]*')}"
    return re.compile(place + _expression(path, "[^/]+", ".*"))


def _expression(part: str, segment: str, anything: str) -> str:
    made = ""
    for token in _TOKEN.finditer(part):
        if token["star"]:
            made += anything
        elif token["name"]:
            group = f"(?:{token['regex'] or segment})"
            # The separator before an optional segment is optional with it.
            made = f"{made[:-1]}(?:/{group})?" if token["optional"] and made.endswith("/") else made + group
        else:
            made += re.escape(token["text"])
    return made
