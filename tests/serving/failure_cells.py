"""The failures of a served unit, each with what must notice it, how it must end, and within which time."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from lab import namespace
from tests.serving.serving_rack import COORDINATOR_PORT, ServingNode, ServingRack, freeze

TIMES: Mapping[str, float] = {"ask": 2.0, "lease": 10.0, "probe_interval": 15.0, "probe_limit": 20.0, "evidence": 3.0}
"""ask, lease and evidence are the defaults of a unit file; the probe has the times of the prototype, whose figures are
limits."""
ENGINE_STOP = 3.5
"""Seconds from TERM to the end of a stand-in that must be killed; others take 0.5. Real engines: up to 60."""
ENDED, LOST, STUCK = 3.0, 10.0, 70.0
"""Limits in seconds: to notice the end of a process, a lost machine or coordinator, and a unit that is stuck."""
REFUSED, SOCKETS = 12.0, 24.0
"""Limits in seconds: to refuse a start for its answers, and for ranks that do not use RDMA. Each is tried twice, and
two reports of each rank, 2 s apart, have to follow a completion before its bytes are known."""
LONG = 5 * STUCK
"""Seconds for which a unit has what looks like a hang: 5 times its limit, as 15 minutes are of the default one."""
DOCKER_STOP = 12.0
"""Seconds from the order to stop to the end of a rank whose docker does not answer: its client has 3 s to stop the
container and 3 s to end, and the agent looks every 2 s."""
FABRIC_PORT = 29501


@dataclass(frozen=True)
class Cell:
    """One failure.

    `inject` brings it about. `detector`: how the reason begins that is reported first, as a regular expression with
    times of the unit in braces; empty where the failure must end nothing. `end`: the state afterwards and what its
    reason has. `noticed` and `gone`: the limits, in seconds from the injection to the first report, and to the end of
    every rank. `repair` follows once all ranks have ended, or `lasts` seconds after a failure that ends none. `when`:
    the state of the unit; with `down` the failure is there before its start, and seconds count from the start of the
    last rank. `load`: clients send requests. `clock`: the clocks of coordinator and agents can be set.
    `docker`: docker runs the ranks. `rdma`: the ranks must use RDMA. The seconds are those of a unit with TIMES.
    """

    name: str
    event: str
    inject: Callable[[ServingRack], object]
    detector: str
    end: tuple[str, str]
    noticed: float = ENDED
    gone: float | None = None
    repair: Callable[[ServingRack], object] | None = None
    load: bool = False
    lasts: float = 0.0
    when: Literal["down", "gating", "starting", "ready"] = "ready"
    clock: bool = False
    docker: bool = False
    rdma: bool = False

    @property
    def gone_limit(self) -> float:
        """The seconds within which every rank has ended."""
        return self.noticed + 3.0 if self.gone is None else self.gone


def kill(*pids: int) -> None:
    assert pids, "nothing to kill"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _worker_node(rack: ServingRack) -> ServingNode:
    return rack.nodes[1]


def _plug_cable(connected: bool) -> Callable[[ServingRack], None]:
    return lambda rack: _worker_node(rack).plug(connected)


def _drop_packets(node: ServingNode, *packets: str) -> None:
    """Lose these arriving packets, which no process is reported. The rule is asked before that for local addresses."""
    ip = namespace.ip
    rules = namespace.ip("rule", "show", namespace=node.namespace)
    if "100:\tfrom all lookup local" not in rules:
        ip("rule", "add", "pref", "100", "table", "local", namespace=node.namespace)
        ip("rule", "delete", "pref", "0", namespace=node.namespace)
    ip("rule", "add", "pref", "10", "iif", "eth0", *packets, "blackhole", namespace=node.namespace)


def _let_through(node: ServingNode) -> None:
    while "10:\t" in namespace.ip("rule", "show", namespace=node.namespace):
        namespace.ip("rule", "delete", "pref", "10", namespace=node.namespace)


def _one_direction(rack: ServingRack) -> None:
    head, worker = rack.nodes[:2]
    _drop_packets(head, "from", worker.address)


def _one_half(rack: ServingRack) -> None:
    """Lose the ranks' packets and not those of coordinator and agents, as when these use the other half of the port."""
    for node in rack.nodes:
        for end in ("sport", "dport"):
            _drop_packets(node, "ipproto", "tcp", end, str(FABRIC_PORT))


def _halves_back(rack: ServingRack) -> None:
    for node in rack.nodes:
        _let_through(node)


def _boot_node(number: int) -> Callable[[ServingRack], None]:
    def boot(rack: ServingRack) -> None:
        rack.nodes[number].plug(True)
        rack.nodes[number].boot()

    return boot


