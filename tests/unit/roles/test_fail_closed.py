"""A fact that is unknown stops its host in every kind of run: in a plan, in a dry run, in one that asks, and with -y.
No command is sent, and the reason is reported.

Runs of pyinfra's own command against such nodes are in tests/faults/test_unknown_nodes.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from paramiko import SSHException

from core.model import Rack, image_lock, load, model_lock
from core.model.image_lock import Pin
from core.model.selection import Selection
from core.ops import host_facts
from core.util.event import EventKind
from sparkrack.engine.evaluate import evaluate
from sparkrack.engine.plan import HostState, Plan
from tests.tiers import crossed
from tests.unit.engine.fake_rack import FILE, node_in, prepared, usual
from tests.unit.model.racks import SWITCH, changed
from tests.unit.model.serving_racks import VLLM
from tests.unit.ops.fakenode import MODES, Answers, run
from tests.unit.roles.cases import (
    BYTES,
    DEPLOYS,
    OPERATIONS,
    ROLES,
    THERE,
    named,
    node_of,
    rack_of,
    read,
    role_file,
)
from tests.unit.roles.serving_units import IMAGE_ID, RECORD

KINDS = (*MODES, "plan")
"""The kinds of run: a plan, and those of `tests.unit.ops.fakenode.run`."""
UNREADABLE: Mapping[str, Any] = {
    "silent": {"silent": True},
    "garbled": {"garbled": "%%%"},
    "fails": {"exit": 3},
    "not text": b"\xff\xfe",
}
"""Faults of the answer itself. Every kind of run gets each of them."""
MISLEADING: Mapping[str, Any] = {
    "garbage": "\x01%% (what is this) ;{[\n",
    "empty": "",
    "missing tool": {"exit": 127},
    "permission denied": {"exit": 1},
}
"""What a broken node says in place of a fact. A plan alone gets them: all kinds of run judge it by the same code."""
FAULTS: Mapping[str, Any] = {**UNREADABLE, **MISLEADING}
ERRORS = (
    TimeoutError("timed out"),
    OSError("Socket is closed"),
    EOFError("gone"),
    SSHException("No session"),
    EOFError(""),
)

ANYTHING = frozenset({"garbage", "empty"})
EMPTY, GARBAGE = frozenset({"empty"}), frozenset({"garbage"})

OURS = "a file of ours: whatever else stands in it is written again"
OTHERS = "a file that holds what others like: only lines of a known form count, the rest is kept"
NONE = "an answer: there is none of these"
PRESENT = "only whether it is there counts"
MODE = "no line says that our files have their owner and mode, so these are set, which does no harm twice"

HARMLESS: Mapping[str, tuple[frozenset[str], str]] = {
    "/etc/hosts": (ANYTHING, OTHERS),
    "/etc/cloud/cloud.cfg.d/zz-sparkrack.cfg": (ANYTHING, "a file of ours: as cloud-init leaves the names alone"),
    "/etc/ssh/sparkrack_known_hosts": (ANYTHING, OURS),
    "/etc/ssh/ssh_config.d/50-sparkrack.conf": (ANYTHING, OURS),
    "/etc/ssh/sshd_config.d/00-sparkrack.conf": (ANYTHING, OURS),
    "/etc/tmpfiles.d/sparkrack-access.conf": (ANYTHING, "there after a trial that was cut off, which is made again"),
    "access-modes": (ANYTHING, MODE),
    "access-foreign": (EMPTY, "an account without keys and settings of others has no line"),
    "access-cloud-init": (ANYTHING, "a line more: our drop-in for cloud-init is written, which changes no names"),
    "/etc/docker/daemon.json": (EMPTY, "an empty file holds no setting"),
    "/etc/systemd/system/docker.service.d/50-sparkrack.conf": (ANYTHING, OURS),
    "docker-containers": (EMPTY, NONE),
    "running-units": (EMPTY, NONE),
    "/etc/apt/apt.conf.d/99-sparkrack-no-upgrades": (ANYTHING, OURS),
    "/run/reboot-required": (ANYTHING, PRESENT),
    "/run/reboot-required.pkgs": (ANYTHING, "shown to a person, as it is"),
    "driver-packages": (EMPTY, f"{NONE}; apt itself looks again before it installs"),
    "driver-dpkg-interrupted": (ANYTHING, "anything says that dpkg was interrupted, and dpkg --configure -a mends it"),
    "driver-kernel": (GARBAGE, "shown to a person: it is not the kernel that is declared, so a reboot is needed"),
    "driver-loaded": (EMPTY, NONE),
    "driver-update-units": (EMPTY, NONE),
    "/etc/netplan/60-sparkrack-fabric.yaml": (ANYTHING, OURS),
    "/run/netplan/60-sparkrack-fabric.yaml": (ANYTHING, "there after a trial that was cut off, which is made again"),
    "/etc/nvidia/cx7-hotplug-enabled": (ANYTHING, PRESENT),
    "fabric-signals": (EMPTY, "an interface that is switched off says nothing, and that is reported elsewhere"),
    "netplan-interfaces": (EMPTY, NONE),
    "netplan-content": (EMPTY, NONE),
    "netplan-renderers": (EMPTY, NONE),
    "rdma-settings": (EMPTY, NONE),
    "netplan-mode": (ANYTHING, MODE),
    "/usr/local/lib/sparkrack/lossless": (ANYTHING, OURS),
    "/etc/systemd/system/sparkrack-lossless@.service": (ANYTHING, OURS),
    "lossless-units": (ANYTHING, "no line says that a unit is enabled, so it is, which does no harm twice"),
    "lossless-modes": (ANYTHING, MODE),
    "/etc/systemd/timesyncd.conf.d/zz-sparkrack.conf": (ANYTHING, OURS),
    "/etc/chrony/sources.d/sparkrack.sources": (ANYTHING, "a file of ours for chrony, which this node does not have"),
    "time-modes": (ANYTHING, MODE),
    "time-settings": (EMPTY, NONE),
    "time-source-folders": (EMPTY, NONE),
    "/etc/systemd/system.conf.d/zz-sparkrack-watchdog.conf": (ANYTHING, OURS),
    "/etc/modprobe.d/zz-sparkrack-watchdog.conf": (ANYTHING, OURS),
    "/etc/default/grub.d/zz-sparkrack-watchdog.cfg": (ANYTHING, OURS),
    "/etc/default/grub.d/zz-sparkrack-kdump.cfg": (ANYTHING, OURS),
    "/etc/default/kdump-tools": (ANYTHING, OTHERS),
    "/etc/sysctl.d/zz-sparkrack-blackbox.conf": (ANYTHING, OURS),
    "/etc/modules-load.d/zz-sparkrack-blackbox.conf": (ANYTHING, OURS),
    "/etc/modprobe.d/zz-sparkrack-blackbox.conf": (ANYTHING, OURS),
    "/etc/systemd/pstore.conf.d/zz-sparkrack.conf": (ANYTHING, OURS),
    "/etc/tmpfiles.d/zz-sparkrack-blackbox.conf": (ANYTHING, OURS),
    "/etc/systemd/journald.conf.d/zz-sparkrack.conf": (ANYTHING, OURS),
    "/etc/systemd/system/sparkrack-clock-cap.service": (ANYTHING, OURS),
    "/etc/systemd/system/sparkrack-recorder.service": (ANYTHING, OURS),
    "/etc/systemd/system/sparkrack-recorder-receive.service": (ANYTHING, OURS),
    "blackbox-recorder-program": (EMPTY, NONE),
    "blackbox-modes": (ANYTHING, MODE),
    "blackbox-evidence-files": (EMPTY, f"{NONE}: our files are written"),
    "blackbox-kdump-files": (EMPTY, f"{NONE}: our files are written"),
    "blackbox-manager-settings": (EMPTY, NONE),
    "blackbox-sysctl-settings": (EMPTY, NONE),
    "blackbox-pstore-settings": (EMPTY, NONE),
    "blackbox-journal-settings": (EMPTY, NONE),
    "/etc/systemd/journal-upload.conf.d/zz-sparkrack.conf": (ANYTHING, OURS),
    "/etc/systemd/system/systemd-journal-upload.service.d/zz-sparkrack.conf": (ANYTHING, OURS),
    "/usr/local/lib/sparkrack/journal_receiver.py": (ANYTHING, OURS),
    "/etc/systemd/system/sparkrack-journal-receive.service": (ANYTHING, OURS),
    "/etc/sparkrack/blackbox/node.pem": (ANYTHING, OURS),
    "/etc/sparkrack/blackbox/ca.pem": (ANYTHING, OURS),
    "/usr/local/lib/sparkrack/netconsole-target": (ANYTHING, OURS),
    "/etc/systemd/system/sparkrack-netconsole.service": (ANYTHING, OURS),
    "/etc/systemd/system/sparkrack-netconsole.timer": (ANYTHING, OURS),
    "/usr/local/lib/sparkrack/netconsole_receiver.py": (ANYTHING, OURS),
    "/etc/systemd/system/sparkrack-netconsole-receive.service": (ANYTHING, OURS),
    "blackbox-stream-modes": (ANYTHING, MODE),
    "blackbox-stream-settings": (EMPTY, NONE),
    "/etc/fstab": (ANYTHING, OTHERS),
    "/etc/sysctl.d/zz-sparkrack-memory.conf": (ANYTHING, OURS),
    "swap-units": (EMPTY, "no line says that swap.target is masked, so it is, which does no harm twice"),
    "sysctl-settings": (EMPTY, NONE),
    "zram-devices": (EMPTY, NONE),
    "memory-files": (EMPTY, f"{NONE}: our files are written"),
    "/proc/cmdline": (ANYTHING, "compared between nodes, and reported where it differs"),
    "/run/sparkrack/run.lock": (ANYTHING, "who changes the rack is reported; only taking the lock decides"),
    "images-stock": (EMPTY, f"{NONE}: what is declared is pulled"),
    "images-transfers": (EMPTY, NONE),
    "models-records": (ANYTHING, "a record that does not read is none: the files are read and verified again"),
    "models-transfers": (EMPTY, NONE),
    "/etc/nccl.conf": (ANYTHING, OTHERS),
    "/etc/sparkrack/fabric.env": (ANYTHING, OURS),
    "/etc/profile.d/sparkrack-fabric.sh": (ANYTHING, OURS),
    "/usr/local/lib/sparkrack/gid-index": (ANYTHING, OURS),
    "/etc/security/limits.d/90-sparkrack-memlock.conf": (ANYTHING, OURS),
    "/etc/systemd/system.conf.d/50-sparkrack-memlock.conf": (ANYTHING, OURS),
    "/etc/sysctl.d/zz-sparkrack-rdma.conf": (ANYTHING, OURS),
    "rdma-modes": (ANYTHING, MODE),
    "rdma-devices": (EMPTY, f"{NONE}: our files name the devices that the card has on a DGX Spark"),
    "serving-files": (EMPTY, NONE),
    "serving-leases": (EMPTY, NONE),
    "serving-services": (EMPTY, NONE),
    "serving-records": (EMPTY, NONE),
    "serving-gateway-files": (EMPTY, NONE),
    "serving-gateway-state": (EMPTY, NONE),
    "serving-containers": (EMPTY, NONE),
    "/etc/systemd/system/prometheus-node-exporter.service.d/zz-sparkrack.conf": (ANYTHING, OURS),
    "/etc/systemd/system/prometheus.service.d/zz-sparkrack.conf": (ANYTHING, OURS),
    "/etc/systemd/system/prometheus-alertmanager.service.d/zz-sparkrack.conf": (ANYTHING, OURS),
    "/etc/prometheus/sparkrack-rules.yml": (ANYTHING, OURS),
    "/etc/prometheus/sparkrack.yml": (ANYTHING, OURS),
    "watch-modes": (ANYTHING, MODE),
    "watch-notifications": (EMPTY, NONE),
    "/usr/local/lib/sparkrack/switch_reader.py": (ANYTHING, OURS),
    "/etc/sparkrack/watch/switches.json": (ANYTHING, OURS),
    "/etc/systemd/system/sparkrack-switch-reader.service": (ANYTHING, OURS),
    "/etc/systemd/system/sparkrack-switch-reader.timer": (ANYTHING, OURS),
    "watch-switch-passwords": (EMPTY, f"{NONE}: the file is written"),
    "watch-metrics-files": (EMPTY, f"{NONE}: our files are written"),
    "watch-overrides": (EMPTY, f"{NONE}: units without a drop-in of others"),
    "memlock-limits": (EMPTY, NONE),
    "memlock-settings": (EMPTY, NONE),
    "arp-settings": (EMPTY, NONE),
}
"""Answers that do no harm where they are believed, and why. Every other one must stop the host."""

DECLARING: Mapping[str, str] = {
    "blackbox": "already-right",
    "lossless": "roce-right",
    "time": "already-right",
    "watch": "already-right",
}
"""A case in which a role has something to look after and finds it right, where that is not the usual node."""


FACTS = [
    (role, key)
    for role in ROLES
    for key in (*host_facts._registered[role].files, *host_facts._registered[role].commands)
]


def cells(number: int, key: str, *, sample: bool) -> Iterator[tuple[str, str]]:
    """The faults of a fact with the kinds of run: the sample of the first tier, or all others."""
    for fault in UNREADABLE:
        if fault != "not text" or key not in BYTES | THERE:  # these may hold any bytes
            yield from ((fault, kind) for kind in KINDS if (kind == KINDS[number % len(KINDS)]) == sample)
    yield from ((fault, "plan") for fault in MISLEADING if sample)


CELLS = [
    pytest.param(
        role,
        key,
        list(cells(number, key, sample=sample)),
        id=f"{role}-{key}-{name}",
        marks=() if sample else pytest.mark.soak,
    )
    for number, (role, key) in enumerate(FACTS)
    for name, sample in (("sample", True), ("others", False))
]


@cache
def sound(role: str) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """The edits of a rack in which a role has something to look after, and the answers of its node: it is in sync."""
    if role in DECLARING:
        case = read(OPERATIONS / role / f"{DECLARING[role]}.yaml")
        return tuple(map(tuple, case.get("rack", []))), node_in(role, case)
    return tuple(map(tuple, role_file(role)["rack"])), usual(role)


def different(role: str, key: str = "") -> Mapping[str, Any]:
    """The answers of a node on which the role has something to change, and on which it reads this fact."""
    about = role_file(role)
    if key in about["late"]:
        return node_of(role) | dict(about["late_node"])
    return node_in(role, read(OPERATIONS / role / f"{about['differs']}.yaml"))


class Racks:
    """A rack of each role for runs, and one for plans, whose folder has a lock file of the images."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self.folders = folders
        self.for_runs = cache(lambda role: rack_of(role_file(role)))
        self.for_plans = cache(self._for_plans)

    def _for_plans(self, role: str) -> Rack:
        file = self.folders.mktemp(role) / "rack.yaml"
        if role == "serving":  # its files are made from what the lock file has
            image_lock.write(file.with_name("rack.lock.json"), {VLLM: Pin(None, IMAGE_ID)})
            model_lock.write(file.with_name("rack.lock.json"), {"qwen": replace(RECORD, source="Qwen/Small")})
        file.write_text(changed(SWITCH, *sound(role)[0]))
        return load(file)

    def plan(self, role: str, answers: Answers) -> Plan:
        """What is planned for a role. Nothing may have been sent."""
        with prepared(self.for_plans(role), {"spark1": answers}, Selection(("spark1",), frozenset({role}))) as session:
            made = evaluate(session, FILE)
        assert answers.sent == []
        assert "cannot be evaluated" not in made.model_dump_json(), (
            "reported by an exception that the code does not expect"
        )
        return made

    def stopped(self, role: str, kind: str, key: str = "", fault: Any = None, **broken: Any) -> str:
        """Make a run of this kind, which must stop before it sends anything; return what was reported."""
        if kind == "plan":
            made = self.plan(role, Answers({**sound(role)[1], **({key: fault} if key else {})}, **broken))
            assert made.code == 1, f"believed: {made.hosts[0]}"
            assert reasons(made)
            return "\n".join(reasons(made))
        answers = Answers({**different(role, key), **({key: fault} if key else {})}, **broken)
        rack = self.for_runs(role)
        ended = run({"spark1": {"rack": rack, "node": rack.nodes["spark1"], "answers": answers}}, DEPLOYS[role], kind)
        assert ended.failed == ["spark1"], ended.reported
        assert answers.sent == [], answers.sent
        assert "Traceback" not in ended.log
        return ended.log


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Racks:
    return Racks(tmp_path_factory)


