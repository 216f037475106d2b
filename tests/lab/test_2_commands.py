"""topology and status on a rack that is as declared; a kept plan, the lock of a run, Ctrl-C and a node that is dead."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from lab import namespace as ns
from tests.lab.conftest import NODES
from tests.lab.virtual import REPOSITORY, VirtualRack

pytestmark = pytest.mark.soak(turn=2, of=3)

LOCK = "/run/sparkrack/run.lock"


def test_what_stands_now_can_be_seen(rack: VirtualRack) -> None:
    seen = rack.command("topology", "--seen", "--json")
    assert seen.returncode == 0, seen.stdout + seen.stderr
    assert not [link for link in json.loads(seen.stdout)["edges"] if link["mismatches"]]
    status = rack.command("status", "--json")
    assert status.returncode == 0, status.stdout + status.stderr


def test_a_plan_is_carried_out_as_it_was_shown_or_not_at_all(rack: VirtualRack, tmp_path: Path) -> None:
    kept = tmp_path / "rack.plan"
    rack.ssh("spark2", "sysctl -qw vm.overcommit_memory=1")
    planned = rack.command("plan", "--limit", "spark2", "--limit", "spark3", "--only", "memory", "--out", str(kept))
    assert planned.returncode == 2, planned.stdout + planned.stderr
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
    """One is stopped by hand in the middle of its run; the second is reported who it is, and so is plain pyinfra."""
    rack.ssh("spark2", "sysctl -qw vm.overcommit_memory=1")
    held = rack.ssh(
        "spark1", f"mkdir -p /run/sparkrack; cat > {LOCK} <<'END'\n{_lock_text('20261121T000000-dead')}\nEND"
    )
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


def _lock_text(run: str) -> str:
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
