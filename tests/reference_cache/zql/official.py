"""The fixture schema and what the official builder made of the queries named in `fixtures/official_builder.mjs`."""

import json
from pathlib import Path
from typing import Any

from reference_cache.zql.schema import Schema

FIXTURES = Path(__file__).parent / "fixtures"
SCHEMA = Schema.from_json(json.loads((FIXTURES / "schema.json").read_text()))
_OFFICIAL = json.loads((FIXTURES / "official_builder.json").read_text())
QUERIES: dict[str, dict[str, Any]] = {case["name"]: case for case in _OFFICIAL["queries"]}
NAMED: list[dict[str, Any]] = _OFFICIAL["named"]
