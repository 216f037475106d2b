"""`serving:` of a rack file: what is refused at load, each by its line, and what is only a warning of `check`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.model import image_lock, load, model_lock
from core.model.declared_secrets import declared_secrets
from core.model.errors import truncate
from core.model.lock_file import lock_path
from serving import calibration
from serving import rules as serving_rules
from serving.engines.engine import RANK_OPTIONS
from serving.engines.memory_fit import Parallel
from serving.engines.model_shape import read
from serving.engines.option_table import table
from serving.fit import unit_fit
from serving.options import served_units
from tests.unit.model.serving_racks import (
    CONFIGS,
    MEASURED_WITH,
    NEMOTRON,
    QWEN,
    SGLANG,
    VLLM,
    loaded,
    machines,
    put,
    record,
    refusals,
    text,
    unit,
)

QWEN_SIZE = 124 * 10**9
RECORDS = {
    "qwen": record("Qwen3-235B-A22B", QWEN_SIZE),
    "nemotron": record("NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4", 326 * 10**9, model_type="nemotron_h"),
}
P = "serving.units.qwen"
BY_CABLE = "which the launcher does by the cable of each node"
OWN_INTERFACE = (
    "names the interface of each node, which the launcher does: another one, or none, ends or slows the ranks"
)
HIDES = "hides the line in which NCCL says what network it uses, which a start reads"
TWO_OF_FOUR = {"nodes": ["n0", "n1"]}


def qwen(**keys: Any) -> dict[str, Any]:
    """The units of a rack file: only this one."""
    return {"qwen": unit(QWEN, **keys)}


def nemotron(**keys: Any) -> dict[str, Any]:
    return {"nemotron": unit(NEMOTRON, **keys)}


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
        ({"version": "0.19"}, f"{P}.version @ version: vLLM: '0.19' is not a version; write it as 0.21.0"),
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
        (
            {"parallel": None},
            (
                f"{P}.parallel @ qwen: tensor 1 x pipeline 1 is 1 rank for 2 nodes; "
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
            {"args": {"max_num_batched_tokens": 8192}},
            (
                f"{P}.args.max_num_batched_tokens @ max_num_batched_tokens: max_num_batched_tokens is not the long "
                "name of an option; write max-num-batched-tokens"
            ),
        ),
        (
            {"args": {"kv-cache-dtype": "fp7"}},
            (
                f"{P}.args.kv-cache-dtype @ kv-cache-dtype: --kv-cache-dtype takes one of auto, bfloat16, "
                "float16, fp8, "
                "fp8_ds_mla, fp8_e4m3, fp8_e5m2, fp8_inc in vLLM 0.19.1, not 'fp7'; did you mean fp8?"
            ),
        ),
        (
            {"args": {"block-size": "many"}},
            (
                f"{P}.args.block-size @ block-size: --block-size takes a whole number in vLLM 0.19.1, not 'many'; "
                "write another value"
            ),
        ),
        (
            {"args": {"quantization": None}},
            f"{P}.args.quantization @ quantization: is empty; give it a value, true for a flag, or remove the key",
        ),
        (
            {"env": {"NCCL_IB_DISABLE": "1"}},
            f"{P}.env.NCCL_IB_DISABLE @ NCCL_IB_DISABLE: turns RDMA off, so that the ranks talk over TCP; remove it",
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
        ({"probe": {"ready": "25h"}}, f"{P}.probe.ready @ ready: 25h is too long; write at most 24h"),
        ({"probe": {"answer": {"ask": "2+2="}}}, f"{P}.probe.answer.say @ answer: is missing; write say: 4"),
        (
            {"probe": {"answer": "none"}},
            (
                f"{P}.probe.answer @ answer: none is not a mapping; write keys with values below it, like "
                '{ask: "2+2=", say: "4"}'
            ),
        ),
        ({"fit": {"override": " "}}, f"{P}.fit.override @ override: is blank; write a text"),
        ({"shm": "1M"}, f"{P}.shm @ shm: 1M is not a fit size for shared memory; write 64M to 64G"),
        (
            {"state": "sideways"},
            f"{P}.state @ state: sideways is not known; choose from up, down",
        ),
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


def test_an_engine_leaves_the_host_what_it_needs() -> None:
    memory = {"floor": "8G", "min_free_kbytes": 1572864}
    assert refusals(text(qwen(memory=0.88), memory=memory)) == []
    assert refusals(text(qwen(memory=0.89), memory=memory)) == [
        (
            f"{P}.memory @ memory: 0.89 leaves 13.4 GiB for the host, which needs 13.5 (memory.floor 8.0, "
            "memory.min_free_kbytes 1.5, system 4); write at most 0.88"
        )
    ]
    assert refusals(text(qwen(memory=0.89), memory=memory, leave=["memory"])) == []


def test_a_crash_kernel_takes_its_memory_from_engine_and_host() -> None:
    """What fits without it is refused at load with it, and the message names its key."""
    memory, kdump = {"floor": "9G", "min_free_kbytes": 1572864}, {"kdump": {"reserve": "4G"}}
    assert refusals(text(qwen(memory=0.88), memory=memory)) == []
    assert refusals(text(qwen(memory=0.88), memory=memory, blackbox={"kdump": False})) == []
    assert refusals(text(qwen(memory=0.88), memory=memory, blackbox=kdump)) == [
        (
            f"{P}.memory @ memory: 0.88 leaves 14.1 GiB for the host, which needs 14.5 (memory.floor 9.0, "
            "memory.min_free_kbytes 1.5, system 4); write at most 0.87"
        )
    ]
    units = qwen(memory=0.57, args={"kv-cache-dtype": "fp8"})
    assert refusals(text(units), RECORDS) == []
    assert refusals(text(units, blackbox={}), RECORDS) == []
    (found,) = refusals(text(units, blackbox=kdump), RECORDS)
    assert (
        "and 0.57 of 117.69 GiB (of 121.69, blackbox.kdump reserves 4.00) is 67.1; write at least 0.59, or a shorter"
        in found
    )


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


@pytest.mark.parametrize(
    ("config", "parallel", "nodes", "expected"),
    [
        ("Qwen3-235B-A22B", {"tensor": 3}, 3, "64 attention heads are not divisible by TP=3"),
        ("Qwen3-235B-A22B", {"tensor": 3}, 3, "4 key-value heads and TP=3 do not divide one another"),
        (
            "MiniMax-M2.5",
            {"tensor": 8},
            8,
            "the width 192 of an expert's slice at TP=8 is not divisible by the block of 128",
        ),
    ],
)
def test_a_split_that_the_model_refuses_is_refused(
    config: str, parallel: dict[str, int], nodes: int, expected: str
) -> None:
    units = qwen(parallel=parallel, nodes="all", args={"kv-cache-dtype": "fp8"})
    found = refusals(text(units, machines(nodes)), {"qwen": record(config, 100 * 10**9)})
    assert f"{P}.parallel @ parallel: {expected}; write another split; it fits on " in "\n".join(found)
    assert refusals(text(units, machines(nodes)), {}) == []


def test_a_model_that_does_not_fit_is_refused_with_the_sum() -> None:
    large = {"qwen": record("Qwen3-235B-A22B", 230 * 10**9)}
    keys: dict[str, Any] = {"args": {"kv-cache-dtype": "fp8"}, "context": 131072}
    assert refusals(text(qwen(**keys), machines(4)), large) == [
        (
            f"{P}.memory @ memory: qwen needs 121.0 GiB a node (weights 107.1, keys and values 5.9, overhead 8.0), and "
            "0.80 of 121.69 GiB is 97.4; write a shorter context, or fewer sequences; it fits on 3, 4, 5, 6, 7, "
            "8 nodes; "
            "or give the reason why it does at fit.override"
        )
    ]
    assert refusals(text(qwen(**keys, fit={"override": "seen to run"}), machines(4)), large) == []


def test_a_share_that_is_too_small_names_the_one_that_is_enough() -> None:
    units = qwen(memory=0.5, args={"kv-cache-dtype": "fp8"})
    (found,) = refusals(text(units), RECORDS)
    assert "and 0.50 of 121.69 GiB is 60.8; write at least 0.57, or a shorter context" in found
    assert refusals(text(qwen(memory=0.57, args={"kv-cache-dtype": "fp8"})), RECORDS) == []


def test_a_cache_of_a_given_size_must_fit_too() -> None:
    (found,) = refusals(text(qwen(memory=None, kv="60G")), RECORDS)
    assert found.startswith(f"{P}.kv @ kv: qwen needs 125.7 GiB a node (weights 57.7, keys and values 60.0, ")
    (small,) = refusals(text(qwen(memory=None, kv="1G")), RECORDS)
    assert small == (
        f"{P}.kv @ kv: 1G has no room for one sequence of 65536 tokens, which takes 5.9 GiB; "
        "write at least 6G, or a shorter context"
    )


def test_what_was_measured_replaces_the_estimate() -> None:
    good: dict[str, Any] = {
        "tensor": 2,
        "pipeline": 1,
        "share": 0.87,
        "weights": 57.64,
        "kv": 30.0,
        "kv_tokens": 700000,
    }
    good = {**good, "measured_with": MEASURED_WITH}
    units = qwen(memory=0.57, args={"kv-cache-dtype": "fp8"})
    (found,) = refusals(text(units), RECORDS, {"qwen": {"calibration": good}})
    assert "overhead 18.1" in found
    assert refusals(text(units), RECORDS, {"qwen": {"calibration": {**good, "tensor": 4}}}) == []
    assert refusals(text(units), RECORDS, {"qwen": {"calibration": {**good, "kv": "30"}}}) != []
    assert refusals(text(units), RECORDS, {"qwen": {"calibration": {**good, "kv": None}}}) == []


def test_a_measurement_of_another_model_does_not_make_a_large_one_fit(tmp_path: Path) -> None:
    """`serve calibrate`, then another model: the figures of the first one do not count for it."""
    large = {"qwen": record("Qwen3-235B-A22B", 400 * 10**9)}
    small = {"tensor": 2, "pipeline": 1, "share": 0.8, "weights": 20.0, "kv": 70.0, "kv_tokens": 2_000_000}
    file = text(qwen(args={"kv-cache-dtype": "fp8"}))
    for entry in (small, {**small, "measured_with": {**MEASURED_WITH, "revision": "f" * 40}}):
        (found,) = refusals(file, large, {"qwen": {"calibration": entry}})
        assert "qwen needs 197.2 GiB a node (weights 186.3" in found


@pytest.mark.parametrize(
    ("keys", "key", "words"),
    [
        ({"args": {"cpu-offload-gb": 40}}, "cpu-offload-gb", "takes 40.0 GiB of the host's memory on each node"),
        ({"args": {"kv-offloading-size": 60}, "version": "0.31.0"}, "kv-offloading-size", "takes 30.0 GiB"),
        ({"args": {"swap-space": 64}, "version": "0.17.1"}, "swap-space", "takes 64.0 GiB"),
    ],
)
def test_host_memory_beside_the_share_of_the_engine_is_refused(keys: dict[str, Any], key: str, words: str) -> None:
    """One pool: 0.80 and 40 GiB are 137.4 of 121.69. Known without the model, so that it is said before a fetch."""
    for models in (RECORDS, {}):
        (found,) = refusals(text(qwen(**keys)), models)
        assert found.startswith(f"{P}.args.{key} @ {key}: {words}")
        assert "and a node gives it at most 109.5; " in found
    assert refusals(text(qwen(**keys, fit={"override": "the weights are small"})), RECORDS) == []


def test_the_cache_of_sglang_on_the_host_is_a_multiple_of_that_on_the_gpu() -> None:
    (found,) = refusals(text(nemotron(args={"enable-hierarchical-cache": True}), machines(8)), RECORDS)
    # 0.85 of 121.69 GiB, less 38.0 of weights, 8 of overhead and the state: twice what is left.
    assert "args.enable-hierarchical-cache @ " in found
    assert "takes 114" in found
    assert refusals(text(nemotron(args={"hicache-ratio": 3.0}), machines(8)), RECORDS) == []


def test_a_small_amount_of_host_memory_takes_from_what_the_host_needs() -> None:
    sound = text(qwen(memory=0.78, args={"cpu-offload-gb": 5}), memory={"floor": "8G"})
    assert refusals(sound, RECORDS) == []
    (found,) = refusals(text(qwen(memory=0.78, args={"cpu-offload-gb": 14}), memory={"floor": "8G"}), RECORDS)
    assert found.startswith(
        f"{P}.memory @ memory: 0.78 with 14.0 GiB of the host's memory that its args take leaves 12.8"
    )


def test_eight_slices_of_experts_that_are_spread_are_no_mistake() -> None:
    """vLLM's recipe for MiniMax M2: eight GPUs with --enable-expert-parallel, since 1536 / 8 is not a block of 128."""
    keys: dict[str, Any] = {"nodes": "all", "args": {"kv-cache-dtype": "fp8"}}
    models = {"qwen": record("MiniMax-M2.5", 230 * 10**9)}
    spread = qwen(parallel={"tensor": 8, "expert": True}, **keys)
    assert refusals(text(spread, machines(8)), models) == []
    assert "block of 128" in refusals(text(qwen(parallel={"tensor": 8}, **keys), machines(8)), models)[0]


