"""RDMA in use: the counters of a node, NCCL's line in the journal, and what follows from both for a start."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.serving.serve_modules import (
    serve_answers,
    serve_coordinator,
    serve_lifecycle,
    serve_probe,
    serve_rdma,
    serve_unit,
)
from tests.serving.test_unit_file import MINIMAL, written

SOCKET = "host1:101:101 [0] NCCL INFO Using network Socket\n"
"""From the log of NCCL 2.28.9 with NCCL_IB_DISABLE=1."""


def device(folder: Path, name: str, sent: object = 7, received: object = 3) -> None:
    counters = folder / name / "ports/1/counters"
    counters.mkdir(parents=True, exist_ok=True)
    (counters / "port_xmit_data").write_text(f"{sent}\n")
    (counters / "port_rcv_data").write_text(f"{received}\n")


@pytest.mark.parametrize("names", ["=rocep1s0f1,roceP2p1s0f1", "rocep1s0f1,roceP2p1s0f1"])
def test_the_devices_of_nccl_are_read_in_bytes(tmp_path: Path, names: str) -> None:
    fabric = tmp_path / "fabric.env"
    fabric.write_text(f"# made\nMASTER_ADDR=10.0.0.1\nNCCL_IB_HCA={names}\nNCCL_IB_TC=106\n")
    device(tmp_path, "rocep1s0f1")
    device(tmp_path, "rocep1s0f0", 100)
    assert serve_rdma.counters(str(fabric), str(tmp_path)) == {"rocep1s0f1": 40, "roceP2p1s0f1": None}


@pytest.mark.parametrize("text", ["", "NCCL_IB_HCA=\n", "NCCL_IB_HCA=^x\n", "NCCL_IB_HCA==../../etc\n"])
def test_no_device_is_read_where_none_is_named(tmp_path: Path, text: str) -> None:
    fabric = tmp_path / "fabric.env"
    assert serve_rdma.counters(str(fabric), str(tmp_path)) == {}
    fabric.write_text(text)
    assert serve_rdma.counters(str(fabric), str(tmp_path)) == {}


def test_a_counter_that_is_not_a_number_is_unknown(tmp_path: Path) -> None:
    fabric = tmp_path / "fabric.env"
    fabric.write_text("NCCL_IB_HCA==a\n")
    device(tmp_path, "a", "x")
    assert serve_rdma.counters(str(fabric), str(tmp_path)) == {"a": None}


@pytest.mark.parametrize(
    ("log", "network"),
    [
        (SOCKET, "Socket"),
        ("(RayWorkerWrapper pid=7) host1:1:1 [0] NCCL INFO Using network IB\n" * 2, "IB"),
        (SOCKET + SOCKET.replace("Socket", "IB"), "IB, Socket"),
        ("host1:101:101 [0] NCCL INFO NET/Socket : Using [0]lo:127.0.0.1<0>\n", "none"),
        ("", "none"),
    ],
)
def test_the_network_of_nccl_is_read_from_the_journal(tmp_path: Path, log: str, network: str) -> None:
    (tmp_path / "log").write_text(log)
    program = ["sh", "-c", f'echo "$*" > {tmp_path}/asked; cat {tmp_path}/log', "journalctl"]
    assert serve_rdma.network(program, "sparkrack-serve-qwen.service", "0a" * 16, 60.0) == network
    asked = "--output=cat --no-pager --quiet --grep=NCCL INFO Using network _SYSTEMD_UNIT=sparkrack-serve-qwen.service"
    assert (tmp_path / "asked").read_text() == f"{asked} _SYSTEMD_INVOCATION_ID={'0a' * 16}\n"
    serve_rdma.network(program, "sparkrack-serve-qwen.service", "", 60.0)
    assert (tmp_path / "asked").read_text() == f"{asked}\n"


def test_a_journal_that_does_not_answer_is_not_a_word_of_nccl(tmp_path: Path) -> None:
    assert serve_rdma.network([str(tmp_path / "absent")], "x", "", 60.0) == "none"
    assert serve_rdma.network(["sleep", "60", "#"], "x", "", 0.1) == "none"


@pytest.mark.parametrize(
    "value", [None, [], {"a/b": 1}, {"a": True}, {"a": "1"}, {"": 1}, {f"d{n}": 1 for n in range(17)}]
)
def test_a_report_with_wrong_counters_is_refused(value: object) -> None:
    with pytest.raises(serve_unit.ServeError, match="no valid counters of RDMA"):
        serve_rdma.reported(value)


def test_a_report_with_as_many_devices_as_a_node_may_have_is_taken() -> None:
    counters = {f"d{number}": number for number in range(15)} | {f"_{'x' * 63}": None}
    assert serve_rdma.reported(counters) == counters
    with pytest.raises(serve_unit.ServeError, match="no valid counters of RDMA"):
        serve_rdma.reported({"x" * 65: 1})


def test_only_as_many_devices_as_a_report_may_have_are_read(tmp_path: Path) -> None:
    fabric = tmp_path / "fabric.env"
    fabric.write_text(f"NCCL_IB_HCA={','.join(f'd{number}' for number in range(20))}\n")
    assert list(serve_rdma.counters(str(fabric), str(tmp_path))) == [f"d{number}" for number in range(16)]


@pytest.mark.parametrize(
    ("before", "after", "network", "reason"),
    [
        ({"a": 5}, {"a": 6}, "", ""),
        ({"a": 5}, {"a": 6}, "IB", ""),
        ({"a": 5}, {"a": 6}, "NVLS Socket", ""),
        ({"a": None, "b": 5}, {"a": None, "b": 6}, "", ""),
        ({"a": 5}, {"a": 5}, "none", "spark1: a moved 0 bytes during a request"),
        ({"a": 5}, {"a": 3}, "", "spark1: a moved 0 bytes during a request"),  # counters that began again
        ({"a": 5}, {"a": 0}, "", "spark1: a moved 0 bytes during a request"),
        ({"a": 0}, {"a": 0}, "IB", "spark1: a moved 0 bytes during a request (NCCL says: Using network IB)"),
        ({"a": 0}, {"a": 4}, "IB, Socket", "spark1: NCCL says: Using network IB, Socket"),
        ({}, {"a": 5}, "", "spark1: the counters of a cannot be read"),
        ({"a": 5}, {"a": None}, "IB", "spark1: the counters of a cannot be read (NCCL says: Using network IB)"),
        ({"a": 5, "b": 1}, {"a": None, "b": 1}, "", "spark1: the counters of a cannot be read"),
        ({"a": None, "b": 1}, {"a": 5, "b": None}, "", "spark1: the counters of a, b cannot be read"),
        ({"a": 5}, {}, "", "spark1 has no device in NCCL_IB_HCA of /etc/sparkrack/fabric.env"),
    ],
)
def test_a_rank_uses_rdma_only_if_one_of_its_devices_moved_bytes(
    before: dict[str, int | None], after: dict[str, int | None], network: str, reason: str
) -> None:
    rank = serve_unit.ServedRank(0, "spark1", "10.0.0.1")
    report = SimpleNamespace(rdma=after, network=network, beside=())
    found = serve_rdma.fault([rank], {0: before}, {0: report})
    assert found == (f"the ranks do not use RDMA: {reason}" if reason else "")


def test_a_rank_that_had_not_reported_before_the_completion_proves_nothing() -> None:
    rank = serve_unit.ServedRank(0, "spark1", "10.0.0.1")
    found = serve_rdma.fault([rank], {}, {0: SimpleNamespace(rdma={"a": 7}, network="", beside=())})
    assert found == "the ranks do not use RDMA: spark1: the counters of a cannot be read"


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        ("IB", ""),
        ("IBext_v10", ""),
        *(
            (
                network,
                (
                    "the ranks do not use RDMA: spark1: bytes moved, which may be those of unit glm there, and NCCL "
                    "does not say which network it uses"
                ),
            )
            for network in ("", "none")
        ),
        ("Socket", "the ranks do not use RDMA: spark1: NCCL says: Using network Socket"),
    ],
)
def test_bytes_beside_another_unit_prove_nothing_without_the_word_of_nccl(network: str, reason: str) -> None:
    rank = serve_unit.ServedRank(0, "spark1", "10.0.0.1")
    report = SimpleNamespace(rdma={"a": 6}, network=network, beside=("glm",))
    assert serve_rdma.fault([rank], {0: {"a": 5}}, {0: report}) == reason
    assert "unit glm says that it uses RDMA" in serve_rdma.proven({0: report})


@pytest.mark.parametrize("value", [None, "glm", [1], {"glm": 1}])
def test_a_report_with_wrong_other_units_is_refused(value: object) -> None:
    with pytest.raises(serve_unit.ServeError, match="no valid beside"):
        serve_lifecycle._check_unit_names(value)


class StartOverRdma:
    """A unit of two ranks whose completion moves what `moves` has for each rank, in the coordinator's own prober."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        times = {"times": {"ask": 0.02, "lease": 60.0}, "probe": {"kind": "completion"}}
        self.unit = serve_unit.load_unit(written(folder, MINIMAL | times))
        self.counters: list[dict[str, int | None]] = [{"a": 100, "b": 0}, {"a": 5, "b": 0}]
        self.moves: list[dict[str, int]] = [{"a": 10}, {"b": 4}]
        self.network = ["none", "none"]
        self.asked: list[object] = []
        patch.setattr(serve_probe, "prove", lambda *_, **_also: self.complete())

    def complete(self) -> int:
        for counters, moves in zip(self.counters, self.moves, strict=True):
            for name, moved in moves.items():
                counters[name] = (counters[name] or 0) + moved
        return 0

    def run(self, rdma: str) -> Any:
        """Return the record after a start, which two tries may end."""
        record = serve_lifecycle.UnitRecord(
            "qwen", desired_state="up", state="starting", generation=1, boots=["b", "b"]
        )
        now = time.monotonic
        lifecycle = serve_lifecycle.UnitLifecycle(
            replace(self.unit, rdma=rdma), record, lambda _: None, now(), lambda: 1000.0
        )
        lock, over = threading.Lock(), threading.Event()
        prober = serve_coordinator.Prober(lifecycle.unit, lifecycle, lock)

        def report() -> None:
            witnessed = [False, False]
            while not over.wait(0.005):
                for rank in (0, 1):
                    found = serve_lifecycle.AgentReport(
                        *("running", 1, "b", True, False, "", None, now(), serve_lifecycle.ClockSkew(0, 0), "", ""),
                        rdma=dict(self.counters[rank]),
                        network=self.network[rank] if witnessed[rank] else "",
                    )
                    with lock:
                        answer = lifecycle.reported(rank, found)
                    self.asked.append(answer.get("witness"))
                    witnessed[rank] = witnessed[rank] or answer.get("witness") is True

        for rank in (0, 1):
            lifecycle.reported(
                rank,
                serve_lifecycle.AgentReport(
                    *("running", 1, "b", True, False, "", None, now(), serve_lifecycle.ClockSkew(0, 0), "", ""),
                    rdma=dict(self.counters[rank]),
                ),
            )
        thread = threading.Thread(target=report)
        thread.start()
        try:
            prober._prove_start(1)
            if record.state == "starting":
                prober._prove_start(1)
        finally:
            over.set()
            thread.join()
        return record


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StartOverRdma:
    return StartOverRdma(tmp_path, monkeypatch)


