"""A JSON API as many are: notes in pages, one ETag for the collection, conditional requests, and a rate limit.

A real HTTP server in a thread. Tests change `notes` under `lock` through `put` and `delete`.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, urlsplit

PAGE_ROWS = 3
"""However many a client asks for, as servers do."""


class NotesApi:
    """A context manager; `url` is where it listens. Every `limit_every`th request is refused with 429."""

    def __init__(self, limit_every: int = 4) -> None:
        self.notes: dict[int, dict[str, object]] = {}
        # Answers by status code; the server's threads add, under `lock`.
        self.answers: Counter[int] = Counter()
        # While it is set, requests after the first page are answered with 500; tests set it.
        self.is_broken = False
        self.lock = threading.Lock()
        # Changes so far: the ETag; written by `put` and `delete`.
        self._version = 1
        self._limit_every = limit_every
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def put(self, id: int, text: str, stars: int | None = None) -> None:
        with self.lock:
            self.notes[id] = {"id": id, "text": text, "stars": stars}
            self._version += 1

    def delete(self, id: int) -> None:
        with self.lock:
            del self.notes[id]
            self._version += 1

    def answer(self, path: str, known: str | None) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body for one request."""
        query = parse_qs(urlsplit(path).query)
        after = int(query.get("after", ["0"])[0])
        with self.lock:
            status, headers, body = self._answer(after, known)
            self.answers[status] += 1
            return status, headers, body

    def _answer(self, after: int, known: str | None) -> tuple[int, dict[str, str], bytes]:
        if self._limit_every and self.answers.total() % self._limit_every == self._limit_every - 1:
            return 429, {"Retry-After": "0"}, b""
        if self.is_broken and after:
            return 500, {}, b""
        etag = f'"{self._version}"'
        if known == etag:
            return 304, {"ETag": etag}, b""
        page = [self.notes[id] for id in sorted(self.notes) if id > after][:PAGE_ROWS]
        more = len(page) == PAGE_ROWS
        content = {"notes": page, "next": f"/notes?limit={PAGE_ROWS}&after={page[-1]['id']}" if more else None}
        return 200, {"ETag": etag, "Content-Type": "application/json"}, json.dumps(content).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, headers, body = api.answer(self.path, self.headers.get("If-None-Match"))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        return Handler
