"""A rack that people configured by hand: described by `sparkrack adopt`, then run once, with no value changed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.model import load
from core.model.role import roles
from core.model.selection import NODE_ROLES
from roles.memory.options import MemoryOptions
from tests.lab.virtual import REPOSITORY, VirtualRack

NODES = ("spark1", "spark2")
pytestmark = pytest.mark.soak(turn=10)
PLAYBOOK = """\
network:
  version: 2
  ethernets:
    enp1s0f1np1:
      dhcp4: false
      addresses:
        - 192.168.100.{host}/24
    enP2p1s0f1np1:
      dhcp4: false
      addresses:
        - 192.168.101.{host}/24
"""
"""NVIDIA's /etc/netplan/40-cx7.yaml of the playbook connect-two-sparks."""
BY_HAND = """
import sys
from pathlib import Path
from core.model import load
from core.routeros.api import ApiSession

switch = load(Path(sys.argv[1])).switches["crs812"]
password = switch.password.resolve()
way = {"tls": switch.tls.sha256, "user": switch.user, "password": password}
with ApiSession(str(switch.address), switch.port, **way) as session:
    rows = session.talk("/interface/ethernet/print", "=.proplist=.id,default-name")
    ids = {row["default-name"]: row[".id"] for row in rows}
    for lane in range(1, 9):
        sizes = ("=l2mtu=9500", "=mtu=9000", "=disabled=no")
        forced = ("=auto-negotiation=no", "=speed=100G-baseCR2", "=fec-mode=fec91") if lane % 2 else ()
        session.talk("/interface/ethernet/set", f"=.id={ids[f'qsfp56-dd-1-{lane}']}", *sizes, *forced)
    session.talk("/system/identity/set", "=name=rack-switch")
"""
LIVE = (
    "ip -j -d address show dev enp1s0f1np1; ip -j -d address show dev enP2p1s0f1np1; cat /proc/swaps | cut -f1 | sort; "
    "sysctl vm.min_free_kbytes vm.overcommit_memory; systemctl is-active swap.target; sshd -T | "
    "grep -E '^(passwordauthentication|permitrootlogin) '"
)
ADDED = {
    "access": r"id_sparkrack|^let spark\d in once its key is made$|sparkrack_known_hosts|50-sparkrack\.conf|"
    r" /etc/hosts$",
    "fabric": r"(^| )/etc/netplan/(60-sparkrack-fabric|40-cx7)\.yaml",
    "memory": r"sparkrack|: MemoryMin 0 -> |: OOM score of ",
    "docker": r"50-sparkrack\.conf|^/etc/docker/daemon\.json: |docker\.service$|^start docker|joins group docker|"
    r"^restart docker\.service: it is not known which daemon\.json it was started with$",
    "lossless": r"sparkrack",
    "rdma": r"sparkrack|^DefaultLimitMEMLOCK: |^net\.ipv4\.conf\.\w+\.arp_(ignore|announce): 0 -> ",
}
"""What a plan may list after adopt, by role: what docs/init.md says, and nothing of the switch."""


LEFT = tuple(role.key for role in roles() if role.can_be_left and not (role.opt_in or role.adopts_in_place))
"""What adopt leaves alone here, where the nodes have no driver and no images that a file could declare."""


@pytest.fixture(scope="module")
def rack() -> Iterator[VirtualRack]:
    """Two nodes and a switch, configured as people do it."""
    found = VirtualRack(REPOSITORY / ".lab-test-adopt", NODES)
    found.lab("down")
    try:
        found.lab("up", "--nodes", str(len(NODES)))
        found.inside(sys.executable, "-c", BY_HAND, str(found.paths.rack))
        for host, node in enumerate(NODES, 10):
            text = PLAYBOOK.format(host=host)
            found.ssh(node, f"umask 077; cat > /etc/netplan/40-cx7.yaml <<'END'\n{text}END\nnetplan apply")
        for host, node in enumerate(NODES, 10):
            for interface, subnet in (("enp1s0f1np1", 100), ("enP2p1s0f1np1", 101)):
                wait = f"ip -4 -br address show dev {interface} | grep -q 192.168.{subnet}.{host}/24"
                found.ssh(node, f"for i in $(seq 60); do {wait} && exit 0; sleep 1; done; exit 1")
        yield found
    finally:
        found.lab("down")


def adopted(rack: VirtualRack) -> Path:
    """The file that adopt writes, beside the lab's own."""
    own = load(rack.paths.rack)
    switch = own.switches["crs812"]
    assert switch.tls
    out = rack.paths.rack.with_name("adopted.yaml")
    out.unlink(missing_ok=True)
    named = [word for name, node in own.nodes.items() for word in ("--node", f"{name}={node.address}")]
    done = rack.command(
        *("adopt", "--out", str(out), *named, "--user", own.access.user, "--key", str(own.access.key)),
        *("--known-hosts", str(own.access.known_hosts), "--switch", str(switch.address)),
        *("--api-port", str(switch.port), "--fingerprint", switch.tls.sha256),
        *("--switch-password-file", str(switch.password.file)),
    )
    assert done.returncode == 2, done.stdout + done.stderr  # docker's images are unknown where it does not run
    assert "a run would change" not in done.stdout, done.stdout
    assert "not ready" not in done.stdout, done.stdout
    return out


