"""`sparkrack driver release`, with a node that is a shell of this machine and a file of packages."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparkrack.cli.main import sparkrack
from tests.unit.fleet.racks import SWITCH, changed

DECLARED = changed(SWITCH, ("memory:\n", 'driver: {version: "580.159"}\nmemory:\n'))
PACKAGES = """\
docker.io 29.1 hold ok installed
lab-sample 1.0 install ok installed
nvidia-driver-580-open 580.159.03-1 hold ok installed
nvidia-modprobe 580.1-1 hold ok installed
nvidia-utils-580 580.159.03-1 hold ok installed
"""
SSH = """\
#!/bin/sh
[ ! -e "$NODE/off" ] || { echo "ssh: connect: No route to host" >&2; exit 255; }
sed -u -e "s#/run/sparkrack#$NODE/run/sparkrack#g; s#/sys/fs/#$NODE/sys/fs/#g; s#/var/#$NODE/var/#g" \\
-e "s#/proc/locks#$NODE/locks#g" | PATH="$NODE/bin:$PATH" sh
"""
TOOLS = {
    "dpkg": "exit 0",
    "dpkg-query": 'grep -v lab-sample "$NODE/packages"',
    "docker": 'cat "$NODE/containers"',
    "apt-cache": """\
grep -q "^$3 " "$NODE/packages" || exit 0
for v in $(cat "$NODE/versions"); do echo " $3 | $v | http://x ./ Packages"; done""",
    "apt-mark": """\
case $1 in hold) from=install to=hold;; unhold) from=hold to=install;; esac
shift
for name; do sed -i "s/^\\($name [^ ]*\\) $from /\\1 $to /" "$NODE/packages"; done""",
    "apt-get": """\
for word; do case "$word" in
update) [ ! -e "$NODE/no-update" ] || { echo "E: no lists" >&2; exit 100; };;
*=5*) [ ! -e "$NODE/fails" ] || { echo "E: half of it"; exit 100; }
sed -i "s/^${word%%=*} [^ ]*/${word%%=*} ${word#*=}/" "$NODE/packages";;
esac; done""",
}


class Spark1:
    """A node, and the command about it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        (folder / "rack.yaml").write_text(DECLARED)
        for name, text in {
            "desk/ssh": SSH,
            **{f"bin/{tool}": f"#!/bin/sh\n{text}\n" for tool, text in TOOLS.items()},
        }.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
            (folder / name).chmod(stat.S_IRWXU)
        for name in ("run", "var/lib/dpkg", "sys/fs/cgroup"):
            (folder / name).mkdir(parents=True)
        (folder / "locks").touch()
        (folder / "packages").write_text(PACKAGES)
        (folder / "versions").write_text("580.173.02-1\n580.159.03-1\n")
        monkeypatch.setenv("PATH", f"{folder}/desk:{os.environ['PATH']}")
        monkeypatch.setenv("NODE", str(folder))

    def release(self, *words: str, node: str = "spark1") -> Result:
        return CliRunner().invoke(sparkrack, ["driver", "release", node, "--rack", f"{self.folder}/rack.yaml", *words])

    @property
    def packages(self) -> str:
        return (self.folder / "packages").read_text()


@pytest.fixture
def spark1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spark1:
    return Spark1(tmp_path, monkeypatch)


def test_the_newest_of_its_major(spark1: Spark1) -> None:
    done = spark1.release("-y")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[:9] == [
        "spark1: brings the package lists up to date",
        "spark1: unhold 4 packages, install, hold again:",
        "spark1:   nvidia-driver-580-open: 580.159.03-1 -> 580.173.02",
        "spark1:   nvidia-utils-580: 580.159.03-1 -> 580.173.02",
        "spark1: nvidia-driver-580-open: 580.159.03-1 -> 580.173.02-1",
        "spark1: nvidia-utils-580: 580.159.03-1 -> 580.173.02-1",
        "spark1: everything is on hold again",
        "spark1: reboot required: until then the old driver is loaded",
        "Next: restart spark1, then sparkrack verify --limit spark1: only what the rack declares otherwise fails.",
    ]
    assert 'write version: "580.173.02" under driver in' in done.output
    untouched = PACKAGES.replace("open 580.159.03", "open 580.173.02").replace(
        "utils-580 580.159.03", "utils-580 580.173.02"
    )
    assert spark1.packages == untouched
    assert [path.name for path in (spark1.folder / "run").rglob("*")] == ["sparkrack"], "the lock was given back"


