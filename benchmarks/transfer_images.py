"""An image to several nodes, by sparkrack's chain and by `docker save`.

Each node is an sshd and a dockerd; its link is limited. A folder has the packages docker.io, docker-cli, containerd and
runc, unpacked by `dpkg-deb -x`. The image has two layers of which one is on all nodes, or none.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks import BenchError
from benchmarks.transfer_rack import Rack, wait_for
from benchmarks.unpacked_sshd import write_configuration

PROGRAM = Path(__file__).parent.parent / "roles/images/files/fetch_image.py"
SECONDS = 60
"""Seconds for dockerd to answer."""


@dataclass(frozen=True)
class DockerRack(Rack):
    """Nodes with a dockerd each. `packages`: the folder of the unpacked packages."""

    packages: Path = Path("/nonexistent")

    def environment(self, node: int) -> dict[str, str]:
        """The variables by which docker's client finds the daemon of a node."""
        folders = [f"{self.packages}/{name}" for name in ("usr/sbin", "usr/bin", "sbin")]
        path = ":".join([f"{self.top}/bin", *folders, "/usr/sbin:/usr/bin:/sbin:/bin"])
        return {"PATH": path, "DOCKER_HOST": f"unix://{self.top}/d{node}/d.sock"}

    @property
    def archives(self) -> Path:
        """The folder for archives, which has the same path on all nodes."""
        return self.top / "archives"

    def inside(self, node: int) -> tuple[str, ...]:
        """The words before a command that runs on a node, with the node's own folder for archives."""
        own = self.top / f"f{node}"
        for path in (own, self.archives):
            path.mkdir(mode=0o750, exist_ok=True)
        return *super().inside(node), "sh", "-c", f'mount --bind {own} {self.archives}; exec "$@"', "sh"

    def configuration(self, node: int) -> Path:
        """Write the configuration of the server of a node."""
        path = super().configuration(node)
        lines = [line for line in path.read_text().splitlines() if not line.startswith("SetEnv ")]
        words = " ".join(f"{key}={value}" for key, value in self.environment(node).items())
        write_configuration(path, "\n".join([*lines, f"SetEnv {words}", ""]))
        return path

    def docker(self, node: int, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run docker's client for a node."""
        own = self.environment(node)
        return subprocess.run(
            [shutil.which("docker", path=own["PATH"]) or "docker", *words], env=own, input=stdin, capture_output=True
        )

    def start_docker(self, node: int) -> subprocess.Popen[bytes]:
        """Start containerd and dockerd of a node in namespaces of their own."""
        top = self.top / f"d{node}"
        top.mkdir()
        (top / "c.toml").write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
        (top / "daemon.json").write_text('{"features": {"containerd-snapshotter": false}}')
        text = (
            f"containerd -c {top}/c.toml --root {top}/c --state {top}/cs --address {top}/c.sock & "
            f"while ! [ -S {top}/c.sock ]; do sleep 0.2; done; "
            f"exec dockerd --config-file {top}/daemon.json --containerd {top}/c.sock -H unix://{top}/d.sock "
            f"--data-root {top}/data --exec-root {top}/exec --pidfile {top}/pid --bridge none --iptables=false "
            "--ip6tables=false"
        )
        words = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", text]
        with (top / "log").open("wb") as log:
            return subprocess.Popen(words, env=self.environment(node), stdout=log, stderr=log)

    def sent(self, node: int) -> int:
        """Bytes that a node has sent, by the counter of its end of the bridge."""
        shown = subprocess.run(["ip", "-j", "-s", "link", "show", f"v{node}"], capture_output=True, check=True).stdout
        return int(json.loads(shown)[0]["stats64"]["rx"]["bytes"])


def archive(entries: dict[str, bytes]) -> bytes:
    """Return a tar archive of files."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as found:
        for name, content in entries.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            found.addfile(member, io.BytesIO(content))
    return made.getvalue()


def image_archive(tag: str, layers: list[bytes]) -> bytes:
    """Return what `docker load` takes for an image with these layers."""
    digests = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    rootfs = {"type": "layers", "diff_ids": digests}
    configuration = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs}).encode()
    name = f"{hashlib.sha256(configuration).hexdigest()}.json"
    files = {f"l{number}/layer.tar": layer for number, layer in enumerate(layers)}
    manifest = [{"Config": name, "RepoTags": [tag], "Layers": list(files)}]
    return archive({**files, name: configuration, "manifest.json": json.dumps(manifest).encode()})


def by_chain(rack: DockerRack, image: str) -> None:
    """Each node takes from the one before it, as in a run of sparkrack."""
    started = []
    for node in range(1, rack.receivers + 1):
        job = rack.top / f"job{node}"
        ssh = [*rack.ssh(), rack.address(node - 1)]
        job.write_text(json.dumps({"image": image, "ssh": ssh, "folder": str(rack.archives), "size": rack.size}))
        words = [f"{key}={value}" for key, value in rack.environment(node).items()]
        started.append(rack.on(node, "env", *words, sys.executable, "-I", "-B", str(PROGRAM), "fetch", str(job)))
    wait_for(started)


def from_first(*, parallel: bool) -> Callable[[DockerRack, str], None]:
    """Return a distribution by `docker save | ssh docker load` from node 0."""

    def distribute(rack: DockerRack, image: str) -> None:
        started = []
        for node in range(1, rack.receivers + 1):
            ssh = " ".join([*rack.ssh(), rack.address(node)])
            words = [f"{key}={value}" for key, value in rack.environment(0).items()]
            started.append(rack.on(0, "env", *words, "sh", "-c", f"docker save {image} | {ssh} docker load"))
            if not parallel:
                wait_for(started)
        wait_for(started)

    return distribute


TOOLS: dict[str, Callable[[DockerRack, str], None]] = {
    "sparkrack (chain)": by_chain,
    "`docker save` to `ssh docker load`, one node after the other": from_first(parallel=False),
    "`docker save` to `ssh docker load`, all nodes at once": from_first(parallel=True),
}


def measure_images(rack: DockerRack, megabits: int) -> list[str]:
    """Measure all tools, with the lower layer on the receivers and without; return the rows of the table."""
    lower, upper = (
        archive({name: os.urandom(size)}) for name, size in (("a", rack.size * 3 // 4), ("b", rack.size // 4))
    )
    servers = rack.build(megabits)
    daemons = [rack.start_docker(node) for node in range(rack.receivers + 1)]
    rows = []
    try:
        for node in range(rack.receivers + 1):
            wait_for_docker(rack, node)
        rack.docker(0, "load", stdin=image_archive("new:1", [lower, upper]))
        image = rack.docker(0, "image", "inspect", "--format", "{{.Id}}", "new:1").stdout.decode().strip()
        for there in (True, False):
            for name, distribute in TOOLS.items():
                for node in range(1, rack.receivers + 1):
                    rack.docker(node, "image", "rm", image)
                    rack.docker(
                        node, *(("load",) if there else ("image", "rm", "old:1")), stdin=image_archive("old:1", [lower])
                    )
                before, begun = sum(map(rack.sent, range(rack.receivers + 1))), time.monotonic()
                first = rack.sent(0)
                distribute(rack, image)
                wall, wire = time.monotonic() - begun, sum(map(rack.sent, range(rack.receivers + 1))) - before
                for node in range(1, rack.receivers + 1):
                    if rack.docker(node, "image", "inspect", image).returncode:
                        raise BenchError(f"node {node} does not have the image")
                layers = "lower layer" if there else "none"
                sent = f"{(rack.sent(0) - first) / 1e6:.0f} | {wire / 1e6:.0f}"
                rows.append(f"| {rack.receivers} | {layers} | {name} | {wall:.1f} | {sent} |")
                click.echo(rows[-1], err=True)
    finally:
        for process in servers:
            process.terminate()
        for process in daemons:
            process.kill()  # unshare ignores a milder signal; its child ends with it
            process.wait()
    return rows


def wait_for_docker(rack: DockerRack, node: int) -> None:
    """Wait until a dockerd answers. Raises BenchError."""
    for _ in range(SECONDS * 5):
        if rack.docker(node, "info").returncode == 0:
            return
        time.sleep(0.2)
    raise BenchError(f"dockerd of node {node}: {(rack.top / f'd{node}/log').read_text(errors='replace')[-300:]}")