def _remove_coordinator(rack: ServingRack) -> None:
    """End the coordinator, and what would start it again."""
    head = rack.nodes[0]
    assert head.coordinator
    head.coordinator.kill()
    head.coordinator.wait()
    kill(head.main_process("coordinator"))


def _lose_state(rack: ServingRack) -> None:
    _remove_coordinator(rack)
    (rack.nodes[0].folder / "state/toy.json").unlink()
    rack.nodes[0].start_coordinator()


def _other_secret(rack: ServingRack) -> None:
    _remove_coordinator(rack)
    (rack.nodes[0].folder / "etc/unit.secret").write_text("1f" * 32)
    rack.nodes[0].start_coordinator()


def _right_secret(rack: ServingRack) -> None:
    _remove_coordinator(rack)
    secret = (_worker_node(rack).folder / "etc/unit.secret").read_text()
    (rack.nodes[0].folder / "etc/unit.secret").write_text(secret)
    rack.nodes[0].start_coordinator()


def _write_guard_line(rack: ServingRack) -> None:
    text = "9 KiB of memory are available, less than the floor of 10 KiB: ended every container"
    _worker_node(rack).kernel_log.write_text(f"sparkrack-memory-guard: {text}\n")
    _worker_node(rack).systemctl("kill")


def _key_file(mode: int | None) -> Callable[[ServingRack], None]:
    """The key that the coordinator sends: away, or with this mode."""

    def change(rack: ServingRack) -> None:
        file = rack.nodes[0].folder / "etc/unit.key"
        if mode is None:
            file.rename(file.with_suffix(".away"))
        else:
            if file.with_suffix(".away").exists():
                file.with_suffix(".away").rename(file)
            file.chmod(mode)

    return change


def _queue_full(rack: ServingRack) -> None:
    (rack.nodes[0].folder / "faults/new").write_text("503")
    (rack.nodes[0].folder / "faults/new").rename(rack.nodes[0].folder / "faults/status")


def _answer_garbage(text: str) -> Callable[[ServingRack], object]:
    return lambda rack: (rack.nodes[0].folder / "faults/garbage").write_text(text)


def _use_sockets(rack: ServingRack) -> None:
    for node in rack.nodes:
        node.fault("sockets")


def _killed_with_clocks_set(seconds: int) -> Callable[[ServingRack], None]:
    def shift_and_kill(rack: ServingRack) -> None:
        _shift_clock(seconds)(rack)
        kill(*_worker_node(rack).processes())

    return shift_and_kill


def _shift_clock(seconds: int) -> Callable[[ServingRack], None]:
    def shift(rack: ServingRack) -> None:
        for node in rack.nodes:
            assert node.clock_error
            node.clock_error.with_suffix(".new").write_text(str(seconds))
            node.clock_error.with_suffix(".new").replace(node.clock_error)

    return shift


_UNPROVEN = """
import socket, sys, time
held, end = [], time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    try:
        held.append(socket.create_connection((sys.argv[2], int(sys.argv[3])), 5))
    except OSError:
        pass
    del held[:-200]
"""
"""Opens connections to the coordinator as fast as it can, says nothing, and holds the last 200 of them."""


def _unproven_connections(rack: ServingRack) -> None:
    _worker_node(rack).spawn("-c", _UNPROVEN, f"{25 * rack.pace:g}", rack.nodes[0].address, str(COORDINATOR_PORT))


def _pid_of_docker(rack: ServingRack) -> int:
    found = _worker_node(rack).docker
    assert found
    return found.pid


def _stop_without_docker(rack: ServingRack) -> None:
    freeze(_pid_of_docker(rack))
    assert rack.ask_coordinator("down").returncode == 0


def _hang_docker(hangs: bool) -> Callable[[ServingRack], None]:
    def hang(rack: ServingRack) -> None:
        file = _worker_node(rack).folder / "service/hangs"
        if hangs:
            file.touch()
            kill(*rack.nodes[0].processes())
        else:
            file.unlink()

    return hang


