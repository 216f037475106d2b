"""The files of a served unit on its nodes: for head and worker, with hostile values, and what blocks them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from core.model.model_lock import ModelFile, ModelRecord
from core.util.managed_file import ManagedFile
from roles.docker.options import DockerOptions
from serving import desired, programs
from serving.desired import LockedUnit
from serving.engines.sglang import PROGRESS
from serving.launch import launches
from serving.options import served_units
from serving.programs import COORDINATOR
from tests import generated
from tests.serving.serve_modules import (
    serve_gate_command,
    serve_other_units,
    serve_rdma_check,
    serve_start,
    serve_start_gate,
    serve_unit,
)
from tests.unit.model.serving_racks import NEMOTRON, loaded, text, unit
from tests.unit.roles.serving_units import (
    IMAGE_ID,
    KEY,
    LEASE,
    PINS,
    RECORD,
    RECORDS,
    content,
    example,
    head_files,
    locked,
)

ANALYZE = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
WITH_KEY = unit(api={"port": 8000, "listen": "management", "key": {"env": "KEY"}}, cache="20G")
SYSTEMD = "/etc/systemd/system"


def names(files: tuple[ManagedFile, ...]) -> list[str]:
    return [file.path for file in files]


def configuration(found: LockedUnit, folder: Path, node: str) -> serve_unit.ServedUnit:
    """The configuration as coordinator and agents of the node read it."""
    file = folder / f"{node}.json"
    file.write_text(content(desired.files(found, node), f"{found.unit.name}.json"))
    return serve_unit.load_unit(str(file))


def gate_file(found: LockedUnit, node: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(content(desired.files(found, node), f"{found.unit.name}.gate.json"))
    return loaded


def test_the_files_of_head_and_worker() -> None:
    found = locked()
    worker = [
        "/etc/sparkrack/serve/one.args",
        "/etc/sparkrack/serve/one.env",
        "/etc/sparkrack/serve/one.json",
        "/etc/sparkrack/serve/one.gate.json",
        f"{SYSTEMD}/sparkrack-one.slice",
        f"{SYSTEMD}/sparkrack-serve-one-agent.service",
        f"{SYSTEMD}/sparkrack-serve-one.service",
    ]
    head = [*worker[:6], f"{SYSTEMD}/sparkrack-serve-one-coordinator.service", worker[6]]
    assert names(desired.files(found, "n0")) == head
    assert names(desired.files(found, "n1")) == worker
    assert {file.mode for node in ("n0", "n1") for file in desired.files(found, node)} == {"644"}


def test_the_arguments_are_those_of_the_rank_with_the_id_of_the_image() -> None:
    found = locked(WITH_KEY)
    memory = found.rack.options(DockerOptions).memory
    for rank, node in enumerate(("n0", "n1")):
        words = content(desired.files(found, node), "one.args").split("\n")
        launch = launches(found.rack, found.unit, found.addresses, memory, IMAGE_ID)[rank]
        assert words == [*launch.command[2:], ""]
        assert IMAGE_ID in words
        assert found.unit.image not in words
        pairs = list(pairwise(words))
        for pair in (
            ("--network", "host"),
            ("--gpus", "all"),
            ("--device", "/dev/infiniband"),
            ("--cap-add", "IPC_LOCK"),
            ("--ulimit", "memlock=-1"),
            ("--shm-size", "16g"),
            ("--cgroup-parent", "sparkrack-one.slice"),
            ("--name", "sparkrack-one"),
            ("--env-file", "/etc/sparkrack/serve/one.env"),
        ):
            assert pair in pairs, pair
        assert not {"--privileged", "--ipc", "--restart", "-d", "--detach"} & {word.partition("=")[0] for word in words}
        assert (("--env-file", "/etc/sparkrack/serve/one.key") in pairs) == (node == "n0")


def test_coordinator_and_agents_read_the_configuration(tmp_path: Path) -> None:
    keys = unit(
        api={"port": 8001, "listen": "management", "key": {"env": "KEY"}},
        args={"served-model-name": ["big", "large"]},
        probe={
            "every": "2m",
            "limit": "90s",
            "misses": 3,
            "ready": "45m",
            "answer": {"ask": 'Say "$HOME" \\ %n', "say": "é"},
        },
        restart={"times": 2, "within": "3h"},
        boot="start",
        drain="40s",
    )
    found = locked(keys)
    read = configuration(found, tmp_path, "n0")
    assert read == configuration(found, tmp_path, "n1")
    assert (read.name, read.model, read.boot) == ("one", "big", "start")
    assert [(rank.node, rank.address) for rank in read.ranks] == [("n0", "10.77.0.11"), ("n1", "10.77.0.12")]
    assert (read.head, read.api) == (("10.77.0.11", 29400), ("10.77.0.11", 8001))
    assert (read.key_file, read.secret_file) == ("/etc/sparkrack/serve/one.token", "/etc/sparkrack/serve/one.secret")
    assert read.gate == (programs.GATE, "/etc/sparkrack/serve/one.gate.json", "--together")
    assert read.service == "sparkrack-serve-one.service"
    assert (read.probe.prompt, read.probe.answer) == ('Say "$HOME" \\ %n', "é")
    times = read.times
    assert (times.probe_interval, times.probe_limit, times.probe_misses, times.ready_limit) == (120, 90, 3, 2700)
    assert (read.restart.times, read.restart.within) == (2, 10800)


NO_PROOF = ("serving:", "serving:\n  rdma_proof: none")
CHANGED: dict[str, Callable[[], LockedUnit]] = {
    "context": lambda: locked(unit(context=2048)),
    "sequences": lambda: locked(unit(sequences=7)),
    "variable": lambda: locked(unit(env={"NCCL_NET_PLUGIN": "none"})),
    "boot": lambda: locked(unit(boot="start")),
    "drain": lambda: locked(unit(drain="40s")),
    "image": lambda: replace(locked(), image_id=f"sha256:{'f' * 64}"),
    "model": lambda: replace(locked(), record=replace(RECORD, files=RECORD.files[1:])),
}
"""`model`: only the files of the gates have it, where its weights are replaced."""


def versions(found: LockedUnit, folder: Path) -> set[str]:
    return {configuration(found, folder, node).version for node in ("n0", "n1")}


@pytest.mark.parametrize("change", CHANGED)
def test_files_of_two_versions_are_distinguished(tmp_path: Path, change: str) -> None:
    (before,), (after,) = versions(locked(), tmp_path), versions(CHANGED[change](), tmp_path)
    assert len(before) == len(after) == 16
    assert before != after


def test_programs_of_two_releases_are_distinguished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator and an agent of two releases do not start a unit together, though rack.yaml is the same."""
    before = versions(locked(), tmp_path)
    others = [
        replace(one, content=one.content + b"\n") if one.path == COORDINATOR else one for one in programs.programs()
    ]
    monkeypatch.setattr(desired, "programs", lambda: tuple(others))
    assert len(before | versions(locked(), tmp_path)) == 2


