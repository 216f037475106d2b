"""What a unit may declare: the keys that are refused, each with its line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from core.model.declared_secrets import declared_secrets
from serving.engines.engine import RANK_OPTIONS
from serving.engines.option_table import table
from serving.options import ServedUnit
from tests.unit.model.serving_racks import (
    VLLM,
    loaded,
    machines,
    refusals,
    text,
    unit,
)
from tests.unit.serving.declared_units import BY_CABLE, HIDES, OWN_INTERFACE, P, nemotron, qwen


@pytest.mark.parametrize(
    "file",
    [
        text(qwen()),
        text(qwen(nodes="all")),
        text(qwen(nodes=["n1"], parallel=None)),
        text(qwen(memory=None, kv="20G")),
        text(qwen(engine="vllm-ray", version="0.10.2")),
        text(qwen(nodes=["n1"], parallel=None, version="0.10.2")),
        text(qwen(parallel={"pipeline": 2})),
        text({**qwen(nodes=["n0"], parallel=None), "other": unit(nodes=["n1"], parallel=None)}),
        text({**qwen(), "other": unit(state="down")}),
        text(nemotron(), machines(8)),
        text(qwen(), machines(4, "ring")),
        text(qwen(env={"NCCL_IB_DISABLE": "0", "NCCL_NET": "IB", "NCCL_NET_PLUGIN": "none"})),
        text(qwen(env={"NCCL_DEBUG": "TRACE", "NCCL_DEBUG_SUBSYS": "init,net,graph"})),
        text(qwen(kind="completion", probe={"answer": False})),
        text(qwen(args={"enable-auto-tool-choice": True, "tool-call-parser": "hermes"}, probe={"tool": True})),
        text(qwen(args={"enable-auto-tool-choice": False})),
        text(qwen(args={"compilation-config": {"cudagraph_mode": "PIECEWISE", "custom_ops": [None, {"a": []}]}})),
    ],
)
def test_a_sound_unit_is_accepted(file: str) -> None:
    assert refusals(file) == []


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"engine": "vlm"}, f"{P}.engine @ engine: vlm is not known; did you mean vllm?"),
        ({"version": 0.19}, f'{P}.version @ version: 0.19 is a number to YAML; write it in quotes: "0.19"'),
        (
            {"version": "0.9.2"},
            (
                f"{P}.version @ version: vLLM 0.9.2: its options are unknown; the table has releases from 0.10.2 "
                "to 0.33.0; use one of them, or add this one as docs/reference/engine-options.md says"
            ),
        ),
        (
            {"version": "0.10.2"},
            (
                f"{P}.engine @ engine: vLLM 0.10.2 joins nodes with Ray only; --nnodes is known since 0.11.2; "
                "write vllm-ray, or a version from 0.11.2"
            ),
        ),
        (
            {"image": "nvcr.io/nvidia/vllm:26.05-py3"},
            f"{P}.image @ image: nvcr.io/nvidia/vllm:26.05-py3 is not one of images; did you mean {VLLM}?",
        ),
        (
            {"image": "acme/engine:1"},
            f"{P}.image @ image: acme/engine:1 is not one of images; add it there, so that every node has it",
        ),
        ({"model": "qwem"}, f"{P}.model @ model: qwem is not one of models; did you mean qwen?"),
        (
            {"nodes": ["n0", "n9"]},
            f"{P}.nodes.1 @ - n9: there is no node called n9; write the name of a node in this file",
        ),
        ({"nodes": ["n0", "n0"]}, f"{P}.nodes.1 @ - n0: n0 is listed twice; list every node once"),
        (
            {"nodes": []},
            (
                f"{P}.nodes @ nodes: is not a list of nodes; write their names in rank order, like [spark1, spark2], "
                "or all"
            ),
        ),
        (
            {"parallel": {"tensor": 3}},
            (
                f"{P}.parallel @ parallel: tensor 3 x pipeline 1 is 3 ranks for 2 nodes; "
                "write a product of 2, like {tensor: 2, pipeline: 1}"
            ),
        ),
        ({"context": None}, f"{P}.context @ qwen: is missing; write context: 65536"),
        ({"memory": 0.92}, f"{P}.memory @ memory: 0.92 leaves 9.7 GiB for the host; write at most 0.90"),
        ({"memory": "80%"}, f"{P}.memory @ memory: 80% is not a share; write a number, like 0.80"),
        (
            {"memory": None},
            (
                f"{P} @ qwen: has neither memory nor kv; write one: memory for the share of a node that the "
                "engine takes, "
                "kv for the size of its cache"
            ),
        ),
        (
            {"kv": "20G"},
            (
                f"{P} @ qwen: has both memory and kv; write one: memory for the share of a node that the engine takes, "
                "kv for the size of its cache"
            ),
        ),
        (
            {"args": {"prefix-caching": True}},
            (
                f"{P}.args.prefix-caching @ prefix-caching: --prefix-caching is not an option of vLLM 0.19.1; "
                "did you mean --enable-prefix-caching? or give the "
                "reason why the image has it at accept.prefix-caching"
            ),
        ),
        (
            {"version": "0.19.0", "args": {"prefix-caching": True}},
            (
                f"{P}.args.prefix-caching @ prefix-caching: --prefix-caching is not an option of vLLM 0.19.0 "
                "(0.19.0 is "
                "judged by 0.19.1); did you mean --enable-prefix-caching? or give the "
                "reason why the image has it at accept.prefix-caching"
            ),
        ),
        (
            {"args": {"quantization": None}},
            f"{P}.args.quantization @ quantization: is empty; give it a value, true for a flag, or remove the key",
        ),
        (
            {"env": {"NCCL_IB_DISABLE": " 0x1"}},
            f"{P}.env.NCCL_IB_DISABLE @ NCCL_IB_DISABLE: turns RDMA off, so that the ranks talk over TCP; remove it",
        ),
        (
            {"env": {"NCCL_IB_DISABLE": 1}},
            f'{P}.env.NCCL_IB_DISABLE @ NCCL_IB_DISABLE: 1 is not a text to YAML; write it in quotes: "1"',
        ),
        *(
            ({"env": {name: value}}, f"{P}.env.{name} @ {name}: {what}; remove it")
            for name, value, what in [
                ("NCCL_NET", "Socket", "takes RDMA away, so that the ranks talk over TCP"),
                ("NCCL_IB_HCA", "=rocep1s0f1", f"names the RDMA devices, {BY_CABLE}: others are slow, or do not start"),
                ("NCCL_IB_GID_INDEX", "3", "pins the GID index: one that is wrong on one node breaks every connection"),
                ("NCCL_SOCKET_IFNAME", "wlP9s9", OWN_INTERFACE),
                ("GLOO_SOCKET_IFNAME", "wlP9s9", OWN_INTERFACE),
                ("TP_SOCKET_IFNAME", "wlP9s9", OWN_INTERFACE),
                ("UCX_NET_DEVICES", "mlx5_0:1", f"names the devices of UCX, {BY_CABLE}"),
                (
                    "NCCL_CONF_FILE",
                    "/models/nccl.conf",
                    "has NCCL read a file that may take RDMA away, and is not one of the launcher's",
                ),
                ("NCCL_DEBUG", "WARN", HIDES),
                ("NCCL_DEBUG_SUBSYS", "INIT,COLL", HIDES),
                (
                    "NCCL_DEBUG_FILE",
                    "/models/nccl.%h",
                    "takes the line in which NCCL says what network it uses out of the journal",
                ),
            ]
        ),
        (
            {"args": {"enable-auto-tool-choice": True}},
            (
                f"{P}.args.enable-auto-tool-choice @ enable-auto-tool-choice: vLLM ends at its start without "
                "tool-call-parser; add tool-call-parser, the one of this model, to args"
            ),
        ),
        (
            {"args": {"tool-call-parser": "hermes"}},
            (
                f"{P}.args.tool-call-parser @ tool-call-parser: vLLM gives tool calls as text without "
                "enable-auto-tool-choice; add enable-auto-tool-choice: true to args"
            ),
        ),
        (
            {"probe": {"tool": True}},
            (
                f"{P}.probe.tool @ tool: vLLM gives tool calls as text without tool-call-parser; add tool-call-parser, "
                "the one of this model, to args"
            ),
        ),
        (
            {"env": {"HF_TOKEN": "hf_abcdef"}},
            f"{P}.env.HF_TOKEN @ HF_TOKEN: a secret does not belong in this file; remove it",
        ),
        (
            {"env": {"VLLM_API_KEY": "sk-abcdef"}},
            (
                f"{P}.env.VLLM_API_KEY @ VLLM_API_KEY: a secret does not belong in this file; "
                "write a reference at api.key, like {file: qwen.key}"
            ),
        ),
        (
            {"env": {"VLLM_HOST_IP": "10.77.0.11"}},
            f"{P}.env.VLLM_HOST_IP @ VLLM_HOST_IP: is the address of each node, which the launcher sets; remove it",
        ),
        (
            {"api": {"port": 40000}},
            (
                f"{P}.api.port @ port: 40000 is one of 32768 to 60999, which the kernel gives to outgoing connections; "
                "write another, like 8000"
            ),
        ),
        (
            {"api": {"direct": ["10.9.0.0/16"]}},
            (
                f"{P}.api.direct @ direct: names machines that reach the engine, and it listens on loopback; "
                "write listen: management, or remove it"
            ),
        ),
        (
            {"engine": "vllm-ray", "api": {"listen": "management", "direct": ["10.9.0.0/16"]}},
            (
                f"{P}.api.direct @ direct: opens the ports of Ray to these machines, and by them a Ray without tokens "
                "runs their code as root; remove it, and write serving.gateway for clients"
            ),
        ),
        (
            {"api": {"port": 29400}},
            f"{P}.api.port @ port: 29400 is already serving.port, that of the coordinators; write another, like 8000",
        ),
        (
            {"api": {"port": 29501}},
            (
                f"{P}.api.port @ port: 29501 is already the port by which the ranks of a unit find each other; "
                "write another, like 8000"
            ),
        ),
        ({"api": {"port": 22}}, f"{P}.api.port @ port: 22 is already the port of sshd; write another, like 8000"),
        (
            {"restart": {"within": "30"}},
            f"{P}.restart.within @ within: 30 is not a duration; write a whole number of s, m or h, like 30s",
        ),
        ({"probe": {"answer": {"ask": "2+2="}}}, f"{P}.probe.answer.say @ answer: is missing; write say: 4"),
        (
            {"probe": {"answer": "none"}},
            (
                f"{P}.probe.answer @ answer: none is not a mapping; write keys with values below it, like "
                '{ask: "2+2=", say: "4"}'
            ),
        ),
        ({"fit": {"override": " "}}, f"{P}.fit.override @ override: is blank; write a text"),
        ({"nnodes": 2}, f"{P}.nnodes @ nnodes: unknown key; did you mean nodes?"),
    ],
)
def test_a_mistake_in_a_unit_is_refused(keys: dict[str, Any], expected: str) -> None:
    assert refusals(text(qwen(**keys))) == [expected]


@pytest.mark.parametrize("form", ["sk-abcdef", ["sk-abcdef"], {"sk-abcdef": 1}, {"file": ["sk-abcdef"]}])
def test_a_literal_key_is_refused_and_is_not_repeated(form: object) -> None:
    found = refusals(text(qwen(api={"key": form})))
    assert found
    assert "sk-abcdef" not in "".join(found)
    if form == "sk-abcdef":
        assert found == [
            (
                f"{P}.api.key @ key: a password does not belong in this file; "
                "name where it is kept: {env: VARIABLE}, {file: path} or {command: [program, argument]}"
            )
        ]


def test_a_literal_key_that_is_written_as_a_name_is_not_repeated() -> None:
    file = text(qwen(api={"key": "HERE"})).replace("key: HERE", "key: {sk-abcdef: 1, sk-abcdef: 2}")
    found = refusals(file)
    assert f"{P}.api.key @ key: is written twice, first on line" in found[0]
    assert "sk-abcdef" not in "".join(line.partition(" @ ")[0] + line.partition(": ")[2] for line in found)


def test_the_key_of_a_unit_is_a_declared_secret() -> None:
    rack = loaded(text(qwen(api={"key": {"env": "QWEN_KEY"}})))
    (secret,) = (one for one in declared_secrets(rack) if one.path[0] == "serving")
    assert secret.path == ("serving", "units", "qwen", "api", "key")
    assert str(secret.ref) == "environment variable QWEN_KEY"


@pytest.mark.parametrize("name", ["Qwen", "qwen-3", "", "_q", "q" * 32])
def test_a_name_that_systemd_would_nest_is_refused(name: str) -> None:
    (found,) = refusals(text({name: unit()}))
    assert "cannot be the name of a unit" in found


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_each_option_of_the_launcher_is_refused_in_args(engine: Any) -> None:
    version = {"vllm": "0.19.1", "sglang": "0.5.12"}[engine]
    options = table(engine).of(version)
    names = [name for name in RANK_OPTIONS if f"--{name}" in options]
    needed = {
        *("nnodes", "node-rank", "host", "port", "api-key", "tensor-parallel-size", "pipeline-parallel-size"),
        *(
            (
                *("master-addr", "master-port", "headless", "distributed-executor-backend", "max-model-len"),
                *("max-num-seqs", "gpu-memory-utilization", "kv-cache-memory-bytes"),
            )
            if engine == "vllm"
            else ("dist-init-addr", "tp-size", "pp-size", "context-length", "mem-fraction-static", "ep-size")
        ),
    }
    assert needed <= set(names)
    keys = {"engine": engine, "version": version, "args": dict.fromkeys(names, 1)}
    found = refusals(text(qwen(**keys)))
    others = ("config", "enable-metrics", "disable-log-stats")
    assert [line.partition(" @ ")[0] for line in found if "follows from" in line or "is a secret" in line] == [
        f"{P}.args.{name}" for name in names if name not in others
    ]
    metrics = {"vllm": "disable-log-stats turns off the", "sglang": "enable-metrics is set for each unit: its"}[engine]
    assert any(f"--{metrics} metrics that tell" in line or f"--{metrics} metrics tell" in line for line in found)
    assert all(line.endswith("; remove it from args") for line in found)


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        (29501, "29501 is already the port by which the ranks of a unit find each other; write another, like 29400"),
        (
            32768,
            "32768 is one of 32768 to 60999, which the kernel gives to outgoing connections; write another, like 29400",
        ),
        (60999, "60999 is one of 32768 to 60999"),
        (18600, "18600 is already a port of `sparkrack verify --bandwidth`; write another, like 29400"),
    ],
)
def test_the_port_of_the_coordinators_is_free(port: int, expected: str) -> None:
    (found,) = refusals(text(qwen(), port=port))
    assert found.startswith(f"serving.port @ port: {expected}")


@pytest.mark.parametrize("port", [1, 29400, 32767, 61000])
def test_other_ports_are_accepted(port: int) -> None:
    assert refusals(text(qwen(), port=port)) == []


def test_a_ring_has_no_fabric_address_that_all_reach() -> None:
    hosts = machines(3, "ring")
    assert refusals(text(qwen(api={"listen": "fabric"}), hosts)) == [
        (
            f"{P}.api.listen @ listen: n0 has an address for each of its cables, and none that all nodes reach; "
            "write management"
        )
    ]
    assert refusals(text(qwen(), hosts, rdma={"sockets": "fabric"})) == [
        (
            "rdma.sockets @ sockets: cables between 3 nodes give each pair addresses of its own, and none that "
            "all reach; "
            "write management"
        )
    ]
    assert refusals(text(qwen(api={"listen": "fabric"}))) == []


def test_ranks_of_a_ring_follow_its_cables() -> None:
    hosts = machines(4, "ring")
    assert refusals(text(qwen(nodes=["n3", "n0"]), hosts)) == []
    assert refusals(text(qwen(nodes=["n0", "n2"]), hosts)) == [
        (
            f"{P}.nodes @ nodes: no cable joins n0 and n2, which follow each other in rank, and there is no switch; "
            "list nodes in the order in which they are cabled"
        )
    ]


def test_sglang_takes_no_size_of_a_cache() -> None:
    assert refusals(text(nemotron(memory=None, kv="20G"), machines(8))) == [
        "serving.units.nemotron.kv @ kv: SGLang takes no size of its cache; write memory, the share of a node"
    ]


def test_a_lock_file_that_cannot_be_used_is_refused_beside_the_mistakes(tmp_path: Path) -> None:
    found = refusals(text(qwen(state="sideways")), {"qwen": {}})
    assert len(found) == 2
    assert "rack.lock.json: models.qwen: " in found[1]


@pytest.mark.parametrize(
    ("engine", "kept"),
    [("vllm", "10G"), ("vllm-ray", "10G"), ("sglang", "10G"), ("llama.cpp", None), ("custom", None)],
)
def test_what_an_engine_in_python_compiles_is_kept_unless_the_unit_says_none(engine: str, kept: str | None) -> None:
    keys: dict[str, Any] = {
        "name": "one",
        "engine": engine,
        "model": "m",
        "image": "i:1",
        "version": "1",
        "nodes": ["n1"],
    }
    keys |= {"context": 1024, "api": {"port": 8000}, "memory": 0.5}
    keys |= {"custom": {"command": ["serve", "--port", "{port}"]}} if engine == "custom" else {}
    caches: tuple[dict[str, str], ...] = ({}, {"cache": "2G"}, {"cache": "none"})
    found = [ServedUnit.model_validate({**keys, **cache}).kept_cache for cache in caches]
    assert found == [kept, "2G", None]


@pytest.mark.parametrize("value", ["nothing", "0G", False, "8192G"])
def test_a_cache_is_a_size_or_none(value: object) -> None:
    (found,) = refusals(text(qwen(cache=value)))
    assert re.search(r"(is not an amount of disk|does not fit the disk of a GB10 node); write ", found)
