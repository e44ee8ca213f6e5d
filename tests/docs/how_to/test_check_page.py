"""What docs/how-to/check-an-endpoint.md shows is what `check` prints, and its table has every case."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from changesource_cli.app import app
from changesource_sdk.checking.endpoint_cases import CASES
from tests.changesource_sdk.checking.plain_endpoint import NumbersForTexts
from tests.docs.fences import block

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "check-an-endpoint.md").read_text()


def test_the_output_on_the_page_is_what_is_printed() -> None:
    shown = block("docs/how-to/check-an-endpoint.md", "ok ").removesuffix("…\n")
    with NumbersForTexts().running() as url:
        printed = CliRunner().invoke(app, ["check", url, "--watch", "2"]).output
    assert printed.startswith(shown)


def test_the_table_on_the_page_has_every_case() -> None:
    named = re.findall(r"^\| ([a-z ]+) \| ", PAGE, re.M)
    assert named[1:] == [case.name for case in CASES]


def test_every_option_the_page_names_exists() -> None:
    known = CliRunner().invoke(app, ["check", "--help"], env={"COLUMNS": "200"}).output
    for other in ("tail", "serve"):
        known += CliRunner().invoke(app, [other, "--help"], env={"COLUMNS": "200"}).output
    assert [option for option in set(re.findall(r"`?(--[a-z]+(?:-[a-z]+)*)", PAGE)) if option not in known] == []
