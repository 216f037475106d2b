"""The systemd units of `sparkrack drift timer`, on the head node's own systemd: it looks at the rack and tells."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.lab.operator import PROGRAM, RACK, operator
from tests.lab.virtual import VirtualRack

pytestmark = pytest.mark.soak(turn=12)

HEAD = "spark1"
NAME = "sparkrack-drift-lab"
METRICS = "/var/lib/metrics/sparkrack.prom"
STATE = ("/home/ops/.local", "/home/ops/.local/state", "/home/ops/.local/state/sparkrack")
HISTORY = f"{STATE[-1]}/lab/drift"
SOON = f"/etc/systemd/system/{NAME}.timer.d/soon.conf"


@pytest.fixture(scope="module")
def head(rack: VirtualRack) -> Iterator[VirtualRack]:
    """The rack with the units on its head node, neither started nor enabled; without them afterwards."""
    words = shlex.join(["drift", "timer", "--user", "ops", "--prom", METRICS, "--into", "/etc/systemd/system"])
    with operator(rack, HEAD):
        try:
            rack.ssh(
                HEAD,
                f"install -d -o ops -g ops {METRICS.rpartition('/')[0]} {' '.join(STATE)} && "
                f"RACK={RACK}/rack.yaml {PROGRAM} {words} && systemctl daemon-reload",
            )
            yield rack
        finally:
            rack.ssh(
                HEAD,
                f"systemctl disable --now {NAME}.timer; systemctl stop {NAME}.service; "
                f"rm -rf /etc/systemd/system/{NAME}.* {STATE[0]} {METRICS.rpartition('/')[0]}; "
                "systemctl daemon-reload; systemctl reset-failed",
                check=False,
            )


def looked(rack: VirtualRack) -> tuple[str, dict[str, float]]:
    """How the service ended, started by hand; drift by machine in its metrics."""
    rack.ssh(HEAD, f"rm -f {METRICS}; systemctl start {NAME}.service || true")
    ended = rack.ssh(HEAD, f"systemctl show {NAME}.service -p Result -p ExecMainStatus").split()
    return " ".join(sorted(ended)), counted(rack)


def counted(rack: VirtualRack) -> dict[str, float]:
    """The sum of `sparkrack_drift` of each machine; {} without metrics."""
    text = rack.ssh(HEAD, f"cat {METRICS} 2>/dev/null || true")
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "sparkrack_drift" and sample.labels["kind"] == "declared":
                machine = sample.labels["host"]
                found[machine] = found.get(machine, 0) + sample.value
    return found


@pytest.mark.soak
def test_the_service_finds_a_rack_in_sync(head: VirtualRack) -> None:
    ended, drift = looked(head)
    assert ended == "ExecMainStatus=0 Result=success", head.ssh(HEAD, f"journalctl -u {NAME}.service -n 20")
    assert drift == dict.fromkeys(("spark1", "spark2", "spark3", "crs812"), 0)


def test_drift_is_reported_and_no_failure_and_the_timer_finds_it(head: VirtualRack) -> None:
    head.ssh("spark2", "sysctl -qw vm.overcommit_memory=1")
    try:
        # Only times are changed, so that the test does not wait for an hour.
        soon = r"[Timer]\nOnBootSec=\nOnUnitActiveSec=\nOnActiveSec=1s\nRandomizedDelaySec=0\n"
        head.ssh(
            HEAD,
            f"rm -f {METRICS}; mkdir -p {SOON.rpartition('/')[0]}; printf '{soon}' > {SOON}; systemctl daemon-reload; "
            f"systemctl enable --now --quiet {NAME}.timer; "
            f"for _ in $(seq 120); do [ ! -e {METRICS} ] || break; sleep 1; done; "
            f"for _ in $(seq 60); do systemctl is-active -q {NAME}.service || break; sleep 0.5; done",
        )
        shown = head.ssh(HEAD, f"systemctl show {NAME}.service -p Result -p ExecMainStatus").split()
        assert sorted(shown) == ["ExecMainStatus=2", "Result=success"]
        assert head.ssh(HEAD, f"systemctl is-enabled {NAME}.timer").strip() == "enabled"
        assert head.ssh(HEAD, f"find {HISTORY} -type f -user ops -perm 600 | wc -l").strip() != "0"
        assert head.ssh(HEAD, f"stat -c '%a %U' {METRICS}").strip() == "644 ops"
        drift = counted(head)
        assert drift["spark2"] == 1
        assert not drift["spark1"] + drift["spark3"] + drift["crs812"]
    finally:
        head.ssh("spark2", "sysctl -qw vm.overcommit_memory=0")


def test_what_was_unknown_fails_the_unit(head: VirtualRack) -> None:
    head.ssh(HEAD, f"mv {RACK}/known_hosts {RACK}/away")
    try:
        ended, _ = looked(head)
        assert ended == "ExecMainStatus=1 Result=exit-code"
        assert "Traceback" not in head.ssh(HEAD, f"journalctl -u {NAME}.service -b --output=cat")
    finally:
        head.ssh(HEAD, f"mv {RACK}/away {RACK}/known_hosts")


def test_the_service_can_write_nothing_else(head: VirtualRack) -> None:
    """Its user may write to his home; the unit may not."""
    attempt = f"/etc/systemd/system/{NAME}.service.d/attempt.conf"
    tries = ["/home/ops/written", "/var/lib/metrics/written"]
    script = "; ".join(f"touch {path} || echo no {path}" for path in tries)
    drop = rf'[Service]\nExecStart=\nExecStart=/bin/sh -c "{script}"\n'
    try:
        head.ssh(HEAD, f"mkdir -p {attempt.rpartition('/')[0]}; printf '{drop}' > {attempt}; systemctl daemon-reload")
        head.ssh(HEAD, f"systemctl start {NAME}.service")
        there = head.ssh(HEAD, f"ls {' '.join(tries)} 2>/dev/null || true").split()
        assert there == ["/var/lib/metrics/written"]
    finally:
        head.ssh(HEAD, f"rm -rf {attempt.rpartition('/')[0]} {' '.join(tries)}; systemctl daemon-reload", check=False)