def test_a_known_answer_a_chat_and_rdma_are_asked_for_where_rack_yaml_says_nothing(tmp_path: Path) -> None:
    read = configuration(locked(), tmp_path, "n0")
    probe = read.probe
    assert (probe.prompt, probe.answer, probe.kind, probe.tool) == ("2+2=", "4", "chat", False)
    assert read.rdma == "required"


def test_what_rack_yaml_leaves_out_is_not_asked_for(tmp_path: Path) -> None:
    rack = loaded(text({"one": unit(kind="completion", probe={"answer": False})}).replace(*NO_PROOF))
    found = desired.locked_unit(rack, served_units(rack)["one"], PINS, RECORDS)
    read = configuration(found, tmp_path, "n0")
    assert (read.probe.answer, read.probe.kind, read.rdma) == ("", "completion", "remark")
    alone = configuration(locked(unit(nodes=["n0"], parallel=None)), tmp_path, "n0")
    assert alone.rdma == "ignored", "one rank needs no network"


def test_the_kind_of_a_unit_and_the_dimension_of_its_model_reach_its_coordinator(tmp_path: Path) -> None:
    rack = loaded(text({"one": unit(kind="embedding")}))
    record = replace(RECORD, configurations={"config.json": '{"hidden_size": 1024}'})
    found = desired.locked_unit(rack, served_units(rack)["one"], PINS, {"qwen": record})
    read = configuration(found, tmp_path, "n0")
    assert (read.probe.kind, read.probe.dimension) == ("embedding", 1024)
    assert configuration(locked(unit(kind="embedding")), tmp_path, "n0").probe.dimension == 0
    assert "--runner\npooling\n" in content(desired.files(found, "n0"), "one.args")


def test_sglang_has_its_own_counters_and_a_worker_no_key(tmp_path: Path) -> None:
    keys = unit(NEMOTRON, api={"port": 30000, "listen": "fabric", "key": {"env": "KEY"}})
    found = locked(keys, 8)
    read = configuration(found, tmp_path, "n0")
    assert read.probe.counters == PROGRESS.counters
    assert (read.probe.gauges, read.times.ready_limit) == (("sglang:num_used_tokens",), 5400)
    assert read.api == ("192.168.100.1", 30000)
    assert "/etc/sparkrack/serve/one.key:/run/sparkrack/key.yaml:ro" in content(desired.files(found, "n0"), "one.args")
    assert "one.key" not in content(desired.files(found, "n7"), "one.args")


