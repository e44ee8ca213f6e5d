"""Tokens of every algorithm, signed by the library that the official cache verifies with."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.tools import node, node_modules

SCRIPT = Path(__file__).parents[2] / "support" / "node" / "sign_tokens.mjs"
RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
OTHERS = ("ES256", "ES384", "ES512", "ES256K", "EdDSA")


@dataclass(frozen=True, slots=True)
class Signed:
    """A token about Ann with the role of an admin, and the public key of its signer, both named by the algorithm."""

    alg: str
    token: str
    key: dict[str, Any]

    @property
    def forged(self) -> str:
        """The token with another signature."""
        start, _, signature = self.token.rpartition(".")
        return f"{start}.{signature[:5]}{'B' if signature[5] == 'A' else 'A'}{signature[6:]}"


def sign(*algorithms: str) -> dict[str, Signed]:
    """A token for each algorithm, with a key of its own."""
    env = {**os.environ, "TEST_NODE_MODULES": str(node_modules())}
    command: list[str | Path] = [node(), SCRIPT, *algorithms]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=120)
    return {made.alg: made for made in (Signed(**json.loads(line)) for line in ran.stdout.splitlines())}