RANK, HEAD = r"spark2 \(rank 1\) ", r"spark1 \(rank 0\) "
EITHER = r"spark[12] \(rank [01]\) "
WITHOUT_ASKING = "ended without being asked to: exit code "
NO_REPORT = r"no report from spark2 \(rank 1\) for {lease:g} s"
NO_ANSWER = "no answer of the coordinator for {lease:g} s"
MISSES = "2 completions in a row failed and no counter rose: "
AGAIN = ("ready", "restart counted")
UNDISTURBED = ("ready", "the same ranks")
UNPLANNED = ("held", "ended without a clean shutdown while the unit ran")
NEVER_READY = ("held", "not restarted: it was never ready")
GARBAGE = (
    ("empty", "empty texts", "", "it is empty"),
    ("character", "one character without end", "!!!!!!!!", "it repeats '!' without end"),
    ("word", "one word without end", "lockhandlehandlehandlehandle", "it repeats 'hand' without end"),
    ("bytes", "bytes that are not text", "4 \ufffd\ufffd\ufffd", "it has replacement characters"),
    ("control", "characters that are not text", "4\x00\x01", "it has characters that are not text"),
    ("answer", "another answer", "5", "expected '4' at its beginning"),
)
"""Forms of garbage: a name, what the unit answers, the text of each answer, and the reason against it."""

