"""plan, apply, drift, topology and status on a rack that is as declared, and on one that is not."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from lab import namespace as ns
from tests.lab.conftest import NODES
from tests.lab.virtual import REPOSITORY, VirtualRack

SUDO = "journalctl --quiet _COMM=sudo --grep 'base64|set -eu' --output=cat | grep -c COMMAND="
LOCK = "/run/sparkrack/run.lock"
LEG = {"cage": "qsfp56-dd-1", "lane": 5}
HALVES = {"enp1s0f1np1", "enP2p1s0f1np1"}
MOVING = ("bytes", "packet", "fec-corrected", "expires-after", "time")
KERNEL = "/run/sparkrack-lab/kernel"
"""What a virtual node says that it has booted."""


def everything(rack: VirtualRack) -> dict[str, str]:
    """What a command that only looks must leave as it is: files by name, mode, time and content; no journals."""
    script = (
        "tar -c --sort=name /etc /root /usr/local /home /run/sparkrack 2>/dev/null | sha256sum; "
        "find /tmp /var/tmp /run/sparkrack -xdev 2>/dev/null | sort; sysctl vm.min_free_kbytes; apt-mark showhold"
    )
    tables = rack.control({"op": "state"})["tables"]
    assert isinstance(tables, dict)
    rows = {
        path: [{name: value for name, value in row.items() if not name.endswith(MOVING)} for row in menu]
        for path, menu in tables.items()
    }
    return {node: rack.ssh(node, script) for node in NODES} | {"crs812": json.dumps([rows, rack.writes()])}


def test_a_rack_in_sync_costs_one_command_a_node_and_nothing_is_written(rack: VirtualRack) -> None:
    before = everything(rack)
    for verb in ("plan", "drift", "apply"):
        count = {node: int(rack.ssh(node, SUDO)) for node in NODES}
        done = rack.command(verb, *(["-y"] if verb == "apply" else []))
        assert done.returncode == 0, done.stdout + done.stderr
        # Each look at the journal is a sudo command with these words in it as well.
        assert {node: int(rack.ssh(node, SUDO)) - count[node] for node in NODES} == dict.fromkeys(NODES, 2), verb
    assert everything(rack) == before


def test_what_stands_now_can_be_seen(rack: VirtualRack) -> None:
    seen = rack.command("topology", "--seen", "--json")
    assert seen.returncode == 0, seen.stdout + seen.stderr
    assert not [link for link in json.loads(seen.stdout)["edges"] if link["mismatches"]]
    status = rack.command("status", "--json")
    assert status.returncode == 0, status.stdout + status.stderr


def test_a_plan_is_carried_out_as_it_was_shown_or_not_at_all(rack: VirtualRack, tmp_path: Path) -> None:
    kept = tmp_path / "rack.plan"
    rack.ssh("spark2", "sysctl -qw vm.overcommit_memory=1")
    assert rack.command("plan", "--only", "memory", "--out", str(kept)).returncode == 2
    rack.ssh("spark3", "sysctl -qw vm.overcommit_memory=2")
    moved = rack.command("apply", str(kept))
    assert moved.returncode == 1
    assert "now: spark3: memory: vm.overcommit_memory: 2 -> 0" in moved.stderr
    assert rack.ssh("spark2", "sysctl -n vm.overcommit_memory").strip() == "1"
    rack.ssh("spark3", "sysctl -qw vm.overcommit_memory=0")
    done = rack.command("apply", str(kept))
    assert done.returncode == 0, done.stdout + done.stderr
    assert rack.ssh("spark2", "sysctl -n vm.overcommit_memory").strip() == "0"
    journal = Path(re.findall(r"journal: (\S+)", done.stdout)[-1])
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [line["event"] for line in lines][:: len(lines) - 1] == ["run_started", "run_finished"]
    assert {line["host"] for line in lines if line.get("result") == "changed"} == {"spark2"}
    assert rack.ssh("spark1", f"ls {LOCK} 2>/dev/null || echo none").strip() == "none"


def test_one_run_at_a_time(rack: VirtualRack) -> None:
    """One is stopped by hand in the middle of its run; the second is told who it is, and so is plain pyinfra."""
    rack.ssh("spark2", "sysctl -qw vm.overcommit_memory=1")
    held = rack.ssh("spark1", f"mkdir -p /run/sparkrack; cat > {LOCK} <<'END'\n{_lock('20261121T000000-dead')}\nEND")
    assert held == ""
    try:
        second = rack.command("apply", "-y", "--limit", "spark2", "--only", "memory")
        assert second.returncode == 1
        assert "run 20261121T000000-dead of anna@desk, since 2026-11-21T00:00:00+00:00" in second.stderr
        plain = rack.deploy("-y", check=False)
        assert plain.returncode == 1
        assert "run 20261121T000000-dead of anna@desk" in plain.stdout + plain.stderr
        assert rack.ssh("spark2", "sysctl -n vm.overcommit_memory").strip() == "1"
        assert rack.command("unlock", "another").returncode == 1
        assert rack.command("unlock", "20261121T000000-dead").returncode == 0
    finally:
        rack.ssh("spark1", f"rm -f {LOCK}")
    assert rack.command("apply", "-y", "--limit", "spark2", "--only", "memory").returncode == 0


def _lock(run: str) -> str:
    return json.dumps({"id": run, "who": "anna@desk", "since": "2026-11-21T00:00:00+00:00", "what": "spark1"})


PARTS = ("--only", "memory", "--only", "fabric", "--only", "rdma")
"""What the next test breaks."""


def test_ctrl_c_lets_the_operation_at_hand_end(rack: VirtualRack) -> None:
    rack.ssh("spark2", "sysctl -qw vm.overcommit_memory=1; rm -f /etc/nccl.conf /etc/sysctl.d/zz-sparkrack-rdma.conf")
    rack.ssh("spark2", "ip link set enp1s0f1np1 mtu 1500")
    words = ["sparkrack", "lab", "run", "--", "sparkrack", "apply", "-y", "--limit", "spark2", *PARTS]
    run = subprocess.Popen(
        words,
        cwd=REPOSITORY,
        env=rack.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        reported = ""
        assert run.stdout
        for line in run.stdout:
            reported += line
            if "memory: Keep memory free" in line and "changed" in line:
                subprocess.run(["pkill", "-INT", "-g", str(run.pid)], check=False)
                break
        rest, _ = run.communicate(timeout=120)
    finally:
        run.kill()
        run.wait()
    reported += rest
    assert "Traceback" not in reported
    assert run.returncode == 1, reported
    assert "the operation in progress is finished first" in reported
    assert re.search(r"^spark2: \d operations? changed it$", reported, re.MULTILINE)
    assert re.search(r"^stopped; journal: ", reported, re.MULTILINE)
    assert rack.ssh("spark1", f"ls {LOCK} 2>/dev/null || echo none").strip() == "none"
    done = rack.command("apply", "-y", "--limit", "spark2", *PARTS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert rack.command("drift", "--limit", "spark2", *PARTS).returncode == 0


def test_the_kinds_of_drift_are_distinguished(rack: VirtualRack) -> None:
    """A value that differs, a dead link, a node unlike the others, and what is not declared."""
    rack.ssh("spark2", "sysctl -qw vm.overcommit_memory=1")
    rack.ssh("spark1", f"cp {KERNEL} {KERNEL}.was; echo 6.17.0-9999-nvidia > {KERNEL}")
    assert rack.control({"op": "cable", "do": "pull", **LEG})["ok"]
    try:
        done = rack.command("drift", "--json")
    finally:
        assert rack.control({"op": "cable", "do": "plug", **LEG})["ok"]
        rack.ssh("spark1", f"mv {KERNEL}.was {KERNEL}")
        rack.ssh("spark2", "sysctl -qw vm.overcommit_memory=0")
    assert done.returncode == 2, done.stdout + done.stderr
    found = [
        (machine["name"], looked["role"], finding["kind"], finding["message"])
        for machine in json.loads(done.stdout)["hosts"]
        for looked in machine["roles"]
        for finding in looked["findings"]
    ]
    assert ("spark2", "memory", "declared", "vm.overcommit_memory: 1 -> 0") in found
    assert {text.split(":")[0] for name, _, kind, text in found if (name, kind) == ("spark3", "broken")} == HALVES
    assert [text for name, _, kind, text in found if (name, kind) == ("crs812", "broken") and "to spark3 port" in text]
    assert [text for name, _, kind, text in found if (name, kind) == ("spark1", "outlier") and "6.17.0-9999" in text]
    assert [text for _, role, kind, text in found if (role, kind) == ("switch", "unmanaged")]


@pytest.mark.soak
def test_a_node_that_is_dead_is_no_drift_but_unknown(rack: VirtualRack) -> None:
    """The first tier has drift in test_6_faults.py, and each kind of run in tests/faults/test_unknown_nodes.py."""
    ns.end(ns.matching(rack.paths.namespace, f"umid={rack.paths.namespace}-spark3"))
    try:
        for verb in ("plan", "drift", "status", "apply"):
            done = rack.command(verb, *(["-y"] if verb == "apply" else []))
            assert done.returncode == 1, f"{verb}: {done.stdout}{done.stderr}"
            assert "spark3" in done.stdout + done.stderr
            assert "Traceback" not in done.stdout + done.stderr
    finally:
        rack.lab("up", "--nodes", str(len(NODES)))


def test_a_key_of_others_is_reported_and_kept(rack: VirtualRack) -> None:
    keys = "/home/ops/.ssh/authorized_keys2"
    rack.ssh(
        "spark3",
        "rm -f /tmp/guest /tmp/guest.pub; ssh-keygen -q -t ed25519 -N '' -C guest@lab -f /tmp/guest < /dev/null; "
        f"install -o ops -g ops -m 600 /tmp/guest.pub {keys}; rm -f /tmp/guest /tmp/guest.pub",
    )
    try:
        done = rack.command("drift", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        found = [
            (machine["name"], looked["role"], finding["kind"])
            for machine in json.loads(done.stdout)["hosts"]
            for looked in machine["roles"]
            for finding in looked["findings"]
            if "(guest@lab)" in finding["message"]
        ]
        assert found == [("spark3", "access", "unmanaged")]
        assert rack.ssh("spark3", f"wc -l < {keys}").strip() == "1"
    finally:
        rack.ssh("spark3", f"rm -f {keys}")
