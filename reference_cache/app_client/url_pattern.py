"""Which URLs a client may name: the patterns of `ZERO_QUERY_URL` and `ZERO_MUTATE_URL`.

The part of the web's URLPattern that makes sense in a host and a path: `*` for anything, `:name` for one segment,
`:name(regex)`, and a `?` after either. Query and fragment play no part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import urlsplit

_TOKEN = re.compile(r":(?P<name>[A-Za-z_]\w*)(?:\((?P<regex>[^)]*)\))?(?P<optional>\?)?|(?P<star>\*)|(?P<text>.)")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PARTS = re.compile(
    r"(?P<scheme>[a-z*]+)://(?P<host>[^/:]*(?::[A-Za-z_]\w*[^/:]*)*)(?::(?P<port>[0-9*]+))?(?P<path>/[^#]*)?"
)


def is_allowed(url: str, patterns: Iterable[str]) -> bool:
    """Whether a URL matches one of the patterns."""
    try:
        given = urlsplit(url)
        port = given.port or _DEFAULT_PORTS.get(given.scheme)
    except ValueError:
        return False
    subject = f"{given.scheme}://{given.hostname}:{port}{given.path or '/'}"
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
