"""From bare metal to a running rack, with a lab of its own: unknown machines, one command, verify green.

One of three commits rebuilds all machines here; the first tier meets a node with another host key, another password or
no sudo in tests/contact/test_refused.py, and a switch that was reset in tests/emulator/test_bootstrap_refused.py. The
last soak test runs what the others have not run.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from core.model import load
from core.ssh.operator_key import public_line
from lab import namespace as ns
from tests.lab.rebuild_fixtures import PHASES, SWITCH, Drill, page, preparations
from tests.lab.virtual import REPOSITORY

pytestmark = pytest.mark.soak(turn=0, of=3)

NODES = ("spark1", "spark2")
TWIN = "spark2"
"""It came with the host keys and the machine-id of spark1."""
SERIAL, OTHER = "HK70AB12CD3", "HK0OTHERUNIT"
LEFT = ("driver", "memory", "docker", "images")
"""Roles that are left alone, unless the run has the soak tests of this file as well: test_1_deploy.py applies them to
factory nodes."""
PINS = {"/etc/ssh/sparkrack_known_hosts"}
"""What changes on the other nodes when one is rebuilt: they pin its new host key."""


@pytest.fixture(scope="module")
def drill(request: pytest.FixtureRequest) -> Iterator[Drill]:
    """Two nodes and a switch as they come from their boxes."""
    made = Drill(REPOSITORY / ".lab-drill", NODES)
    made.lab("down")
    try:
        made.lab("up", "--factory", "--nodes", str(len(NODES)))
        model = "    model: CRS812-8DS-2DQ-2DDQ\n"
        text = made.paths.rack.read_text()
        assert text.count(model) == 1
        here = (item for item in request.session.items if item.path == request.path)
        all_of_it = any("turn" not in mark.kwargs for item in here for mark in item.iter_markers("soak"))
        left = "" if all_of_it else f"leave: [{', '.join(LEFT)}]\n"
        made.paths.rack.write_text(text.replace(model, f"{model}    serial: {SERIAL}\n") + left)
        yield made
    finally:
        made.lab("down")


@pytest.fixture
def refused(drill: Drill, tmp_path: Path) -> Iterator[Path]:
    """A folder; nothing is changed on the node, on this machine or on the switch meanwhile."""
    before = drill.untouched(TWIN), drill.paths.rack.read_text(), drill.writes()
    yield tmp_path
    assert (drill.untouched(TWIN), drill.paths.rack.read_text(), drill.writes()) == before


def test_the_lab_is_one_that_no_one_has_met(drill: Drill) -> None:
    assert drill.lab("status").stdout.count("yes") == len(NODES) + 1
    done = drill.lab("ssh", "spark1", check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "spark1 does not let the operator in yet; `sparkrack bootstrap nodes spark1` sees to that"
    ]
    names = [drill.owner(node, "hostname") for node in NODES]
    assert names == ["spark-01ff", "spark-02ff"]
    ids = [drill.owner(node, "cat /etc/machine-id /etc/ssh/ssh_host_*_key.pub") for node in NODES]
    assert ids[0] == ids[1]
    for node in NODES:
        assert "ops" not in drill.owner(node, "getent passwd | cut -d: -f1; ls /home").split()
        assert drill.owner(node, "sudo -n true 2>/dev/null || echo needs a password") == "needs a password"


@pytest.mark.soak
def test_up_again_and_a_reboot_change_nothing_of_that(drill: Drill) -> None:
    files = (drill.paths.rack, drill.paths.known_hosts, drill.paths.host_keys, drill.paths.password)
    before = [path.read_text() for path in files]
    boots = [drill.owner(node, "cat /proc/sys/kernel/random/boot_id") for node in NODES]
    drill.lab("up", "--nodes", str(len(NODES)))
    assert [drill.owner(node, "cat /proc/sys/kernel/random/boot_id") for node in NODES] == boots
    drill.lab("reboot", TWIN)
    assert drill.owner(TWIN, "cat /proc/sys/kernel/random/boot_id") != boots[1]
    assert [path.read_text() for path in files] == before


def test_the_file_of_the_page_describes_this_rack(drill: Drill, tmp_path: Path) -> None:
    """What its page says to begin with, without a person in front of it: one that has no one's login yet."""
    written = tmp_path / "rack.yaml"
    init, check = (words for words in page() if words[1] in ("init", "check"))
    drill.inside(*init, "--host-keys", str(drill.paths.host_keys), rack=written)
    drill.inside(*check, rack=written)
    found, real = load(written), load(drill.paths.rack)
    assert found.nodes == real.nodes
    assert found.cabling.cables == real.cabling.cables
    assert {leg: str(port) for leg, port in found.cabling.legs(SWITCH)} == {
        leg: str(port) for leg, port in real.cabling.legs(SWITCH)
    }


