"""The demo: upstream, pipeline, endpoint, cache and application on one machine, shown on a page or in the terminal.

`changesource_cli` imports this package, never the other way round: the demo starts `python -m changesource_cli` as
child processes.
"""
