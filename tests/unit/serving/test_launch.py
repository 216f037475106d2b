"""What the nodes of a unit run: the lines that owners of three racks publish, as units of a rack file."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

import pytest

from core.model import Rack
from roles.rdma.options import socket_addresses
from serving.engines.command_line import judge
from serving.engines.option_table import Engine
from serving.engines.vllm import INSIDE_AUTOTUNE
from serving.launch import RankLaunch, launches
from serving.options import ServedUnit, served_units
from tests.unit.model.serving_racks import NEMOTRON, QWEN, VLLM, loaded, machines, refusals, text, unit

NEMOTRON_8 = unit(
    NEMOTRON,
    sequences=8,
    args={
        "quantization": "modelopt_fp4",
        "kv-cache-dtype": "fp8_e4m3",
        "attention-backend": "flashinfer",
        "moe-runner-backend": "flashinfer_cutlass",
        "max-mamba-cache-size": 96,
        "cuda-graph-max-bs": 8,
        "disable-piecewise-cuda-graph": True,
    },
    env={"SGLANG_ENABLE_DEEP_GEMM": "0"},
    api={"port": 30000, "listen": "management", "key": {"file": "nemotron.key"}},
)
"""Eight nodes, SGLang 0.5.12, Nemotron 3 Ultra."""
DEEPSEEK_2 = unit(
    version="0.21.1rc1",
    parallel={"tensor": 2, "expert": True},
    context=200000,
    sequences=2,
    memory=0.78,
    cache="20G",
    args={
        "served-model-name": "deepseek-v4-flash",
        "max-num-batched-tokens": 8192,
        "kv-cache-dtype": "fp8",
        "block-size": 256,
        "enable-prefix-caching": True,
        "compilation-config": {"cudagraph_mode": "PIECEWISE"},
        "speculative-config": {"method": "deepseek_mtp", "num_speculative_tokens": 2},
        "disable-custom-all-reduce": True,
        "trust-remote-code": True,
        "load-format": "safetensors",
        "tokenizer-mode": "deepseek_v4",
        "tool-call-parser": "deepseek_v4",
        "enable-auto-tool-choice": True,
        "reasoning-parser": "deepseek_v4",
    },
    api={"port": 8000, "listen": "management", "key": {"env": "KEY"}},
)
"""Two nodes, vLLM without Ray, DeepSeek V4 Flash; with the name that --prefix-caching has in vLLM."""
QWEN_2 = unit(
    engine="vllm-ray",
    version="0.19.0",
    parallel={"tensor": 2, "expert": True},
    memory=0.87,
    args={"attention-backend": "TRITON_ATTN", "quantization": "gptq_marlin", "kv-cache-dtype": "fp8"},
)
"""Two nodes, vLLM on Ray, Qwen3-235B GPTQ."""
PUBLISHED = {"nemotron": (NEMOTRON_8, 8), "deepseek": (DEEPSEEK_2, 2), "qwen": (QWEN_2, 2)}


def rack_of(keys: dict[str, Any], count: int = 2, **sections: Any) -> tuple[Rack, ServedUnit]:
    rack = loaded(text({"one": keys}, machines(count), **sections))
    return rack, served_units(rack)["one"]


def ranks(keys: dict[str, Any], count: int = 2, image_id: str | None = None, **sections: Any) -> tuple[RankLaunch, ...]:
    rack, declared = rack_of(keys, count, **sections)
    return launches(rack, declared, socket_addresses(rack), "100G", image_id)


def engine_arguments(argv: tuple[str, ...]) -> list[str]:
    """What the engine's own parser gets."""
    if "sglang.launch_server" in argv:
        return list(argv[argv.index("sglang.launch_server") + 1 :])
    return list(argv[argv.index("serve") + 1 :])


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_line_is_rendered_and_accepted_by_its_version(name: str) -> None:
    keys, count = PUBLISHED[name]
    kind: Engine = "sglang" if keys["engine"] == "sglang" else "vllm"
    found = ranks(keys, count)
    assert [launch.rank for launch in found] == list(range(count))
    for launch in found:
        if launch.argv[0] == "ray":
            continue
        verdict = judge(kind, keys["version"], engine_arguments(launch.argv))
        assert verdict.problems == (), launch.argv
        assert verdict.accepted


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        (
            "nemotron",
            "0.5.20",
            [
                (
                    "serving.units.one.args.cuda-graph-max-bs @ cuda-graph-max-bs: --cuda-graph-max-bs is not "
                    "an option of "
                    "SGLang 0.5.20: removed after 0.5.18; did you mean --cuda-graph-max-bs-decode?"
                ),
                (
                    "serving.units.one.args.disable-piecewise-cuda-graph @ disable-piecewise-cuda-graph: "
                    "--disable-piecewise-cuda-graph is not an option of SGLang 0.5.20: removed after 0.5.18; "
                    "did you mean --disable-decode-cuda-graph?"
                ),
            ],
        ),
        (
            "qwen",
            "0.12.0",
            [
                (
                    "serving.units.one.args.attention-backend @ attention-backend: --attention-backend is not "
                    "an option of "
                    "vLLM 0.12.0: since 0.13.0; did you mean --mm-encoder-attn-backend?"
                )
            ],
        ),
    ],
)
def test_a_published_line_is_refused_for_another_version(name: str, version: str, expected: list[str]) -> None:
    keys, count = PUBLISHED[name]
    assert refusals(text({"one": {**keys, "version": version}}, machines(count))) == expected


