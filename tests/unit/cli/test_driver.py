"""`sparkrack upgrade driver`, with a node that is a shell of this machine and a file of packages."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from core.ops import run_lock
from core.ssh import node_shells
from core.ssh.root_shell import RootShell
from roles.driver import driver_upgrade as walk
from roles.driver.desired import listed
from sparkrack.cli.main import sparkrack
from tests.unit.cli.cli_fixtures import settings
from tests.unit.cli.terminal import ERASED, on_terminal
from tests.unit.model.racks import SWITCH, changed

DECLARED = changed(SWITCH, ("memory:\n", 'driver: {version: "580.159"}\nmemory:\n'))
PACKAGES = """\
docker.io 29.1 hold ok installed
lab-sample 1.0 install ok installed
nvidia-driver-580-open 580.159.03-1 hold ok installed
nvidia-modprobe 580.1-1 hold ok installed
nvidia-utils-580 580.159.03-1 hold ok installed
"""
KEPT = (
    "If it is not: {rack} declares no version, so a deploy leaves it. "
    "sparkrack upgrade driver spark1 --version OLD puts back the one that is named above."
)
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
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))

    def release(self, *words: str, node: str = "spark1") -> Result:
        return CliRunner().invoke(sparkrack, ["upgrade", "driver", node, "--rack", f"{self.folder}/rack.yaml", *words])

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
        "After the restart, sparkrack verify --limit spark1 fails only where the rack declares otherwise.",
    ]
    assert 'write version: "580.173.02" under driver in' in done.output
    untouched = PACKAGES.replace("open 580.159.03", "open 580.173.02").replace(
        "utils-580 580.159.03", "utils-580 580.173.02"
    )
    assert spark1.packages == untouched
    assert [path.name for path in (spark1.folder / "run").rglob("*")] == ["sparkrack"], "the lock was released"


@pytest.mark.parametrize(
    ("declared", "line"),
    [
        ('version: "580.159"', "If it is not, deploy as the rack is: spark1 gets its old version back."),
        ("hold: true", KEPT),
    ],
)
def test_the_way_back_is_a_deploy_only_where_the_rack_declares_a_version(
    spark1: Spark1, declared: str, line: str
) -> None:
    rack = spark1.folder / "rack.yaml"
    rack.write_text(DECLARED.replace('version: "580.159"', declared))
    done = spark1.release("-y")
    assert done.exit_code == 0, done.output
    assert line.format(rack=rack) in done.output.splitlines()


def test_not_while_another_run_changes_the_rack(spark1: Spark1) -> None:
    (spark1.folder / "run/sparkrack").mkdir()
    (spark1.folder / "run/sparkrack/run.lock").touch()
    done = spark1.release("-y")
    assert done.exit_code == 1
    assert "; if that run is dead: sparkrack unlock unknown" in done.output
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
    ("words", "reported"),
    [
        (["--version", "595.91"], "nvidia-driver-580-open 580.159.03-1 is installed and --version is 595.91"),
        (["--version", "580.999"], "nvidia-driver-580-open 580.999 is not in the configured repositories, which have"),
        (["--version", "58"], "driver.version: 58 is not a version of the driver"),
        (["--version", "$(reboot)"], "driver.version: $(reboot) is not a version of the driver"),
        (["--kernel", "6_X"], "driver.kernel: 6_X is in no package's name"),
    ],
)
def test_versions_that_cannot_be(spark1: Spark1, words: list[str], reported: str) -> None:
    done = spark1.release("-y", *words)
    assert done.exit_code == 1, done.output
    assert reported in done.output
    assert isinstance(done.exception, SystemExit), done.exception
    assert spark1.packages == PACKAGES


def test_no_one_to_ask(spark1: Spark1) -> None:
    done = spark1.release()
    assert done.exit_code == 1
    assert done.output.endswith("Error: spark1: there is no terminal for a prompt; pass -y\n")
    assert spark1.packages == PACKAGES


@pytest.mark.parametrize(
    ("file", "reported"), [("off", "No route to host"), ("no-update", "Error: spark1: E: no lists\n")]
)
def test_a_node_that_fails(spark1: Spark1, file: str, reported: str) -> None:
    (spark1.folder / file).touch()
    done = spark1.release("-y")
    assert done.exit_code == 1
    assert reported in done.output
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


@pytest.mark.parametrize("after", [walk.RUNNING, listed()])
def test_nothing_is_sent_once_the_lock_has_expired(after: str, spark1: Spark1, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the package lists nor packages."""
    real, lists = run_lock.clock, spark1.folder / "bin/apt-get"
    lists.write_text(lists.read_text().replace("#!/bin/sh\n", '#!/bin/sh\necho "$*" >> "$NODE/sent"\n'))

    class Shell(RootShell):
        def run(self, script: str) -> object:  # type: ignore[override]
            answer = super().run(script)
            if script == after:
                monkeypatch.setattr(run_lock, "clock", lambda: real() + run_lock.EXPIRED + 1)
            return answer

    monkeypatch.setattr(node_shells, "RootShell", Shell)
    done = spark1.release("-y")
    assert done.exit_code == 1
    assert "spark1: the lock could not be renewed for 12" in done.output
    assert "so another run may have taken it; nothing more is changed" in done.output
    assert spark1.packages == PACKAGES
    sent = spark1.folder / "sent"
    assert sent.exists() == (after != walk.RUNNING)
    assert not sent.exists() or "install" not in sent.read_text()