def reasons(made: Plan) -> list[str]:
    return [reported.message for _, reported in made.hosts[0].events(EventKind.UNKNOWN, EventKind.REFUSED)]


@pytest.mark.parametrize("role", ROLES)
def test_a_plan_of_the_sound_node_ends_without_an_error(role: str, racks: Racks) -> None:
    """Else the plans below would prove nothing."""
    made = racks.plan(role, Answers(sound(role)[1]))
    assert made.code in (0, 2), made


@pytest.mark.parametrize(("role", "key", "asked"), CELLS)
def test_a_fact_that_is_unknown_stops_the_host(role: str, key: str, asked: list[tuple[str, str]], racks: Racks) -> None:
    for fault, kind in asked:
        with named(f"{fault}, {kind}"):
            if fault in HARMLESS.get(key, ((), ""))[0]:
                made = racks.plan(role, Answers({**sound(role)[1], key: FAULTS[fault]}))
                assert made.code in (0, 2), f"no longer believed; take it out of HARMLESS: {reasons(made)}"
            elif fault in UNREADABLE and kind != "plan":
                assert key in racks.stopped(role, kind, key, FAULTS[fault])
            else:
                racks.stopped(role, kind, key, FAULTS[fault])


@pytest.mark.parametrize(("role", "kind"), crossed(ROLES, KINDS))
def test_an_answer_that_ends_too_early_stops_the_host(role: str, kind: str, racks: Racks) -> None:
    for lines in (0, 1):
        with named(f"{lines} lines"):
            assert "ends too early" in racks.stopped(role, kind, cut=lines)


