"""The official push processor, run in Node on a Postgres database, as an application's server would run it.

Place in the flow: it writes an application's data and the consumer's tables in one transaction per mutation. It knows
the mutators `counter|set` and `counter|refuse`, on a table `counter`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.tools import node, node_modules

SCRIPT = Path(__file__).parents[1] / "node" / "push_processor.mjs"


def push(url: str, mutations: Sequence[tuple[str, Mapping[str, object]]]) -> None:
    """Run named mutations in order, as the first of client `client` of group `group`."""
    numbered = [{"id": id_, "name": name, "args": args} for id_, (name, args) in enumerate(mutations, start=1)]
    asked = {"url": url, "clientGroupID": "group", "clientID": "client", "mutations": numbered}
    env = {**os.environ, "TEST_NODE_MODULES": str(node_modules()), "TEST_PUSH": json.dumps(asked)}
    done = subprocess.run([node(), SCRIPT], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answered = json.loads(done.stdout)["mutations"]
    assert [mutation["id"]["id"] for mutation in answered] == [mutation["id"] for mutation in numbered]
