"""`python -m changesource_sdk.cli` is the `changesource` command."""

from changesource_sdk.cli import main

main()