@pytest.mark.soak
def test_another_host_key_than_the_consoles_is_sent_nothing(drill: Drill, refused: Path) -> None:
    (refused / "host-keys").write_text(f"{TWIN} SHA256:{'A' * 43}\n")
    known = drill.paths.known_hosts.read_text()
    words = [*drill.for_nodes[:-1], str(refused / "host-keys")]
    done = drill.command("bootstrap", "nodes", TWIN, *words)
    assert done.returncode == 1
    assert f"has SHA256:{'A' * 43}" in done.stdout + done.stderr
    assert "nothing was sent" in done.stdout + done.stderr
    assert drill.paths.known_hosts.read_text() == known


@pytest.mark.soak
def test_a_wrong_password_is_tried_once_and_shuts_no_one_out(drill: Drill, refused: Path) -> None:
    wrong = refused / "wrong"
    wrong.write_text("not the password\n")
    wrong.chmod(0o600)
    words = [str(wrong) if word == str(drill.paths.password) else word for word in drill.for_nodes]
    for _ in range(3):
        done = drill.command("bootstrap", "nodes", TWIN, *words)
        assert done.returncode == 1
        assert (done.stdout + done.stderr).count("does not take the password of nvidia") == 1
        assert "not the password" not in done.stdout + done.stderr
    assert drill.owner(TWIN, "hostname") == "spark-02ff"


@pytest.mark.soak
def test_an_account_without_sudo_is_reported(drill: Drill) -> None:
    wait = "--path-property=PathExists=/tmp/give-back --property=RemainAfterExit=yes"
    give_back = f"systemd-run -q --unit=give-back {wait} gpasswd -a nvidia sudo"
    drill.owner(TWIN, f'sudo -S -p "" sh -c "{give_back}; gpasswd -d nvidia sudo"')
    try:
        seen = drill.owner(TWIN, "ls -lR --full-time /etc /home 2>/dev/null | sha256sum")
        done = drill.command("bootstrap", "nodes", TWIN, *drill.for_nodes)
        assert done.returncode == 1
        assert "nvidia gets no root by sudo" in done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        assert drill.owner(TWIN, "ls -lR --full-time /etc /home 2>/dev/null | sha256sum") == seen
    finally:
        drill.owner(TWIN, "touch /tmp/give-back; until id -nG nvidia | grep -qw sudo; do sleep 1; done")


@pytest.mark.soak
def test_one_command_killed_in_each_phase_and_resumed(drill: Drill) -> None:
    """One start from the boxes serves all: each run is killed one phase further, and the next one goes on there."""
    drill.cable(TWIN, "down")  # so that there is something to wait for
    reported = drill.killed("wait", "--all")
    assert "interrupted" not in reported
    drill.cable(TWIN, "up")
    for before, phase in pairwise(PHASES):
        reported = drill.killed(phase, "--all")
        assert f"interrupted in phase {before}" in reported
    done = drill.rebuild("--all", "--json")
    printed = json.loads(done.stdout)
    print(
        *(f"{one['phase']:10} {one['seconds']:6.1f} s in {one['tries']} tries" for one in printed["phases"]), sep="\n"
    )
    assert printed["resumed"] == "verify"
    assert [(one["phase"], one["result"]) for one in printed["phases"]] == [(phase, "done") for phase in PHASES]
    assert all(one["tries"] >= 2 for one in printed["phases"])
    restarts = [line["words"] for line in drill.journal() if line.get("words", [""])[0] == "reboot"]
    assert {words[words.index("--limit") + 1] for words in restarts} == {TWIN}  # for a machine-id of its own
    assert "0 failed" in done.stderr


