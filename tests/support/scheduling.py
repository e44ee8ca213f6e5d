"""Which tests stay on one worker: those of a file, since they may share servers, and all that share a Spark session."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

TABLES = "tests/adapters/spark_tables/test_"
SPARK_TESTS = (
    "tests/sdk/pipeline/spark/",
    *(TABLES + name for name in ("delta_gaps", "difference", "iceberg", "pipeline")),
)


class ByFile(LoadScopeScheduling):
    """Hands a worker whole files, and all tests with a Spark session in their own process to the same worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return SPARK_TESTS[0] if file.startswith(SPARK_TESTS) else file