@pytest.mark.parametrize("drain", ["1s", "30s", "10m"])
def test_each_limit_of_a_stop_contains_the_one_inside(tmp_path: Path, drain: str) -> None:
    found = locked(unit(drain=drain))
    service = content(desired.files(found, "n1"), "sparkrack-serve-one.service")
    (docker,) = re.findall(r"^ExecStop=\S+ stop -t (\d+) sparkrack-one$", service, re.MULTILINE)
    (systemd,) = re.findall(r"^TimeoutStopSec=(\d+)$", service, re.MULTILINE)
    (unit_start,) = re.findall(r"^TimeoutStartSec=(\d+)$", service, re.MULTILINE)
    read = configuration(found, tmp_path, "n1")
    assert read.times.drain == {"1s": 1, "30s": 30, "10m": 600}[drain]
    assert read.times.drain < int(docker) < int(systemd) < read.times.stop_limit
    assert read.times.gate_limit < int(unit_start)
    # Another node may ask its coordinator later, and get the answer to each of its first questions at the last moment.
    assert read.times.ask + 2 * serve_gate_command.LIMIT < serve_rdma_check.MEETING_LIMIT
    proof = serve_rdma_check.MEETING_LIMIT + serve_rdma_check.MOST_HALVES * serve_rdma_check.TOOL_LIMIT
    memory = serve_start_gate.MEMORY_WAIT + serve_start_gate.SYNC_LIMIT
    start = serve_start.CONTAINER_LIMIT + serve_start.CUDA_LIMIT
    most = proof + serve_start_gate.TIME_WAIT + memory + start + 13 * serve_gate_command.LIMIT
    assert most + 2 * serve_other_units.LOCK_LIMIT < read.times.gate_limit


def test_the_service_of_a_rank() -> None:
    service = content(desired.files(locked(), "n1"), "sparkrack-serve-one.service").splitlines()
    for line in (
        "BindsTo=sparkrack-serve-one-agent.service",
        f"ExecStartPre={programs.GATE} /etc/sparkrack/serve/one.gate.json",
        f"ExecStart={programs.RUN} /etc/sparkrack/serve/one.args",
        "ExecStopPost=-/usr/bin/docker rm -f sparkrack-one",
        "Restart=no",
    ):
        assert line in service, line
    # Only the agent starts it. The guard ends what is in the slice, so the client of docker is not there.
    assert not [line for line in service if line.startswith(("[Install]", "WantedBy", "Slice=", "Requires="))]
    coordinator = content(desired.files(locked(), "n0"), "sparkrack-serve-one-coordinator.service")
    agent = content(desired.files(locked(), "n1"), "sparkrack-serve-one-agent.service")
    assert f"\nExecStart={programs.COORDINATOR} /etc/sparkrack/serve/one.json run\n" in coordinator
    assert f"\nExecStart={programs.AGENT} /etc/sparkrack/serve/one.json 1\n" in agent
    for light in (coordinator, agent):
        assert "\nRestart=always\n" in light
        limit = re.search(r"^WatchdogSec=(\d+)$", light, re.MULTILINE)
        assert limit
        assert int(limit[1]) > serve_unit.ServeTimes().lease, "it would end what a lease lets go on"
        assert "\nWatchdogSignal=SIGKILL\n" in light, "another signal leaves a core, which has the secret"
        assert "\nWantedBy=multi-user.target\n" in light


@ANALYZE
@pytest.mark.parametrize("name", [path.rpartition("/")[2] for path in names(head_files())[4:]])
def test_systemd_takes_the_units_and_only_good_ones(tmp_path: Path, name: str) -> None:
    (file,) = (one for one in head_files() if one.path.endswith(f"/{name}"))

    def verdict(good: str, bad: str = "") -> int:
        new = tmp_path / "new"
        shown = re.sub(r"/usr/(local/lib/sparkrack/serve/\S+|bin/docker)", "/bin/true", file.content.decode())
        assert not good or good in shown
        new.write_text(shown.replace(good, bad) if good else shown)
        return subprocess.run(["sh", "-c", file.validate], env={"new": str(new), "PATH": "/usr/bin:/bin"}).returncode

    assert verdict("") == 0
    assert verdict("[Unit]", "[Unitt]") != 0
    if name.endswith(".service"):
        assert verdict("Type=exec", "Type=exce") != 0
        assert verdict("ExecStart=/bin/true", "ExecStart=/nowhere") != 0
    else:
        assert verdict("MemoryMax=", "MemoryMux=") != 0