@pytest.mark.parametrize(("role", "kind"), crossed(ROLES, KINDS))
def test_a_probe_that_fails_stops_the_host(role: str, kind: str, racks: Racks) -> None:
    for complaint in ("sudo: a password is required", "sh: 1: sudo: not found", "Permission denied", ""):
        with named(complaint):
            assert f"state of the node: {complaint}" in racks.stopped(role, kind, probe_fails=complaint)


@pytest.mark.parametrize(("role", "mode"), crossed(ROLES, MODES))
def test_a_connection_that_is_lost_stops_the_host(role: str, mode: str, racks: Racks) -> None:
    for error in ERRORS:
        with named(repr(error)):
            assert (str(error) or "sudo wants a password") in racks.stopped(role, mode, probe_raises=error)
            made = racks.plan(role, Answers(sound(role)[1], probe_raises=error))
            assert (made.code, made.hosts[0].state) == (1, HostState.UNKNOWN)
            assert (str(error) or "sudo wants a password") in reasons(made)[0]


@pytest.mark.parametrize("error", [TimeoutError("timed out"), None], ids=["no answer", "half an answer"])
def test_a_reading_that_failed_is_not_tried_again(error: Exception | None, racks: Racks) -> None:
    """All operations of all roles ask, and each would wait as long."""
    answers = Answers(sound("memory")[1], probe_raises=error, cut=1)
    assert racks.plan("memory", answers).code == 1
    assert answers.probes == 1


@pytest.mark.parametrize("mode", MODES)
def test_other_hosts_go_on(mode: str) -> None:
    rack = rack_of({})
    bad, good = Answers({**different("memory"), "/etc/fstab": {"garbled": "%"}}), Answers(different("memory"))
    hosts = {
        name: {"rack": rack, "node": rack.nodes[name], "answers": answers}
        for name, answers in {"spark1": bad, "spark2": good}.items()
    }
    ended = run(hosts, DEPLOYS["memory"], mode)
    assert ended.failed == ["spark1"], ended.reported
    assert bad.sent == []
    assert len(good.sent) == (0 if mode == "dry" else 3)


def test_every_harmless_answer_is_one_to_a_question() -> None:
    assert HARMLESS.keys() <= {key for _, key in FACTS}