CELLS = (
    Cell(
        "gate-fails",
        "the gate of one node fails",
        lambda rack: _worker_node(rack).gate_reason.write_text("12 GiB are available, 103 GiB are needed\n"),
        r"gate of spark2 \(rank 1\): 12 GiB are available",
        ("held", "gate of spark2"),
        noticed=2 * ENDED,
        when="gating",
    ),
    Cell(
        "rank-killed-starting",
        "processes of a rank killed while it starts",
        lambda rack: kill(*_worker_node(rack).processes()),
        f"{RANK}{WITHOUT_ASKING}137",
        NEVER_READY,
        when="starting",
    ),
    Cell(
        "rank-killed-idle",
        "processes of a rank killed, idle",
        lambda rack: kill(*_worker_node(rack).processes()),
        f"{RANK}{WITHOUT_ASKING}137",
        AGAIN,
    ),
    Cell(
        "rank-killed-load",
        "processes of a rank killed under load",
        lambda rack: kill(*_worker_node(rack).processes()),
        f"{EITHER}{WITHOUT_ASKING}",
        AGAIN,
        load=True,
    ),
    Cell(
        "worker-killed-idle",
        "worker process of a rank killed, idle: exit code 0 after 1 s",
        lambda rack: kill(*_worker_node(rack).workers()),
        f"{RANK}{WITHOUT_ASKING}0",
        AGAIN,
        noticed=ENDED + 1,
    ),
    Cell(
        "head-killed",
        "processes of the head's rank killed",
        lambda rack: kill(*rack.nodes[0].processes()),
        f"{HEAD}{WITHOUT_ASKING}137",
        AGAIN,
    ),
    Cell(
        "head-worker-killed",
        "worker process of the head's rank killed: exit code 0 after 1 s",
        lambda rack: kill(*rack.nodes[0].workers()),
        f"{HEAD}{WITHOUT_ASKING}0",
        AGAIN,
        noticed=ENDED + 1,
    ),
    Cell(
        "stopped-by-hand",
        "service of a rank stopped by hand",
        lambda rack: _worker_node(rack).systemctl("stop", "sparkrack-serve-toy.service"),
        f"{RANK}(stopped: .* not by its agent|{WITHOUT_ASKING}0)",
        AGAIN,
    ),
    Cell(
        "guard",
        "memory guard ends a rank",
        _write_guard_line,
        f"{RANK}{WITHOUT_ASKING}137",
        ("held", "not restarted: spark2: the kernel logged: sparkrack-memory-guard"),
    ),
    Cell(
        "rank-frozen-idle",
        "rank frozen (SIGSTOP), idle",
        lambda rack: freeze(*_worker_node(rack).processes()),
        f"{MISSES}no answer within {{probe_limit:g}} s",
        AGAIN,
        noticed=STUCK,
        gone=STUCK + 2 + TIMES["evidence"] + ENGINE_STOP,
    ),
    Cell(
        "rank-frozen-load",
        "rank frozen (SIGSTOP) under load",
        lambda rack: freeze(*_worker_node(rack).processes()),
        f"{MISSES}no answer within {{probe_limit:g}} s",
        AGAIN,
        noticed=STUCK,
        gone=STUCK + 2 + TIMES["evidence"] + ENGINE_STOP,
        load=True,
    ),
    Cell(
        "livelock-load",
        "livelock under load: no counter rises, `/health` 200",
        lambda rack: rack.nodes[0].fault("livelock"),
        f"{MISSES}no answer within {{probe_limit:g}} s",
        AGAIN,
        noticed=STUCK,
        repair=lambda rack: rack.nodes[0].fault("livelock", False),
        load=True,
    ),
    Cell(
        "wrong-answers",
        "completions give another answer",
        lambda rack: rack.nodes[0].fault("wrong"),
        f"{MISSES}the answer is '\\?!', expected '4'",
        AGAIN,
        noticed=STUCK,
        repair=lambda rack: rack.nodes[0].fault("wrong", False),
    ),
    *(
        Cell(
            f"garbage-{form}",
            f"a unit that starts answers with {what}",
            _answer_garbage(text),
            re.escape(f"the answer is {text!r}, {reason}"),
            NEVER_READY,
            noticed=REFUSED,
            when="down",
        )
        for form, what, text, reason in GARBAGE
    ),
    Cell(
        "sockets",
        "the ranks of a unit that starts talk over sockets and not by RDMA",
        _use_sockets,
        r"the ranks do not use RDMA: spark1: rocep1s0f1 moved 0 bytes .* \(NCCL says: Using network Socket\)",
        NEVER_READY,
        noticed=SOCKETS,
        when="down",
        rdma=True,
    ),
    Cell(
        "path-stuck-idle",
        "completions hang, other paths answer, idle",
        lambda rack: rack.nodes[0].fault("completions"),
        f"{MISSES}no answer within {{probe_limit:g}} s",
        AGAIN,
        noticed=STUCK,
        repair=lambda rack: rack.nodes[0].fault("completions", False),
    ),
    Cell(
        "path-stuck-load",
        "completions hang, chat answers under load, so that counters rise",
        lambda rack: rack.nodes[0].fault("completions"),
        "",
        UNDISTURBED,
        lasts=45.0,
        repair=lambda rack: rack.nodes[0].fault("completions", False),
        load=True,
    ),
    Cell(
        "machine-gone",
        "machine of a rank loses its power, boots later",
        lambda rack: _worker_node(rack).kill(),
        NO_REPORT,
        UNPLANNED,
        noticed=LOST + 0.5,
        repair=_boot_node(1),
    ),
    Cell(
        "head-machine-gone",
        "machine of the head loses its power, boots later",
        lambda rack: rack.nodes[0].kill(),
        NO_ANSWER,
        UNPLANNED,
        noticed=LOST + 0.5,
        repair=_boot_node(0),
    ),
    Cell("link-flaps", "link cut for 5 s", _plug_cable(False), "", UNDISTURBED, lasts=5.0, repair=_plug_cable(True)),
    Cell(
        "link-cut-back",
        "link cut, back once all ranks have ended",
        _plug_cable(False),
        f"{NO_REPORT}|{NO_ANSWER}",
        AGAIN,
        noticed=LOST + 0.5,
        repair=_plug_cable(True),
    ),
    Cell(
        "link-cut",
        "link cut for good",
        _plug_cable(False),
        f"{NO_REPORT}|{NO_ANSWER}",
        ("stopping", "spark2 is not known to be stopped"),
        noticed=LOST + 0.5,
    ),
    Cell(
        "link-one-direction",
        "one direction of a link lost: the head receives nothing",
        _one_direction,
        f"{NO_REPORT}|{NO_ANSWER}",
        AGAIN,
        noticed=LOST + 0.5,
        repair=lambda rack: _let_through(rack.nodes[0]),
    ),
    Cell(
        "link-one-half",
        "one half of a link lost: that of the ranks, not that of the coordinator",
        _one_half,
        f"{MISSES}no answer within {{probe_limit:g}} s",
        AGAIN,
        noticed=STUCK,
        gone=STUCK + 2 + ENGINE_STOP,
        repair=_halves_back,
    ),
    Cell(
        "coordinator-killed",
        "coordinator killed; systemd starts it again after 2 s",
        lambda rack: kill(rack.nodes[0].main_process("coordinator")),
        "",
        UNDISTURBED,
    ),
    Cell(
        "coordinator-gone",
        "coordinator killed, does not start again until all ranks have ended",
        _remove_coordinator,
        NO_ANSWER,
        AGAIN,
        noticed=LOST + 0.5,
        repair=lambda rack: rack.nodes[0].start_coordinator(),
    ),
    Cell(
        "coordinator-frozen",
        "coordinator frozen (SIGSTOP)",
        lambda rack: freeze(rack.nodes[0].main_process("coordinator")),
        NO_ANSWER,
        AGAIN,
        noticed=LOST + 0.5,
    ),
    Cell(
        "coordinator-state-lost",
        "coordinator killed, and its state lost",
        _lose_state,
        "the coordinator ordered it",
        ("down", "never started"),
    ),
    Cell(
        "other-secret",
        "coordinator started again with another secret",
        _other_secret,
        NO_ANSWER,
        AGAIN,
        noticed=LOST + 0.5,
        repair=_right_secret,
    ),
    Cell(
        "agent-killed",
        "agent killed; systemd ends its rank and starts it again after 2 s",
        lambda rack: kill(_worker_node(rack).main_process("agent")),
        f"{EITHER}(ended without being asked to|stopped)",
        AGAIN,
        noticed=ENDED + 2,
    ),
    Cell(
        "agent-frozen",
        "agent frozen (SIGSTOP)",
        lambda rack: freeze(_worker_node(rack).main_process("agent")),
        NO_REPORT,
        AGAIN,
        noticed=LOST + 0.5,
        gone=30.0 + 3.0,
    ),
    Cell(
        "long-prompt",
        "one prompt is computed for 350 s (15 min with the default times): no counter rises, no completion ends",
        lambda rack: rack.nodes[0].fault("prefill"),
        "",
        UNDISTURBED,
        lasts=LONG,
        repair=lambda rack: rack.nodes[0].fault("prefill", False),
    ),
    Cell(
        "queue-full",
        "503 to every completion for 350 s: the queue is full",
        _queue_full,
        "",
        UNDISTURBED,
        lasts=LONG,
        repair=lambda rack: rack.nodes[0].fault("status", False),
    ),
    Cell(
        "key-file-gone",
        "the file with the API key is gone for 350 s",
        _key_file(None),
        "",
        UNDISTURBED,
        lasts=LONG,
        repair=_key_file(0o600),
    ),
    Cell(
        "key-file-open",
        "the file with the API key has mode 644 for 350 s",
        _key_file(0o644),
        "",
        UNDISTURBED,
        lasts=LONG,
        repair=_key_file(0o600),
    ),
    Cell(
        "clock-forward-killed",
        "clocks set forward by a day, then processes of a rank killed",
        _killed_with_clocks_set(86400),
        f"{RANK}{WITHOUT_ASKING}137",
        AGAIN,
        clock=True,
    ),
    Cell(
        "clock-back-killed",
        "clocks set back by a day, then processes of a rank killed",
        _killed_with_clocks_set(-86400),
        f"{RANK}{WITHOUT_ASKING}137",
        AGAIN,
        clock=True,
    ),
    Cell(
        "unproven-connections",
        "a process of a rank's node opens connections to the coordinator without a proof, as fast as it can",
        _unproven_connections,
        "",
        UNDISTURBED,
        lasts=25.0,
    ),
    Cell(
        "docker-stopped",
        "docker of one node stopped (SIGSTOP), then the unit is asked to stop",
        _stop_without_docker,
        "asked to stop",
        ("down", "asked to stop"),
        gone=ENDED + DOCKER_STOP,
        repair=lambda rack: freeze(_pid_of_docker(rack), thaw=True),
        docker=True,
    ),
    Cell(
        "docker-hangs",
        "docker of one node gives no answer, then a rank of another node ends",
        _hang_docker(True),
        f"{HEAD}{WITHOUT_ASKING}137",
        AGAIN,
        gone=ENDED + DOCKER_STOP,
        repair=_hang_docker(False),
        docker=True,
    ),
    Cell(
        "docker-killed",
        "docker of one node killed, comes back once all ranks have ended",
        lambda rack: kill(_pid_of_docker(rack)),
        f"{RANK}{WITHOUT_ASKING}125, result exit-code: docker .* or ended while it ran; .*; left of the rank: ",
        AGAIN,
        repair=lambda rack: _worker_node(rack).start_docker(),
        docker=True,
    ),
    Cell("clock-forward", "clocks set forward by a day", _shift_clock(86400), "", UNDISTURBED, clock=True),
    Cell("clock-back", "clocks set back by a day", _shift_clock(-86400), "", UNDISTURBED, clock=True),
)
REAL: Mapping[str, str] = {
    "rank-killed-starting": "vLLM 0.9 / 4.0",
    "head-worker-killed": "vLLM, idle 5.4 / 17.4",
    "head-killed": "vLLM 0.8 / 14.0",
    "head-machine-gone": "vLLM lease / 17.9",
    "link-cut-back": "vLLM 9.2, 9.6 / 25.4, 19.9; Ray 9.7 / 41.0",
    "rank-frozen-idle": "vLLM 55.0, 55.2 / 118, 119 (KILL after 60 s)",
    "worker-killed-idle": "Ray, actor 6.8 / 39.9, before `drain` was 0",
    "rank-killed-idle": "Ray, raylet 1.0 / 10.0",
    "coordinator-state-lost": "vLLM, stale rank - / 9.1",
}
"""Seconds until noticed / gone with vLLM 0.32.0 on CPUs, and with Ray 2.60.0: one run for each pair of figures."""
