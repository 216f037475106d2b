"""What is true of the repository as a whole: packages, locks, roles, arrows, and what no file may name."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from core.model import load
from core.model.role import role_named, roles
from core.verify.checked_roles import CHECKED_ROLES
from sparkrack.cli.main import VERBS

TOP = Path(__file__).parents[2]
FOLDERS = {path.parent.name: path.parent for path in [*TOP.glob("roles/*/__init__.py"), TOP / "serving/__init__.py"]}
"""The folder of each role of nodes."""
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())
PACKAGES = ("core", "serving", "roles", "switch", "sparkrack", "lab")
LOCKS = ("requirements/run.lock", "requirements/dev.lock")
"""What set-up installs for a run, and for tests."""


def tracked() -> list[Path]:
    """Every file that git has or would take."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this is not a git repository")
    return [TOP / name for name in done.stdout.split("\0") if name and (TOP / name).is_file()]


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_come_from_the_repository(package: str) -> None:
    where = importlib.import_module(package).__file__
    assert where
    assert Path(where) == TOP / package / "__init__.py"


# Written in parts, so that this file does not hold what it looks for.
HOSTS = ("pypi", "pythonhosted", "npmjs", "yarnpkg", "crates")
FORBIDDEN = re.compile(
    rf"\b({'|'.join(HOSTS)})\.(?:org|com|io)\b|\bdeb\.{'debian'}\.org\b|\barchive\.{'ubuntu'}\.com\b"
    rf"|(?<![\w.])/{'work'}/(?:main|shared)\b"
)


def test_no_file_names_a_registry_or_a_folder_of_the_workplace() -> None:
    found = []
    for path in tracked():
        for number, line in enumerate(path.read_bytes().decode("utf-8", "replace").splitlines(), 1):
            if match := FORBIDDEN.search(line):
                found.append(f"{path.relative_to(TOP)}:{number}: {match[0]}")
    assert found == []


def test_that_pattern_finds_them() -> None:
    for name in ("https://" + "pypi" + ".org/simple", "files." + "pythonhosted" + ".org", "/" + "work/main/x"):
        assert FORBIDDEN.search(name), name
    for name in ("docs.example.org", "/srv/network/main", "happypypi", "registry/work/x"):
        assert not FORBIDDEN.search(name), name


