"""A unit of vLLM on Ray for Ray's cluster launcher: the cluster as YAML, and the command that serves on it.

Ray 2.60: "Launching an On-Premise Cluster", provider `local`; python/ray/autoscaler/_private/docker.py.
"""

from __future__ import annotations

import shlex

from core.util import resources
from serving.launch import FABRIC_ENVIRONMENT
from sparkrack.serving.export.source import ExportError, ExportFile, ExportSource, container, header, quoted
from sparkrack.serving.export.yaml_text import yaml_text

SSH_PORT = 22
"""The port to which Ray connects; no option of it has another one."""
_OWN = '"$VLLM_HOST_IP"'
"""The address of a node, which the file of the fabric has on each."""


def ray_files(source: ExportSource) -> tuple[ExportFile, ...]:
    """Return the cluster and the program that serves on it. Raises ExportError for a unit that Ray does not start."""
    unit, rack = source.unit, source.rack
    if unit.engine != "vllm-ray":
        raise ExportError(("engine",), f"{unit.engine} does not use Ray; export lws")
    if len(source.nodes) < 2:
        raise ExportError(("nodes",), "vLLM needs no Ray on one node; export lws")
    if unit.before:
        raise ExportError(("before",), "a cluster of Ray runs no program before the engine; build an image instead")
    if rack.access.port != SSH_PORT:
        raise ExportError(
            ("engine",),
            f"Ray connects to port {SSH_PORT} only, and access.port is {rack.access.port}; export lws",
        )
    head, *workers = (str(rack.nodes[name].address) for name in source.nodes)
    start, serve = head_commands(source)
    name = f"{unit.name}.ray.yaml"
    usage = f"First run ray up {name}. This runs as long as the engine; ray down {name} ends Ray."
    cluster = {
        "cluster_name": container(source.launches[0]).name,
        "provider": {"type": "local", "head_ip": head, "worker_ips": workers},
        "auth": {"ssh_user": rack.access.user, "ssh_private_key": str(rack.access.key)},
        "docker": _render_docker(source),
        "head_start_ray_commands": ["ray stop", f"{start} --autoscaling-config=~/ray_bootstrap_config.yaml"],
        "worker_start_ray_commands": ["ray stop", worker_command(source)],
    }
    program = resources.file_text(
        __package__,
        "templates/ray-serve.sh",
        header=header(source, "ray", [usage]).rstrip("\n"),
        cluster=name,
        command=quoted(serve),
    )
    return (
        ExportFile(name, header(source, "ray", _list_notes(source, name)) + yaml_text(cluster)),
        ExportFile(f"{unit.name}.ray-serve.sh", program, program=True),
    )


def head_commands(source: ExportSource) -> tuple[str, str]:
    """Return the command that starts Ray on the head, and the one of the engine."""
    words = source.launches[0].argv
    # bash -c SCRIPT NAME ADDRESS PORT ENGINE...: serving.launch.RAY_HEAD
    address, port, *engine = words[4:]
    start = ["ray", "start", "--head", f"--node-ip-address={address}", f"--port={port}"]
    return shlex.join([*start, "--include-dashboard=false", "--disable-usage-stats"]), shlex.join(engine)


def worker_command(source: ExportSource) -> str:
    """Return the command that starts Ray on each other node, and ends, while that of a unit blocks."""
    own = source.launches[1].environment["VLLM_HOST_IP"]
    words = [word for word in source.launches[1].argv if word != "--block"]
    return " ".join(
        f"--node-ip-address={_OWN}" if word == f"--node-ip-address={own}" else shlex.quote(word) for word in words
    )


def _render_docker(source: ExportSource) -> dict[str, object]:
    asked = container(source.launches[0])
    # Each node has its own VLLM_HOST_IP in the file of the fabric.
    variables = {name: value for name, value in source.launches[0].environment.items() if name != "VLLM_HOST_IP"}
    options = [
        # Images have programs of their own to start; Ray starts a shell.
        *(("--entrypoint", "env"), ("--gpus", "all")),
        *(("--device", device) for device in asked.devices),
        *(("--cap-add", capability) for capability in asked.capabilities),
        *(("--ulimit", f"{name}={value}") for name, value in asked.ulimits.items()),
        *(("--shm-size", asked.shm), ("--memory", asked.memory), ("--memory-swap", asked.memory)),
        ("--env-file", FABRIC_ENVIRONMENT),
        *(("--env", f"{name}={value}") for name, value in variables.items()),
        *(("--volume", f"{one.source}:{one.target}{':ro' if one.read_only else ''}") for one in asked.volumes),
    ]
    made: dict[str, object] = {
        "image": source.launches[0].image,
        # Not the container of the rack, which Ray would stop.
        "container_name": f"{asked.name}-ray",
        "pull_before_run": False,
        "disable_automatic_runtime_detection": True,
        "disable_shm_size_detection": True,
        "run_options": [shlex.join(option) for option in options],
    }
    if source.unit.api.key:
        # A shell of the node reads it.
        made["head_run_options"] = [f'--env-file "$HOME/{source.key_file}"']
    return made


def _list_notes(source: ExportSource, name: str) -> list[str]:
    notes = [
        f"Run it: ray up {name}, then {source.unit.name}.ray-serve.sh.",
        "Ray on the head starts the workers from inside its container, so the image needs ssh and rsync.",
    ]
    if source.unit.api.key:
        notes.append(f"Key of the API: ~/{source.key_file} on the head, mode 600, with the line {source.key_line}")
    return notes
