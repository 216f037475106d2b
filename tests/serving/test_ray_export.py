"""What `serve export --format ray` writes is started with Ray itself: the nodes join, and a driver uses all of them.

The commands come from the written files and are run by a shell on nodes that are network namespaces. In the place of
docker, each node has processes, /tmp and /dev/shm of its own; in the place of ssh, `ray exec` enters those of the head.
vLLM on Ray refuses CPUs, so that ray_driver.py stands in for it, which uses Ray as vLLM does.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from lab import namespace
from serving.launch import FABRIC_ENVIRONMENT
from sparkrack.serving.export.ray import ray_files
from tests.serving.engines import EngineOfTests, installed, real_ray
from tests.unit.model.serving_racks import machines, unit
from tests.unit.serving.export.exported import addresses, of

pytestmark = pytest.mark.soak(sampled=False)

KEY = "sk-of-the-exported-unit"
PORT = 8000
TEMPORARY = "/tmp"  # noqa: S108 - each node has its own
PATIENCE = 300.0
"""Seconds until a test gives up waiting."""
BOOTSTRAP = """\
import json, sys, yaml
from ray.autoscaler._private.util import prepare_config, validate_config
config = prepare_config(yaml.safe_load(open(sys.argv[1])))
validate_config(config)
json.dump(config, open(sys.argv[2], "w"))
"""
"""What `ray up` makes of a cluster file for the head."""
ALIVE = """\
import json, ray
ray.init(address="auto", log_to_driver=False, logging_level="error")
print(json.dumps(sorted(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"])))
"""
COMPLETION = """\
import os, sys, urllib.request
key = {"Authorization": f"Bearer {os.environ['VLLM_API_KEY']}"}
asked = urllib.request.Request(sys.argv[1], b"{}", key)
print(urllib.request.urlopen(asked, timeout=60).status)
"""


def write_program(file: Path, line: str) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/bash\n{line}\n")
    file.chmod(0o755)


class RayNode:
    """A node, and the container in which Ray starts its commands."""

    def __init__(self, folder: Path, name: str, address: str, engine: EngineOfTests) -> None:
        self.name, self.address, self.engine = name, address, engine
        self.temporary = folder / name / "tmp"
        """The node's /tmp."""
        self.namespace = f"re{os.getpid()}{name}"
        (self.temporary / "home").mkdir(parents=True)
        for program, words in engine.programs.items():
            write_program(self.temporary / "bin" / program, f'exec {shlex.join(words)} "$@"')
        self._container: subprocess.Popen[str] | None = None

    def configure(self, options: Sequence[str]) -> None:
        """Take the variables that options of `docker run` give to a container, as a cluster file has them."""
        words = [word for option in options for word in shlex.split(option)]
        given = {"PATH": f"{TEMPORARY}/bin:{os.environ['PATH']}", **self.engine.environment}
        files = []
        for option, word in zip(words[::2], words[1::2], strict=True):
            if option == "--env":
                name, _, value = word.partition("=")
                given[name] = value
            elif word == FABRIC_ENVIRONMENT:
                given["VLLM_HOST_IP"] = self.address
            elif option == "--env-file":
                files.append(f'. "{word}"\n')
        lines = [f"{name}={shlex.quote(value)}\n" for name, value in given.items()]
        (self.temporary / "variables").write_text("".join([f"HOME={TEMPORARY}/home\n", *lines, *files]))

    def boot(self, switch: str, link: str) -> None:
        """Connect the node to a switch, and start its container."""
        namespace.create(self.namespace)
        peer = ("peer", "name", "eth0", "netns", self.namespace)
        namespace.ip("link", "add", link, "type", "veth", *peer, namespace=switch)
        namespace.ip("link", "set", link, "master", "br0", "up", namespace=switch)
        namespace.ip("address", "add", f"{self.address}/24", "dev", "eth0", namespace=self.namespace)
        namespace.ip("link", "set", "eth0", "up", namespace=self.namespace)
        folders = f"mount -t tmpfs shm /dev/shm && mount --bind {self.temporary} {TEMPORARY}"
        own = f"{folders} && echo up && exec sleep infinity"
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", own]
        self._container = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, *unshare], stdout=subprocess.PIPE, text=True
        )
        assert self._container.stdout
        assert self._container.stdout.readline() == "up\n"

    def entering(self) -> list[str]:
        """The words before a command that make it one of the container."""
        assert self._container
        pid = self._container.pid
        (first,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        shell = ["env", "-i", "bash", "-c", f'set -a; . {TEMPORARY}/variables; exec "$@"', "bash"]
        return ["nsenter", "--target", first, "--mount", "--pid", "--net", *shell]

    def run(self, *words: str) -> str:
        """Run a command in the container; return what it prints."""
        done = subprocess.run([*self.entering(), *words], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, f"{self.name}: {shlex.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def python(self, program: str, *words: str) -> str:
        return self.run(sys.executable, "-S", "-c", program, *words)

    def end(self) -> None:
        if self._container:
            self._container.kill()
            self._container.wait(PATIENCE)
        namespace.delete(self.namespace)


@pytest.fixture
def engine() -> EngineOfTests:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    folder = installed("ray")
    if folder is None:
        pytest.skip("Ray is not installed: .venv/bin/python scripts/conformance_engine.py fetch ray")
    return real_ray(folder)


@pytest.fixture
def switch() -> Iterator[str]:
    name = f"re{os.getpid()}sw"
    namespace.create(name)
    namespace.ip("link", "add", "br0", "type", "bridge", namespace=name)
    namespace.ip("link", "set", "br0", "up", namespace=name)
    yield name
    namespace.delete(name)


@pytest.mark.parametrize("count", [2, 3])
def test_the_nodes_of_an_exported_unit_join_and_a_driver_uses_all_of_them(
    engine: EngineOfTests, switch: str, tmp_path: Path, count: int
) -> None:
    names = [f"n{number}" for number in range(count)]
    api = {"port": PORT, "listen": "management", "key": {"env": "KEY"}}
    keys = unit(engine="vllm-ray", nodes=names, parallel={"tensor": count}, api=api)
    one = of(keys, machines(count))
    cluster_file, serve = ray_files(one)
    for file in (cluster_file, serve):
        (tmp_path / file.name).write_text(file.text)
    cluster = yaml.safe_load(cluster_file.text)
    docker = cluster["docker"]
    nodes = [RayNode(tmp_path, name, address, engine) for name, address in addresses(one).items()]
    head, *workers = nodes
    serving: subprocess.Popen[str] | None = None
    try:
        for number, node in enumerate(nodes):
            node.boot(switch, f"l{number}")
            node.configure(docker["run_options"] + (docker["head_run_options"] if node is head else []))
        # What the head of the file tells its reader to write.
        (head.temporary / "home" / one.key_file).write_text(f"{one.key_line.removesuffix('KEY')}{KEY}\n")
        (head.temporary / cluster_file.name).write_text(cluster_file.text)
        head.python(BOOTSTRAP, f"{TEMPORARY}/{cluster_file.name}", f"{TEMPORARY}/home/ray_bootstrap_config.yaml")
        for command in cluster["head_start_ray_commands"]:
            head.run("bash", "-c", command)
        for worker in workers:
            for command in cluster["worker_start_ray_commands"]:
                worker.run("bash", "-c", command)
        # ray exec CLUSTER COMMAND
        called = f'[ "$1 $2" = "exec {tmp_path / cluster_file.name}" ]'
        write_program(tmp_path / "bin/ray", f'{called} && exec {shlex.join(head.entering())} bash -c "$3"')
        output = tmp_path / "serve.log"
        with output.open("w") as log:
            serving = subprocess.Popen(
                ["bash", str(tmp_path / serve.name)],
                env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )
        until = time.monotonic() + PATIENCE
        while "ready\n" not in output.read_text():
            assert serving.poll() is None, output.read_text()
            assert time.monotonic() < until, output.read_text()
            time.sleep(0.2)
        assert json.loads(head.python(ALIVE)) == sorted(node.address for node in nodes)
        url = f"http://{head.address}:{PORT}/v1/completions"
        assert head.python(COMPLETION, url) == "200\n"
        # An actor of the driver runs on each node.
        for node in nodes:
            assert "ray::Rank" in node.run("ps", "-eo", "args"), node.name
    finally:
        for node in nodes:
            node.end()
        if serving:
            serving.kill()
            serving.wait(PATIENCE)