def test_the_line_of_two_nodes_as_it_was_published_is_refused() -> None:
    args = {("prefix-caching" if key == "enable-prefix-caching" else key): v for key, v in DEEPSEEK_2["args"].items()}
    (found,) = refusals(text({"one": {**DEEPSEEK_2, "args": args}}))
    assert found.startswith("serving.units.one.args.prefix-caching @ ")
    assert found.endswith(
        "(0.21.1rc1 is judged by 0.21.0); did you mean --enable-prefix-caching? or give the "
        "reason why the image has it at accept.prefix-caching"
    )


def test_ranks_of_vllm_differ_in_what_is_theirs() -> None:
    head, worker = ranks(DEEPSEEK_2)
    shared = head.argv[: head.argv.index("--nnodes")]
    assert worker.argv[: len(shared)] == shared
    assert shared[:13] == (
        *("vllm", "serve", "/models/qwen", "--tensor-parallel-size", "2", "--pipeline-parallel-size", "1"),
        *("--max-model-len", "200000", "--max-num-seqs", "2", "--gpu-memory-utilization", "0.78"),
    )
    assert head.argv[len(shared) :] == (
        *("--nnodes", "2", "--node-rank", "0", "--master-addr", "10.77.0.11", "--master-port", "29501"),
        *("--host", "10.77.0.11", "--port", "8000"),
    )
    assert worker.argv[len(shared) :] == (
        *("--nnodes", "2", "--node-rank", "1", "--master-addr", "10.77.0.11", "--master-port", "29501", "--headless"),
    )


def test_ranks_of_sglang_differ_in_what_is_theirs() -> None:
    found = ranks(NEMOTRON_8, 8)
    assert found[0].argv[-8:] == (
        *("--dist-init-addr", "10.77.0.11:29501", "--host", "10.77.0.11", "--port", "30000"),
        *("--config", "/run/sparkrack/key.yaml"),
    )
    assert found[7].argv[-4:] == ("--node-rank", "7", "--dist-init-addr", "10.77.0.11:29501")
    assert all("--host" not in launch.argv for launch in found[1:])
    assert all("--enable-metrics" in launch.argv for launch in found)


def test_ray_joins_the_nodes_and_the_engine_runs_on_the_head() -> None:
    head, worker = ranks(QWEN_2)
    assert head.argv[0] == "bash"
    assert head.argv[3:9] == ("ray-head", "10.77.0.11", "6379", "vllm", "serve", "/models/qwen")
    assert "--distributed-executor-backend" in head.argv
    assert "--nnodes" not in head.argv
    assert worker.argv == (
        *("ray", "start", "--block", "--address=10.77.0.11:6379", "--node-ip-address=10.77.0.12"),
        "--disable-usage-stats",
    )


def test_one_node_needs_no_other() -> None:
    for engine in ("vllm", "vllm-ray"):
        (only,) = ranks(unit(engine=engine, nodes=["n1"], parallel=None))
        assert not {"--nnodes", "--headless", "--distributed-executor-backend"} & set(only.argv)
        assert only.argv[-4:] == ("--host", "127.0.0.1", "--port", "8000")


@pytest.mark.parametrize(
    ("listen", "host"), [("local", "127.0.0.1"), ("management", "10.77.0.11"), ("fabric", "192.168.100.1")]
)
def test_the_head_listens_where_it_is_declared(listen: str, host: str) -> None:
    head, _ = ranks(unit(api={"listen": listen}))
    assert head.argv[-4:] == ("--host", host, "--port", "8000")