def test_what_is_known_of_an_unknown_model_can_be_too_much() -> None:
    keys: dict[str, Any] = {"args": {"kv-cache-dtype": "fp8"}}
    assert refusals(text(qwen(**keys)), {"qwen": record("DeepSeek-V4.1-Flash", 150 * 10**9)}) == []
    (found,) = refusals(text(qwen(**keys)), {"qwen": record("DeepSeek-V4.1-Flash", 510_313_353_565)})
    assert "qwen needs more than 245.6 GiB a node (weights 237.6, overhead 8.0)" in found
    assert "it fits on" not in found


def test_a_measurement_makes_an_unknown_model_known(tmp_path: Path) -> None:
    models = {"qwen": record("GLM-5.3-Flash", 150 * 10**9)}
    good = {"tensor": 2, "pipeline": 1, "share": 0.8, "weights": 70.0, "kv": 17.0, "kv_tokens": 1_000_000}
    units = {"qwen": {"calibration": {**good, "measured_with": MEASURED_WITH}}}
    file = text(qwen(args={"kv-cache-dtype": "fp8"}))
    assert notes(file, tmp_path, models, units) == []
    (note,) = notes(text(qwen(args={"kv-cache-dtype": "fp8"}, context=131072)), tmp_path, models, units)[:1]
    assert note == (
        f"{P}: the calibration in the lock file does not count: it was measured with context 65536, now 131072; "
        "`sparkrack serve calibrate qwen` measures it again"
    )