def test_slice_and_services_name_every_address_of_the_nodes_and_no_other() -> None:
    found = locked(unit(nodes=["n0", "n1"], api={"listen": "management", "direct": ["10.9.0.0/16"]}), 3)
    own = {"localhost"}
    for number in (1, 2):
        own |= {f"10.77.0.1{number}", f"192.168.100.{number}", f"192.168.101.{number}"}
    for node, services in (("n0", ("", "-agent", "-coordinator")), ("n1", ("", "-agent"))):
        files = desired.files(found, node)
        names = [*(f"sparkrack-serve-one{suffix}.service" for suffix in services), "sparkrack-one.slice"]
        for name in names:
            text = content(files, name)
            assert "\nIPAddressDeny=any\n" in text, name
            (allowed,) = re.findall(r"^IPAddressAllow=(.+)$", text, re.MULTILINE)
            direct = {"10.9.0.0/16"} if (node, name) == ("n0", "sparkrack-one.slice") else set()
            assert set(allowed.split()) == own | direct, (node, name)


def test_the_server_of_the_watch_reaches_the_head_and_no_other_rank() -> None:
    keys = unit(nodes=["n0", "n1"], api={"listen": "management"})
    for listen, watch, node, reached in (
        ("management", {"server": "n2"}, "n0", True),
        ("management", {"server": "n2"}, "n1", False),
        ("management", None, "n0", False),
        ("local", {"server": "n2"}, "n0", False),
    ):
        sections: dict[str, Any] = {"watch": watch} if watch else {}
        found = locked({**keys, "api": {"listen": listen}}, 3, **sections)
        text = content(desired.files(found, node), "sparkrack-one.slice")
        assert ("10.77.0.13" in text) is reached, (listen, watch, node)


def test_the_ceiling_of_the_slice_is_that_of_the_container() -> None:
    found = locked(docker={"memory": "90G"})
    assert "\nMemoryMax=90G\nMemorySwapMax=0\n" in content(desired.files(found, "n0"), "sparkrack-one.slice")
    assert "\n--memory\n90g\n" in content(desired.files(found, "n0"), "one.args")


# The gate


def test_the_gate_reads_its_file(tmp_path: Path) -> None:
    for node in ("n0", "n1"):
        file = tmp_path / node
        file.write_text(content(desired.files(locked(WITH_KEY), node), "one.gate.json"))
        assert serve_start_gate.load(str(file))["node"] == node


def test_what_the_gate_asks_for() -> None:
    found = locked(WITH_KEY, memory={"floor": "4G"})
    head, worker = gate_file(found, "n0"), gate_file(found, "n1")
    assert head["ports"] == {"8000": "the API of unit one", "29501": "where the ranks meet"}
    assert worker["ports"] == {}
    assert head["image"] == {"name": found.unit.image, "id": IMAGE_ID}
    assert head["model"]["folder"] == "/srv/models/qwen"
    assert head["model"]["files"] == {"model-1-of-2.safetensors": 3 << 30, "config.json": 700}
    assert f"{head['cache']['folder']}:/cache\n" in content(desired.files(found, "n0"), "one.args")
    assert head["cache"]["bytes"] == 20 << 30
    assert head["memory"] == {"share": 0.8, "add": 0, "floor": 4 << 30}
    assert head["guard"] == "sparkrack-memory-guard.service"
    assert head["gids"] == "/etc/sparkrack/fabric.env"
    assert [(one["peer"], one["device"], one["address"], one["mtu"]) for one in worker["echoes"]] == [
        ("n0", "enp1s0f1np1", "192.168.100.1", 9000),
        ("n0", "enP2p1s0f1np1", "192.168.101.1", 9000),
    ]


@pytest.mark.parametrize(("keys", "key"), [({"memory": 0.7}, "add"), ({"memory": None, "kv": "10G"}, "bytes")])
def test_the_gate_waits_for_the_host_memory_of_the_engine_too(keys: dict[str, Any], key: str) -> None:
    def asked(args: dict[str, Any]) -> int:
        return int(gate_file(locked(unit(**keys, args=args)), "n0")["memory"][key])

    assert asked({"cpu-offload-gb": 5}) - asked({}) == 5 << 30
    # The size of this option is that of both ranks together.
    assert asked({"kv-offloading-size": 6}) - asked({}) == 3 << 30


