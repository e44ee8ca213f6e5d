"""Notes behind a JSON API that keeps no log: pages, ETags, rate limits. A note that is no longer listed is gone."""

import json
import math
import urllib.error
import urllib.request

from changesource_sdk import COMPLETE, AdapterError, ByDifference, Column, Cursor, Table

MOST_BYTES = 16 << 20
TIMEOUT_S = 30.0
ATTEMPTS = 10


class HttpNotes(ByDifference):
    list_interval = math.inf  # every answer but "304 Not Modified" is a complete listing

    def __init__(self, url, state="changesource-state/http-notes", poll=2.0):
        super().__init__(state)
        self.url, self.poll_interval = url, float(poll)

    def tables(self):
        return [Table("note", [Column("id", int), Column("text", str), Column("stars", int)])]

    def rows(self, table):
        yield from self.pages(None)

    def changed_since(self, table, cursor):
        yield from self.pages(cursor)

    def pages(self, known):
        """All pages of one version of the collection; nothing if it is still the `known` one."""
        address, version = f"{self.url}/notes?limit=100", None
        while address:
            etag, page = self.get(address, known if version is None else None)
            if page is None:
                return
            if version is None and known is not None:
                yield COMPLETE
            if version not in (None, etag):
                fix = "nothing to do: the notes are listed again"
                raise AdapterError("changed-while-listed", "the notes changed between two pages", address, fix)
            version = etag
            yield from page["notes"]
            address = page["next"] and self.url + page["next"]
        yield Cursor(version)

    def get(self, address, known):
        """ETag and content of a page; no content if the server still has the version that is `known`."""
        request = urllib.request.Request(address, headers={"If-None-Match": known} if known else {})
        for _ in range(ATTEMPTS):
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                    return answer.headers["ETag"], json.loads(answer.read(MOST_BYTES))
            except urllib.error.HTTPError as error:
                if error.code == 304:
                    return known, None
                if error.code not in (429, 503):
                    raise
                # The listing goes on from this page when the server allows it; `close()` ends the wait.
                self.wait(seconds(error.headers.get("Retry-After")))
        raise AdapterError("rate-limited", f"{ATTEMPTS} requests in a row were refused", address, "poll less often")


def seconds(retry_after):
    """The header may be missing, or a date: then a few seconds."""
    return float(retry_after) if retry_after and retry_after.isdigit() else 5.0