@pytest.mark.parametrize(("version", "known"), [("0.21.0", True), ("0.26.0", False)])
def test_deepseek_v4_is_known_with_the_releases_that_were_reported(version: str, known: bool, tmp_path: Path) -> None:
    models = {"qwen": record("DeepSeek-V4-Flash", 158 * 10**9)}
    found = notes(text(qwen(version=version, args={"kv-cache-dtype": "fp8"})), tmp_path, models)
    assert found == [] if known else "its compressed attention is known with vLLM before 0.26.0 only" in found[0]


@pytest.mark.parametrize(
    ("keys", "kv"),
    [
        ({"version": "0.21.0"}, 1.268),
        ({"version": "0.29.0"}, 1.408),
        ({"version": "0.29.0", "args": {"max-num-batched-tokens": 2048}}, 1.198),
        ({"version": "0.29.0", "args": {"disable-hybrid-kv-cache-manager": True}}, 2.25),
        ({"engine": "sglang", "version": "0.5.12", "image": SGLANG}, 2.025),
    ],
)
def test_layers_with_a_window_keep_what_the_engine_reserves(keys: dict[str, Any], kv: float) -> None:
    rack = loaded(text(qwen(**keys)), {"qwen": record("gpt-oss-120b", 65 * 10**9)})
    found = unit_fit(served_units(rack)["qwen"], read(CONFIGS / "gpt-oss-120b"), 65e9, Parallel(2, 1))
    assert found.fit.kv == pytest.approx(kv, abs=0.001)