def locked(lock: str) -> dict[str, str]:
    """Each locked requirement by its normalised name, with its lines."""
    text = re.sub(r"\\\n", " ", (TOP / lock).read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return {re.sub(r"[-_.]+", "-", line.split("==")[0].strip().lower()): line for line in lines}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_requirement_has_a_hash(lock: str) -> None:
    assert len(locked(lock)) > 20
    for name, line in locked(lock).items():
        assert re.match(r"[\w.-]+==[\w.]+ ", line), name
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", line), name


def test_everything_that_is_needed_is_locked() -> None:
    project, tests = PROJECT["project"], PROJECT["project"]["optional-dependencies"]["dev"]
    assert project["optional-dependencies"]["build"] == PROJECT["build-system"]["requires"]
    run = named([*project["dependencies"], *PROJECT["build-system"]["requires"]])
    assert run <= set(locked("requirements/run.lock"))
    assert run | named(tests) <= set(locked("requirements/dev.lock"))


def test_who_runs_the_program_gets_nothing_for_tests() -> None:
    # What is between a version and its hashes says on which systems the package is needed, which more packages widen.
    run, tests = (
        {name: re.sub(r" ;.*?(?= --hash)", "", line).split() for name, line in locked(lock).items()} for lock in LOCKS
    )
    assert run.items() <= tests.items(), "a package has another version or hash for tests"
    # pyinfra itself needs types-paramiko
    assert run.keys() & named(PROJECT["project"]["optional-dependencies"]["dev"]) <= {"types-paramiko"}


def test_what_is_imported_is_locked_for_a_run() -> None:
    """`make demo` and every command work without the packages for tests."""
    found = {
        name.split(".")[0]
        for place in (
            *PACKAGES,
            "deploy.py",
            "remove.py",
            "inventory.py",
            "config.py",
            "group_data",
        )
        for path in ([TOP / place] if place.endswith(".py") else (TOP / place).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
    }
    # Programs that run on nodes import one another from their own folder.
    own = {path.stem for pattern in ("roles/*/files/*.py", "serving/files/*.py") for path in TOP.glob(pattern)}
    # serving/files/all_reduce.py runs in the image of a unit, which has it.
    of_images = {"torch"}
    # roles/fabric/files/netplan_renderers.py runs on nodes; netplan.io depends on python3-yaml.
    of_nodes = {"yaml"}
    foreign = found - sys.stdlib_module_names - set(PACKAGES) - own - of_images - of_nodes
    packages = packages_distributions()
    assert "pyinfra" in foreign
    missing = {name for name in foreign if not named(packages[name]) & locked("requirements/run.lock").keys()}
    assert not missing


def named(requirements: Iterable[str]) -> set[str]:
    """The normalised names in requirements like `pydantic>=2.9,<3`."""
    return {re.sub(r"[-_.]+", "-", re.split(r"[<>=~!;\[ ]", one)[0].lower()) for one in requirements}


@pytest.mark.parametrize("role", sorted(FOLDERS))
def test_a_role_is_whole(role: str) -> None:
    folder = FOLDERS[role]
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    assert text, "says nothing of itself"
    assert len(text.split()) > 20, "says too little of itself"
    for file in ("desired.py", "facts.py", "apply.py", "verify.py"):
        module = ast.parse((folder / file).read_text())
        assert ast.get_docstring(module), file
    verify = ast.parse((folder / "verify.py").read_text())
    checks = [node for node in verify.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    assert len(checks) > 2
    assert list(TOP.glob(f"tests/unit/roles/test_{role}_*.py"))
    assert list(TOP.glob(f"tests/cases/operations/{role}/*.yaml"))
    assert f'\napply_role("{role}")\n' in (TOP / "deploy.py").read_text(), "is not applied"
    assert role in CHECKED_ROLES, "is not proven"
    assert role_named(role).package == str(folder.relative_to(TOP)).replace("/", ".")
    assert (TOP / f"docs/roles/{role}.md").exists()


def test_every_role_is_in_the_registry() -> None:
    assert {"memory", "fabric"} <= set(FOLDERS)
    assert {role.key for role in roles()} == {*FOLDERS, "switch"}


def test_core_loads_the_roles_in_one_place_and_only_when_asked() -> None:
    """The contracts do not see an import by name."""
    by_name = re.compile(r"\bimport_module\(|\b__import__\(")
    files = {str(path.relative_to(TOP)) for path in (TOP / "core").rglob("*.py") if by_name.search(path.read_text())}
    assert files == {"core/model/role.py"}
    code = (
        "import core.model, sys; above = ('roles', 'serving', 'switch'); "
        "assert not [name for name in sys.modules if name.split('.')[0] in above]"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_contracts_between_packages_hold() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program, "--no-cache"], cwd=TOP, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_verbs_without_pyinfra_do_not_import_it() -> None:
    """It takes them 0.2 s of CPU time more, at each start."""
    verbs = (
        "check",
        "topology",
        "status",
        "runs",
        "export",
        "init",
        "adopt",
        "bootstrap",
        "rebuild",
        "seed",
        "verify",
        "reboot",
    )
    code = "import sys; from importlib import import_module\n"
    code += (
        f"for verb in {verbs}: import_module(f'sparkrack.cli.{{verb}}'); assert 'pyinfra' not in sys.modules, verb\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_contracts_name_every_package_and_role() -> None:
    linter = PROJECT["tool"]["importlinter"]
    contracts = {one["name"]: one for one in linter["contracts"]}
    packages = {path.parent.name for path in TOP.glob("*/__init__.py")} - {"tests", "benchmarks"}
    assert set(linter["root_packages"]) == packages
    assert contracts["floors of core"]["exhaustive"]
    assert contracts["floors of sparkrack"]["exhaustive"]
    assert contracts["roles do not know one another, but for the options that rack.yaml gives"]["modules"] == [
        "roles.*",
        "switch",
        "serving",
    ]
    verification = contracts["verification does not use what changes a machine, nor its reading"]
    assert {"roles.*.verify", "serving.verify"} <= set(verification["source_modules"])
    changes = {"roles.*.apply", "roles.*.facts", "serving.apply", "serving.facts"}
    assert changes <= set(verification["forbidden_modules"])
    verbs = contracts["a verb does not import another verb; what they share are modules of their own"]["modules"]
    assert set(verbs) == {f"sparkrack.cli.{verb}" for verb in VERBS}
    packages = {f"sparkrack.{path.parent.name}" for path in TOP.glob("sparkrack/*/__init__.py")}
    below = packages - {"sparkrack.cli", "sparkrack.terminal"}
    assert below <= set(contracts["only the command line and its terminal know the terminal library"]["source_modules"])


def test_git_keeps_no_rack_of_a_user() -> None:
    tracked()  # skips without git
    names = ["rack.yaml", "group_data/rack.yaml", "group_data/known_hosts", "crs812.password", "group_data/id_ed25519"]
    done = subprocess.run(["git", "check-ignore", *names], cwd=TOP, capture_output=True, text=True)
    assert done.stdout.splitlines() == names
    assert not [path for path in tracked() if path.name == "rack.yaml" and path != TOP / "examples/rack.yaml"]


def test_the_reference_rack_loads() -> None:
    rack = load(TOP / "examples/rack.yaml")
    assert (len(rack.nodes), rack.topology) == (8, "switch")


def test_deploy_is_a_table_of_contents() -> None:
    """pyinfra tells operations apart by the line they are called on, so no loop may call them."""
    tree = ast.parse((TOP / "deploy.py").read_text())
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While | ast.comprehension)]
    calls = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert len(set(calls)) == len(calls)


def test_nothing_imports_the_tests() -> None:
    for package in PACKAGES:
        for path in (TOP / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                assert not [name for name in names if name.split(".")[0] in ("tests", "benchmarks")], path
