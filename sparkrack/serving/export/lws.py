"""A unit as a LeaderWorkerSet of Kubernetes: the head is the leader, all other ranks are workers.

Fields and variables: kubernetes-sigs/lws v0.10.0, api/leaderworkerset/v1. Expansion of `$(NAME)`: Kubernetes API,
Container.args.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from core.model.fields import mebibytes, seconds
from core.model.image_names import image_name
from core.util import resources
from serving.engines.engine import KeyForm
from serving.engines.registry import ENGINES
from serving.launch import FABRIC_ENVIRONMENT, api_address
from serving.options import served_units
from sparkrack.serving.export.source import (
    ExportError,
    ExportFile,
    ExportSource,
    Place,
    Word,
    container,
    header,
    placed,
)
from sparkrack.serving.export.yaml_text import Script, yaml_text

API_VERSION = "leaderworkerset.x-k8s.io/v1"
RDMA = "rdma/hca_shared_devices_a"
"""The resource of an RDMA device, by the name in the example of k8s-rdma-shared-dev-plugin."""
HOST_NAME = "kubernetes.io/hostname"
STOP_GRACE = 15
"""Seconds beside `drain` that an engine may take to end."""
_GROUP = "leaderworkerset.sigs.k8s.io/name"
_OWN_ADDRESS = "SPARKRACK_NODE_ADDRESS"
_VARIABLES = {
    Place.HEAD: "$(LWS_LEADER_ADDRESS)",
    Place.OWN: f"$({_OWN_ADDRESS})",
    Place.RANK: "$(LWS_WORKER_INDEX)",
    Place.SIZE: "$(LWS_GROUP_SIZE)",
}
_EXPANDED = re.compile(r"\$(?=[$(])")


def lws_files(source: ExportSource) -> tuple[ExportFile, ...]:
    """Return the manifest. Raises ExportError for a unit that a LeaderWorkerSet cannot hold."""
    unit = source.unit
    if source.pin is None:
        raise ExportError(
            ("image",),
            f"the lock file has no record of {unit.image}, and Kubernetes pulls an image by itself; run "
            "`sparkrack apply --only images`",
        )
    if unit.custom and len(source.nodes) > 1:
        raise ExportError(
            ("custom",), "Kubernetes gives all workers one command, and that of a custom engine has its rank"
        )
    if unit.name.endswith("_"):
        raise ExportError((), f"{unit.name} ends with '_', and a name of Kubernetes with no '-'; rename the unit")
    if source.rack.topology == "ring" and len(source.nodes) > 3:
        raise ExportError(
            ("nodes",), "Kubernetes gives no worker its own node, so ranks of a ring would not follow its cables"
        )
    name = _name_of_set(source)
    groups = {"leaderTemplate": _render_pod(source, 0)}
    groups["workerTemplate"] = _render_pod(source, 1) if len(source.nodes) > 1 else _render_pod(source, 0)
    manifest = {
        "apiVersion": API_VERSION,
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "startupPolicy": "LeaderCreated",
            "leaderWorkerTemplate": {
                "size": len(source.nodes),
                "restartPolicy": "RecreateGroupOnPodRestart",
                **groups,
            },
        },
    }
    return (
        ExportFile(f"{unit.name}.lws.yaml", header(source, "lws", _list_notes(source, name)) + yaml_text(manifest)),
    )


def fabric_script() -> str:
    """Return the script by which a pod has the variables of the fabric: Kubernetes reads no file of a node for them."""
    return resources.file_text(__package__, "templates/with-fabric.sh", fabric=FABRIC_ENVIRONMENT)


def _list_notes(source: ExportSource, name: str) -> list[str]:
    notes = [
        "RecreateGroupOnPodRestart has no limit: an engine that fails at once leaks memory of the GPU with each start.",
        f"Stop it: kubectl scale leaderworkerset {name} --replicas 0",
        "Kubernetes knows the nodes by the names in rack.yaml. The head is pinned; a worker runs on any other node.",
        "Ranks find each other at the addresses that Kubernetes has of the nodes.",
    ]
    if len(source.nodes) > 1:
        notes.append(f"{RDMA} is a resource of k8s-rdma-shared-dev-plugin; write the name that its configuration has.")
    if source.pin and source.pin.digest is None:
        notes.append("The image is in no registry: import it on each node, in containerd's namespace k8s.io.")
    here = set(source.nodes)
    beside = [
        one.name
        for one in served_units(source.rack).values()
        if one.name != source.unit.name and here & set(one.ranks(source.rack.nodes))
    ]
    if beside:
        notes.append(
            f"It shares nodes with {', '.join(beside)}, and each asks for the GPU of a node: "
            "the second one stays pending where Kubernetes shares no GPU."
        )
    if source.unit.api.key:
        inside = _form_of_key(source).path
        form = f"--from-file={PurePosixPath(inside).name}=" if inside else "--from-env-file="
        notes += [
            f"Key of the API: {source.key_file} with the line {source.key_line}, then",
            f"kubectl create secret generic {name} {form}{source.key_file}",
        ]
    return notes


def _name_of_set(source: ExportSource) -> str:
    return f"sparkrack-{source.unit.name.replace('_', '-')}"


def _form_of_key(source: ExportSource) -> KeyForm:
    return ENGINES[source.unit.engine].key(source.unit)


def _render_pod(source: ExportSource, rank: int) -> dict[str, Any]:
    unit, launch = source.unit, source.launches[rank]
    asked = container(launch)
    keyed = unit.api.key is not None and rank == 0
    volumes: list[dict[str, Any]] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{mebibytes(unit.shm)}Mi"}},
        {"name": "fabric", "hostPath": {"path": FABRIC_ENVIRONMENT, "type": "File"}},
    ]
    mounts: list[dict[str, Any]] = [
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the folder is the container's own
        {"name": "fabric", "mountPath": FABRIC_ENVIRONMENT, "readOnly": True},
    ]
    for number, volume in enumerate(asked.volumes):
        # The first one is the model. Further ones are models, and files of the unit, for which the kind is not asked.
        called = "cache" if not volume.read_only else f"mount-{number}" if number else "model"
        kind = "DirectoryOrCreate" if not volume.read_only else "" if number else "Directory"
        volumes.append({"name": called, "hostPath": {"path": volume.source, "type": kind}})
        mounts.append({"name": called, "mountPath": volume.target, "readOnly": volume.read_only})
    if keyed and (inside := _form_of_key(source).path):
        volumes.append({"name": "key", "secret": {"secretName": _name_of_set(source), "defaultMode": 0o400}})
        name = PurePosixPath(inside).name
        mounts.append({"name": "key", "mountPath": inside, "subPath": name, "readOnly": True})
    nodes = source.nodes[:1] if rank == 0 else source.nodes[1:]
    return {
        "metadata": {"labels": {"app.kubernetes.io/name": _name_of_set(source)}},
        "spec": {
            "hostNetwork": True,
            "dnsPolicy": "ClusterFirstWithHostNet",
            "terminationGracePeriodSeconds": seconds(unit.drain) + STOP_GRACE,
            "affinity": _render_affinity(source, nodes),
            "containers": [_render_container(source, rank, mounts, keyed=keyed)],
            "volumes": volumes,
        },
    }


def _render_affinity(source: ExportSource, nodes: tuple[str, ...]) -> dict[str, Any]:
    names = {"key": HOST_NAME, "operator": "In", "values": list(nodes)}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [names]}]}
        },
        # One rank a node, also where a GPU is offered several times.
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {_GROUP: _name_of_set(source)}}, "topologyKey": HOST_NAME}
            ]
        },
    }


def _render_container(source: ExportSource, rank: int, mounts: list[dict[str, Any]], *, keyed: bool) -> dict[str, Any]:
    unit, pin = source.unit, source.pin
    asked = container(source.launches[rank])
    limits: dict[str, Any] = {"nvidia.com/gpu": 1, "memory": f"{mebibytes(asked.memory.upper())}Mi"}
    if len(source.nodes) > 1:
        limits[RDMA] = 1
    made: dict[str, Any] = {
        "name": "engine",
        "image": image_name(unit.image).outside(pin.digest if pin else None),
        "imagePullPolicy": "IfNotPresent" if pin and pin.digest else "Never",
        "command": ["sh", "-c", Script(_escape_literal(fabric_script())), "with-fabric"],
        "args": [_render_word(word) for word in placed(source, rank)],
        "env": _render_environment(source, rank, keyed=keyed),
        "resources": {"limits": limits},
        "securityContext": {"capabilities": {"add": list(asked.capabilities)}},
        "volumeMounts": mounts,
    }
    if rank == 0:
        made["ports"] = [{"name": "api", "containerPort": unit.api.port}]
        place = {"host": str(api_address(source.rack, unit)), "port": unit.api.port}
        # Of an engine that the owner declares it is known that it listens.
        asked_for = {"httpGet": {**place, "path": "/health"}}
        made["readinessProbe"] = {
            **(asked_for if ENGINES[unit.engine].known_paths else {"tcpSocket": place}),
            "periodSeconds": 10,
            "timeoutSeconds": 5,
        }
    return made


def _render_environment(source: ExportSource, rank: int, *, keyed: bool) -> list[dict[str, Any]]:
    launch = source.launches[rank]
    found: list[dict[str, Any]] = [
        {"name": _OWN_ADDRESS, "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
    ]
    addresses = {"MASTER_ADDR": Place.HEAD, ENGINES[source.unit.engine].own_address: Place.OWN}
    for name, value in launch.environment.items():
        found.append({"name": name, "value": _render_word((addresses.get(name, value),))})
    if keyed and (variable := _form_of_key(source).variable):
        reference = {"name": _name_of_set(source), "key": variable}
        found.append({"name": variable, "valueFrom": {"secretKeyRef": reference}})
    return found


def _render_word(word: Word) -> str:
    return "".join(_VARIABLES[part] if isinstance(part, Place) else _escape_literal(part) for part in word)


def _escape_literal(text: str) -> str:
    """Kubernetes replaces `$(NAME)` by a variable, and `$$` by `$`."""
    return _EXPANDED.sub("$$", text)
