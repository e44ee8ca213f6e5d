"""The `changesource` command: one module per subcommand, one for output and exit codes."""

from __future__ import annotations


def main() -> None:
    """Run the command line of this process."""
    from changesource_cli.app import app

    app(prog_name="changesource")
