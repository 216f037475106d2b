"""Each export runs on each node what the unit runs there, apart from addresses, with the same container."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from core.model.fields import mebibytes
from serving.engines.sglang import KEY_PATH
from serving.launch import FABRIC_ENVIRONMENT, INSIDE_RAY_TOKEN, RankLaunch
from sparkrack.serving.export.lws import lws_files
from sparkrack.serving.export.ray import ray_files
from sparkrack.serving.export.source import ExportSource
from tests.unit.serving.engines.example_lines import EXAMPLES
from tests.unit.serving.export.exported import ON_RAY, RECORD, SOURCES, addresses, parsed, program, records, run

OTHERS_OF_THE_RACK = ("--name", "--cgroup-parent", "--entrypoint")
"""Options of docker that an export has in another way, or not: see `container`."""


def options(words: list[str] | tuple[str, ...]) -> set[tuple[str, str]]:
    """Options of `docker run` with their values."""
    rest = [word for word in words if word != "--rm"]
    return set(zip(rest[::2], rest[1::2], strict=True))


def of_the_rack(launch: RankLaunch) -> set[tuple[str, str]]:
    """Options of the rack's container that every export with docker has, too."""
    return {
        (name, value)
        for name, value in options(launch.docker)
        if name not in OTHERS_OF_THE_RACK
        and not (name == "--env-file" and value != FABRIC_ENVIRONMENT)
        and not value.endswith((f":{KEY_PATH}:ro", f":{INSIDE_RAY_TOKEN}:ro"))
        and name != "--env"
    }


def expanded(text: str, variables: dict[str, str]) -> str:
    """What Kubernetes makes of an argument or a value: third_party/forked/golang/expansion of its source."""

    def one(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, text)


def test_every_example_is_here() -> None:
    assert {name.partition(":")[0] for name in SOURCES if ":" in name} == {path.stem for path in EXAMPLES}
    assert len(ON_RAY) == 5


def pods(one: ExportSource) -> list[dict[str, Any]]:
    """The pod of each rank, from its template."""
    (file,) = lws_files(one)
    group = parsed(file.text)["spec"]["leaderWorkerTemplate"]
    assert group["size"] == len(one.nodes)
    assert group["restartPolicy"] == "RecreateGroupOnPodRestart"
    return [group["leaderTemplate" if rank == 0 else "workerTemplate"]["spec"] for rank in range(len(one.nodes))]


@pytest.mark.parametrize("name", SOURCES)
def test_a_leader_worker_set_runs_what_the_unit_runs(name: str, tmp_path: Path) -> None:
    one = SOURCES[name]
    known = addresses(one)
    for launch, pod in zip(one.launches, pods(one), strict=True):
        (engine,) = pod["containers"]
        lws = {
            "LWS_LEADER_ADDRESS": known[one.nodes[0]],
            "LWS_WORKER_INDEX": str(launch.rank),
            "LWS_GROUP_SIZE": str(len(one.nodes)),
        }
        variables = {**lws, "SPARKRACK_NODE_ADDRESS": known[launch.node]}
        assert tuple(expanded(word, variables) for word in engine["args"]) == launch.argv
        # Only where the head listens is an address of rack.yaml; a pod may get another one.
        written = [*engine["args"], *(entry.get("value", "") for entry in engine["env"])]
        if "--host" in written:
            del written[written.index("--host") + 1]
        assert not [word for word in written for address in known.values() if address in word]
        if one.unit.engine == "vllm-ray" and launch.rank == 0:
            # Ray's head is at its own address, which is none of a service.
            assert engine["args"][3:5] == ["ray-head", "$(SPARKRACK_NODE_ADDRESS)"]
        plain = {entry["name"]: expanded(entry["value"], variables) for entry in engine["env"] if "value" in entry}
        assert plain == launch.environment
        # What it starts with gives the command as it is, with the variables of the fabric that the pod does not have.
        script = [expanded(word, variables) for word in engine["command"]]
        assert script[0] == "sh"
        fabric = tmp_path / "fabric.env"
        fabric.write_text("# comment\n\nNCCL_IB_HCA==a,b\nVLLM_HOST_IP=wrong\nMASTER_ADDR=wrong\n")
        program(tmp_path, "shown", 'printf \'%s\\0\' "$NCCL_IB_HCA" "$MASTER_ADDR" "$@"')
        script[2] = script[2].replace(FABRIC_ENVIRONMENT, str(fabric))
        done = run([*script, "shown", *launch.argv], tmp_path, **plain)
        assert done.stdout.split("\0")[:-1] == ["=a,b", known[one.nodes[0]], *launch.argv], done.stderr