@pytest.mark.parametrize(
    ("keys", "layers"),
    [
        ({}, 12),
        ({"args": {"speculative-config": {"method": "mtp", "num_speculative_tokens": 2}}}, 13),
        ({"args": {"speculative-config": '{"method": "qwen3_next_mtp", "num_speculative_tokens": 2}'}}, 13),
        ({"args": {"speculative-config": {"method": "ngram", "num_speculative_tokens": 2}}}, 12),
        ({"engine": "sglang", "version": "0.5.12", "image": SGLANG, "args": {"speculative-algorithm": "NEXTN"}}, 13),
    ],
)
def test_a_layer_of_multi_token_prediction_keeps_keys_and_values(keys: dict[str, Any], layers: int) -> None:
    rack = loaded(text(qwen(**keys)), {"qwen": record("Qwen3.5-122B-A10B-NVFP4", 77 * 10**9)})
    shape = read(CONFIGS / "Qwen3.5-122B-A10B-NVFP4")
    found = unit_fit(served_units(rack)["qwen"], shape, 77e9, Parallel(2, 1))
    assert found.fit.token_bytes == layers * 2 * 1 * 256 * 2
    assert found.fit.unknown == {}


def test_gemma_4_before_vllm_0_21_is_unknown(tmp_path: Path) -> None:
    models = {"qwen": record("gemma-4-31B", 62 * 10**9)}
    assert "before vLLM 0.21.0" in notes(text(qwen()), tmp_path, models)[0]
    assert notes(text(qwen(version="0.21.0")), tmp_path, models) == []


