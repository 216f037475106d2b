"""`sparkrack serve calibrate`, with nodes that are shells of this machine, and logs as the engines print them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from core.model import load
from roles.rdma.options import socket_addresses
from serving.launch import launches
from serving.options import served_units
from sparkrack.cli.main import sparkrack
from tests.unit.model.serving_racks import IMAGE_ID, MEASURED_WITH, NEMOTRON, machines, put, record, text, unit
from tests.unit.serving.engines.test_engine_log import MAMBA, RAY, SGLANG, VLLM

SSH = """\
#!/bin/sh
export NODE="$RACK_NODES/$3"
[ ! -e "$NODE/off" ] || { echo "ssh: connect: No route to host" >&2; exit 255; }
sed -u "s#/usr/local/lib/sparkrack#$RACK_NODES#g; s#/sys/kernel/#$NODE/#g" | PATH="$RACK_NODES/bin:$PATH" sh
"""
SYSTEMCTL = """\
#!/bin/sh
[ "$4" = sparkrack-serve-qwen.service ] || exit 4
case $2 in --property=ActiveState) cat "$NODE/state";; --property=InvocationID) echo 0f0f;; esac
"""
JOURNALCTL = """\
#!/bin/sh
[ "$4" = _SYSTEMD_INVOCATION_ID=0f0f ] || { echo "of another start" >&2; exit 1; }
[ -e "$NODE/log" ] || { echo "Failed to open the journal" >&2; exit 1; }
echo "another line of the engine"; cat "$NODE/log"
"""
DOCKER = """\
#!/bin/sh
[ "$*" = "inspect --format [{{json .Args}}, {{json .Image}}] sparkrack-qwen" ] || exit 5
args=$(cat "$NODE/args"); printf '[%s, "%s"]\n' "${args:-null}" "$(cat "$NODE/image")"
"""
COORDINATOR = """\
#!/bin/sh
cat "$RACK_NODES/status"
"""
HEAD = VLLM["0.19.1"]
OTHER = HEAD.replace("30.12", "28.50").rpartition("\x1b[0;36m(EngineCore")[0]


class Nodes:
    """The nodes of a rack with one unit, and the command about it."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        keys: dict[str, Any],
        *logs: str,
        weights: int = 124 * 10**9,
    ) -> None:
        self.folder = folder
        units = {"other": {"calibration": {"tensor": 1}}, "gone": {"calibration": {}}, "qwen": {"note": 1}}
        both = {"qwen": keys, "other": {**keys, "state": "down", "api": {"port": 8001}}}
        rack = load(put(folder, text(both, machines(len(logs))), {"qwen": record("Qwen3-235B-A22B", weights)}, units))
        for name, content in {
            "desk/ssh": SSH,
            "bin/systemctl": SYSTEMCTL,
            "bin/journalctl": JOURNALCTL,
            "bin/docker": DOCKER,
            "serve/serve_coordinator.py": COORDINATOR,
        }.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(content)
            (folder / name).chmod(stat.S_IRWXU)
        (folder / "status").write_text(json.dumps({"state": "ready", "generation": 7, "reason": ""}))
        run = launches(rack, served_units(rack)["qwen"], socket_addresses(rack), "100G", None)
        for launch, log in zip(run, logs, strict=True):
            (folder / launch.node).mkdir()
            for name, content in {
                "state": "active\n",
                "args": json.dumps(launch.argv[1:]),
                "log": log,
                "image": IMAGE_ID,
            }.items():
                (folder / launch.node / name).write_text(content)
            with (folder / launch.node / "args").open("a") as file:
                file.write("\n")
        self.before = self.lock
        monkeypatch.setenv("PATH", f"{folder}/desk:{os.environ['PATH']}")
        monkeypatch.setenv("RACK_NODES", str(folder))

    @property
    def lock(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "rack.lock.json").read_text())
        return found

    def serve(self, *words: str) -> Result:
        return CliRunner().invoke(sparkrack, ["serve", *words, "--rack", f"{self.folder}/rack.yaml"])


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    return Nodes(tmp_path, monkeypatch, unit(), HEAD, OTHER)


def test_the_fullest_rank_is_written_and_read_again(nodes: Nodes) -> None:
    done = nodes.serve("calibrate", "qwen")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0] == (
        "qwen: weights 57.64, keys and values 28.50 GiB and 812352 tokens of cache on n1, the fullest of 2 ranks; "
        "overhead 11.21 GiB"
    )
    figures: dict[str, Any] = {
        "tensor": 2,
        "pipeline": 1,
        "share": 0.8,
        "weights": 57.64,
        "kv": 28.5,
        "kv_tokens": 812352,
    }
    figures = {**figures, "measured_with": {**MEASURED_WITH, "kv_cache_dtype": ""}}
    assert nodes.lock == {
        **nodes.before,
        "units": {"other": {"calibration": {"tensor": 1}}, "qwen": {"note": 1, "calibration": figures}},
    }, "an entry that is no longer declared is dropped, the others are kept"
    (one,) = json.loads(nodes.serve("check", "qwen", "--json").stdout)["units"]
    # The files have 57.742 GiB, of which the engine printed 57.64: the sum is what the engine was given.
    assert (one["overhead_from"], one["overhead"], one["weights"]) == ("measured", 11.11, 57.742)
    assert one["not_calibrated"] == ""


