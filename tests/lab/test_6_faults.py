"""What goes wrong around a run: a full disk, a lock held, a node that dies, sudo taken away, a gate that shuts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from lab import namespace as ns
from tests.lab.virtual import REPOSITORY, VirtualRack

pytestmark = pytest.mark.soak(turn=4)

NODE = "spark2"
FILL = """\
mkdir -p /fill; n=0
for s in 4G 1G 64M 4M 256K 4K; do while fallocate -l $s /fill/$n 2>/dev/null; do n=$((n+1)); done; rm -f /fill/$n; done
while echo x > /fill/$n 2>/dev/null; do n=$((n+1)); [ $n -lt 2000 ] || exit 1; done; true
"""


@pytest.fixture
def full(rack: VirtualRack) -> Iterator[None]:
    rack.ssh(NODE, FILL)
    yield
    rack.ssh(NODE, "rm -rf /fill")


def reported(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout + done.stderr


def test_a_full_disk_is_seen_before_any_change(rack: VirtualRack, full: None) -> None:
    before = rack.ssh(NODE, "tar -c --sort=name /etc | sha256sum")
    rack.ssh(NODE, "sysctl -qw vm.overcommit_memory=1")
    done = rack.deploy("-y", "--limit", NODE, check=False)
    assert done.returncode == 1
    assert "10G" in reported(done)
    assert rack.ssh(NODE, "sysctl -n vm.overcommit_memory").strip() == "1"
    assert rack.ssh(NODE, "tar -c --sort=name /etc | sha256sum") == before


def test_a_disk_that_fills_up_leaves_the_old_file_whole(rack: VirtualRack) -> None:
    """The role alone, so that no gate stops it before."""
    path = "/etc/sysctl.d/zz-sparkrack-memory.conf"
    was = rack.ssh(NODE, f"sed -i s/1572864/65536/ {path}; cat {path}")
    rack.ssh(NODE, FILL)
    try:
        done = rack.deploy("-y", "--limit", NODE, roles=("memory",), check=False)
        left = rack.ssh(NODE, f"cat {path}; ls -A /etc/sysctl.d | grep -c '^[.]zz-sparkrack' || true")
    finally:
        rack.ssh(NODE, "rm -rf /fill")
    assert done.returncode == 1
    assert "No space left on device" in reported(done)
    assert "Traceback" not in reported(done)
    assert left == f"{was}0\n"


def test_after_that_an_ordinary_run_fixes_all(rack: VirtualRack) -> None:
    rack.deploy("-y", "--limit", NODE, roles=("memory",))
    assert rack.ssh(NODE, "sysctl -n vm.overcommit_memory vm.min_free_kbytes").split() == ["0", "1572864"]


def test_a_lock_of_dpkg_is_waited_for(rack: VirtualRack) -> None:
    """Held for some seconds by a program that is named meanwhile; it is never taken away."""
    lock = "f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, fcntl.LOCK_EX)"
    hold = f"import fcntl, time; {lock}; time.sleep(40)"
    rack.ssh(NODE, f'apt-mark unhold nvidia-modprobe >/dev/null; systemd-run -q --unit=holder python3 -c "{hold}"')
    done = rack.deploy("-y", "--limit", NODE, roles=("preflight", "driver"))
    assert "python3 (pid " in reported(done)
    assert rack.ssh(NODE, "systemctl is-active holder || true").strip() == "inactive", "it was not waited for"
    assert "nvidia-modprobe" in rack.ssh(NODE, "apt-mark showhold")


def test_sudo_taken_away_is_reported_and_nothing_is_done(rack: VirtualRack) -> None:
    """It comes back when the file appears, which its user may make."""
    rack.ssh(
        NODE,
        "systemd-run -q --unit=sudo-back --path-property=PathExists=/tmp/sudo-back "
        "mv /etc/ops.away /etc/sudoers.d/ops; mv /etc/sudoers.d/ops /etc/ops.away",
    )
    try:
        done = rack.deploy("-y", "--limit", NODE, check=False)
    finally:
        back = (
            "touch /tmp/sudo-back; for i in $(seq 600); do sudo -n rm /tmp/sudo-back && exit; sleep 0.1; done; exit 1"
        )
        rack.lab("ssh", NODE, back)
    assert done.returncode == 1
    assert "sudo asks for a password; `sparkrack bootstrap nodes NAME` sets passwordless sudo" in reported(done)
    assert "Traceback" not in reported(done)


def test_a_gate_that_shuts_keeps_the_switch_as_it_is(rack: VirtualRack) -> None:
    """Links would go down for all nodes, and one of them cannot be gone on with: the run ends before that."""
    hardware = rack.paths.node("spark3") / "shared/hardware.json"
    kept = hardware.read_text()
    state = json.loads(kept)
    for slot in state["pci"]:
        if slot.startswith("0002:"):
            state["pci"][slot]["width"] = "x2"
    sentence = ("/interface/ethernet/set", "=.id=qsfp56-dd-1-3", "=speed=50G-baseCR")
    rack.inside("pyinfra", "inventory.py", "exec", "--limit", "switches", "--", *sentence)
    writes = rack.writes()
    hardware.write_text(json.dumps(state))
    try:
        done = rack.deploy("-y", check=False)
    finally:
        hardware.write_text(kept)
    assert done.returncode == 1
    assert "x2" in reported(done)
    assert rack.writes() == writes
    rack.deploy("-y", roles=("switch",))
    assert rack.writes() > writes


def test_a_node_that_dies_in_the_middle_ends_the_run_and_the_next_one_fixes_all(rack: VirtualRack) -> None:
    for node in rack.nodes:
        rack.ssh(node, "sysctl -qw vm.overcommit_memory=1")
    memory = rack.deploy_file(("memory",))
    run = subprocess.Popen(
        ["sparkrack", "lab", "run", "--", "pyinfra", "inventory.py", memory, "-y", "--limit", "nodes"],
        env=rack.environment,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    text = ""
    try:
        assert run.stdout
        for line in run.stdout:
            text += line
            if "Starting operation" in line:
                break
        dead = ns.matching(rack.paths.namespace, f"umid={rack.paths.namespace}-spark3")
        assert dead
        ns.end(dead)
        rest, _ = run.communicate(timeout=300)
        text += rest
        drift = rack.command("drift", "--only", "memory")
    finally:
        run.kill()
        rack.lab("up", "--nodes", "3")
    assert run.returncode == 1, text
    assert "Traceback" not in text + drift.stdout + drift.stderr
    assert drift.returncode == 1, drift.stdout + drift.stderr
    assert "spark3" in drift.stdout
    rack.deploy("-y", roles=("memory",))
    for node in rack.nodes:
        assert rack.ssh(node, "sysctl -n vm.overcommit_memory").strip() == "0"