def test_a_start_whose_ranks_all_move_bytes_says_so(start: StartOverRdma) -> None:
    record = start.run("required")
    assert (record.state, record.remark) == ("ready", "")
    assert record.reason == "a completion gave the known answer, each rank moved bytes by RDMA"
    assert True in start.asked, "no agent was asked what NCCL says"


def test_a_start_of_which_one_rank_moves_nothing_is_ended_with_the_reason(start: StartOverRdma) -> None:
    start.moves[1] = {}
    start.network[1] = "Socket"
    record = start.run("required")
    assert (record.state, record.cause) == ("stopping", "failed")
    assert record.reason == (
        "the ranks do not use RDMA: spark2: a, b moved 0 bytes during a request (NCCL says: Using network Socket)"
    )


def test_bytes_of_another_program_do_not_hide_that_nccl_uses_sockets(start: StartOverRdma) -> None:
    start.network = ["IB", "IB, Socket"]
    assert start.run("required").reason == "the ranks do not use RDMA: spark2: NCCL says: Using network IB, Socket"


def test_counters_that_cannot_be_read_prove_nothing(start: StartOverRdma) -> None:
    start.counters[0], start.moves[0] = {"a": None}, {}
    start.counters[1], start.moves[1] = {}, {}
    assert start.run("required").reason == (
        "the ranks do not use RDMA: spark1: the counters of a cannot be read; "
        "spark2 has no device in NCCL_IB_HCA of /etc/sparkrack/fabric.env"
    )


def test_where_rack_yaml_allows_sockets_they_are_a_remark_that_stays(start: StartOverRdma) -> None:
    start.moves = [{}, {}]
    record = start.run("remark")
    remark = (
        "the ranks do not use RDMA: spark1: a, b moved 0 bytes during a request; spark2: a, b moved 0 bytes "
        "during a request"
    )
    assert (record.state, record.remark) == ("ready", remark)
    assert record.reason == f"a completion gave the known answer; remark: {remark}"


def test_one_rank_is_not_asked_for_rdma(start: StartOverRdma) -> None:
    start.moves = [{}, {}]
    record = start.run("ignored")
    assert (record.state, record.reason) == ("ready", serve_answers.proven_words(start.unit.probe, 0))
    assert True not in start.asked