@pytest.mark.parametrize("name", SOURCES)
def test_a_pod_has_the_container_of_the_unit(name: str) -> None:
    one = SOURCES[name]
    for launch, pod in zip(one.launches, pods(one), strict=True):
        (engine,) = pod["containers"]
        asked = options(launch.docker)
        folders = {volume["name"]: volume for volume in pod["volumes"]}
        mounts = {mount["mountPath"]: mount for mount in engine["volumeMounts"]}
        bound = {
            ("--volume", f"{folders[mount['name']]['hostPath']['path']}:{target}{':ro' if mount['readOnly'] else ''}")
            for target, mount in mounts.items()
            if mount["name"] in ("model", "cache") or mount["name"].startswith("mount-")
        }
        assert bound == {entry for entry in of_the_rack(launch) if entry[0] == "--volume"}
        assert folders["fabric"]["hostPath"]["path"] == FABRIC_ENVIRONMENT
        (memory,) = (value for name, value in asked if name == "--memory")
        limits = dict(engine["resources"]["limits"])
        assert limits.pop("memory") == f"{mebibytes(memory.upper())}Mi"
        assert folders["shm"]["emptyDir"]["sizeLimit"] == f"{mebibytes(one.unit.shm)}Mi"
        assert limits == {"nvidia.com/gpu": 1} | ({"rdma/hca_shared_devices_a": 1} if len(one.nodes) > 1 else {})
        assert engine["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
        assert engine["image"].endswith(f"@{one.pin.digest}" if one.pin else "")
        terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert terms[0]["matchExpressions"][0]["values"] == list(one.nodes[:1] if launch.rank == 0 else one.nodes[1:])
        assert pod["hostNetwork"]
        keyed = one.unit.api.key is not None and launch.rank == 0
        secrets = [entry["name"] for entry in engine["env"] if "secretKeyRef" in entry.get("valueFrom", {})]
        assert secrets == (["VLLM_API_KEY"] if keyed and one.unit.family == "vllm" else [])
        assert (KEY_PATH in mounts) == (keyed and one.unit.family == "sglang")
        assert ("readinessProbe" in engine) == (launch.rank == 0)


@pytest.mark.parametrize("name", ON_RAY)
def test_ray_runs_what_the_unit_runs(name: str, tmp_path: Path) -> None:
    """The commands of both are run, with programs that write down how they are called."""
    one = SOURCES[name]
    known = addresses(one)
    cluster_file, serve = ray_files(one)
    cluster = parsed(cluster_file.text)
    for called in ("ray", "vllm"):
        program(tmp_path, called, RECORD)

    def called_by(name: str, commands: list[list[str]], **variables: str) -> list[list[str]]:
        for command in commands:
            assert run(command, tmp_path, RECORD=str(tmp_path / name), **variables).returncode == 0
        return records(tmp_path / name)

    shell = ["bash", "-c"]
    script = tmp_path / serve.name
    script.write_text(serve.text)
    ((*exec_words, command),) = called_by("serve", [["bash", str(script)]])
    assert exec_words == ["ray", "exec", str(tmp_path / cluster_file.name)]
    starts = [[*shell, line] for line in cluster["head_start_ray_commands"]]
    stop, start, engine = called_by("head", [*starts, [*shell, command]])
    assert stop == ["ray", "stop"]
    # By this file Ray's head knows the workers, which it starts.
    assert start.pop() == "--autoscaling-config=~/ray_bootstrap_config.yaml"
    assert [start, engine] == called_by("unit", [list(one.launches[0].argv)])
    for launch in one.launches[1:]:
        lines = [[*shell, line] for line in cluster["worker_start_ray_commands"]]
        stop, start = called_by(launch.node, lines, VLLM_HOST_IP=known[launch.node])
        assert stop == ["ray", "stop"]
        assert tuple(start) == tuple(word for word in launch.argv if word != "--block")
    assert cluster["provider"] == {
        "type": "local",
        "head_ip": str(one.rack.nodes[one.nodes[0]].address),
        "worker_ips": [str(one.rack.nodes[node].address) for node in one.nodes[1:]],
    }


@pytest.mark.parametrize("name", ON_RAY)
def test_ray_starts_the_container_of_the_unit(name: str, tmp_path: Path) -> None:
    """Ray joins the options to one line of shell: python/ray/autoscaler/_private/docker.py, docker_start_cmds."""
    one = SOURCES[name]
    docker = parsed(ray_files(one)[0].text)["docker"]
    program(tmp_path, "docker", RECORD)
    line = " ".join(["docker", *docker["run_options"], *docker.get("head_run_options", ())])
    assert run(["bash", "-c", line], tmp_path, RECORD=str(tmp_path / "record"), HOME="/home/ops").returncode == 0
    ((_, *words),) = records(tmp_path / "record")
    found = options(words)
    keys = {entry for entry in found if "/home/ops/" in entry[1]}
    assert bool(keys) == (one.unit.api.key is not None)
    wanted = {f"{n}={v}" for n, v in one.launches[0].environment.items() if n != "VLLM_HOST_IP"}
    assert {value for name, value in found if name == "--env"} == wanted
    rest = {entry for entry in found if entry[0] not in ("--entrypoint", "--env")} - keys
    # Ray itself adds the network of the node.
    assert rest == of_the_rack(one.launches[0]) - {("--pull", "never"), ("--network", "host")}
    assert (docker["image"], docker["pull_before_run"]) == (one.launches[0].image, False)
