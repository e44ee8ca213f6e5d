"""What a row is known by: a 64-bit hash that is compared at every look, and a digest that is compared now and then.

Both are Spark expressions over a row's values, and hold still under what does not change a row: the order
of columns, a new column that is null, a wider number type. A null is not merely passed over, as Spark's hash does: a
value that moves from one column to another gives another hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

DIGEST_BYTES = 16
_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


@dataclass(frozen=True, slots=True)
class Value:
    """A column of a row: its name, where its value is, and its type."""

    name: str
    column: Column
    kind: DataType


def row_hash(values: Sequence[Value]) -> Column:
    """64 bits of the values; those of the key need not be among them."""
    from pyspark.sql import functions as f

    parts = [
        f.when(value.column.isNotNull(), f.xxhash64(f.lit(crc32(value.name.encode())), _steady(value)))
        for value in sorted(values, key=lambda value: value.name)
    ]
    return f.xxhash64(*parts) if parts else f.lit(0).cast("bigint")


def row_digest(values: Sequence[Value]) -> Column:
    """128 bits of SHA-256 over the values themselves: as good as comparing them."""
    from pyspark.sql import functions as f

    named = [value.column.alias(value.name) for value in sorted(values, key=lambda value: value.name)]
    text = f.to_json(f.struct(*named), _JSON) if named else f.lit("{}")
    return f.substring(f.unhex(f.sha2(text, 256)), 1, DIGEST_BYTES)


def quoted(name: str) -> Column:
    """A column by its name, whatever characters it has."""
    from pyspark.sql import functions as f

    return f.col("`" + name.replace("`", "``") + "`")


def _steady(value: Value) -> Column:
    """A value in the form that is hashed."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    if isinstance(value.kind, t.ByteType | t.ShortType | t.IntegerType):
        return value.column.cast("bigint")
    if isinstance(value.kind, t.FloatType):
        return value.column.cast("double")
    return f.to_json(value.column, _JSON) if _is_unhashable(value.kind) else value.column


def _is_unhashable(kind: DataType) -> bool:
    """Spark hashes no maps, since equal ones may be ordered differently, and no variants."""
    from pyspark.sql import types as t

    if isinstance(kind, t.ArrayType):
        return _is_unhashable(kind.elementType)
    if isinstance(kind, t.StructType):
        return any(_is_unhashable(field.dataType) for field in kind.fields)
    return isinstance(kind, t.MapType | t.VariantType)