SETTINGS = "settings:/etc/nccl.conf"


def test_the_container_of_the_gate_is_that_of_the_rank_without_its_key_and_network() -> None:
    found = locked(WITH_KEY)
    launch = next(one for one in desired._launches_of_unit(found) if one.rank == 0)
    wanted = gate_file(found, "n0")["container"]
    key = "/etc/sparkrack/serve/one.key"
    assert key in launch.docker
    assert key not in json.dumps(wanted)
    changed = {"host": "none", "sparkrack-one": "sparkrack-one-gate", "vllm": "python3"}
    rest = [changed.get(word, word) for word in launch.docker if word != key]
    rest.pop(next(place for place, word in enumerate(launch.docker) if word == key) - 1)
    assert rest[-2:] == ["--volume", "/dev/null:/etc/nccl.conf:ro"], "the gate prints what the image has there"
    del rest[-2:]
    assert wanted["docker"] == rest
    assert "sparkrack-one.slice" in rest
    assert wanted["image"] == found.image_id
    assert wanted["looks"] == ["program:vllm", SETTINGS, "nccl"]
    assert [row["words"].split("; ")[-1] for row in wanted["nccl"]] == [
        "(nccl.2-28-9-wheel, docs/reference/advisories.md)"
    ], "of a ring only where no cable joins some ranks"


@pytest.mark.parametrize(
    ("keys", "head", "worker"),
    [
        ({"engine": "vllm-ray"}, ["program:vllm", "program:ray", "program:bash"], ["program:vllm", "program:ray"]),
        ({"engine": "sglang", "version": "0.5.23"}, ["module:sglang"], ["module:sglang"]),
        (
            {"args": {"chat-template": "/models/qwen/t.jinja"}},
            ["program:vllm", "file:/models/qwen/t.jinja"],
            ["program:vllm", "file:/models/qwen/t.jinja"],
        ),
    ],
)
def test_the_container_of_the_gate_looks_for_what_the_rank_runs(
    keys: dict[str, Any], head: list[str], worker: list[str]
) -> None:
    found = locked(unit(**keys))
    looks = [gate_file(found, node)["container"]["looks"] for node in ("n0", "n1")]
    assert looks == [[*head, SETTINGS, "nccl"], [*worker, SETTINGS, "nccl"]]


def test_the_gate_of_a_unit_of_one_node_asks_for_no_fabric() -> None:
    wanted = gate_file(locked(unit(nodes=["n1"], parallel=None)), "n1")
    assert (wanted["gids"], wanted["echoes"], wanted["proof"]) == (None, [], None)
    assert list(wanted["ports"]) == ["8000"]


@pytest.mark.parametrize(
    ("keys", "gib"), [pytest.param({}, 10, id="absent"), ({"cache": "2G"}, 2), ({"cache": "none"}, None)]
)
def test_the_gate_asks_for_the_disk_that_what_is_compiled_needs(keys: dict[str, Any], gib: int | None) -> None:
    wanted = gate_file(locked(unit(nodes=["n1"], parallel=None, **keys)), "n1")["cache"]
    assert (wanted and wanted["bytes"] / 2**30) == gib


def test_echoes_go_to_nodes_of_the_unit_that_a_half_reaches() -> None:
    found = locked(unit(nodes=["n0", "n2"]), 4)
    assert {one["peer"] for one in gate_file(found, "n0")["echoes"]} == {"n2"}
    ring = locked(unit(nodes="all", parallel={"pipeline": 3}), 3, "ring")
    assert {one["peer"] for one in gate_file(ring, "n0")["echoes"]} == {"n1", "n2"}
    assert len(gate_file(ring, "n0")["echoes"]) == 4


def proof_of(found: LockedUnit, node: str) -> tuple[list[str], list[str]]:
    """What a node sends and receives for its proof, each flow with its halves and its port."""
    wanted = gate_file(found, node)["proof"]
    sends = [f"{one['half']} -> {one['peer']} {one['peer_address']}:{one['port']}" for one in wanted["sends"]]
    return sends, [f"{one['half']} <- {one['peer']} {one['address']}:{one['port']}" for one in wanted["receives"]]


