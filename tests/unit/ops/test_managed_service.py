"""The law of every service of every role: what it is changed to by hand, and a run that dies, end as it is declared.

A service is a value, so a new one is tested by being one. It lives on a node in a folder, with files of the test's own.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyinfra.api.command import StringCommand

from core.model.role import roles
from core.ops.announce import managed_file_change
from core.ops.managed_service import UNITS, ManagedService, Reads, ServiceChanges, ServiceState, unit_file
from core.probes.systemd_units import parse_units
from core.util.managed_file import ManagedFile
from serving import desired
from serving.services import unit_service
from tests.tiers import sampled
from tests.unit.ops.shells import run, stand_in, write
from tests.unit.roles import systemctl_standin
from tests.unit.roles.serving_units import LEASE, locked

TOOLS = ("chown", "sync", "chmod", "journalctl")


def of_roles() -> dict[str, ManagedService]:
    """All services of all roles, by role and name."""
    packages = [role.package for role in roles() if find_spec(f"{role.package}.services")]
    found = {package: import_module(f"{package}.services").SERVICES for package in packages}
    return {
        f"{package.rpartition('.')[2]}-{service.name or service.units[0]}": service
        for package, services in found.items()
        for service in services
    }


def of_a_served_unit() -> dict[str, ManagedService]:
    """The services of a unit on its nodes; of its files one of each kind, since each costs a process."""
    made = locked()
    kinds = (".json", ".secret", ".service", ".slice")
    found = {}
    for node, head in zip(made.nodes, (True, False), strict=True):
        private = (file.managed for file in desired.private_files(made, node, None, LEASE))
        paths = [file.path for file in (*desired.files(made, node), *private) if file.path.endswith(kinds)]
        found[f"serving-{'head' if head else 'rank'}"] = unit_service(made.unit.name, paths, head=head)
    return found


TOY = ManagedService("toy", ("toy.service",), (f"{UNITS}/toy.service", "/usr/local/lib/toy"))
"""All that a service costs: everything below is proven of it."""
SERVICES = {**of_roles(), **of_a_served_unit(), "toy": TOY}


@dataclass
class Node:
    """A node in a folder, with a service whose files have this text."""

    root: Path
    service: ManagedService
    text: str = "one"

    def install(self) -> None:
        """Make the node: a unit of which no file is ours comes from a package."""
        service, standin = self.service, Path(systemctl_standin.__file__)
        stand_in(self.root, "systemctl", f'exec {sys.executable} -I -S {standin} {self.root} "$@"')
        for tool in TOOLS:
            stand_in(self.root, tool)
        if service.reload and not service.reload.startswith("systemctl "):
            stand_in(self.root, service.reload.split()[0], f"exec {self.root}/bin/systemctl reload {service.units[0]}")
        read = [path for path in service.paths if not path.startswith(f"{UNITS}/")]
        (self.root / "reads.json").write_text(json.dumps(dict.fromkeys(service.units, read)))
        for folder in ("run", "vendor", "etc/systemd/system"):
            (self.root / folder).mkdir(parents=True)
        for unit in self.packaged:
            (self.root / "vendor" / unit).write_text("static" if service.static else "disabled")

    @property
    def packaged(self) -> list[str]:
        """The units that a package brings."""
        return [unit for unit in self.service.units if unit_file(unit) not in self.service.paths]

    @property
    def maskable(self) -> list[str]:
        """The units that `systemctl mask` takes: none that has a file of its own name in its folder."""
        return [unit for unit in self.service.units if f"{UNITS}/{unit}" not in self.service.paths]

    def files(self) -> list[ManagedFile]:
        """The desired files."""
        return [ManagedFile(path, self.content(path)) for path in self.service.paths]

    def content(self, path: str) -> bytes:
        """What a file is to be."""
        kind = "Type=oneshot\n" if path.rpartition("/")[2] in self.service.starts else ""
        wanted = "" if kind else "WantedBy=multi-user.target\n"
        return f"# {self.text}\n{kind}{wanted}".encode()

    def at(self, path: str) -> Path:
        """A file of the node."""
        return self.root / path.lstrip("/")

    def state(self) -> ServiceState:
        """The service as the node has it."""
        systemd = systemctl_standin.Node(self.root)
        units = (*self.service.units, *self.service.starts)
        shown = systemd.show([*units], []) if units else ""
        systemd.save()
        before = {
            file.path: self.at(file.path).read_bytes() if self.at(file.path).exists() else None for file in self.files()
        }
        return ServiceState(
            units=parse_units("units", shown, units),
            files=tuple(
                (file, managed_file_change(file, before[file.path]))
                for file in self.files()
                if before[file.path] != file.content
            ),
            there=any(content is not None for content in before.values()),
            pending=bool(self.service.mark) and self.at(self.service.mark).exists(),
        )

    def reasons(self) -> dict[str, str]:
        """What a service without a mark says itself: that it runs with older files."""
        return {} if self.service.mark else dict.fromkeys(self.stale(), "older")

    def stale(self) -> list[str]:
        """The units that run with other files than the node has, where they have to read a change."""
        systemd = systemctl_standin.Node(self.root)
        found = [unit for unit in self.service.units if systemd.loaded.get(unit) != systemd.content(unit)]
        if self.service.reads is Reads.NOTHING:
            return found
        for unit in systemd.active:
            read = json.loads((self.root / "read" / unit).read_text())
            if read != {"unit": systemd.content(unit), "files": systemd.read_by(unit)}:
                found.append(unit)
        return sorted(set(found) & set(self.service.units))

    def differences(self) -> ServiceChanges:
        """What a run would change."""
        return self.service.differences(self.state(), self.reasons())

    def bring(self) -> None:
        """A whole run, after which nothing is left to do."""
        for command in self.differences().commands:
            self.run(command)
        self.check()

    def check(self) -> None:
        """The service is as it is declared, and a second run changes nothing."""
        state = self.state()
        assert self.differences() == ServiceChanges()
        assert state.files == ()
        assert self.stale() == []
        for unit in self.service.units:
            assert state.units[unit].enabled or self.service.static, unit
            assert not state.units[unit].masked
            assert state.units[unit].settled or self.service.at_boot or self.service.waits, unit
        assert list(self.root.rglob("*.pending")) == []

    def run(self, command: StringCommand | str) -> None:
        done = run(command, self.root)
        assert done.returncode == 0, (command, done.stderr)

    def systemctl(self, *words: str) -> None:
        """What a person does on the node."""
        self.run(f"systemctl {' '.join(words)}")

    def killed(self, changes: ServiceChanges, folder: Path) -> list[Path]:
        """Run commands; return the folders of what a kill leaves after each of them, and between the steps of one."""
        left: list[Path] = []
        for command in changes.commands:
            for step in steps(command):
                self.run(step)
                left.append(folder / str(len(left)))
                shutil.copytree(self.root, left[-1], symlinks=True)
        return left

    def become(self, state: Path) -> None:
        """Be what a kill left."""
        shutil.rmtree(self.root)
        shutil.copytree(state, self.root, symlinks=True)


def steps(command: StringCommand) -> list[StringCommand | str]:
    """The parts of a command between which a kill is seen: a file is written in one step or not at all."""
    if command.connector_arguments.get("_stdin"):
        return [command]
    first, *rest = re.split(r"; (?![^(]*\))", command.get_raw_value())
    return [f"{first}; {step}" for step in rest]


@cache
def brought(name: str, root: Path) -> Node:
    """A node with this service as declared."""
    node = Node(root, SERVICES[name])
    node.install()
    node.bring()
    return node


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("services")


@pytest.fixture
def declared(name: str, folder: Path, tmp_path: Path) -> Node:
    """A node with a service as declared."""
    node = replace(brought(name, folder / name), root=tmp_path / "node")
    shutil.copytree(folder / name, node.root, symlinks=True)
    # The stand-ins name the folder of the node.
    for tool in (node.root / "bin").iterdir():
        tool.write_text(tool.read_text().replace(str(folder / name), str(node.root)))
    return node


def mask(node: Node) -> bool:
    for unit in node.maskable:
        node.systemctl("mask", unit)
    for unit in set(node.service.units) - set(node.maskable):
        # What `systemctl mask` needs: the file of the unit goes first.
        node.at(f"{UNITS}/{unit}").unlink()
        node.at(f"{UNITS}/{unit}").symlink_to("/dev/null")
    return bool(node.service.units)


def mask_until_the_boot(node: Node) -> bool:
    for unit in node.maskable:
        node.systemctl("mask", "--runtime", unit)
    return bool(node.maskable)


def loop(node: Node) -> bool:
    """systemd starts its units again and again."""
    systemd = systemctl_standin.Node(node.root)
    systemd.active, systemd.waiting = [], list(node.service.units)
    systemd.save()
    return bool(node.service.units) and not (node.service.at_boot or node.service.waits)


def stop(node: Node) -> bool:
    node.systemctl("stop", *node.service.units)
    return bool(node.service.units) and not node.service.at_boot


def disable(node: Node) -> bool:
    if node.service.static:
        return False
    node.systemctl("disable", *node.service.units)
    return bool(node.service.units)


def die_before_they_were_read(node: Node) -> bool:
    """An earlier run wrote files, as they are to be, and died."""
    if node.service.mark:
        write(node.root, node.service.mark)
    return bool(node.service.mark)


def edit(node: Node) -> bool:
    for path in node.service.paths:
        node.at(path).write_bytes(node.content(path) + b"# mine\n")
    return bool(node.service.paths)


def remove(node: Node) -> bool:
    for path in node.service.paths:
        node.at(path).unlink()
    return bool(node.service.paths)


def write_unit_files_that_systemd_has_not_read(node: Node) -> bool:
    """What a person who wrote the same file has left, without a daemon-reload."""
    paths = node.service.paths
    units = [unit for unit in node.service.units if unit_file(unit) in paths or any(unit in path for path in paths)]
    systemd = systemctl_standin.Node(node.root)
    systemd.loaded |= dict.fromkeys(units, "older")
    systemd.save()
    return bool(units)


HANDS = (
    mask,
    mask_until_the_boot,
    loop,
    stop,
    disable,
    die_before_they_were_read,
    edit,
    remove,
    write_unit_files_that_systemd_has_not_read,
)


CHANGED = [(name, hand) for name in SERVICES for hand in HANDS]


@pytest.mark.parametrize(
    ("name", "hand"),
    [pytest.param(*one, marks=() if place % 4 == 0 else pytest.mark.soak) for place, one in enumerate(CHANGED)],
)
def test_what_was_changed_by_hand_is_announced_once_and_mended(declared: Node, hand: Callable[[Node], bool]) -> None:
    wrong = hand(declared)
    assert bool(declared.differences().events) is wrong
    declared.bring()


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_that_was_started_by_hand_is_not_touched(declared: Node) -> None:
    declared.systemctl("start", *declared.service.units)
    assert declared.differences() == ServiceChanges()


@pytest.mark.parametrize("name", sampled(SERVICES, 4))
@pytest.mark.parametrize("start", ["new", "changed"])
def test_a_run_that_is_killed_anywhere_is_completed_by_the_next(declared: Node, start: str, tmp_path: Path) -> None:
    if start == "new":
        declared.root = tmp_path / "fresh"
        declared.install()
    declared.text = "two"
    for state in declared.killed(declared.differences(), tmp_path):
        declared.become(state)
        declared.bring()


REMOVED = {
    name: service
    for name, service in SERVICES.items()
    if service.units and (service.mark or {*map(unit_file, service.units)} & {*service.paths})
}
"""What a role removes: nothing that the node needs goes."""


@pytest.mark.parametrize("name", REMOVED)
def test_a_service_that_goes_leaves_nothing_also_where_its_removal_is_killed(declared: Node, tmp_path: Path) -> None:
    service = declared.service
    packaged = {unit: (declared.root / "vendor" / unit).exists() for unit in declared.packaged}
    whole = service.removal(declared.state(), "it goes")
    assert [event.message for event in whole.events] == [f"stop and remove {' '.join(service.units)}: it goes"]
    for state in declared.killed(whole, tmp_path):
        declared.become(state)
        for command in service.removal(declared.state(), "it goes").commands:
            declared.run(command)
        assert service.removal(declared.state(), "it goes") == ServiceChanges()
        assert [path for path in (*service.paths, *service.leftovers) if declared.at(path).exists()] == []
        assert list(declared.root.rglob("*.pending")) == []
        systemd = systemctl_standin.Node(declared.root)
        assert (systemd.active, systemd.waiting) == ([], [])
        assert {unit: (declared.root / "vendor" / unit).exists() for unit in packaged} == packaged
        assert [unit for unit in service.units if systemd.file_state(unit) == "enabled"] == []


def test_every_mark_is_of_one_service() -> None:
    # No node is the head of a unit and another rank of it.
    marks = [service.mark for name, service in SERVICES.items() if service.mark and name != "serving-rank"]
    assert len(marks) == len(set(marks))


def test_an_instance_has_the_file_of_its_template() -> None:
    assert unit_file("sparkrack-lossless@enp1s0f0np0.service") == f"{UNITS}/sparkrack-lossless@.service"
    assert unit_file("toy.service") == f"{UNITS}/toy.service"
    assert "lossless-sparkrack-lossless@enP2p1s0f0np0.service" in REMOVED


@pytest.mark.parametrize("name", ["docker-docker.service"])
@pytest.mark.parametrize(
    ("restart", "message"),
    [
        ({}, "reload docker.service: live-restore"),
        ({"docker.service": "log-driver"}, "restart docker.service: log-driver"),
    ],
)
def test_a_unit_reads_its_files_again_for_a_reason_unless_one_restarts_it(
    declared: Node, restart: dict[str, str], message: str
) -> None:
    again = {"docker.service": "live-restore"}
    changes = declared.service.differences(declared.state(), restart, reload_reasons=again)
    assert [event.message for event in changes.events] == [message]
