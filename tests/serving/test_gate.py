"""The gate of a rank, with stand-ins for the commands and files of a node that pass, fail and do not answer."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.serving.serve_modules import serve_gate_command, serve_start_gate

IMAGE = f"sha256:{'0123456789abcdef' * 4}"
WANTED: dict[str, Any] = {
    "node": "spark1",
    "unit": "qwen",
    "slot": None,
    "guard": "sparkrack-memory-guard.service",
    "image": {"name": "nvcr.io/nvidia/vllm:26.04-py3", "id": IMAGE},
    "container": {
        "name": "sparkrack-qwen-gate",
        "docker": ["--rm", "--name", "sparkrack-qwen-gate", "--gpus", "all", "--entrypoint", "python3"],
        "image": IMAGE,
        "looks": ["program:vllm"],
    },
    "model": {"name": "qwen3", "folder": "/srv/models/qwen3", "files": {"config.json": 7, "sub/part 1.bin": 5}},
    "also": [],
    "files": {},
    "ports": {"8000": "the API of unit qwen"},
    "cache": {"folder": "/var/cache/sparkrack/serve/qwen/0123", "bytes": 4096},
    "gids": "/etc/sparkrack/fabric.env",
    "echoes": [
        {"peer": "spark2", "device": "enp1s0f1np1", "address": "192.168.100.2", "mtu": 9000},
        {"peer": "spark3", "device": "enP2p1s0f1np1", "address": "192.168.101.3", "mtu": 9000},
    ],
    "proof": {
        "secret_file": "/etc/sparkrack/serve/qwen.secret",
        "meeting_port": 18664,
        "options": ["-D", "5"],
        "stale_remedy": "leave the cables, reboot both ends",
        "sends": [
            {
                "peer": "spark2",
                "half": "enp1s0f1np1",
                "device": "rocep1s0f1",
                "address": "192.168.100.1",
                "peer_address": "192.168.100.2",
                "port": 18600,
                "least": 80.0,
                "stale": [8.0, 25.0],
            }
        ],
        "receives": [],
    },
    "time": True,
    "memory": {"share": 0.5, "add": 524288, "floor": 524288},
}
PROVEN = {
    "half": "enp1s0f1np1",
    "peer": "spark2",
    "gbps": 109.2,
    "least": 80.0,
    "measured": "2026-11-23T10:00:00Z",
    "here": {"boot": "b1", "carrier_changes": 3},
    "there": {"boot": "b2", "carrier_changes": 5},
}
PROOF_FILE = "var/lib/sparkrack/serve/rdma/enp1s0f1np1.spark2.json"
TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:72D8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   1: 0100007F:1F40 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 2 1
"""
"""A process listens on 29400, and a connection from 8000 is open."""
GATE_PROGRAMS = "usr/local/lib/sparkrack"
STAND_INS = {
    "systemctl": "echo active",
    "docker": f"case $1 in image) echo {IMAGE} ;; esac",
    "nvidia-smi": "case $1 in *pstate*) echo 'P8, 208, Active' ;; esac",
    "ping": "",
    "timedatectl": "echo yes",
    f"{GATE_PROGRAMS}/gid-index": "echo 3",
    f"{GATE_PROGRAMS}/memory-gate": "",
}
CUDA = f"{GATE_PROGRAMS}/serve/serve_cuda.py"
START_STAND_INS = {
    "journalctl": "exit 1",
    CUDA: """echo '{"driver": 13000, "integrated": 1, "free": 1000000000}'""",
}
"""Commands that are asked together only. journalctl ends with 1 where no line matches."""