def test_one_command_leads_from_the_boxes_to_a_proven_rack(drill: Drill) -> None:
    """Where the test before has not been run, this is the first time that the machines are met."""
    done = drill.rebuild("--all", "--json")
    printed = json.loads(done.stdout)
    assert [(one["phase"], one["result"]) for one in printed["phases"]] == [(phase, "done") for phase in PHASES]
    assert "0 failed" in done.stderr


def test_the_twins_have_become_two_and_no_secret_is_left(drill: Drill) -> None:
    for question in ("cat /etc/machine-id", "hostname", "cat /etc/ssh/ssh_host_*_key.pub"):
        answers = [drill.ssh(node, question) for node in NODES]
        assert answers[0] != answers[1], question
    assert [drill.ssh(node, "hostname").strip() for node in NODES] == list(NODES)
    drill.keeps_secrets()


@pytest.mark.soak
def test_one_node_is_imaged_again_and_rebuilt_alone(drill: Drill) -> None:
    before, writes = {node: drill.files(node) for node in NODES if node != TWIN}, drill.writes()
    drill.lab("reset", "--factory", TWIN)
    done = drill.command("bootstrap", "nodes", TWIN, *drill.for_nodes)
    assert done.returncode == 1  # its host key is not the known one
    assert "pass --replace-host-key" in done.stdout + done.stderr
    drill.rebuild(TWIN, "--replace-host-key")
    for node, files in before.items():
        after = drill.files(node)
        changed = {path for path in files | after if files.get(path) != after.get(path)}
        assert changed == PINS, node
    assert drill.writes() == writes
    assert "0 failed" in drill.verify().stdout


@pytest.mark.soak
def test_another_switch_is_refused_until_the_rack_says_so_and_rebuilt_alone(drill: Drill) -> None:
    before = drill.etc()
    drill.lab("reset", "--factory", SWITCH, "--serial", OTHER)
    assert "does not reach" in drill.verify("--only", "fabric", check=False).stdout
    text, writes = drill.paths.rack.read_text(), drill.writes()
    done = drill.rebuild("--switch", "--replace-fingerprint", check=False)
    assert done.returncode == 1
    assert OTHER in done.stdout + done.stderr
    assert (drill.paths.rack.read_text(), drill.writes()) == (text, writes)
    drill.paths.rack.write_text(text.replace(SERIAL, OTHER))
    drill.rebuild("--switch", "--replace-fingerprint")
    assert drill.etc() == before
    assert "0 failed" in drill.verify().stdout


@pytest.mark.soak
def test_every_command_of_the_readmes_page_does_what_it_says(drill: Drill) -> None:
    """Most were run on the way; what is left is what a day on a proven rack looks like. Exit 0: nothing to do."""
    assert len(page()) > 10
    for words in page():
        if not drill.has_walked(words):
            drill.inside(*words)
    assert all(map(drill.has_walked, page()))


def test_what_the_page_says_to_type_before_that_makes_a_command_and_a_key(tmp_path: Path) -> None:
    setup, keygen = preparations()
    done = subprocess.run(
        ["sh", "-ec", f"{setup}\ncommand -v sparkrack"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(REPOSITORY / ".venv/bin/sparkrack")
    # Where to, and no passphrase, twice.
    answers = f"{tmp_path / 'key'}\n\n\n"
    done = subprocess.run(["sh", "-ec", keygen], input=answers, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert public_line(tmp_path / "key").startswith("ssh-ed25519 ")


def test_down_leaves_nothing_of_it(drill: Drill) -> None:
    drill.lab("down")
    assert not drill.folder.exists()
    assert not ns.exists(drill.paths.namespace)
