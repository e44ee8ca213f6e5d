"""What a service needs on either side: coded errors, logs, pages, listening, retries, files, SQLite and settings.

`changesource_sdk` and `reference_cache` both import this package. It imports nothing of the project but `protocol`.
"""
