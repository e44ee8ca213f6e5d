"""Run a golden corpus: `python tests/golden/run.py CORPUS_DIR [--source KIND] [--flips WHO] [--strict]`.

A corpus is a directory with any of `queries.jsonl`, `scenarios.jsonl`, `multi.jsonl`, `planner.jsonl`,
`primitives.json`, plain or gzipped, and `datasets/`. Prints `N passed, M failed` per file and setting and in total;
exits with 1 if anything failed, with 2 if the directory holds no corpus.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.golden import planner_cases, primitive_cases
from tests.golden.corpus_files import corpus_file
from tests.golden.engine_cases import Flips, Outcome, Setting, run_multi, run_queries, run_scenarios
from tests.support.workloads.tables import SOURCE_KINDS, SourceKind

FAILURES_SHOWN = 10
FLIPS: tuple[Flips, ...] = ("given", "planned", "all")

ENGINE_FILES: dict[str, Callable[[Path, Setting], Outcome]] = {
    "queries.jsonl": run_queries,
    "scenarios.jsonl": run_scenarios,
    "multi.jsonl": run_multi,
}
OTHER_FILES: dict[str, Callable[[Path], Outcome]] = {
    "planner.jsonl": planner_cases.run,
    "primitives.json": primitive_cases.run,
}


def outcomes(corpus: Path, settings: list[Setting]) -> Iterator[tuple[str, Outcome]]:
    """Each file of the corpus under each setting that applies to it."""
    for name, run in ENGINE_FILES.items():
        if corpus_file(corpus, name) is not None:
            for setting in settings:
                yield f"{name} [{setting.source}, flips {setting.flips}]", run(corpus, setting)
    for name, run_other in OTHER_FILES.items():
        if corpus_file(corpus, name) is not None:
            yield name, run_other(corpus)


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run a golden corpus on the query engine.")
    parser.add_argument("corpus", type=Path, help="directory with the corpus files, plain or gzipped")
    parser.add_argument("--source", choices=(*SOURCE_KINDS, "both", "every"), default="every", help="where rows live")
    parser.add_argument("--flips", choices=(*FLIPS, "every"), default="every", help="who decides about flips")
    parser.add_argument("--strict", action="store_true", help="compare row changes as ordered lists")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    asked = parse_arguments(arguments)
    several: dict[str, tuple[SourceKind, ...]] = {"both": ("memory", "sqlite"), "every": SOURCE_KINDS}
    sources = several.get(asked.source, (asked.source,))
    flips: tuple[Flips, ...] = FLIPS if asked.flips == "every" else (asked.flips,)
    settings = [Setting(source, flip, asked.strict) for source in sources for flip in flips]
    total_passed = total_failed = 0
    for title, (passed, failures) in outcomes(asked.corpus, settings):
        print(f"{title}: {passed} passed, {len(failures)} failed")
        for failure in failures[:FAILURES_SHOWN]:
            print(f"  {failure[:2000]}")
        total_passed += passed
        total_failed += len(failures)
    print(f"total: {total_passed} passed, {total_failed} failed")
    if not total_passed + total_failed:
        print(f"{asked.corpus} holds no corpus files", file=sys.stderr)
        return 2
    return 1 if total_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