def test_multi_token_prediction_of_nemotron_needs_the_radix_cache_off() -> None:
    args = {"speculative-algorithm": "NEXTN", "speculative-num-steps": 3, "kv-cache-dtype": "fp8_e4m3"}
    hosts = machines(8)
    assert refusals(text(nemotron(args=args), hosts), RECORDS) == [
        (
            "serving.units.nemotron.args.speculative-algorithm @ speculative-algorithm: NEXTN does not work "
            "with the radix "
            "cache of a Nemotron-H model; add disable-radix-cache: true to args"
        )
    ]
    assert refusals(text(nemotron(args={**args, "disable-radix-cache": True}), hosts), RECORDS) == []
    assert refusals(text(nemotron(args=args), hosts), {"nemotron": record("Qwen3-235B-A22B", QWEN_SIZE)}) == []


def test_a_lock_file_that_cannot_be_used_is_refused_beside_the_mistakes(tmp_path: Path) -> None:
    found = refusals(text(qwen(state="sideways")), {"qwen": 5})
    assert len(found) == 2
    assert "rack.lock.json: models.qwen: " in found[1]


def notes(file: str, tmp_path: Path, models: Any = None, units: Any = None) -> list[str]:
    rack = load(put(tmp_path, file, models, units))
    lock = lock_path(rack.source)
    found = serving_rules.notes(rack, model_lock.read(lock), calibration.read(lock), image_lock.known_ids(lock))
    return [f"{'.'.join(map(str, note.path))}: {note.what}; {note.right}" for note in found]


