"""Every part of the role watch that is changed by hand on a server is named by drift, and repaired by the next run or
asked to be of others. The parts are those that a first run names: a new one without a row here fails.

The node is a folder (watch_node.py); the same on real nodes is tests/lab/test_8_watch.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tiers import sampled
from tests.unit.ops import fakenode
from tests.unit.ops.shells import run, write
from tests.unit.roles.blackbox_node import BlackboxConnector
from tests.unit.roles.watch_node import SECRETS, SERVER, WatchWorld

Change = Callable[[Path, str], None]


def edit(root: Path, part: str) -> None:
    file = root / part.lstrip("/")
    file.write_text(file.read_text() + "# mine\n")


def open_to_all(root: Path, part: str) -> None:
    (root / part.lstrip("/")).chmod(0o666)


def remove(root: Path, part: str) -> None:
    (root / part.lstrip("/")).unlink()


def systemctl(*words: str) -> Change:
    def change(root: Path, part: str) -> None:
        done = run(f"systemctl {' '.join(words)} {part}", root)
        assert done.returncode == 0, done.stderr

    change.__name__ = "-".join(words).replace("--", "")
    return change


def mask_ours(root: Path, part: str) -> None:
    """What `systemctl mask` needs: the file of a unit in /etc goes first."""
    file = root / "etc/systemd/system" / part
    file.unlink()
    file.symlink_to("/dev/null")


def uninstall(root: Path, part: str) -> None:
    (root / "dpkg" / part).unlink()
    (root / "vendor" / f"{part}.service").unlink()
    systemctl("stop")(root, f"{part}.service")


def install_by_half(root: Path, part: str) -> None:
    (root / "dpkg" / part).write_text("unpacked\n")


def override(root: Path, part: str) -> None:
    """A drop-in of others that is read after ours."""
    key = "OnUnitInactiveSec=1h" if part.endswith(".timer") else "MemoryMax=infinity"
    write(root, f"/etc/systemd/system/{part}.d/zzz.conf", f"[X]\n{key}\n")


FILE = (edit, open_to_all, remove)
PACKAGE = (uninstall, install_by_half)
SERVICE = (*(systemctl(*words) for words in (("stop",), ("disable",), ("mask",), ("mask", "--runtime"))), override)
TIMER = (*(systemctl(*words) for words in (("stop",), ("disable",))), mask_ours, override)
PARTS: dict[str, tuple[Change, ...]] = {
    "/etc/systemd/system/prometheus-node-exporter.service.d/zz-sparkrack.conf": FILE,
    "/etc/systemd/system/prometheus.service.d/zz-sparkrack.conf": FILE,
    "/etc/systemd/system/prometheus-alertmanager.service.d/zz-sparkrack.conf": FILE,
    "/etc/prometheus/sparkrack-rules.yml": FILE,
    "/etc/prometheus/sparkrack.yml": FILE,
    "/etc/prometheus/sparkrack-alertmanager.yml": FILE,
    "/usr/local/lib/sparkrack/node_metrics.py": FILE,
    "/etc/systemd/system/sparkrack-node-metrics.service": FILE,
    "/etc/systemd/system/sparkrack-node-metrics.timer": FILE,
    "/usr/local/lib/sparkrack/switch_reader.py": FILE,
    "/etc/sparkrack/watch/switches.json": FILE,
    "/etc/sparkrack/watch/switch-passwords.json": FILE,
    "/etc/systemd/system/sparkrack-switch-reader.service": FILE,
    "/etc/systemd/system/sparkrack-switch-reader.timer": FILE,
    "prometheus-node-exporter": PACKAGE,
    "prometheus": PACKAGE,
    "prometheus-alertmanager": PACKAGE,
    "prometheus-node-exporter.service": SERVICE,
    "prometheus.service": SERVICE,
    "prometheus-alertmanager.service": SERVICE,
    "sparkrack-node-metrics.service": (override,),
    "sparkrack-node-metrics.timer": TIMER,
    "sparkrack-switch-reader.service": (override,),
    "sparkrack-switch-reader.timer": TIMER,
}
"""What a person changes of each part. The addresses at which the programs listen are arguments in the drop-ins."""
UNITS = {part for part in PARTS if part.endswith((".service", ".timer")) and "/" not in part}
STARTED = {"sparkrack-node-metrics.service", "sparkrack-switch-reader.service"}
"""Units that their timers start: a run does not name them."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WatchWorld, Path, set[str]]]:
    """A server as declared, a copy of it, and the parts that its first run named."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fakenode, "Node", BlackboxConnector)
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        folder = tmp_path_factory.mktemp("by-hand")
        world = WatchWorld(folder / "world", SERVER)
        world.node.install()
        named = {event.path or event.subject or "" for event in world.drift()}
        ended = world.run()
        assert ended.failed == [], ended.log
        world.node.root.rename(folder / "whole")
        yield world, folder / "whole", named


def test_every_part_has_its_changes(whole: tuple[WatchWorld, Path, set[str]]) -> None:
    assert whole[2] == PARTS.keys() - STARTED


def by_hand(value: object) -> str:
    part, change = value if isinstance(value, tuple) else ("", value)
    return f"{part}-{change.__name__}"


CASES = [(part, change) for part, changes in PARTS.items() for change in changes]


@pytest.mark.parametrize("case", sampled(CASES, 9, 2, by_hand))
def test_a_part_changed_by_hand(whole: tuple[WatchWorld, Path, set[str]], case: tuple[str, Change]) -> None:
    (world, declared, _), (part, change) = whole, case
    node = world.node
    node.put_back(declared)
    files = node.files()
    change(node.root, part)
    if change is override:
        ended = world.run()
        assert ended.failed == ["spark1"]
        assert f"/etc/systemd/system/{part}.d/zzz.conf" in ended.log
        assert node.texts == [], "nothing is sent to a node that others have changed so"
        remove(node.root, f"/etc/systemd/system/{part}.d/zzz.conf")
        world.run()
        assert node.files() == files
        return
    named = world.drift()
    assert part in {event.path or event.subject for event in named}, [event.message for event in named]
    ended = world.run()
    assert ended.failed == [], ended.log
    assert node.files() == files
    assert node.stale_services() == []
    assert set(node.running()) == UNITS - STARTED
    world.run()
    assert node.texts == [], "the run after it changes nothing"
