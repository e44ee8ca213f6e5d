"""Parts of the SDK that adapters may use in addition to the contract. The bundled adapters do.

No adapter needs them: the contract is what `changesource_sdk` itself exports. They save writing the same code again.

| for | names |
| --- | --- |
| logs | `logger`, `event`, `Throttle` |
| warnings that last | `StandingWarnings`, `settle_warnings`, `NOT_SYNCED`, `Holds` |
| an upstream that is slow to answer | `Patience` |
| schema changes | `schema_diff`, `KnownTable`, `schema_diff_by_name`, `has_altered_kind`: two schemas as changes |
| | `FollowedTables`: tables along a stream of changes |
| values | `converter`, `to_epoch_ms`, `kept_json`, `TableEncoder`: what a column accepts, and how it travels |
| names | `canonical_name`, `split_name`, `nearest` |
| Spark | `spark_session`, `has_spark_session`, `gist_of_spark_error` |
"""

from changesource_sdk.followed_tables import FollowedTables
from changesource_sdk.observe.warnings import NOT_SYNCED, Holds, StandingWarnings
from changesource_sdk.observe.warnings import settle as settle_warnings
from changesource_sdk.pipeline.encoding.encode import TableEncoder
from changesource_sdk.pipeline.encoding.normalize import converter, to_epoch_ms
from changesource_sdk.pipeline.encoding.rows import kept_json
from changesource_sdk.pipeline.patience import Patience
from changesource_sdk.pipeline.spark.session import has_spark_session, spark_session
from changesource_sdk.pipeline.spark.sql.mapping import gist as gist_of_spark_error
from changesource_sdk.schema import canonical_name, split_name
from changesource_sdk.schema_diff import KnownTable, has_altered_kind, schema_diff, schema_diff_by_name
from service_kit.logs import Throttle, event, logger
from service_kit.suggestions import nearest

__all__ = [
    "NOT_SYNCED",
    "FollowedTables",
    "Holds",
    "KnownTable",
    "Patience",
    "StandingWarnings",
    "TableEncoder",
    "Throttle",
    "canonical_name",
    "converter",
    "event",
    "gist_of_spark_error",
    "has_altered_kind",
    "has_spark_session",
    "kept_json",
    "logger",
    "nearest",
    "schema_diff",
    "schema_diff_by_name",
    "settle_warnings",
    "spark_session",
    "split_name",
    "to_epoch_ms",
]
