"""A node with a network card for the lossless role: the lab's stand-ins for ethtool and dcb, and the driver's files."""

from __future__ import annotations

from pathlib import Path

from core.ops import host_facts
from roles.lossless import desired
from roles.lossless.facts import LIVE
from tests.unit.ops.shells import rooted, run, stand_in

TOOLS = Path(__file__).parents[3] / "lab/image/rootfs/usr/lib/sparkrack-lab"
NAMES = ("enp1s0f1np1", "enP2p1s0f1np1")


def card(root: Path, *names: str, ofed: bool = True) -> Path:
    """A node with these interfaces as their driver starts them. `ofed`: the driver is NVIDIA's."""
    stand_in(root, "sleep")
    for tool in ("ethtool", "dcb"):
        program = root / "bin" / tool
        program.write_text(
            rooted((TOOLS / tool).read_text(), root).replace("set -eu", f'set -eu\necho "{tool} $*" >> {root}/calls')
        )
        program.chmod(0o755)
    for name in names or NAMES:
        folder = root / "sys/class/net" / name
        folder.mkdir(parents=True)
        if ofed:
            for file, value in ((desired.NOTICE, "1"), (desired.REACT, "1"), (desired.CNP, "48")):
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_text(f"{value}\n")
            rdma(root, name)
    return root


def rdma(root: Path, name: str) -> None:
    """The RDMA device of an interface, seen from both sides."""
    device = root / "sys/class/net" / name / "device"
    (device / "infiniband" / f"mlx5_{name}/tc/1").mkdir(parents=True)
    (device / "infiniband" / f"mlx5_{name}/tc/1/traffic_class").write_text("")
    (device / "net" / name).mkdir(parents=True)
    seen = root / "sys/class/infiniband"
    seen.mkdir(parents=True, exist_ok=True)
    (seen / f"mlx5_{name}").symlink_to(device / "infiniband" / f"mlx5_{name}")
    (device / "infiniband" / f"mlx5_{name}/device").symlink_to(device)


def traffic_class(root: Path, name: str = NAMES[0]) -> Path:
    return root / "sys/class/net" / name / f"device/infiniband/mlx5_{name}/tc/1/traffic_class"


def driver_answers(root: Path) -> None:
    """Emulate the driver's answers for a traffic class: it prints its own text after a write."""
    for path in root.glob("sys/class/net/*/device/infiniband/*/tc/1/traffic_class"):
        written = path.read_text().strip()
        if written.lstrip("-").isdigit():
            path.write_text("" if int(written) < 0 else f"Global tclass={written}\n")


def asked(root: Path) -> str:
    """Return the output of the role's probe on such a node."""
    done = run(host_facts._registered["lossless"].commands[LIVE], root)
    assert done.returncode == 0, done.stderr
    return done.stdout


def live(root: Path, name: str = NAMES[0]) -> desired.Live:
    found = desired.live(asked(root), name)
    assert found is not None
    return found