class GateNode:
    """A folder that stands for / of a node; its commands write what they were asked to `calls`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls_file = root / "calls"
        for name, text in {**STAND_INS, **START_STAND_INS}.items():
            self.command(name, text)
        for name, file_text in {
            "proc/net/tcp": TCP,
            "proc/net/tcp6": TCP.splitlines(keepends=True)[0],
            "proc/meminfo": ("MemTotal:       1048576 kB\nMemFree:         1000000 kB\nMemAvailable:    1000000 kB\n"),
            "etc/sparkrack/fabric.env": "# comment\nNCCL_IB_HCA==rocep1s0f1,roceP2p1s0f1\nUCX_NET_DEVICES=x:1\n",
            "proc/sys/kernel/random/boot_id": "b1\n",
            "sys/class/net/enp1s0f1np1/carrier_changes": "3\n",
            PROOF_FILE: json.dumps(PROVEN),
            "srv/models/qwen3/config.json": "x" * 7,
            "srv/models/qwen3/sub/part 1.bin": "x" * 5,
        }.items():
            self.file(name, file_text)

    def file(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def command(self, name: str, text: str) -> None:
        name = name if "/" in name else f"bin/{name}"
        self.file(name, f'#!/bin/sh\necho "{name.rpartition("/")[2]} $*" >> {self.calls_file}\n{text}\n')
        (self.root / name).chmod(0o755)

    def remove_command(self, name: str) -> None:
        (self.root / (name if "/" in name else f"bin/{name}")).unlink()

    def calls(self, program: str) -> list[str]:
        """What a command was asked, in order."""
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        return [line.partition(" ")[2] for line in lines if line.split()[:1] == [program]]

    def gate(self, capsys: pytest.CaptureFixture[str], *words: str, **changes: Any) -> str:
        """Run the gate and return its line, which must agree with its exit code."""
        self.file("gate.json", json.dumps(WANTED | changes))
        code = serve_start_gate.main([*words, str(self.root / "gate.json"), "--root", str(self.root)])
        output = capsys.readouterr().out
        assert output.count("\n") == 1
        assert (code == 0) == output.startswith(("spark1: ready\n", "spark1: ready; ")), output
        return output.rstrip("\n").removeprefix("spark1: ")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GateNode:
    made = GateNode(tmp_path)
    monkeypatch.setitem(serve_gate_command.ENVIRONMENT, "PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return made


def test_a_node_on_which_all_checks_pass_is_ready(node: GateNode, capsys: pytest.CaptureFixture[str]) -> None:
    assert node.gate(capsys) == "ready"
    assert node.calls("systemctl") == ["is-active sparkrack-memory-guard.service"]
    assert node.calls("docker") == [
        "ps --all --filter=name=^/?sparkrack-qwen$ --format={{.State}}",
        f"image inspect --format={{{{.Id}}}} {{{{json .Config.Env}}}} {IMAGE}",
    ]
    assert node.calls("gid-index") == ["rocep1s0f1", "roceP2p1s0f1"]
    # 9000 bytes less the headers of IPv4 and ICMP; nothing may fragment them.
    assert sorted(node.calls("ping")) == [
        "-4 -n -q -c 3 -i 0.3 -W 2 -M do -s 8972 -I enP2p1s0f1np1 192.168.101.3",
        "-4 -n -q -c 3 -i 0.3 -W 2 -M do -s 8972 -I enp1s0f1np1 192.168.100.2",
    ]
    # Half of 1 GiB and 1 MiB beside it.
    assert node.calls("memory-gate") == ["513M --seconds 60"]


@pytest.mark.parametrize(
    ("command", "text", "reason"),
    [
        (
            "docker",
            "case $1 in image) echo 'Error: No such image: x' >&2; exit 1 ;; esac",
            "image 0123456789ab of nvcr.io/nvidia/vllm:26.04-py3 is missing; run `sparkrack apply --only images`",
        ),
        (
            "nvidia-smi",
            "case $1 in *apps*) echo '4711, python3'; echo '4712, x' ;; *) echo 'P8, 208, Active' ;; esac",
            "2 processes use the GPU: 4711, python3; end it",
        ),
        (
            "nvidia-smi",
            "case $1 in *pstate*) echo 'P8, 208, Active'; echo 'P0, 999, Not Active' ;; esac",
            (
                "the GPU runs at 999 MHz in state P0 and is not idle, at least 1000 are expected; shut the node "
                "down and disconnect its power supply for 5 minutes"
            ),
        ),
        (
            "ping",
            "case $* in *192.168.101.3) echo 'ping: local error: message too long, mtu=1500' >&2; exit 1 ;; esac",
            (
                "no echo of 9000 bytes over enP2p1s0f1np1 to spark3 (192.168.101.3): ping: local error: message too "
                "long, mtu=1500; `sparkrack verify` names the cause: "
                "cable, MTU of the switch, or a node that does not run"
            ),
        ),
        (
            f"{GATE_PROGRAMS}/memory-gate",
            "exit 4",
            (
                "memory-gate ends with 4; end what holds memory (`docker ps`, `ps -e --sort=-rss`), or lower the "
                "memory of unit qwen in rack.yaml"
            ),
        ),
        (
            "systemctl",
            "",
            (
                "sparkrack-memory-guard.service does not run (unknown); start it: `systemctl start "
                "sparkrack-memory-guard.service`"
            ),
        ),
        (
            f"{GATE_PROGRAMS}/gid-index",
            "",
            "rocep1s0f1 has no usable GID: no answer; run `sparkrack verify` for this node",
        ),
        (
            f"{GATE_PROGRAMS}/gid-index",
            "echo 3; exit 1",
            "rocep1s0f1 has no usable GID: 3; run `sparkrack verify` for this node",
        ),
    ],
)
def test_what_a_command_reports_is_the_reason(
    node: GateNode, capsys: pytest.CaptureFixture[str], command: str, text: str, reason: str
) -> None:
    """In the whole sentence. test_gate_refusals.py has each refusal once."""
    node.command(command, text)
    assert node.gate(capsys) == reason


@pytest.mark.parametrize("command", STAND_INS)
def test_a_command_that_is_missing_is_a_refusal(
    node: GateNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(serve_gate_command.ENVIRONMENT, "PATH", f"{node.root}/bin")
    node.remove_command(command)
    reason = node.gate(capsys)
    assert reason.endswith("cannot be run: No such file or directory; run `sparkrack apply`")
    assert command.rpartition("/")[2] in reason


@pytest.mark.parametrize("command", STAND_INS)
def test_a_command_that_does_not_answer_is_a_refusal(
    node: GateNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    begin, name = serve_gate_command.GateCommand.__init__, command.rpartition("/")[2]

    def begin_with_a_fortieth(question: Any, *words: str, limit: float | None = None) -> None:
        """The other commands keep their limit: a busy machine takes long to start one."""
        seconds = serve_gate_command.LIMIT if limit is None else limit
        begin(question, *words, limit=seconds / 40 if Path(words[0]).name == name else seconds)

    monkeypatch.setattr(serve_gate_command.GateCommand, "__init__", begin_with_a_fortieth)
    # What it leaves behind keeps its output open, as a helper of the driver does.
    node.command(command, "sleep 600 & echo $! >> sleepers; wait".replace("sleepers", str(node.root / "sleepers")))
    reason = node.gate(capsys)
    for pid in (node.root / "sleepers").read_text().split():
        os.kill(int(pid), 9)
    assert f"has not answered within {'3' if name == 'memory-gate' else '0.5'} s; " in reason
    assert name in reason


@pytest.mark.parametrize(
    "clock",
    [
        "P0, 1000, Not Active",
        "P2, 345, Not Active",
        "P0, 345, Active",
        "P8, 208, Active",
        "P0, [N/A]",
        "[Not Supported], 300",
    ],
)
def test_a_clock_that_is_high_or_idle_or_not_reported_is_no_reason(
    node: GateNode, capsys: pytest.CaptureFixture[str], clock: str
) -> None:
    node.command("nvidia-smi", f"case $1 in *pstate*) echo '{clock}' ;; esac")
    assert node.gate(capsys) == "ready"


def test_a_file_of_the_model_that_is_missing_short_or_a_link(
    node: GateNode, capsys: pytest.CaptureFixture[str]
) -> None:
    part = node.root / "srv/models/qwen3/sub/part 1.bin"
    part.write_text("x")
    remedy = "run `sparkrack apply --only models`"
    place = "/srv/models/qwen3/sub/part 1.bin"
    assert node.gate(capsys) == f"1 of 2 files of model qwen3 are wrong: {place} has 1 of 5 bytes; {remedy}"
    part.unlink()
    assert node.gate(capsys) == f"1 of 2 files of model qwen3 are wrong: {place}: No such file or directory; {remedy}"
    part.symlink_to("config.json")
    assert node.gate(capsys) == f"1 of 2 files of model qwen3 are wrong: {place}: not a regular file; {remedy}"


def test_a_file_with_a_hostile_name_is_shown_on_one_line(node: GateNode, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"a\nspark1: ready\x1b[2J; rm -rf /": 5}
    reason = node.gate(capsys, model=WANTED["model"] | {"files": files})
    assert reason.startswith("1 of 1 files of model qwen3 are wrong: /srv/models/qwen3/a spark1: ready [2J; rm -rf /:")
    assert "\x1b" not in reason


def test_a_further_model_must_be_whole_too(node: GateNode, capsys: pytest.CaptureFixture[str]) -> None:
    also = [{"name": "draft", "folder": "/srv/models/draft", "files": {"model.safetensors": 3}, "digest": "0"}]
    missing = "/srv/models/draft/model.safetensors: No such file or directory"
    assert node.gate(capsys, also=also).startswith(f"1 of 1 files of model draft are wrong: {missing}; run")
    node.file("srv/models/draft/model.safetensors", "xyz")
    assert node.gate(capsys, also=also) == "ready"


def test_the_mounted_files_are_those_of_rack_yaml_and_no_other(
    node: GateNode, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = "/etc/sparkrack/serve/qwen.files/0123"
    hashes = {"run.sh": hashlib.sha256(b"echo").hexdigest(), "a/fix.py": hashlib.sha256(b"x = 1").hexdigest()}
    remedy = "run `sparkrack apply --only serving`"
    assert node.gate(capsys, files={folder: hashes}) == f"{folder}/a/fix.py is missing; {remedy}"
    node.file(f"{folder[1:]}/run.sh", "echo")
    node.file(f"{folder[1:]}/a/fix.py", "x = 1")
    assert node.gate(capsys, files={folder: hashes}) == "ready"
    node.file(f"{folder[1:]}/a/fix.py", "x = 2")
    assert node.gate(capsys, files={folder: hashes}) == f"{folder}/a/fix.py is not the one beside rack.yaml; {remedy}"
    node.file(f"{folder[1:]}/a/fix.py", "x = 1")
    node.file(f"{folder[1:]}/a/more.py", "")
    assert node.gate(capsys, files={folder: hashes}) == f"{folder}/a/more.py is not one of the unit's; {remedy}"
    more = node.root / folder[1:] / "a/more.py"
    more.unlink()
    more.symlink_to("fix.py")
    assert node.gate(capsys, files={folder: hashes}) == f"{folder}/a/more.py is not one of the unit's; {remedy}"


def test_a_port_on_which_a_process_listens(node: GateNode, capsys: pytest.CaptureFixture[str]) -> None:
    taken = "a process listens on port 8000, which is the API of unit qwen; end it: `ss -ltnp 'sport = :8000'` names it"
    for table in ("tcp", "tcp6"):
        before = (node.root / "proc/net" / table).read_text()
        node.file(f"proc/net/{table}", before + f"   2: {'0' * 32}:1F40 {'0' * 32}:0000 0A 0:0 0:0 0 0 0 3 1\n")
        assert node.gate(capsys) == taken
        node.file(f"proc/net/{table}", before)
    assert node.gate(capsys) == "ready"
    (node.root / "proc/net/tcp6").unlink()
    assert node.gate(capsys) == "ready"
    node.file("proc/net/tcp", TCP + "   odd line\n")
    assert node.gate(capsys) == "/proc/net/tcp: unexpected line ' odd line'; look at `ss -ltn`"
    (node.root / "proc/net/tcp").unlink()
    assert node.gate(capsys) == "/proc/net/tcp cannot be read: No such file or directory; run `sparkrack apply`"


def test_a_process_that_really_listens_is_found(capsys: pytest.CaptureFixture[str], node: GateNode) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        for table in ("tcp", "tcp6"):
            source = Path("/proc/net") / table
            if source.exists():
                node.file(f"proc/net/{table}", source.read_text())
        port = server.getsockname()[1]
        assert f"a process listens on port {port}," in node.gate(capsys, ports={str(port): "a test"})


def test_what_the_cache_holds_already_counts_as_room(
    node: GateNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    node.file("var/cache/sparkrack/serve/qwen/0123/inductor/a", "x" * 100000)

    class FullDisk:
        f_bavail, f_frsize = 0, 4096

    monkeypatch.setattr(os, "statvfs", lambda _place: FullDisk)
    assert node.gate(capsys, cache=WANTED["cache"] | {"bytes": 90000}) == "ready"
    assert "has room for 0.0 GiB" in node.gate(capsys, cache=WANTED["cache"] | {"bytes": 900000})


def test_the_devices_of_nccl_may_name_their_port(node: GateNode, capsys: pytest.CaptureFixture[str]) -> None:
    node.file("etc/sparkrack/fabric.env", "A=1\nNCCL_IB_HCA=rocep1s0f1:1,,roceP2p1s0f1:1,\n")
    assert node.gate(capsys) == "ready"
    assert node.calls("gid-index") == ["rocep1s0f1", "roceP2p1s0f1"]


def test_a_disk_with_just_enough_room_for_the_cache_is_enough(
    node: GateNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Disk:
        f_bavail, f_frsize = 3, 4096

    monkeypatch.setattr(os, "statvfs", lambda _place: Disk)
    assert node.gate(capsys, cache=WANTED["cache"] | {"bytes": 3 * 4096}) == "ready"
    assert "has room for 0.0 GiB" in node.gate(capsys, cache=WANTED["cache"] | {"bytes": 3 * 4096 + 1})


def test_an_amount_of_memory_in_bytes_is_rounded_up(node: GateNode, capsys: pytest.CaptureFixture[str]) -> None:
    assert node.gate(capsys, memory={"bytes": (7 << 20) + 1, "floor": 0}) == "ready"
    assert node.calls("memory-gate") == ["8M --seconds 60"]


def test_memory_is_asked_for_last(node: GateNode, capsys: pytest.CaptureFixture[str]) -> None:
    """It drops cached files: a node that is refused for another reason keeps them."""
    node.command("ping", "exit 1")
    node.gate(capsys)
    assert node.calls("memory-gate") == []


def test_a_unit_of_one_node_without_guard_and_cache(node: GateNode, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("systemctl", "ping", "timedatectl", f"{GATE_PROGRAMS}/gid-index"):
        node.remove_command(command)
    assert node.gate(capsys, guard=None, cache=None, gids=None, echoes=[], proof=None, time=False) == "ready"


@pytest.mark.parametrize("text", ["[]", "{}", "\x00"])
def test_a_file_that_is_not_its_own_is_refused(node: GateNode, capsys: pytest.CaptureFixture[str], text: str) -> None:
    node.file("gate.json", text)
    assert serve_start_gate.main([str(node.root / "gate.json"), "--root", str(node.root)]) == 1
    assert capsys.readouterr().out.endswith("; run `sparkrack apply`\n")


@pytest.mark.parametrize("change", [{"image": 5}, {"model": {}}, {"echoes": [{}]}, {"memory": []}, {"ports": {"x": 1}}])
def test_a_value_of_another_kind_is_refused_without_a_traceback(
    node: GateNode, capsys: pytest.CaptureFixture[str], change: dict[str, Any]
) -> None:
    assert "is not what this program reads" in node.gate(capsys, **change)


# What was measured of RDMA


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"here": {"boot": "b0", "carrier_changes": 3}},
            "spark1 has booted, or its carrier has changed, since 2026-11-23",
        ),
        (
            {"here": {"boot": "b1", "carrier_changes": 1}},
            "spark1 has booted, or its carrier has changed, since 2026-11-23",
        ),
        ({"here": None}, "spark1 has booted, or its carrier has changed, since 2026-11-23"),
        ({"gbps": 13.2}, "it carried 13.2 Gbit/s, at least 80 are expected"),
        ({"gbps": None}, f"{PROOF_FILE} has no figure"),
        ({"gbps": True}, f"{PROOF_FILE} has no figure"),
        ({"gbps": float("nan")}, "it carried nan Gbit/s, at least 80 are expected"),
    ],
)
def test_a_record_that_proves_nothing(
    node: GateNode, capsys: pytest.CaptureFixture[str], change: dict[str, Any], reason: str
) -> None:
    node.file(PROOF_FILE, json.dumps(PROVEN | change))
    found = node.gate(capsys)
    assert found.startswith("RDMA over enp1s0f1np1 to spark2 is not proven: ")
    assert reason in found
    assert found.endswith("; `sparkrack serve start qwen` measures it")
    assert node.calls("memory-gate") == []


def test_what_the_peer_was_does_not_count_when_it_is_not_asked(
    node: GateNode, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own gate compares that; this one runs alone."""
    node.file(PROOF_FILE, json.dumps(PROVEN | {"there": {"boot": "other", "carrier_changes": 99}}))
    assert node.gate(capsys) == "ready"


def test_a_clock_that_is_synchronized_after_a_while(node: GateNode, capsys: pytest.CaptureFixture[str]) -> None:
    node.command("timedatectl", f"[ -e {node.root}/later ] && echo yes || echo no; touch {node.root}/later")
    assert node.gate(capsys) == "ready"
    assert node.calls("timedatectl") == 2 * ["show --property=NTPSynchronized --value"]


def test_a_command_that_does_not_answer_is_killed() -> None:
    question = serve_gate_command.GateCommand("sleep", "60", limit=0.1)
    with pytest.raises(serve_gate_command.GateError, match=r"`sleep 60` has not answered within 0\.1 s"):
        question.answer()
    assert question._process.wait(120) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("docker", "look at `systemctl status docker`"),
        ("ib_write_bw", "`sparkrack verify --only rdma --bandwidth` names the cause"),
        ("/usr/bin/nvidia-smi", "restart the node"),
        ("/usr/local/lib/sparkrack/serve/serve_cuda.py", "restart the node"),
        ("ss", "look at `journalctl -b -p err`"),
    ],
)
def test_each_program_that_fails_has_its_remedy(program: str, expected: str) -> None:
    assert serve_gate_command.remedy(program) == expected
