"""A registry on this machine that knows the packages npm has already brought, so that `npm install …` can be typed.

npm itself is the real one, and finds in its folder what it would otherwise fetch; here it learns which version a name
stands for. Contract: a name is answered with the one version that is installed, anything else with 404, and nothing is
ever downloaded: a package that is missing from the folder makes npm fail.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

from tests.support.tools import NPM_MANIFEST, node_modules

LOCK = json.loads((NPM_MANIFEST / "package-lock.json").read_text())


class _Registry(BaseHTTPRequestHandler):
    """Packages by name, as their own manifests describe them."""

    def do_GET(self) -> None:
        name = unquote(self.path).strip("/")
        manifest = node_modules() / name / "package.json"
        if not manifest.is_file():
            self.send_error(404)
            return
        described = json.loads(manifest.read_text())
        version = described["version"]
        described["dist"] = {
            "tarball": f"http://{self.headers['Host']}/{name}/-/{name.rpartition('/')[2]}-{version}.tgz",
            "integrity": LOCK["packages"][f"node_modules/{name}"]["integrity"],
        }
        answer = json.dumps({"name": name, "dist-tags": {"latest": version}, "versions": {version: described}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def npm_registry() -> Iterator[dict[str, str]]:
    """The variables with which npm asks this registry and nobody else."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Registry) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield {
                "npm_config_registry": f"http://127.0.0.1:{server.server_port}/",
                "npm_config_audit": "false",
                "npm_config_fund": "false",
                "npm_config_update_notifier": "false",
            }
        finally:
            server.shutdown()


def bring_packages(folder: Path) -> None:
    """Put what is installed, and the lock it came by, into a folder of npm's; by links where the disk allows."""
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(NPM_MANIFEST / name, folder / name)
    shutil.copytree(node_modules(), folder / "node_modules", symlinks=True, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