def test_the_ranks_find_each_other_where_sockets_are_declared() -> None:
    head, worker = ranks(unit(), rdma={"sockets": "fabric"})
    assert worker.argv[worker.argv.index("--master-addr") + 1] == "192.168.100.1"
    assert [launch.environment["VLLM_HOST_IP"] for launch in (head, worker)] == ["192.168.100.1", "192.168.100.2"]
    assert head.environment["MASTER_ADDR"] == worker.environment["MASTER_ADDR"] == "192.168.100.1"


@pytest.mark.parametrize("name", PUBLISHED)
def test_no_key_is_an_argument_or_a_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "sk-abcdef")
    keys, count = PUBLISHED[name]
    for launch in ranks({**keys, "api": {"key": {"env": "KEY"}}}, count):
        words = [*launch.command, *launch.argv, *map(str, launch.environment.items())]
        assert not [word for word in words if "sk-abcdef" in word or "api-key" in word]
        key = [word for word in launch.docker if "one.key" in word]
        assert len(key) == (1 if launch.rank == 0 else 0)


def test_docker_gets_the_image_by_its_id_and_the_files_of_the_unit() -> None:
    _, worker = ranks(DEEPSEEK_2, image_id="sha256:" + "ab" * 32)
    assert worker.command[:2] == ("docker", "run")
    assert worker.command[len(worker.docker) + 2 :][:3] == ("sha256:" + "ab" * 32, "serve", "/models/qwen")
    assert worker.docker == (
        *("--rm", "--pull", "never", "--name", "sparkrack-one", "--entrypoint", "vllm", "--network", "host"),
        *("--gpus", "all", "--device", "/dev/infiniband", "--cap-add", "IPC_LOCK", "--ulimit", "memlock=-1"),
        *("--ulimit", "stack=67108864", "--shm-size", "16g", "--memory", "100g", "--memory-swap", "100g"),
        *("--cgroup-parent", "sparkrack-one.slice", "--env-file", "/etc/sparkrack/fabric.env"),
        *("--env-file", "/etc/sparkrack/serve/one.env", "--volume", "/srv/models/qwen:/models/qwen:ro"),
        *("--volume", "/var/cache/sparkrack/serve/one/abababababab:/cache"),
        *("--volume", "/dev/null:/etc/nccl.conf:ro"),
    )
    assert worker.environment["TRITON_CACHE_DIR"] == "/cache/triton"
    # What FlashInfer has tuned is not kept between starts: rank 0 alone would have it, and the others would wait.
    assert worker.environment["VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR"] == INSIDE_AUTOTUNE
    assert INSIDE_AUTOTUNE == "/tmp/flashinfer-autotune"  # noqa: S108 - in a container of its own
    (alone,) = ranks(unit(DEEPSEEK_2, nodes=["n0"], parallel=None))
    assert "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR" not in alone.environment
    assert alone.environment["TRITON_CACHE_DIR"] == "/cache/triton"
    assert ranks(unit())[0].image == VLLM
    assert "TRITON_CACHE_DIR" not in ranks(unit(cache="none"))[0].environment


def test_ranks_get_no_settings_of_nccl_from_their_image_unless_files_has_them() -> None:
    """Settings of an image froze the first collective of its ranks (reported)."""
    covered = "/dev/null:/etc/nccl.conf:ro"
    assert all(covered in one.docker for one in ranks(unit()))
    assert covered not in ranks(unit(nodes=["n0"], parallel=None))[0].docker, "NCCL joins nothing on one node"


def test_a_size_of_the_cache_and_a_time_to_drain_are_written() -> None:
    head, _ = ranks(unit(memory=None, kv="20G", drain="2m"))
    words = list(head.argv)
    assert words[words.index("--kv-cache-memory-bytes") + 1] == str(20 * 2**30)
    assert words[words.index("--gpu-memory-utilization") + 1] == "0.5"
    assert words[words.index("--shutdown-timeout") + 1] == "120"
    assert "--shutdown-timeout" not in ranks(unit(version="0.17.1"))[0].argv
    assert judge("vllm", "0.19.1", engine_arguments(head.argv)).accepted


def test_nccl_says_which_network_it_uses_where_there_is_more_than_one_rank() -> None:
    head, _ = ranks(unit())
    assert (head.environment["NCCL_DEBUG"], head.environment["NCCL_DEBUG_SUBSYS"]) == ("INFO", "INIT,NET")
    (alone,) = ranks(unit(nodes=["n0"], parallel=None))
    assert not [name for name in alone.environment if name.startswith("NCCL_")]