@pytest.mark.parametrize("fails", [False, True])
def test_it_keeps_a_journal_and_a_log(spark1: Spark1, fails: bool) -> None:
    if fails:
        (spark1.folder / "fails").touch()
    assert spark1.release("-y").exit_code == fails
    (path,) = (spark1.folder / "state").rglob("*.ndjson")
    begun, *errors, ended = map(json.loads, path.read_text().splitlines())
    assert (begun["scope"], ended["result"]) == ("driver of spark1", "failed" if fails else "done")
    assert [one["reason"] for one in errors] == (["spark1: E: half of it"] if fails else [])
    assert "spark1: ssh: " in path.with_suffix(".log").read_text()


def test_a_terminal_shows_what_the_node_does(spark1: Spark1) -> None:
    """As a process of its own, on a terminal; the package lists take until `slow` is removed."""
    slow, lists = spark1.folder / "slow", spark1.folder / "bin/apt-get"
    slow.touch()
    lists.write_text(lists.read_text().replace("\n", '\nwhile [ -e "$NODE/slow" ]; do sleep 0.05; done\n', 1))
    words = ["upgrade", "driver", "spark1", "-y", "--rack", str(spark1.folder / "rack.yaml")]
    with on_terminal(words, settings(spark1.folder)) as screen:
        screen.until(r"install another driver, \d+ s: 0 of 1 hosts done")
        screen.until("spark1  update the package lists")
        screen.until_later("install another driver")
        slow.unlink()
        assert screen.finish() == 0, screen.shown
    assert "take the lock of the rack, " in screen.shown
    assert screen.shown.rindex(ERASED) > screen.shown.rindex("install another driver")
    assert screen.out.startswith("spark1: brings the package lists up to date\n")
    assert "install another driver" not in screen.out


def test_not_under_a_unit_that_runs(spark1: Spark1) -> None:
    group = spark1.folder / "sys/fs/cgroup/sparkrack.slice/sparkrack-qwen.slice"
    group.mkdir(parents=True)
    (group / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    done = spark1.release("-y")
    assert done.exit_code == 1
    assert "unit qwen, which " in done.output
    assert "does not declare, runs, and packages of the driver must be installed; run " in done.output
    assert spark1.packages == PACKAGES
    (group / "cgroup.events").write_text("populated 0\nfrozen 0\n")
    assert spark1.release("-y").exit_code == 0
