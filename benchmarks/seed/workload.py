"""Rows of eight columns, with one index next to that of the key: `serve benchmarks.seed.workload:Issues`."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.endpoint.workload import ISSUE, Workload
from changesource_sdk.adapter import Table
from changesource_sdk.schema import Index

TABLE = replace(ISSUE, indexes=[Index("issue_owner", ["owner", "created"])])


class Issues(Workload):
    """The adapter."""

    def tables(self) -> list[Table]:
        return [TABLE]
