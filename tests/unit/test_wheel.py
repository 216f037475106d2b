"""What `pip install .` and `uv tool install .` give: a command that works from any folder, without the clone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest

from core.verify.checked_roles import CHECKED_ROLES
from tests.unit.cli.cli_fixtures import closed_port
from tests.unit.model.racks import SWITCH, changed
from tests.unit.test_project import PACKAGES, PROJECT, TOP, tracked

SECONDS = 300
WHEEL = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as pip builds it, by the locked build backend."""
    folder = tmp_path_factory.mktemp("wheel")
    words = (
        "wheel",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(folder),
        str(TOP),
    )
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


@dataclass(frozen=True)
class Installed:
    """The wheel in an environment of its own, and an empty folder to stand in."""

    environment: Path
    folder: Path

    def run(self, *words: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RACK", "VIRTUAL"))}
        own = {"XDG_STATE_HOME": str(self.folder / "state"), "COLUMNS": "200", "NO_COLOR": "1"}
        program, *rest = words
        return subprocess.run(
            [self.environment / "bin" / program, *rest],
            cwd=cwd or self.folder,
            env={**kept, **own, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    @property
    def site(self) -> Path:
        """The folder into which packages are installed."""
        return self.environment / f"lib/python{sysconfig.get_python_version()}/site-packages"

    def where(self, module: str) -> Path:
        """The file of a module, as the program imports it in this environment."""
        done = self.run("python", "-c", f"import sparkrack_start; import {module} as it; print(it.__file__)")
        assert done.returncode == 0, done.stderr
        return Path(done.stdout.strip())


def test_the_wheel_has_the_man_page(wheel: Path) -> None:
    with ZipFile(wheel) as packed:
        (name,) = [name for name in packed.namelist() if name.endswith(".data/data/share/man/man1/sparkrack.1")]
        assert packed.read(name) == (TOP / "docs/sparkrack.1").read_bytes()


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    environment, folder = tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("anywhere")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=SECONDS)
    python = environment / "bin/python"
    words = ("--python", str(python), "install", "--quiet", "--no-index", "--no-deps", str(wheel))
    subprocess.run([sys.executable, "-m", "pip", *words], check=True, timeout=SECONDS)
    found = Installed(environment, folder)
    # Another project has packages of the same names.
    for name in PACKAGES:
        if name != "sparkrack":
            (found.site / name).mkdir()
            (found.site / name / "__init__.py").write_text('OWNER = "another project"\n')
    # What it depends on is taken from this environment. The .pth file there that names the clone is not read: only the
    # site folder of an environment is searched for .pth files.
    (found.site / "dependencies.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    return found


def test_it_has_every_file_of_the_packages_and_of_the_project(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    files = {str(path.relative_to(TOP)): path for path in tracked()}
    expected = {f"sparkrack_program/{name}": path for name, path in files.items() if name.split("/")[0] in PACKAGES}
    expected |= {name: files[name] for name in ("sparkrack_start.py", "sparkrack_connector.py")}
    for source, target in WHEEL["force-include"].items():
        found = {name: path for name, path in files.items() if name == source or name.startswith(f"{source}/")}
        assert found, source
        expected |= {target + name.removeprefix(source): path for name, path in found.items()}
    man = {name for name in content if ".data/data/share/man/" in name}
    assert {name for name in content if ".dist-info/" not in name} - man == expected.keys()
    assert [name for name, path in expected.items() if content[name] != path.read_bytes()] == []


def test_every_name_that_it_installs_is_its_own(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = {name.split("/")[0] for name in archive.namelist()}
    assert [name for name in names if not name.startswith("sparkrack")] == []


@pytest.mark.parametrize("package", [name for name in PACKAGES if name != "sparkrack"])
def test_a_package_of_another_project_stays_what_it_is(installed: Installed, package: str) -> None:
    """Also where pyinfra loads our connector, as in each of its runs."""
    load = "from pyinfra.api.connectors import get_all_connectors as all; assert 'routeros' in all()"
    done = installed.run("python", "-c", f"{load}; import {package} as it; print(it.OWNER)")
    assert (done.returncode, done.stdout) == (0, "another project\n"), done.stderr


def test_the_connector_finds_the_packages_when_a_switch_is_used(installed: Installed) -> None:
    load = "from pyinfra.api.connectors import get_all_connectors as all; it = all()['routeros']"
    done = installed.run("python", "-c", f"{load}; print(*it.make_names_data('crs812'), it.handles_execution)")
    assert (done.returncode, done.stdout) == (0, "('@routeros/crs812', {}, ['@routeros']) True\n"), done.stderr


def test_a_command_that_another_one_calls_finds_the_packages(installed: Installed) -> None:
    find = "import sparkrack_start, subprocess; from sparkrack.engine.subcommands import CALL"
    done = installed.run("python", "-c", f"{find}; subprocess.run([*CALL, '--version'], check=True)")
    assert (done.returncode, done.stdout.partition(" ")[0]) == (0, "sparkrack,"), done.stderr


def test_the_clone_is_not_imported(installed: Installed) -> None:
    for module in (*PACKAGES, "core.util.project_files"):
        assert installed.where(module).is_relative_to(installed.environment), module


def test_version(installed: Installed) -> None:
    done = installed.run("sparkrack", "--version")
    version = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]
    assert (done.returncode, done.stdout) == (0, f"sparkrack, version {version}\n"), done.stderr


def test_check_of_the_example(installed: Installed) -> None:
    example = installed.where("core").parents[1] / "examples/rack.yaml"
    done = installed.run("sparkrack", "check", "--rack", str(example))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("8 nodes, 1 switch and 8 cables (8 to a switch), topology: through a switch\n")
    done = installed.run("sparkrack", "topology", "--rack", str(example))
    assert done.returncode == 0, done.stderr


def test_a_folder_without_a_rack_is_one_line(installed: Installed) -> None:
    for verb in ("check", "plan", "verify"):
        done = installed.run("sparkrack", verb)
        assert (done.returncode, done.stdout) == (1, ""), done.stdout + done.stderr
        assert done.stderr.startswith("rack.yaml: cannot be read: No such file or directory; write one with ")
        assert done.stderr.count("\n") == 1, done.stderr


@pytest.fixture(scope="module")
def rack(installed: Installed) -> Path:
    """The file of a rack whose machines do not answer, in the folder."""
    file = installed.folder / "unreachable.yaml"
    port = closed_port()
    text = changed(
        SWITCH,
        ("~/.ssh/id_ed25519", "key"),
        ("known_hosts: known_hosts", f"known_hosts: known_hosts\n  port: {port}"),
        ("password: {env: CRS812_PASSWORD}", f"password: {{file: password}}\n    port: {port}"),
    )
    file.write_text(text.replace("10.77.0.", "127.77.0."))
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", installed.folder / "key"], check=True)
    (installed.folder / "known_hosts").touch()
    (installed.folder / "password").write_text("canary\n")
    (installed.folder / "password").chmod(0o600)
    return file


@pytest.mark.parametrize("verb", [("plan",), ("apply", "-y"), ("drift",)], ids=" ".join)
def test_a_rack_that_does_not_answer_is_not_a_traceback(
    installed: Installed, rack: Path, verb: tuple[str, ...]
) -> None:
    done = installed.run("sparkrack", *verb, "--rack", rack.name)
    assert done.returncode == 1, done.stdout + done.stderr
    text = done.stdout + done.stderr
    assert "Traceback" not in text
    for name in ("spark1", "spark2", "crs812"):
        assert f"{name}: " in text, text


def test_verify_collects_the_checks_of_every_part(installed: Installed, rack: Path) -> None:
    done = installed.run("sparkrack", "verify", "--rack", rack.name, "--json", "--html", "report.html")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    report = json.loads(done.stdout)
    judged = {(cell["host"], cell["role"]) for cell in report["cells"] if cell["unknown"] or cell["failed"]}
    assert {part for _, part in judged} == set(CHECKED_ROLES) - {
        "blackbox",
        "driver",
        "images",
        "models",
        "serving",
        "time",
        "watch",
    }, "they are not declared"
    assert {machine for machine, _ in judged} == {"spark1", "spark2", "crs812"}
    page = (installed.folder / "report.html").read_text()
    assert "RouterOS 7.23 command tree" in page, "what is unproven on hardware is not in the report"


def test_the_lab_is_there(installed: Installed) -> None:
    done = installed.run("sparkrack", "lab", "--help")
    assert done.returncode == 0, done.stderr
    assert "A virtual rack on this machine" in done.stdout
    package = installed.where("lab").parent
    assert os.access(package / "image/boot-node", os.X_OK)
    for path in tracked():
        if path.is_relative_to(TOP / "lab"):
            there = package / path.relative_to(TOP / "lab")
            assert os.access(there, os.X_OK) == os.access(path, os.X_OK), there


def test_plain_pyinfra_reads_what_is_installed(installed: Installed, rack: Path) -> None:
    project = installed.where("core").parents[1]
    done = installed.run(
        "python", "-m", "pyinfra", "inventory.py", "debug-inventory", "--json", cwd=project, RACK=str(rack)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "127.77.0.11" in done.stdout + done.stderr
    done = installed.run("python", "-m", "pyinfra", "inventory.py", "deploy.py", "--dry", cwd=project, RACK=str(rack))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not list(project.glob("*.log"))


UV = shutil.which("uv")


@pytest.mark.skipif(UV is None, reason="not installed: uv")
@pytest.mark.parametrize("source", ["the wheel", "the repository"])
def test_uv_installs_it_as_a_tool(wheel: Path, tmp_path: Path, source: str) -> None:
    """From the index that this machine is configured for. A machine without one is skipped, with uv's reason."""
    given = wheel if source == "the wheel" else TOP
    own = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin"), "NO_COLOR": "1"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RACK", "VIRTUAL"))}
    environment = {**kept, **own, "UV_PYTHON_DOWNLOADS": "never"}

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    assert UV is not None
    done = run(UV, "tool", "install", "--python", sys.executable, given)
    if done.returncode and any(
        text in done.stderr for text in ("Failed to fetch", "not found in the package registry")
    ):
        pytest.skip(f"no index has the dependencies: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    assert run(tmp_path / "bin/sparkrack", "--version").stdout.startswith("sparkrack, version ")
    shown = run(UV, "tool", "run", "--python", sys.executable, "--from", given, "sparkrack", "--help")
    assert (shown.returncode, shown.stdout.splitlines()[0]) == (0, "Usage: sparkrack [OPTIONS] COMMAND [ARGS]...")
