"""A unit as files for Docker Compose: one for each node, which runs one rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.model.fields import seconds
from core.model.serving_launch import FABRIC_ENVIRONMENT, INSIDE_KEY, RankLaunch
from sparkrack.serving_export.source import ExportFile, ExportSource, Volume, container, header
from sparkrack.serving_export.yaml_text import yaml_text

STOP_GRACE = 15
"""Seconds beside `drain` that an engine may take to end."""


def compose_files(source: ExportSource) -> tuple[ExportFile, ...]:
    """Return a compose file for each node, in rank order."""
    return tuple(_file(source, launch) for launch in source.launches)


def _file(source: ExportSource, launch: RankLaunch) -> ExportFile:
    asked = container(launch)
    keyed = source.unit.api.key is not None and launch.rank == 0
    volumes = [_bind(volume) for volume in asked.volumes]
    variables: list[dict[str, Any]] = [{"path": FABRIC_ENVIRONMENT, "format": "raw"}]
    if keyed and source.unit.kind == "sglang":
        volumes.append(_bind(Volume(f"./{source.key_file}", INSIDE_KEY, read_only=True)))
    elif keyed:
        variables.append({"path": f"./{source.key_file}", "format": "raw"})
    service = {
        "image": launch.image,
        "pull_policy": "never",
        "container_name": asked.name,
        "restart": "no",
        "stop_grace_period": f"{seconds(source.unit.drain) + STOP_GRACE}s",
        "network_mode": "host",
        "gpus": "all",
        "devices": [f"{device}:{device}" for device in asked.devices],
        "cap_add": list(asked.capabilities),
        "ulimits": dict(asked.ulimits),
        "shm_size": asked.shm,
        "mem_limit": asked.memory,
        "memswap_limit": asked.memory,
        "entrypoint": [_literal(launch.argv[0])],
        "command": [_literal(word) for word in launch.argv[1:]],
        "env_file": variables,
        "environment": {name: _literal(value) for name, value in launch.environment.items()},
        "volumes": volumes,
    }
    notes = [
        f"For {launch.node}, rank {launch.rank} of {len(source.launches)}. Start the files of all ranks. When one rank",
        "ends, stop all others: Compose does not.",
        'restart is "no": an engine that fails at once, started again and again, leaks memory of the GPU until its',
        "node loses its power; and a rank that comes back alone cannot join the others.",
        "Needs Docker Compose 2.30.",
    ]
    if keyed:
        notes.append(f"Key of the API: {source.key_file} beside this file, mode 600, with the line {source.key_line}")
    name = f"{source.unit.name}-{launch.node}.compose.yaml"
    text = yaml_text({"name": asked.name, "services": {"engine": service}})
    return ExportFile(name, f"{header(source, 'compose', notes)}{text}")


def _literal(text: str) -> str:
    """Compose replaces variables in values; `$$` is a `$`."""
    return text.replace("$", "$$")


def _bind(volume: Volume) -> Mapping[str, object]:
    # A cache is made where it is missing; without its model an engine must not start.
    return {
        "type": "bind",
        "source": volume.source,
        "target": volume.target,
        "read_only": volume.read_only,
        "bind": {"create_host_path": not volume.read_only},
    }
