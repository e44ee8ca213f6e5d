"""Orders in a Delta table, and a Spark SQL query over them: `python -m examples.delta`.

Jobs write to the table as they do anyway. Clients see its rows, and the revenue per customer that Spark computes.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from examples.flow import flow
from reference_cache.client import Client
from reference_cache.zql.query.builder import Queries
from reference_cache.zql.schema import hop, schema, table

SHOP = schema(
    [
        table("orders", {"id": "number", "customer": "string", "amount": "number"}),
        table("revenue", {"customer": "string", "total": "number"}, primary_key="customer"),
    ],
    {"revenue": {"orders": hop("customer", "orders", "customer")}},
)
CUSTOMERS = Queries(SHOP).table("revenue").order_by("total", "desc").related("orders")
# Few rows need few partitions; the others make Java start faster.
SPARK = ("--runner", "spark", "--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2")
SPARK += ("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
REVENUE = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"


def orders(ids: list[int], customers: list[str], amounts: list[float]) -> pa.Table:
    return pa.table({"id": ids, "customer": customers, "amount": amounts})


async def watch(lake: Path) -> None:
    settings = {
        "tables.orders.delta": str(lake),
        "tables.orders.key": "id",
        "tables.revenue.query": REVENUE,
        "tables.revenue.key": "customer",
    }
    async with flow("spark-tables", settings, *SPARK) as url, Client(url, SHOP) as client:
        view = client.query(CUSTOMERS)
        await view.complete()
        show(view.result)

        print("a job merges two orders into the table")
        merged = DeltaTable(lake).merge(orders([2, 4], ["Bob", "Eve"], [9.0, 50.0]), "n.id = t.id", "n", "t")
        merged.when_matched_update_all().when_not_matched_insert_all().execute()
        await view.until(
            lambda rows: [(row["total"], len(row["orders"])) for row in rows] == [(50.0, 1), (30.0, 2), (9.0, 1)]
        )
        show(view.result)


def show(rows: object) -> None:
    assert isinstance(rows, list)
    for row in rows:
        print(f"  {row['customer']}: {row['total']} of orders {[order['id'] for order in row['orders']]}")


def main() -> None:
    with TemporaryDirectory() as folder:
        lake = Path(folder) / "orders"
        first = orders([1, 2, 3], ["Ada", "Bob", "Ada"], [10.0, 5.0, 20.0])
        write_deltalake(lake, first, configuration={"delta.enableChangeDataFeed": "true"})
        asyncio.run(watch(lake))


if __name__ == "__main__":
    main()