@pytest.mark.parametrize(
    ("keys", "models", "expected"),
    [
        ({}, RECORDS, []),
        (
            {},
            {},
            [
                (
                    f"{P}.model: whether qwen fits, and divides by the split, is unknown: the lock file has no "
                    "record of "
                    "it; `sparkrack apply` fetches the model and records it"
                )
            ],
        ),
        (
            {},
            {"qwen": record("GLM-5.3-Flash", QWEN_SIZE)},
            [
                (
                    f"{P}.model: whether qwen fits is unknown: the architecture glm5_next is not one whose memory is "
                    "known here; start it, and record what it takes with `sparkrack serve calibrate qwen`"
                )
            ],
        ),
        (
            {
                "args": {
                    "speculative-config": {"method": "eagle3", "model": "/opt/draft", "num_speculative_tokens": 3}
                },
                "accept": {"speculative-config": "the image has a draft"},
            },
            RECORDS,
            [
                (
                    f"{P}.model: whether qwen fits is unknown: the lock file has nothing of the draft model, which has "
                    "weights and a cache of its own; start it, and record what it takes with `sparkrack serve "
                    "calibrate qwen`"
                )
            ],
        ),
        (
            {"version": "0.19.0"},
            RECORDS,
            [
                (
                    f"{P}.version: vLLM 0.19.0 is not in the table of options, 0.19.1 judges args; "
                    "what the image takes can differ"
                )
            ],
        ),
        (
            {"api": {"listen": "management"}},
            RECORDS,
            [
                (
                    f"{P}.api: no machine but the nodes of the unit reaches it: there is no gateway, and api.direct "
                    "names "
                    "none; write serving.gateway, or the networks of clients at api.direct"
                )
            ],
        ),
        (
            {"api": {"listen": "management", "direct": ["10.9.0.0/16"]}},
            RECORDS,
            [
                (
                    f"{P}.api: each machine of 10.9.0.0/16 can use the model, as there is no key; "
                    "write a reference at api.key, like {file: qwen.key}"
                ),
                (
                    f"{P}.api.direct: 10.9.0.0/16 reaches each path and port of the unit on its head, past the "
                    "gateway: "
                    "/invocations, /tokenize and more answer without the key; "
                    "serving.gateway lets through what clients need"
                ),
            ],
        ),
        *(
            (
                {"args": {"compilation-config": config}},
                RECORDS,
                [
                    (
                        f"{P}.args.compilation-config: compiles all custom operations at each start, when the weights "
                        "leave little memory for it; write cache, like 20G, which keeps what was compiled"
                    )
                ],
            )
            for config in ({"custom_ops": ["all"]}, '{"custom_ops": ["all"]}')
        ),
        ({"cache": "20G", "args": {"compilation-config": {"custom_ops": ["all"]}}}, RECORDS, []),
        (
            {"memory": 0.5, "fit": {"override": "seen to run"}},
            RECORDS,
            [
                (
                    f"{P}.memory: qwen needs 71.6 GiB a node (weights 57.7, keys and values 5.9, overhead 8.0), "
                    "and 0.50 "
                    "of 121.69 GiB is 60.8; accepted by fit.override: seen to run"
                )
            ],
        ),
    ],
)
def test_what_is_not_a_mistake_is_a_warning(
    keys: dict[str, Any], models: Any, expected: list[str], tmp_path: Path
) -> None:
    assert notes(text(qwen(**keys)), tmp_path, models) == expected


@pytest.mark.parametrize(
    ("image", "lacks"),
    [
        ("nvcr.io/nvidia/vllm:26.04-py3", False),
        ("nvcr.io/nvidia/vllm:26.05-py3", True),
        ("nvcr.io/nvidia/vllm:27.01-py3", True),
        ("nvcr.io/nvidia/vllm@sha256:" + "ab" * 32, False),
        ("vllm/vllm-openai:v0.17.1", False),
        ("vllm/vllm-openai:v0.18.0", True),
        ("docker.io/vllm/vllm-openai:v0.33.0-aarch64", True),
        ("registry.example/nvcr.io/nvidia/vllm:26.05-py3", False),
    ],
)
def test_an_image_that_is_known_to_lack_ray_is_a_warning(image: str, lacks: bool, tmp_path: Path) -> None:
    """Of an image that is not known nothing is said: the gate looks into it."""

    def warnings(**keys: Any) -> list[str]:
        found = notes(text(qwen(image=image, **keys), images=[image]), tmp_path)
        return [note for note in found if note.startswith(f"{P}.image: ")]

    said = (
        f"{P}.image: {truncate(image)} has no Ray, by which vllm-ray joins nodes: the gate will refuse each start; "
        "write engine: vllm, which needs none, or an image that has it"
    )
    assert warnings(engine="vllm-ray") == ([said] if lacks else [])
    assert warnings(engine="vllm") == []
    assert warnings(engine="vllm-ray", nodes=["n0"], parallel=None) == [], "one node needs no Ray"