def test_each_half_that_nccl_uses_is_proven_with_the_next_node_of_the_unit() -> None:
    """A link of 100G is filled by one half; a ring has cables of 200G, which need both."""
    found = locked()
    assert proof_of(found, "n0") == (
        ["enp1s0f1np1 -> n1 192.168.100.2:18600"],
        ["enp1s0f1np1 <- n1 192.168.100.1:18608"],
    )
    assert proof_of(found, "n1") == (
        ["enp1s0f1np1 -> n0 192.168.100.1:18608"],
        ["enp1s0f1np1 <- n0 192.168.100.2:18600"],
    )
    apart = locked(unit(nodes=["n0", "n2"]), 4)
    assert proof_of(apart, "n2") == (
        ["enp1s0f1np1 -> n0 192.168.100.1:18616"],
        ["enp1s0f1np1 <- n0 192.168.100.3:18600"],
    )
    ring = locked(unit(nodes="all", parallel={"pipeline": 3}), 3, "ring")
    sends, receives = proof_of(ring, "n0")
    assert [one.split()[2] for one in sends] == ["n1", "n1", "n2", "n2"]
    assert [one.split()[2] for one in receives] == ["n1", "n1", "n2", "n2"]


def test_each_flow_of_a_proof_has_two_ends_that_agree() -> None:
    """Behind a switch each node uses the same port, so that the halves of both ends have one name."""
    found = locked(unit(nodes="all", parallel={"pipeline": 8}), 8)
    sides: tuple[list[str], list[str]] = ([], [])
    for node in found.nodes:
        for side, ends in zip(sides, proof_of(found, node), strict=True):
            side += [f"{end.split()[0]} {end.split()[-1]}" for end in ends]
    assert len(set(sides[0])) == 8
    assert sorted(sides[0]) == sorted(sides[1])


def test_the_rates_of_a_proof_are_those_of_verify() -> None:
    wanted = gate_file(locked(), "n0")["proof"]
    assert wanted["options"] == ["-D", "5", "-q", "4", "--report_gbits", "-s", "1048576"]
    assert [(one["least"], one["stale"]) for one in wanted["sends"]] == [(80.0, [8.0, 25.0])]
    assert wanted["secret_file"] == "/etc/sparkrack/serve/one.secret"


def test_no_proof_is_asked_for_where_none_is_declared() -> None:
    rack = loaded(text({"one": unit()}).replace(*NO_PROOF))
    found = desired.locked_unit(rack, served_units(rack)["one"], PINS, RECORDS)
    assert gate_file(found, "n0")["proof"] is None


def test_the_clock_must_be_synchronized_where_servers_are_declared() -> None:
    servers = {"ntp": ["10.77.0.1"]}
    assert gate_file(locked(), "n0")["time"] is False
    assert gate_file(locked(time=servers), "n0")["time"] is True
    assert gate_file(locked(time=servers, leave=["time"]), "n0")["time"] is False


def test_no_guard_is_asked_for_where_none_is_declared() -> None:
    assert gate_file(locked(memory={"floor": False}), "n0")["guard"] is None
    assert gate_file(locked(leave=["memory"]), "n0")["guard"] is None
    assert gate_file(locked(memory={"floor": False}), "n0")["memory"]["floor"] == 0


def test_the_memory_of_a_unit_that_gives_the_size_of_its_cache() -> None:
    wanted = gate_file(locked(unit(memory=None, kv="20G", overhead="6G"), memory={"floor": "3G"}), "n0")
    # 3 GiB of weights on two ranks, cache, overhead
    assert wanted["memory"] == {"bytes": int((1.5 + 20 + 6) * 2**30), "floor": 3 << 30}


def test_ray_has_a_port() -> None:
    wanted = gate_file(locked(unit(engine="vllm-ray", version="0.19.0")), "n0")
    assert wanted["ports"]["6379"] == "where Ray listens"


# Blockers


def test_an_image_and_a_model_that_the_lock_file_lacks_are_blockers() -> None:
    rack = loaded(text({"one": unit()}))
    one = served_units(rack)["one"]
    place = f"{rack.source}: serving.units.one"
    image = f"{place}.image: the lock file has no ID of {one.image}; run `sparkrack apply --only images`"
    model = f"{place}.model: the lock file has no files of qwen; run `sparkrack apply --only models`"
    assert desired.blockers(rack, one, {}, {}) == [image, model]
    assert desired.blockers(rack, one, PINS, {}) == [model]
    assert desired.blockers(rack, one, {}, RECORDS) == [image]
    assert desired.blockers(rack, one, PINS, {"qwen": ModelRecord(None, None, (), {})}) == [model]
    assert desired.blockers(rack, one, PINS, RECORDS) == []
    with pytest.raises(ValueError, match="no ID of"):
        desired.locked_unit(rack, one, {}, RECORDS)


