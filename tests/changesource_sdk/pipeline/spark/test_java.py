"""Which Java runs Spark, and what a user reads when there is none that can."""

from pathlib import Path

import pytest

from changesource_sdk.errors import ConfigurationError
from changesource_sdk.pipeline.spark.java import find_java, parse_major_version


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("something else", 0),
    ],
)
def test_major_version_is_read_from_old_and_new_spellings(answer: str, version: int) -> None:
    assert parse_major_version(answer) == version


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    chosen = fake_java(tmp_path / "chosen", "21.0.1")
    other = fake_java(tmp_path / "other", "17.0.1")
    found = find_java({"JAVA_HOME": str(chosen), "PATH": str(other / "bin")})
    assert (found.home, found.version) == (chosen, 21)


def test_java_on_the_path_is_found(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.1")
    assert find_java({"PATH": str(home / "bin") + ":/bin"}).home == home.resolve()


def test_a_java_too_old_is_refused_with_the_way_out(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "old", "1.8.0_402")
    with pytest.raises(ConfigurationError) as refused:
        find_java({"JAVA_HOME": str(home), "PATH": ""})
    assert refused.value.code == "java-too-old"
    assert "Java 8" in refused.value.message
    assert "--runner inline" in refused.value.fix


def test_no_java_at_all_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError) as refused:
        find_java({"PATH": ""})
    assert refused.value.code == "java-missing"
    assert "apt-get install" in refused.value.fix


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert refused.value.code == "java-unusable"
    assert str(tmp_path) in refused.value.where
