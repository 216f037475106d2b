"""Nodes with a fake engine: they answer the images role, and record the transfers."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyinfra.connectors.util import CommandOutput, OutputLine

from core.model import Rack, load
from core.ops import delivery, detached_unit
from tests.unit.ops import fakenode
from tests.unit.roles.cases import DEPLOYS, node_of

NONE = "<none>"


@dataclass
class Held:
    """An image on a node: its names, and what registry gave it by which digest."""

    names: set[str] = field(default_factory=set)
    digest: tuple[str, str] | None = None
    size: int = 50_000_000


@dataclass
class Docker(fakenode.Answers):
    """One node. `held`: its images by ID; `job`: what it fetches, with how often it is still seen running."""

    node: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    held: dict[str, Held] = field(default_factory=dict)
    rest: dict[str, str] = field(default_factory=dict)
    job: list[Any] | None = None
    fetched: list[str] = field(default_factory=list)
    lost: int | None = None
    """After so many commands the connection is gone."""
    asked_nccl: int = 0
    """How often a container was asked what its image has of NCCL."""
    wrong: str | None = None
    """Digest that docker load creates for any input."""

    def listing(self) -> str:
        rows = []
        for identity, held in self.held.items():
            named = [name.rpartition(":")[::2] for name in sorted(held.names)]
            if held.digest and held.digest[0] not in {repository for repository, _ in named}:
                named.append((held.digest[0], NONE))
            for repository, tag in named or [(NONE, NONE)]:
                own = held.digest if held.digest and held.digest[0] == repository else None
                rows.append(f"{identity} {repository} {tag} {own[1] if own else NONE} {held.size // 10**6}MB\n")
        return "".join(rows)

    def find(self, reference: str) -> str | None:
        for identity, held in self.held.items():
            if reference in (identity, *held.names) or (held.digest and reference == "@".join(held.digest)):
                return identity
        return None


@dataclass
class World:
    """The nodes by address and name, and what the registry has: reference -> ID and digest."""

    rack: Rack
    dockers: dict[str, Docker]
    registry: dict[str, tuple[str, str]] = field(default_factory=dict)
    nccl: dict[str, tuple[int, list[str]]] = field(default_factory=dict)
    """By the ID of an image: the exit code of a container of it, and what it prints of NCCL."""
    dead: set[str] = field(default_factory=set)
    """Unreachable addresses."""
    serving: dict[str, int] = field(default_factory=dict)
    most: int = 0
    passed_on: bool = False
    """Whether a node took an image from one that had not got it yet."""

    def at(self, address: str) -> Docker:
        owners = {str(node.address): name for name, node in self.rack.nodes.items()}
        owners |= {str(one.interface.ip): one.half.node for one in self.rack.addresses}
        return self.dockers[owners[address]]

    def fetch(self, taker: Docker, script: str) -> list[str]:
        """Execute a job, or the script of a pull; return its log."""
        if found := re.search(r"docker pull (\S+) ", script):
            taker.fetched.append(f"pull {found[1]}")
            if found[1] not in self.registry:
                return [f"Error response from daemon: manifest for {found[1]} not found", "sparkrack: load ended 1"]
            identity, digest = self.registry[found[1]]
            held = taker.held.setdefault(identity, Held())
            held.digest = (found[1].partition("@")[0].rpartition(":")[0] or found[1].partition("@")[0], digest)
            if "@" in found[1]:
                held.digest = (found[1].partition("@")[0], digest)
            else:
                held.names.add(found[1])
            return ["sparkrack: load ended 0"]
        address, wanted = str(source_of(script)), str(json.loads(script)["image"])
        taker.fetched.append(f"copy {address}")
        if address in self.dead:
            return ["ssh: no route to host", "sparkrack: load ended 1"]
        if wanted not in self.at(address).held:
            return ["the transfer of the other node ended before it had the image", "sparkrack: load ended 1"]
        identity = taker.wrong or wanted
        taker.held.setdefault(identity, Held())
        return [f"Loaded image ID: {identity}", "5000000 bytes copied", "sparkrack: load ended 0"]


def source_of(script: str) -> str | None:
    """The address that a job names; None for the script of a pull."""
    return str(json.loads(script)["ssh"][-1]) if script.startswith("{") else None


def image_of(script: str) -> str | None:
    """The image that a job names; None for the script of a pull."""
    return str(json.loads(script)["image"]) if script.startswith("{") else None


def copy_job(address: str, identity: str) -> str:
    """A job that takes an image from an address."""
    return json.dumps({"image": identity, "ssh": ["ssh", address]})


class Engine(fakenode.Node):
    """The connector of such a node."""

    world: World

    def run_shell_command(self, command: Any, *_: Any, **arguments: Any) -> tuple[bool, CommandOutput]:
        text, docker = command.get_raw_value().removeprefix("set -eu; export LC_ALL=C; "), self.answers
        assert isinstance(docker, Docker)
        if fakenode.is_probe(command.get_raw_value()):
            reported = node_of("images") | {"images-stock": docker.listing()} | docker.rest
            return True, CommandOutput([OutputLine("stdout", line) for line in fakenode.answer(reported)])
        job = base64.b64decode(arguments.get("_stdin") or "").decode()
        docker.sent.append((text, job))
        if docker.lost is not None and len(docker.sent) > docker.lost:
            raise OSError("Socket is closed")
        if found := re.search(r"docker run .* --entrypoint=sh (sha256:[0-9a-f]{64}) -c", text):
            assert found[1] in docker.held, "only a node that has the image can be asked"
            docker.asked_nccl += 1
            code, lines = self.world.nccl.get(found[1], (0, ["nccl: 2.30.7 system"]))
            ended = OutputLine("stderr", f"sparkrack: container ended {code}")
            return True, CommandOutput([*(OutputLine("stdout", line) for line in lines), ended])
        fine, lines = self.answered(docker, text, job)
        return fine, CommandOutput([OutputLine("stdout" if fine else "stderr", line) for line in lines])

    def answered(self, docker: Docker, text: str, job: str) -> tuple[bool, list[str]]:
        if "systemd-run" in text:
            encoded = re.search(r"printf %s (\S+) ", text)
            assert encoded
            script = job or base64.b64decode(encoded[1]).decode()
            source = source_of(script)
            if source and source not in self.world.dead:
                giver = self.world.at(source)
                self.world.serving[giver.name] = self.world.serving.get(giver.name, 0) + 1
                self.world.most = max(self.world.most, self.world.serving[giver.name])
                self.world.passed_on |= bool(giver.job and image_of(giver.job[1]) == image_of(script))
            docker.job = [3, script, source]
            return True, []
        if "is-active" in text:
            assert docker.job
            docker.job[0] -= 1
            taken_from = (
                self.world.at(docker.job[2]) if docker.job[2] and docker.job[2] not in self.world.dead else None
            )
            passing = (
                taken_from
                and taken_from.job
                and taken_from.lost is None
                and image_of(taken_from.job[1]) == image_of(docker.job[1])
            )
            if docker.job[0] > 0 or passing:
                return True, ["active", "5000000 bytes copied"]
            _, script, source = docker.job
            if source and source not in self.world.dead:
                self.world.serving[self.world.at(source).name] -= 1
            docker.job = None
            return True, ["inactive", *self.world.fetch(docker, script)]
        word = text.split()[-1].strip("'")
        identity = docker.find(word)
        if "len .RepoTags" in text:
            return bool(docker.held.pop(word, None)), []
        if "image inspect" in text:
            if identity is None:
                return False, [f"Error response from daemon: No such image: {word}"]
            held = docker.held[identity]
            digests = json.dumps(["@".join(held.digest)] if held.digest else [])
            return True, [f"{identity} {held.size} {digests}"]
        assert text.startswith("docker tag "), text
        for held in docker.held.values():
            held.names.discard(word)
        docker.held[text.split()[-2]].names.add(word)
        return True, []


@dataclass
class Workdir:
    """Runs on such nodes, with a rack file in a folder of its own."""

    folder: Path
    patch: pytest.MonkeyPatch

    def world(self, text: str, **held: dict[str, Held]) -> World:
        path = self.folder / "rack.yaml"
        path.write_text(text)
        rack = load(path)
        return World(rack, {name: Docker(name=name, held=held.get(name, {})) for name in rack.nodes})

    def run(self, world: World, mode: str = "yes", only: tuple[str, ...] = (), grace: float = 30) -> fakenode.Ended:
        self.patch.setattr(fakenode, "Node", type("InWorld", (Engine,), {"world": world}))
        for module in (delivery, detached_unit):
            self.patch.setattr(module, "POLL_SECONDS", 0.001)
        self.patch.setattr(detached_unit, "PROGRESS_SECONDS", 0)
        self.patch.setattr(delivery, "GRACE", grace)
        hosts = {
            name: {"rack": world.rack, "node": world.rack.nodes[name], "answers": docker}
            for name, docker in world.dockers.items()
            if name in (only or world.dockers)
        }
        hosts = {name: hosts[name] for name in only or hosts}
        return fakenode.run(hosts, DEPLOYS["images"], mode, diff=True)