@pytest.mark.parametrize("value", ["a\nb", "a\0b"])
def test_an_argument_that_cannot_be_a_line_is_a_blocker(value: str) -> None:
    rack = loaded(text({"one": unit(args={"tokenizer-revision": "MARK"})}).replace("MARK", json.dumps(value)))
    (line,) = desired.blockers(rack, served_units(rack)["one"], PINS, RECORDS)
    assert "serving.units.one.args: an argument has a line break, or a character that is not a text; remove it" in line


def test_coordinators_on_one_node_have_each_their_port() -> None:
    down: dict[str, Any] = {"state": "down"}
    units = {
        "a": unit(**down),
        "b": unit(nodes=["n1", "n0"], **down),
        "c": unit(**down),
        "d": unit(nodes=["n0"], parallel=None),
    }
    rack = loaded(text(units))
    ports = {name: desired.coordinator_port(rack, one) for name, one in served_units(rack).items()}
    assert ports == {"a": 29400, "b": 29400, "c": 29401, "d": 29402}


# Hostile values

HOSTILE = [
    "",
    " leading and trailing ",
    "-x",
    "$HOME `id` $(id) ${X}",
    "%n %H %% %",
    "a\\nb \\ \"q\" 'q'",
    "#; rm -rf /",
    "tab\there",
    "é\u2028x",
    "*",
]


