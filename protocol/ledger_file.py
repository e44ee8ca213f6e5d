"""The file in which an application confirms mutations for an upstream that cannot hold the consumer's tables.

One SQLite database in WAL mode: the application's server appends entries; the pipeline reads, settles and removes them.
Either creates the file if it does not exist. Every entry becomes one row change of `{schema}.clients` or
`{schema}.mutations`, or one of each:

- `confirm`: the client's last mutation is now `mutation`; a `result`, if there is one, is kept for the client to see;
- `forget`: the client has seen the result of `mutation`.

`positions` is a JSON array of upstream positions that must have been read before the entry may be sent to consumers.
Entries are sent in order. `client` and `unseen` are the application's view, the state after all entries;
`settled_client` and `settled_result` are the pipeline's view, the state after all entries that are durable elsewhere.
"""

from __future__ import annotations

DEFAULT_SCHEMA = "zero_0"

STATEMENTS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    """
CREATE TABLE IF NOT EXISTS ledger (
  only INTEGER PRIMARY KEY CHECK (only = 1), id TEXT NOT NULL, schema TEXT NOT NULL, settled INTEGER NOT NULL)""",
    """
CREATE TABLE IF NOT EXISTS entry (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL CHECK (kind IN ('confirm', 'forget')),
  client_group TEXT NOT NULL, client TEXT NOT NULL, mutation INTEGER NOT NULL, result TEXT, positions TEXT NOT NULL)""",
    """
CREATE TABLE IF NOT EXISTS client (
  client_group TEXT NOT NULL, client TEXT NOT NULL, last_mutation INTEGER NOT NULL,
  PRIMARY KEY (client_group, client)) WITHOUT ROWID""",
    """
CREATE TABLE IF NOT EXISTS unseen (
  client_group TEXT NOT NULL, client TEXT NOT NULL, mutation INTEGER NOT NULL,
  PRIMARY KEY (client_group, client, mutation)) WITHOUT ROWID""",
    """
CREATE TABLE IF NOT EXISTS settled_client (
  client_group TEXT NOT NULL, client TEXT NOT NULL, last_mutation INTEGER NOT NULL,
  PRIMARY KEY (client_group, client)) WITHOUT ROWID""",
    """
CREATE TABLE IF NOT EXISTS settled_result (
  client_group TEXT NOT NULL, client TEXT NOT NULL, mutation INTEGER NOT NULL, result TEXT NOT NULL,
  PRIMARY KEY (client_group, client, mutation)) WITHOUT ROWID""",
    "INSERT OR IGNORE INTO ledger (only, id, schema, settled) VALUES (1, lower(hex(randomblob(8))), ?, 0)",
)
"""Creates the file, statement by statement; the last takes the schema of the consumer's tables. Idempotent."""