def test_variables_of_the_unit_come_last() -> None:
    head, _ = ranks(unit(env={"HF_HUB_OFFLINE": "0", "NCCL_DEBUG": "TRACE"}))
    assert head.environment["HF_HUB_OFFLINE"] == "0"
    assert head.environment["NCCL_DEBUG"] == "TRACE"


def test_the_addresses_are_those_of_the_nodes() -> None:
    rack, _ = rack_of(QWEN)
    assert socket_addresses(rack) == {"n0": IPv4Address("10.77.0.11"), "n1": IPv4Address("10.77.0.12")}


def test_the_environment_of_each_engine_is_what_it_reads() -> None:
    head, worker = ranks(unit(cache="20G"))
    caches = {
        "XDG_CACHE_HOME": "/cache",
        "TORCHINDUCTOR_CACHE_DIR": "/cache/inductor",
        "TRITON_CACHE_DIR": "/cache/triton",
        "FLASHINFER_WORKSPACE_BASE": "/cache/flashinfer",
        # The lock file of a build that was killed would be waited for at each later start.
        "TORCH_EXTENSIONS_DIR": "/tmp/torch_extensions",  # noqa: S108 - in a container of its own
    }
    nccl = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    shared = {"HF_HUB_OFFLINE": "1", "MASTER_ADDR": "10.77.0.11", **nccl}
    own = {"VLLM_HOST_IP": "10.77.0.12", "VLLM_NO_USAGE_STATS": "1"}
    autotune = {"VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR": INSIDE_AUTOTUNE}
    assert worker.environment == {**shared, **own, **caches, **autotune}
    assert list(worker.environment) == sorted(worker.environment)
    assert ranks(NEMOTRON_8, 8)[7].environment == {
        **shared,
        **caches,
        "SGLANG_HOST_IP": "10.77.0.18",
        "SGLANG_ENABLE_DEEP_GEMM": "0",
    }
    ray = {"RAY_memory_monitor_refresh_ms": "0", "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
    assert ranks(QWEN_2)[1].environment == {**shared, **own, **caches, **autotune, **ray}
    assert head.environment["VLLM_HOST_IP"] == "10.77.0.11"


def test_a_ray_of_several_nodes_gets_its_token_and_one_alone_does_not() -> None:
    expected = (
        *("--env", "RAY_AUTH_MODE=token", "--env", "RAY_AUTH_TOKEN_PATH=/run/sparkrack/ray-token"),
        *("--volume", "/etc/sparkrack/serve/one.ray:/run/sparkrack/ray-token:ro"),
    )
    for launch in ranks(QWEN_2):
        place = launch.docker.index("--env")
        assert launch.docker[place : place + 6] == expected
    for keys in (unit(), unit(engine="vllm-ray", nodes=["n1"], parallel=None)):
        assert "--env" not in ranks(keys)[0].docker


def test_the_key_of_the_api_is_given_as_each_engine_reads_it() -> None:
    (head, *_) = ranks(NEMOTRON_8, 8)
    place = head.docker.index("/etc/sparkrack/serve/one.key:/run/sparkrack/key.yaml:ro")
    assert head.docker[place - 1] == "--volume"
    head, _ = ranks(DEEPSEEK_2)
    place = head.docker.index("/etc/sparkrack/serve/one.key")
    assert head.docker[place - 1] == "--env-file"


def test_the_options_of_sglang_follow_from_the_keys_of_the_unit() -> None:
    argv = ranks(unit(NEMOTRON, parallel={"tensor": 8, "expert": True}), 8)[0].argv
    assert argv[:21] == (
        *("python3", "-m", "sglang.launch_server", "--model-path", "/models/nemotron"),
        *("--served-model-name", "nemotron", "--tp-size", "8", "--pp-size", "1", "--ep-size", "8"),
        *("--context-length", "262144", "--max-running-requests", "8", "--mem-fraction-static", "0.85"),
        *("--enable-metrics", "--nnodes"),
    )
    assert "--ep-size" not in ranks(unit(NEMOTRON), 8)[0].argv
    assert "--enable-expert-parallel" not in argv
    assert "--enable-expert-parallel" in ranks(QWEN_2)[0].argv


def test_the_cache_of_an_image_without_an_id_has_a_folder_of_its_own() -> None:
    (head, _) = ranks(unit(cache="20G"))
    assert head.docker[-4:-2] == ("--volume", "/var/cache/sparkrack/serve/one/unpinned:/cache")
