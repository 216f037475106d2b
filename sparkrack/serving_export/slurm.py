"""A unit as a batch script of Slurm: one task on each node, which runs a rank in docker.

Options: sbatch(1) and srun(1) of Slurm 26.05.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from core.model.fields import seconds
from core.model.serving_launch import FABRIC_ENVIRONMENT, INSIDE_KEY
from core.util import resources
from sparkrack.serving_export.compose import STOP_GRACE
from sparkrack.serving_export.source import ExportFile, ExportSource, Place, Word, container, header, placed, quoted

_VARIABLES = {Place.HEAD: '"$head"', Place.OWN: '"$own"', Place.RANK: '"$rank"'}
_ADDRESSES = {"MASTER_ADDR": '"$head"', "SGLANG_HOST_IP": '"$own"', "VLLM_HOST_IP": '"$own"'}
"""Variables of a unit that have an address."""


def slurm_files(source: ExportSource) -> tuple[ExportFile, ...]:
    """Return the script."""
    unit, nodes = source.unit, source.nodes
    asked = container(source.launches[0])
    text = resources.file_text(
        __package__,
        "templates/slurm.sh",
        header=header(source, "slurm", _notes(source)).rstrip("\n"),
        job=asked.name,
        unit=unit.name,
        count=len(nodes),
        nodelist=",".join(nodes),
        nodes=shlex.join(nodes),
        head=source.launches[0].environment["MASTER_ADDR"],
        ranks=_ranks(source),
        container=_lines(_container(source), 8),
        headwords=_lines(_words(source, 0), 12),
        workerwords=_lines(_words(source, 1), 12) if len(nodes) > 1 else "",
        drain=seconds(unit.drain) + STOP_GRACE,
    )
    return (ExportFile(f"{unit.name}.sbatch", text, program=True),)


def _notes(source: ExportSource) -> list[str]:
    notes = [
        f"Run it: sbatch {source.unit.name}.sbatch, as a user that may use docker.",
        "Slurm knows the nodes by the names in rack.yaml.",
        "Containers of docker are not in the control group of the job: Slurm neither counts nor limits what they use.",
        "A job that ends is not queued again: an engine that fails at once leaks memory of the GPU with each start.",
    ]
    if source.unit.api.key:
        notes.append(f"Key of the API: ~/{source.key_file} on the head, mode 600, with the line {source.key_line}")
    return notes


def _ranks(source: ExportSource) -> str:
    return "\n".join(
        f"    {quoted(launch.node)}) rank={launch.rank} own={_own(source, launch.rank)} ;;"
        for launch in source.launches
    )


def _own(source: ExportSource, rank: int) -> str:
    return source.launches[rank].environment["SGLANG_HOST_IP" if source.unit.kind == "sglang" else "VLLM_HOST_IP"]


def _container(source: ExportSource) -> list[str]:
    launch = source.launches[0]
    asked = container(launch)
    words = [
        *("--rm", "--pull", "never", "--network", "host", "--gpus", "all"),
        *(word for device in asked.devices for word in ("--device", device)),
        *(word for capability in asked.capabilities for word in ("--cap-add", capability)),
        *(word for name, value in asked.ulimits.items() for word in ("--ulimit", f"{name}={value}")),
        *("--shm-size", asked.shm, "--memory", asked.memory, "--memory-swap", asked.memory),
        *("--env-file", FABRIC_ENVIRONMENT),
        *(
            word
            for one in asked.volumes
            for word in ("--volume", f"{one.source}:{one.target}{':ro' if one.read_only else ''}")
        ),
    ]
    found = [quoted(word) for word in words]
    for name, value in launch.environment.items():
        found += ["--env", f"{name}={_ADDRESSES[name]}" if name in _ADDRESSES else quoted(f"{name}={value}")]
    return found


def _words(source: ExportSource, rank: int) -> list[str]:
    """Return what follows the options of docker that all ranks have: the program, the image and its arguments."""
    launch = source.launches[rank]
    program, *arguments = placed(source, rank)
    key = _key(source) if rank == 0 else []
    size = len(source.nodes)
    return [*key, "--entrypoint", _word(program, size), quoted(launch.image), *(_word(one, size) for one in arguments)]


def _word(word: Word, size: int) -> str:
    variables = {**_VARIABLES, Place.SIZE: str(size)}
    return "".join(variables[part] if isinstance(part, Place) else quoted(part) for part in word)


def _key(source: ExportSource) -> list[str]:
    """Return the option by which the head gets the key of the API. A shell of the node reads it."""
    if not source.unit.api.key:
        return []
    if source.unit.kind == "sglang":
        return ["--volume", f'"$HOME/{source.key_file}:{INSIDE_KEY}:ro"']
    return ["--env-file", f'"$HOME/{source.key_file}"']


def _lines(words: Iterable[str], indent: int) -> str:
    return "\n".join(f"{' ' * indent}{word}" for word in words)
