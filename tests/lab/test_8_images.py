"""An image that shares layers with one that each node has: only the layers that are missing travel, node by node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import pytest

from core.model import image_lock, load
from core.model.image_lock import ImageNccl
from roles.images import scripts
from tests.lab.conftest import NODES
from tests.lab.virtual import VirtualRack

pytestmark = pytest.mark.soak(turn=8)

BASE, UPPER = 12 << 20, 4 << 20
"""Bytes of the layer that each node has, and of the one that is missing: a virtual node encrypts some MB a second."""
SHARED, NEW, WITH_SHELL = "layers/base:1", "layers/new:1", "layers/nccl:1"
HALVES = "enp1s0f1np1 enP2p1s0f1np1"
ARCHIVES = scripts.ARCHIVES
BUILD = f"""
set -eu
mkdir -p /tmp/layers; cd /tmp/layers
head -c {BASE} /dev/urandom > base; head -c {UPPER} /dev/urandom > upper
printf 'FROM scratch\\nCOPY base /base\\n' > Dockerfile.base
printf 'FROM {SHARED}\\nCOPY upper /upper\\n' > Dockerfile.new
export DOCKER_BUILDKIT=0
docker build -q -t {SHARED} -f Dockerfile.base .
docker build -q -t {NEW} -f Dockerfile.new .
printf '# comment\\nNCCL_IB_USE_INLINE=1\\n' > nccl.conf
printf 'FROM %s\\nCOPY nccl.conf /etc/nccl.conf\\n' "$1" > Dockerfile.nccl
docker build -q -t {WITH_SHELL} -f Dockerfile.nccl .
rm -rf /tmp/layers
"""


@pytest.fixture(scope="module")
def declared(rack: VirtualRack) -> Iterator[Path]:
    """A rack file with an image that spark1 has; the other nodes have the image below it."""
    base = load(rack.paths.rack).images[0]
    rack.ssh("spark1", f"set -- {quote(base)}\n{BUILD}")
    path = rack.paths.rack.with_name("layers.yaml")
    text = rack.paths.rack.read_text()
    path.write_text(
        re.sub(r"^images:\n( *)- ", rf"images:\n\1- {WITH_SHELL}\n\1- {SHARED}\n\1- ", text, flags=re.MULTILINE)
    )
    try:
        rack.deploy("-y", rack=path, roles=("images",))
        path.write_text(re.sub(f"^( *)- {SHARED}\n", rf"\g<0>\1- {NEW}\n", path.read_text(), flags=re.MULTILINE))
        yield path
    finally:
        for node in NODES:
            rack.ssh(
                node, f"systemctl stop 'sparkrack-image-*'; docker image rm {NEW} {SHARED} {WITH_SHELL}", check=False
            )
        for kept in (path, path.with_name("layers.lock.json")):
            kept.unlink(missing_ok=True)


def deploy(rack: VirtualRack, declared: Path) -> str:
    done = rack.deploy("-y", rack=declared, roles=("images",))
    return done.stdout + done.stderr


def received_bytes(rack: VirtualRack, node: str) -> int:
    """Bytes that came to the node over both halves of its port since it was started."""
    return sum(
        map(int, rack.ssh(node, f"for h in {HALVES}; do cat /sys/class/net/$h/statistics/rx_bytes; done").split())
    )


def copied_bytes(rack: VirtualRack, node: str) -> int:
    """Bytes of the archive that came in the last transfer."""
    log = rack.ssh(node, "cat $(ls -t /run/sparkrack-images/*.log | head -n 1)")
    return int(re.findall(r"(\d+) bytes copied", log)[-1])


def layers(rack: VirtualRack, node: str) -> str:
    return rack.ssh(node, f"docker image inspect --format '{{{{.Id}}}} {{{{json .RootFS.Layers}}}}' {NEW}")


def test_only_the_missing_layer_travels_along_a_chain(rack: VirtualRack, declared: Path) -> None:
    before = {node: received_bytes(rack, node) for node in NODES}
    with rack.slow_fabric("spark1", "spark2"):  # or the copy to spark2 could end before the one to spark3 begins
        reported = deploy(rack, declared)
    routes = re.findall(rf"{NEW}: from (spark\d) \(fabric\)", reported)
    # Hosts begin in any order: the first takes it from the node that has it, the other from the first.
    assert sorted(routes) in (["spark1", "spark2"], ["spark1", "spark3"]), reported
    for node in ("spark2", "spark3"):
        assert layers(rack, node) == layers(rack, "spark1")
        assert UPPER < copied_bytes(rack, node) < UPPER + 100_000
        came = received_bytes(rack, node) - before[node]
        print(f"{node}: archive {copied_bytes(rack, node)} bytes, wire {came} bytes")
        assert came < 1.2 * UPPER + 500_000
        assert rack.ssh(node, f"ls {ARCHIVES}").split()[0].endswith(".lock"), "no archive is left"
    again = deploy(rack, declared)
    assert re.search(r"Grand total +(\d+) +- +- +\1 *$", again, re.MULTILINE), again


def test_what_an_image_has_of_nccl_is_asked_once_and_recorded(rack: VirtualRack, declared: Path) -> None:
    """One image here has a shell, none has an NCCL: that is unknown, and not good."""
    deploy(rack, declared)
    found = {name: pin.nccl for name, pin in image_lock.read(declared.with_name("layers.lock.json")).items()}
    assert found[WITH_SHELL] == ImageNccl(None, None, ("NCCL_IB_USE_INLINE=1",))
    assert found[SHARED] == found[NEW] == ImageNccl(None, None, None)
    for node in NODES:
        assert rack.ssh(node, f"docker ps --all --quiet --filter name={scripts.NCCL_CONTAINER}") == ""


def test_a_transfer_that_is_killed_continues_from_its_last_byte(rack: VirtualRack, declared: Path) -> None:
    rack.ssh("spark3", f"docker image rm {NEW}")
    size = f"$(stat -c %s {ARCHIVES}/*.tar 2>/dev/null || echo 0)"
    kill = f"for _ in $(seq 2000); do [ {size} -gt 1500000 ] && break; sleep 0.1; done; echo {size} > /run/lab-killed"
    kill += "; systemctl kill -s KILL 'sparkrack-image-*'"
    rack.ssh("spark3", f"systemd-run --quiet --collect --unit=lab-kill sh -c {quote(kill)}")
    with rack.slow_fabric("spark1", "spark2"):
        reported = deploy(rack, declared)
    assert "could not give it: it was ended from outside" in reported, reported
    killed = int(rack.ssh("spark3", "cat /run/lab-killed"))
    rest = copied_bytes(rack, "spark3")
    print(f"killed at {killed} bytes, {rest} bytes came after it")
    assert 1_500_000 < killed < UPPER
    assert rest <= UPPER + 100_000 - killed
    assert layers(rack, "spark3") == layers(rack, "spark1")
