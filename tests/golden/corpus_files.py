"""Reading corpus files, plain or gzipped."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def corpus_file(corpus: Path, name: str) -> Path | None:
    """The file called `name` in the corpus, or its gzipped form, or None."""
    return next((path for path in (corpus / name, corpus / f"{name}.gz") if path.exists()), None)


def read_text(path: Path) -> str:
    """The text of a file that may be gzipped."""
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def read_json(corpus: Path, name: str) -> Any:
    """The JSON value of a corpus file; None if the corpus has no such file."""
    path = corpus_file(corpus, name)
    return None if path is None else json.loads(read_text(path))


def read_lines(corpus: Path, name: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a corpus file, one per line; none if the corpus has no such file."""
    path = corpus_file(corpus, name)
    for line in [] if path is None else read_text(path).splitlines():
        if line.strip():
            yield json.loads(line)
