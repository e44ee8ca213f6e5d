"""`python -m changesource_cli` is the `changesource` command."""

from changesource_cli import main

main()