def test_not_while_another_run_changes_the_rack(spark1: Spark1) -> None:
    (spark1.folder / "run/sparkrack").mkdir()
    (spark1.folder / "run/sparkrack/run.lock").touch()
    done = spark1.release("-y")
    assert done.exit_code == 1
    assert "changes the rack; when that run is gone: sparkrack unlock unknown" in done.output
    assert spark1.packages == PACKAGES


def test_again_there_is_nothing_to_do(spark1: Spark1) -> None:
    assert spark1.release("-y").exit_code == 0
    after = spark1.packages
    done = spark1.release("-y")
    assert (done.exit_code, spark1.packages) == (0, after)
    assert done.output.splitlines()[-1] == "spark1: has driver 580.173.02 already"


def test_a_named_version_may_be_older(spark1: Spark1) -> None:
    (spark1.folder / "packages").write_text(PACKAGES.replace("580.159.03", "580.173.02"))
    done = spark1.release("-y", "--version", "580.159")
    assert done.exit_code == 0, done.output
    assert spark1.packages == PACKAGES


def test_when_the_middle_fails_all_is_held_again(spark1: Spark1) -> None:
    (spark1.folder / "fails").touch()
    done = spark1.release("-y")
    assert done.exit_code == 1
    assert "spark1: everything is on hold again\nError: spark1: E: half of it\n" in done.output
    assert spark1.packages == PACKAGES


@pytest.mark.parametrize("kind", ["scope", "slice"])
def test_not_under_what_runs(spark1: Spark1, kind: str) -> None:
    if kind == "scope":
        (spark1.folder / "sys/fs/cgroup/system.slice/docker-1a.scope").mkdir(parents=True)
    else:
        (spark1.folder / "sys/fs/cgroup/sparkrack.slice").mkdir()
        (spark1.folder / "sys/fs/cgroup/sparkrack.slice/cgroup.events").write_text("populated 1\n")
    (spark1.folder / "containers").write_text("vllm\nray\n" if kind == "scope" else "")
    done = spark1.release("-y")
    assert done.exit_code == 1
    names = "vllm, ray" if kind == "scope" else "something in the containers' slice"
    assert done.output == f"Error: spark1: {names} runs; stop it first, it has the driver's libraries open\n"
    assert spark1.packages == PACKAGES


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--version", "595.91"], "nvidia-driver-580-open 580.159.03-1 is installed and --version is 595.91"),
        (["--version", "580.999"], "nvidia-driver-580-open 580.999 is not in the configured repositories, which have"),
        (["--version", "58"], "driver.version: 58 is no version of the driver"),
        (["--version", "$(reboot)"], "driver.version: $(reboot) is no version of the driver"),
        (["--kernel", "6_X"], "driver.kernel: 6_X is in no package's name"),
    ],
)
def test_versions_that_cannot_be(spark1: Spark1, words: list[str], said: str) -> None:
    done = spark1.release("-y", *words)
    assert done.exit_code == 1, done.output
    assert said in done.output
    assert isinstance(done.exception, SystemExit), done.exception
    assert spark1.packages == PACKAGES


def test_nobody_to_ask(spark1: Spark1) -> None:
    done = spark1.release()
    assert done.exit_code == 1
    assert done.output.endswith("Error: spark1: there is no terminal to ask on; say -y\n")
    assert spark1.packages == PACKAGES


@pytest.mark.parametrize(("file", "said"), [("off", "No route to host"), ("no-update", "Error: spark1: E: no lists\n")])
def test_a_node_that_fails(spark1: Spark1, file: str, said: str) -> None:
    (spark1.folder / file).touch()
    done = spark1.release("-y")
    assert done.exit_code == 1
    assert said in done.output
    assert spark1.packages == PACKAGES


def test_a_node_without_a_driver(spark1: Spark1) -> None:
    (spark1.folder / "packages").write_text("docker.io 29.1 hold ok installed\n")
    done = spark1.release("-y")
    assert done.exit_code == 1
    assert "has no driver of which another version could be installed; deploy first" in done.output


def test_names_and_racks_that_do_not_fit(spark1: Spark1) -> None:
    done = spark1.release(node="spark9")
    assert (done.exit_code, done.output) == (1, "Error: spark9: not a node; there are spark1, spark2\n")
    (spark1.folder / "rack.yaml").write_text(SWITCH)
    done = spark1.release()
    assert done.exit_code == 1
    assert done.output.endswith("declares no driver, so nothing is held\n")