def test_docker_gets_each_argument_as_it_is_declared(tmp_path: Path) -> None:
    """Through the file and the program of the node: no shell and no systemd reads a value."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "docker").write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    (bin_folder / "docker").chmod(0o755)
    (program,) = (file for file in programs.programs() if file.path == programs.RUN)
    script = tmp_path / "serve-run.sh"
    script.write_bytes(program.content)
    for value in HOSTILE:
        found = locked(unit(args={"tokenizer-revision": value}))
        expected = launches(found.rack, found.unit, found.addresses, "100G", IMAGE_ID)[0].command[1:]
        assert any(value in word for word in expected)
        arguments = tmp_path / "one.args"
        arguments.write_text(content(desired.files(found, "n0"), "one.args"))
        done = subprocess.run(
            ["sh", str(script), str(arguments)],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": f"{bin_folder}:/usr/bin:/bin"},
        )
        assert done.stdout.split("\0")[:-1] == list(expected), value


@pytest.mark.parametrize("words", [(), ("/nowhere",), ("a", "b")])
def test_the_program_refuses_to_run_without_arguments(tmp_path: Path, words: tuple[str, ...]) -> None:
    (program,) = (file for file in programs.programs() if file.path == programs.RUN)
    script = tmp_path / "serve-run.sh"
    script.write_bytes(program.content)
    done = subprocess.run(["sh", str(script), *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("serve-run: ")


def test_no_declared_value_reaches_a_unit_of_systemd() -> None:
    for value in HOSTILE[1:]:
        found = locked(unit(args={"tokenizer-revision": value}, probe={"answer": {"ask": "x", "say": "Zyx%n"}}))
        for file in desired.files(found, "n0"):
            if file.path.startswith(SYSTEMD):
                assert value not in file.content.decode().partition("\n")[2] or value in ("*",), file.path
                assert "Zyx" not in file.content.decode()


def test_a_value_of_the_environment_stays_one_line_of_the_file() -> None:
    for value in ("$HOME", "a=b", "#x", "'q' \"q\"", " x", "%n"):
        text = content(desired.files(locked(unit(env={"OWN_VALUE": value})), "n0"), "one.env")
        assert f"\nOWN_VALUE={value}\n" in text


def test_hostile_names_of_model_files_are_data() -> None:
    paths = ["a b", "$(id)", "a\nb", '"', "é", "\u2028"]
    found = locked()
    record = ModelRecord(None, None, tuple(ModelFile(path, 1, "0" * 64) for path in paths), {})
    hostile = LockedUnit(found.rack, found.unit, IMAGE_ID, record)
    assert gate_file(hostile, "n0")["model"]["files"] == dict.fromkeys(paths, 1)


# Secrets


def test_the_files_with_secrets(tmp_path: Path) -> None:
    found = locked(WITH_KEY)
    head = desired.private_files(found, "n0", KEY, LEASE)
    assert {file.path: file.content.get_secret_value().decode() for file in head} == {
        "/etc/sparkrack/serve/one.secret": f"{LEASE}\n",
        "/etc/sparkrack/serve/one.key": f"VLLM_API_KEY={KEY}\n",
        "/etc/sparkrack/serve/one.token": f"{KEY}\n",
    }
    (worker,) = desired.private_files(found, "n1", KEY, LEASE)
    assert worker.path == "/etc/sparkrack/serve/one.secret"
    assert {file.mode for file in (*head, worker)} == {"600"}
    for secret in (KEY, LEASE):
        assert secret not in repr(head)
        assert not any(secret.encode() in file.content for file in desired.files(found, "n0"))


def test_ray_reads_a_token_that_is_made_of_the_lease_secret_and_is_in_no_argument() -> None:
    found = locked(unit(engine="vllm-ray", api={"port": 8000}))
    tokens = []
    for node in ("n0", "n1"):
        (_, token) = desired.private_files(found, node, None, LEASE)
        assert (token.path, token.mode) == ("/etc/sparkrack/serve/one.ray", "600")
        tokens.append(token.content.get_secret_value())
        words = content(desired.files(found, node), "one.args").splitlines()
        assert "/etc/sparkrack/serve/one.ray:/run/sparkrack/ray-token:ro" in words
        assert {"RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN_PATH=/run/sparkrack/ray-token"} <= set(words)
        assert not any(tokens[-1] in file.content for file in desired.files(found, node))
    assert tokens[0] == tokens[1] != desired.private_files(found, "n0", None, "1f" * 32)[1].content.get_secret_value()
    assert LEASE.encode() not in tokens[0]


def test_a_unit_without_ray_has_no_token_of_ray() -> None:
    for declared, count in ((unit(), 2), (unit(engine="vllm-ray", parallel=None, nodes=["n0"]), 2)):
        found = locked(declared, count)
        assert [file.path for file in desired.private_files(found, "n0", None, LEASE)] == [
            "/etc/sparkrack/serve/one.secret"
        ]
        assert "ray-token" not in content(desired.files(found, "n0"), "one.args")


def test_coordinator_reads_the_secrets(tmp_path: Path) -> None:
    found = locked(WITH_KEY)
    for file in desired.private_files(found, "n0", KEY, LEASE):
        local = tmp_path / file.path.rpartition("/")[2]
        local.write_bytes(file.content.get_secret_value())
        local.chmod(int(file.mode, 8))
    assert serve_unit.read_private(str(tmp_path / "one.token")).strip().decode() == KEY
    assert serve_unit.read_private(str(tmp_path / "one.secret")).strip().decode() == LEASE


def test_sglang_reads_the_key_from_a_file_of_options() -> None:
    found = locked(unit(NEMOTRON, api={"port": 30000, "key": {"env": "KEY"}}), 8)
    texts = [file.content.get_secret_value() for file in desired.private_files(found, "n0", 'a"b\\c', LEASE)]
    assert texts[1] == b'api-key: "a\\"b\\\\c"\n'


@pytest.mark.parametrize("key", ["", "two words", "a\nVLLM_PLUGINS=x", "caf\u00e9", "\0"])
def test_a_key_that_cannot_be_written_is_refused_without_quoting_it(key: str) -> None:
    with pytest.raises(ValueError, match=r"one\.api\.key: the key must have printable ASCII") as caught:
        desired.private_files(locked(WITH_KEY), "n0", key, LEASE)
    assert not key or key not in str(caught.value)


def test_a_key_and_its_declaration_go_together() -> None:
    with pytest.raises(ValueError, match="the key is not declared"):
        desired.private_files(locked(), "n0", KEY, LEASE)
    with pytest.raises(ValueError, match="the key is missing"):
        desired.private_files(locked(WITH_KEY), "n0", None, LEASE)
    with pytest.raises(ValueError, match="lease secret of unit one"):
        desired.private_files(locked(), "n0", None, "short")


# The page


def test_the_example_of_the_page_is_what_is_written() -> None:
    found = example()
    lines = [f"{'path':<72}mode  nodes"]
    head, worker = (desired.files(found, node) for node in found.nodes[:2])
    private = [desired.private_files(found, node, KEY, LEASE) for node in found.nodes[:2]]
    everywhere = {file.path for file in worker} | {file.path for file in private[1]}
    everywhere |= {file.path for file in programs.programs()}
    rows = [(file.path, file.mode) for file in (*programs.programs(), *head)]
    rows += [(file.path, file.mode) for file in private[0]]
    lines += [f"{path:<72}{mode:<6}{'all' if path in everywhere else 'head'}" for path, mode in rows]
    generated.check("docs/reference/serving.md", "unit files", "\n".join([*lines, ""]))
    service = content(head, "sparkrack-serve-deepseek_v4_flash.service").partition("\n# This service")[0]
    generated.check("docs/reference/serving.md", "service of a rank", f"{service}")
    generated.check("docs/reference/serving.md", "arguments of a rank", content(worker, "deepseek_v4_flash.args"))
