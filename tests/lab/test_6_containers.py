"""All containers of a node under one ceiling, and the guard that ends them when memory runs out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.drift_table import IMAGE
from tests.lab.virtual import VirtualRack

pytestmark = pytest.mark.soak(turn=5)

NODE, ROLES = "spark1", ("memory", "docker")
FILL = f"docker run --rm --name NAME {IMAGE} /bin/busybox dd if=/dev/zero of=/dev/null bs=AMOUNT count=20"
"""A buffer of so many bytes, filled again and again by the container's only process."""


def fill(mebibytes: int, name: str = "filler") -> str:
    return FILL.replace("AMOUNT", str(mebibytes * 1024**2)).replace("NAME", name)


@pytest.fixture(scope="module")
def low(rack: VirtualRack) -> Iterator[Path]:
    """The lab's rack with a ceiling of 1 GiB, on one node; in the end the node is as it was."""
    file = rack.paths.rack.with_name("low.yaml")
    lines = rack.paths.rack.read_text().rstrip("\n")
    file.write_text(f"{lines}\ndocker: {{memory: 1G}}\n")
    rack.deploy("-y", "--limit", NODE, rack=file, roles=ROLES)
    yield file
    rack.deploy("-y", "--limit", NODE, roles=ROLES)
    file.unlink()


def test_a_container_past_the_ceiling_is_killed(rack: VirtualRack, low: Path) -> None:
    """Without a limit of its own: it is the sum that is bounded."""
    assert rack.ssh(NODE, f"{fill(200)} >/dev/null 2>&1; echo $?").strip() == "0", "one within it is not"
    assert rack.ssh(NODE, f"{fill(1300)} >/dev/null 2>&1; echo $?").strip() == "137"
    assert "oom_memcg=/sparkrack.slice" in rack.ssh(NODE, "dmesg | grep oom-kill | tail -1")


def test_two_containers_share_the_ceiling(rack: VirtualRack, low: Path) -> None:
    both = f"({fill(700, 'one')}; echo one $? >&2) & ({fill(700, 'two')}; echo two $? >&2) & wait"
    ended = rack.ssh(NODE, f"({both}) 2>&1 >/dev/null | grep -E '^(one|two) '")
    assert " 137" in ended, "700 MiB twice are more than 1 GiB"


def test_the_guard_ends_containers_on_its_floor(rack: VirtualRack, low: Path) -> None:
    """With a floor that is above what is left when one container takes a part of what it may."""
    available = int(rack.ssh(NODE, "awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo"))
    high = low.with_name("high.yaml")
    text = low.read_text().replace(
        "docker: {memory: 1G}", f"docker: {{memory: 4G}}\nmemory: {{floor: {available - 600}M}}"
    )
    high.write_text(text)
    rack.deploy("-y", "--limit", NODE, rack=high, roles=ROLES)
    try:
        assert rack.ssh(NODE, f"{fill(2000)} >/dev/null 2>&1; echo $?").strip() == "137"
        reported = rack.ssh(NODE, "journalctl -q -o cat -u sparkrack-memory-guard | tail -5")
        assert "ended every container in sparkrack.slice" in reported
        assert rack.ssh(NODE, "systemctl is-active ssh docker sparkrack-memory-guard").split() == ["active"] * 3
    finally:
        high.unlink()


def test_a_container_reaches_out_and_is_reached_through_dockers_own_rules(rack: VirtualRack) -> None:
    """Masquerading and a published port, by the rules that docker makes with its own iptables."""
    assert "nf_tables" in rack.ssh(NODE, "iptables --version")
    assert "MASQUERADE" in rack.ssh(NODE, "iptables -t nat -S POSTROUTING")
    out = f"docker run --rm {IMAGE} /bin/busybox wget -qO- http://10.77.0.1:8090/Packages"
    assert "Package: nvidia-driver-580-open" in rack.ssh(NODE, out)
    serve = f"docker run -d --rm --name web -p 8088:80 {IMAGE} /bin/busybox httpd -f -p 80 -h /opt"
    rack.ssh(NODE, f"{serve} >/dev/null")
    try:
        name = rack.ssh(
            "spark2", "curl -fsS --retry 20 --retry-connrefused --retry-delay 1 http://10.77.0.11:8088/name"
        )
        assert name == IMAGE
    finally:
        rack.ssh(NODE, "docker stop -t 0 web >/dev/null")