def live(rack: VirtualRack) -> dict[str, str]:
    found = {node: re.sub(r'"(valid|preferred)_life_time":\d+', "", rack.ssh(node, LIVE)) for node in NODES}
    tables: Any = rack.control({"op": "state"})["tables"]
    kept = ("/interface/ethernet", "/interface/bridge", "/interface/bridge/port", "/system/identity", "/ip/service")
    rows = {path: [_remove_counters(row) for row in tables[path]] for path in kept}
    return {**found, "crs812": json.dumps(rows, sort_keys=True)}


def _remove_counters(row: dict[str, str]) -> dict[str, str]:
    """A row without what counts or passes by itself."""
    names = ("name", "disabled", "auto-negotiation", "speed", "fec-mode", "mtu", "l2mtu", "bridge", "hw", "address")
    return {name: row[name] for name in names if name in row}


def whole(rack: VirtualRack, *edits: tuple[str, str]) -> Path:
    """The adopted file without `leave`, so that every role is applied and judged."""
    text = rack.paths.rack.with_name("adopted.yaml").read_text()
    for old, new in (("\nleave: ", "\n# leave: "), *edits):
        assert text.count(old) == 1, (old, text)
        text = text.replace(old, new)
    out = rack.paths.rack.with_name("whole.yaml")
    out.write_text(text)
    return out


def test_drift_is_empty_on_what_adopt_describes(rack: VirtualRack) -> None:
    before, etc, writes = live(rack), rack.etc(), rack.writes()
    out = adopted(rack)
    found = load(out)
    assert [(node.host, dict(node.ports)) for node in found.nodes.values()] == [
        (10, {1: "crs812/qsfp56-dd-1-1"}),
        (11, {1: "crs812/qsfp56-dd-1-3"}),
    ]
    assert (found.fabric.mtu, found.fabric.adopt, found.options(MemoryOptions).swap) == (1500, True, True)
    assert found.leave == LEFT
    drift = rack.command("drift", "--json", rack=out)
    assert drift.returncode == 0, drift.stdout
    printed = json.loads(drift.stdout)
    looked = {machine["name"]: machine["roles"] for machine in printed["hosts"]}
    kinds = {finding["kind"] for roles in looked.values() for role in roles for finding in role["findings"]}
    assert kinds == {"unmanaged"}
    assert {name: [role["role"] for role in roles] for name, roles in looked.items()} == {
        **{node: [role for role in NODE_ROLES if role not in LEFT] for node in NODES},
        "crs812": ["switch"],
    }
    done = rack.command("apply", "-y", rack=out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failed" in rack.verify(rack=out).stdout
    assert (live(rack), rack.etc(), rack.writes()) == (before, etc, writes)


def test_an_address_changed_by_hand_is_drift_there(rack: VirtualRack) -> None:
    """That drift is empty means something: what is declared is judged, though its file is not ours."""
    out = rack.paths.rack.with_name("adopted.yaml")
    rack.ssh("spark2", "ip address replace 192.168.100.77/24 dev enp1s0f1np1")
    try:
        drift = rack.command("drift", rack=out)
        assert drift.returncode == 2, drift.stdout
        assert "enp1s0f1np1: 192.168.100.11/24, 192.168.100.77/24 -> 192.168.100.11/24" in drift.stdout
    finally:
        rack.ssh("spark2", "ip address delete 192.168.100.77/24 dev enp1s0f1np1")
    assert rack.command("drift", rack=out).returncode == 0


def test_a_plan_of_all_roles_lists_only_what_this_project_adds(rack: VirtualRack) -> None:
    plan = json.loads(rack.command("plan", "--json", rack=whole(rack)).stdout)
    others = [
        f"{machine['name']} {step['role']}: {reported['sort']} {reported['text']}"
        for machine in plan["hosts"]
        for step in machine["operations"]
        for reported in step["events"]
        if reported["kind"] in ("change", "file", "restart", "refused", "unknown")
        and not re.search(ADDED.get(step["role"], "^$"), reported["message"])
    ]
    assert not others, "\n".join(others)
    assert [machine["state"] for machine in plan["hosts"] if machine["kind"] == "switch"] == ["in sync"]


@pytest.mark.soak
def test_one_run_after_it_changes_no_value_and_the_rack_is_in_sync(rack: VirtualRack) -> None:
    out, before = whole(rack), live(rack)
    done = rack.command("apply", "-y", rack=out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert live(rack) == before
    assert rack.ssh("spark1", "ls /etc/netplan").split() == ["01-management.yaml", "40-cx7.yaml"]
    drift = rack.command("drift", rack=out)
    assert drift.returncode == 0, drift.stdout
    assert "0 failed" in rack.verify("--only", "fabric", rack=out).stdout


@pytest.mark.soak
def test_the_file_of_others_is_taken_over_when_something_shall_differ(rack: VirtualRack) -> None:
    """It begins where the test before has ended. What both change is in tests/cases/operations/fabric/adopted*.yaml."""
    out = whole(rack, ("\n  mtu: 1500\n", "\n  mtu: 9000\n"))
    done = rack.command("apply", "-y", "--only", "fabric", rack=out)
    assert done.returncode == 0, done.stdout + done.stderr
    for node in NODES:
        assert rack.ssh(node, "ls /etc/netplan").split() == ["01-management.yaml", "60-sparkrack-fabric.yaml"]
        assert rack.ssh(node, "ls /var/backups/sparkrack").startswith("40-cx7.yaml.")
    drift = rack.command("drift", rack=out)
    assert drift.returncode == 0, drift.stdout
    assert "0 failed" in rack.verify("--only", "fabric", rack=out).stdout