def test_ray_has_the_lines_of_all_ranks_on_the_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(tmp_path, monkeypatch, unit(engine="vllm-ray"), RAY, "")
    done = nodes.serve("calibrate", "qwen")
    assert done.exit_code == 0, done.output
    assert nodes.lock["units"]["qwen"]["calibration"]["weights"] == 57.71


def test_the_state_of_sglang_is_not_an_overhead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that the computation adds itself would be counted twice."""
    log = SGLANG["0.5.4"] + MAMBA
    keys = unit(NEMOTRON, model="qwen", nodes=["n0", "n1"], parallel={"tensor": 2})
    nodes = Nodes(tmp_path, monkeypatch, keys, log, log, weights=76 * 10**9)
    done = nodes.serve("calibrate", "qwen")
    assert done.exit_code == 0, done.output
    found = nodes.lock["units"]["qwen"]["calibration"]
    assert (found["weights"], found["kv"], found["state"], found["kv_tokens"]) == (38.04, 50.4, 5.0, 17600000)
    (one,) = json.loads(nodes.serve("check", "qwen", "--json").stdout)["units"]
    assert one["overhead"] == round(0.85 * 121.69 - 38.04 - 50.4 - 5.0, 3)


def test_what_a_crash_kernel_has_is_no_part_of_the_share(nodes: Nodes) -> None:
    """The engine was given its share of what the kernel left: with 512 MiB less, 0.4 GiB less were overhead."""
    for node in ("n0", "n1"):
        (nodes.folder / node / "kexec_crash_size").write_text("536870912\n")
    done = nodes.serve("calibrate", "qwen")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0].endswith("overhead 10.81 GiB")
    assert nodes.lock["units"]["qwen"]["calibration"]["reserved"] == 0.5
    (one,) = json.loads(nodes.serve("check", "qwen", "--json").stdout)["units"]
    assert (one["overhead_from"], one["overhead"]) == ("measured", 10.71)


def test_nodes_of_which_one_was_not_booted_since(nodes: Nodes) -> None:
    """Which node the fullest rank was on is not known with Ray: the larger overhead is kept."""
    (nodes.folder / "n1/kexec_crash_size").write_text("536870912\n")
    (nodes.folder / "n0/kexec_crash_size").write_text("0\n")
    assert nodes.serve("calibrate", "qwen").stdout.splitlines()[0].endswith("overhead 11.21 GiB")


def refused(nodes: Nodes, reason: str) -> None:
    done = nodes.serve("calibrate", "qwen")
    assert done.exit_code == 1, done.output
    assert reason in done.output.replace("\n", " ")
    assert nodes.lock == nodes.before, "nothing is written"


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("n1/log", "", "n1: the engine printed no `Model loading took`; nothing is written"),
        ("n0/log", OTHER, "n0: the engine printed no `GPU KV cache size`"),
        ("n1/log", OTHER + OTHER.replace("28.50", "20.00"), "with 20.00 and 28.50 GiB"),
        (
            "n1/log",
            OTHER.replace("57.64", "97.64"),
            "97.64 GiB of weights and 28.50 GiB of cache, and was given 97.4 GiB",
        ),
        ("n1/kexec_crash_size", "much\n", "n1: /sys/kernel/kexec_crash_size: unexpected answer 'much'"),
        ("n1/kexec_crash_size", "", "n1: /sys/kernel/kexec_crash_size: unexpected answer"),
        ("n1/state", "failed\n", "n1: sparkrack-serve-qwen.service is failed, expected active"),
        ("n1/args", '["serve", "other"]\n', "n1: unit qwen runs with other arguments than"),
        ("n1/args", "\n", "n1: unit qwen runs with other arguments than"),
        ("n1/image", "sha256:" + "cd" * 32, "n1: unit qwen runs with another image than that of the lock file"),
        ("n1/off", "", "n1: cannot be asked: ssh: connect: No route to host"),
        ("status", '{"state": "starting", "generation": 7}', "unit qwen is starting"),
        ("status", "", "the coordinator of unit qwen gave no state"),
    ],
)
def test_what_is_unknown_is_not_written(nodes: Nodes, file: str, content: str, reason: str) -> None:
    (nodes.folder / file).write_text(content)
    refused(nodes, reason)


def test_a_journal_that_does_not_answer_is_unknown(nodes: Nodes) -> None:
    (nodes.folder / "n1/log").unlink()
    refused(nodes, "n1: Failed to open the journal")


def test_a_unit_with_the_size_of_its_cache_has_no_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(tmp_path, monkeypatch, unit(memory=None, kv="20G"), HEAD, OTHER)
    (tmp_path / "n0/off").touch()
    refused(nodes, "has the size of its cache (kv) and no share of a node")


def test_a_lock_file_that_is_none_is_not_replaced(nodes: Nodes) -> None:
    lock = nodes.folder / "rack.lock.json"
    lock.write_text('{"else": 1}')
    done = nodes.serve("calibrate", "qwen")
    assert done.exit_code == 1
    assert "is not a lock file of sparkrack" in done.output
    assert lock.read_text() == '{"else": 1}'
