"""Modules by the names they had when an unfinished snapshot was pickled (`resume`).

A plan names the classes of its adapter's partitions and of its mappings by module. A module that moves leaves its
former name here, so that a snapshot that was interrupted before an upgrade is resumed after it.
"""

from __future__ import annotations

import pickle
from io import BytesIO
from typing import Any

# fmt: off
FORMER = {
    "adapters.kafka.candidates": "adapters.kafka.keys.candidates",
    "adapters.kafka.catalog": "adapters.kafka.records.catalog",
    "adapters.kafka.client": "adapters.kafka.broker.client",
    "adapters.kafka.consumer": "adapters.kafka.broker.consumer",
    "adapters.kafka.cut": "adapters.kafka.topics.cut",
    "adapters.kafka.dead_letters": "adapters.kafka.records.dead_letters",
    "adapters.kafka.debezium": "adapters.kafka.records.debezium",
    "adapters.kafka.fold": "adapters.kafka.topics.fold",
    "adapters.kafka.folded_partition": "adapters.kafka.topics.folded_partition",
    "adapters.kafka.group_offsets": "adapters.kafka.broker.group_offsets",
    "adapters.kafka.key_index": "adapters.kafka.keys.index",
    "adapters.kafka.key_set": "adapters.kafka.topics.key_set",
    "adapters.kafka.key_tracking": "adapters.kafka.keys.tracking",
    "adapters.kafka.keys_before": "adapters.kafka.keys.before",
    "adapters.kafka.moved_keys": "adapters.kafka.keys.moved",
    "adapters.kafka.open_transactions": "adapters.kafka.topics.open_transactions",
    "adapters.kafka.ranges": "adapters.kafka.topics.ranges",
    "adapters.kafka.reading": "adapters.kafka.records.reading",
    "adapters.kafka.records": "adapters.kafka.records.decoding",
    "adapters.kafka.refusals": "adapters.kafka.broker.refusals",
    "adapters.kafka.schemas": "adapters.kafka.records.schemas",
    "adapters.kafka.spool": "adapters.kafka.transactions.spool",
    "adapters.kafka.spreading": "adapters.kafka.topics.spreading",
    "adapters.kafka.surveying": "adapters.kafka.topics.surveying",
    "adapters.kafka.transactions": "adapters.kafka.transactions.assembly",
    "adapters.kafka.unordered_keys": "adapters.kafka.keys.unordered",
    "adapters.kafka.upsert": "adapters.kafka.records.upsert",
    "adapters.kafka.values": "adapters.kafka.types",
    "adapters.spark_tables.changed_rows": "adapters.spark_tables.difference.changed_rows",
    "adapters.spark_tables.delta_access": "adapters.spark_tables.delta.access",
    "adapters.spark_tables.delta_choice": "adapters.spark_tables.delta.choice",
    "adapters.spark_tables.delta_feed": "adapters.spark_tables.delta.feed",
    "adapters.spark_tables.delta_jar_free": "adapters.spark_tables.delta.jar_free",
    "adapters.spark_tables.delta_log": "adapters.spark_tables.delta.log",
    "adapters.spark_tables.delta_memory": "adapters.spark_tables.delta.memory",
    "adapters.spark_tables.delta.shares": "adapters.spark_tables.delta.partitions",
    "adapters.spark_tables.delta_place": "adapters.spark_tables.position",
    "adapters.spark_tables.delta_reader": "adapters.spark_tables.delta.choice",
    "adapters.spark_tables.delta_shares": "adapters.spark_tables.delta.partitions",
    "adapters.spark_tables.delta_source": "adapters.spark_tables.delta.source",
    "adapters.spark_tables.delta_spark": "adapters.spark_tables.delta.spark",
    "adapters.spark_tables.delta_table": "adapters.spark_tables.delta.table",
    "adapters.spark_tables.difference": "adapters.spark_tables.difference.compute",
    "adapters.spark_tables.difference_files": "adapters.spark_tables.difference.files",
    "adapters.spark_tables.difference_source": "adapters.spark_tables.difference.source",
    "adapters.spark_tables.iceberg": "adapters.spark_tables.readers.iceberg",
    "adapters.spark_tables.keys": "adapters.spark_tables.rows.keys",
    "adapters.spark_tables.query": "adapters.spark_tables.readers.query",
    "adapters.spark_tables.reader": "adapters.spark_tables.readers.contract",
    "adapters.spark_tables.readers": "adapters.spark_tables.readers.files_and_jdbc",
    "adapters.spark_tables.row_hash": "adapters.spark_tables.rows.row_hash",
    "adapters.spark_tables.shape": "adapters.spark_tables.rows.shape",
    "adapters.spark_tables.shapes": "adapters.spark_tables.rows.shapes",
    "adapters.spark_tables.state": "adapters.spark_tables.difference.state",
    "adapters.spark_tables.touched": "adapters.spark_tables.delta.touched",
    "adapters.spark_tables.values": "adapters.spark_tables.rows.values",
    "adapters.sqlite.catalog": "adapters.sqlite.catalog.model",
    "changesource_sdk.observe.logs": "service_kit.logs",
    "changesource_sdk.pipeline.mapping": "changesource_sdk.pipeline.mapping.declare",
    "changesource_sdk.pipeline.row_mapping": "changesource_sdk.pipeline.mapping.row",
    "changesource_sdk.pipeline.table_mapping": "changesource_sdk.pipeline.mapping.table",
    "changesource_sdk.pipeline.unfinished": "changesource_sdk.pipeline.snapshot.resume",
}
# fmt: on
"""Former name to present name."""

FORMER_NAMES = {
    ("adapters.spark_tables.adapter", "_can_all_resume"): ("adapters.spark_tables.snapshot", "_can_all_resume"),
    ("adapters.spark_tables.adapter", "_close_all"): ("adapters.spark_tables.snapshot", "_close_all"),
    ("adapters.spark_tables.delta.partitions", "DeltaShare"): (
        "adapters.spark_tables.delta.partitions",
        "DeltaPartition",
    ),
    ("adapters.spark_tables.difference.changed_rows", "RowsShare"): (
        "adapters.spark_tables.difference.changed_rows",
        "CopyPartition",
    ),
    ("changesource_sdk.pipeline.snapshot.resume", "Plan"): (
        "changesource_sdk.pipeline.snapshot.resume",
        "SnapshotPlan",
    ),
}
"""Classes and functions that were renamed, or moved out of a module that still exists; by their present module."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        present = FORMER.get(module_name, module_name), global_name
        return super().find_class(*FORMER_NAMES.get(present, present))


def unpickled(content: bytes) -> Any:
    """What was pickled, by this version or by one whose modules had other names."""
    return _Unpickler(BytesIO(content)).load()
