"""Fixtures: emulated switches as real processes, each with the reference rack's cables and no wires."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.routeros_emulator.config import User
from tests.emulator.bootstrap_runs import HERE, THERE, MakeBox, Way, boxed
from tests.emulator.bootstrap_runs import Workdir as Box
from tests.emulator.emulator_process import USER, Crs812Process, stop_all
from tests.emulator.probe_fixtures import MakeRecorded, Owner, cables, files_of
from tests.emulator.raw_client import RawClient
from tests.emulator.restore_fixtures import MakeRestorer, Restorer
from tests.emulator.switch_runs import MakeDesk, Workdir, waits_for
from tests.emulator.upgrade_runs import MakePackageOwner, PackageOwner

MakeSwitch = Callable[..., Crs812Process]


@pytest.fixture(scope="module", autouse=True)
def _no_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make ssh fail: beside an emulated switch there are no nodes, for example for the lock of the rack.

    Separately for each module: tests of other folders run in between, and need the real one.
    """
    folder = tmp_path_factory.mktemp("no-nodes")
    (folder / "ssh").write_text("#!/bin/sh\necho 'ssh: there are no nodes here' >&2\nexit 255\n")
    (folder / "ssh").chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        yield


@pytest.fixture
def make_switch(tmp_path: Path) -> Iterator[MakeSwitch]:
    """Start switches with settings of the test's own; each is ended afterwards."""
    made: list[Crs812Process] = []

    def make(**overrides: Any) -> Crs812Process:
        switch = Crs812Process(tmp_path / f"switch{len(made)}", **overrides)
        made.append(switch)
        return switch.start()

    yield make
    stop_all(made)


@pytest.fixture
def crs812(make_switch: MakeSwitch) -> Crs812Process:
    """A switch as the lab delivers it: factory state, the user ``sparkrack`` exists."""
    return make_switch()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crs812Process]:
    """One switch for all tests of a module that leave it as they find it."""
    switch = Crs812Process(tmp_path_factory.mktemp("shared")).start()
    yield switch
    stop_all([switch])


@pytest.fixture
def raw(shared: Crs812Process) -> Iterator[RawClient]:
    """A raw connection to the shared switch, logged in."""
    client = RawClient(shared.plain_port)
    client.login(USER, shared.password)
    yield client
    client.close()


@pytest.fixture
def connect() -> Iterator[Callable[[Crs812Process], RawClient]]:
    """Open raw connections, logged in; each is closed afterwards."""
    opened: list[RawClient] = []

    def open_one(switch: Crs812Process) -> RawClient:
        client = RawClient(switch.plain_port)
        client.login(USER, switch.password)
        opened.append(client)
        return client

    yield open_one
    for client in opened:
        client.close()


@pytest.fixture
def make_desk(tmp_path: Path, make_switch: MakeSwitch) -> MakeDesk:
    """An operator's folder and a switch; `switch` replaces keys of rack.yaml, the rest sets up the
    emulator."""

    def make(switch: dict[str, Any] | None = None, **emulator: Any) -> Workdir:
        folder = tmp_path / "desk"
        folder.mkdir()
        return Workdir(folder, make_switch(**emulator), switch or {})

    return make


@pytest.fixture
def workdir(make_desk: MakeDesk) -> Workdir:
    return make_desk()


@pytest.fixture
def applied(workdir: Workdir) -> Workdir:
    """A folder whose switch was brought to its declared state."""
    ended = workdir.run("-y")
    assert ended.code == 0, ended.text
    return workdir


@pytest.fixture
def make_box(tmp_path: Path, make_switch: MakeSwitch) -> MakeBox:
    """Create a switch in factory state and a folder beside it; `edits` change rack.yaml, the rest the emulator."""

    def make(address: str = HERE, edits: tuple[tuple[str, str], ...] = (), **emulator: Any) -> Box:
        return Box(tmp_path / "desk", make_switch(**boxed(tmp_path, **emulator)), address, edits)

    return make


@pytest.fixture
def box(make_box: MakeBox) -> Box:
    return make_box()


@pytest.fixture
def make_owner(make_box: MakeBox) -> MakePackageOwner:
    """Create a switch in factory state with an old release, and package files for it. It is away for as long as an
    upgrade waits between two requests, which else would miss a restart.
    """

    def make(edits: tuple[tuple[str, str], ...] = (), **emulator: Any) -> PackageOwner:
        return PackageOwner(make_box(edits=edits, **{"version": "7.19.5 (stable)", "away": 0.5, **emulator}))

    return make


@pytest.fixture
def way(moving: Box) -> Iterator[Way]:
    laid = Way(moving.emulator)
    yield laid
    laid.close()


@pytest.fixture
def moving(make_box: MakeBox) -> Box:
    """A switch whose right address is another one than it has."""
    return make_box(THERE)


@pytest.fixture
def make_restorer(tmp_path: Path, make_switch: MakeSwitch) -> MakeRestorer:
    def make(settle: float = 0.05, **switch: object) -> Restorer:
        folder = tmp_path / "desk"
        folder.mkdir()
        return Restorer(folder, make_switch(settle=settle), **switch)

    return make


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restorer]:
    """A switch that is as declared, of which a backup was kept, and that has restarted since: a reset leads there."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "desk").mkdir()
    emulator = Crs812Process(folder / "switch").start()
    made = Restorer(folder / "desk", emulator)
    made.deploy()
    made.keep()
    emulator.stop()
    emulator.start()
    made.declared = made.operator.goal()  # its ports are others
    shutil.copytree(made.folder, folder / "as-kept")
    yield made
    stop_all([emulator])


@pytest.fixture
def restorer(kept: Restorer) -> Restorer:
    """The switch is as declared, and a backup was kept of that."""
    kept.emulator.control({"op": "reset"})
    os.truncate(kept.emulator.config.log, 0)
    shutil.rmtree(kept.folder)
    shutil.copytree(kept.folder.with_name("as-kept"), kept.folder)
    waits_for(lambda: "initializing" not in kept.emulator.links().values())
    return kept


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owner]:
    folder = tmp_path_factory.mktemp("owner")
    emulator = Crs812Process(folder / "switch", serial="ZX-9-SERIAL", cables=cables()).start()
    yield Owner(folder, emulator)
    stop_all([emulator])


@pytest.fixture(scope="module")
def recorded(owner: Owner) -> Path:
    """The record of the switch in a bundle; the declared reader gets no answer from the switch yet."""
    bundle, path = owner.folder / "rack.tar.gz", owner.folder / "switch1.json"
    ended = owner.bundle(bundle)
    assert bundle.exists(), ended.text
    path.write_bytes(files_of(bundle)["switches/switch1.json"])
    return path


@pytest.fixture
def start_recorded(tmp_path: Path) -> Iterator[MakeRecorded]:
    """Start the emulator as the unit of a fixture, where `user-1` can log in."""
    made: list[Crs812Process] = []

    def start(fixture: Path, **overrides: Any) -> Crs812Process:
        folder = tmp_path / f"recorded{len(made)}"
        switch = Crs812Process(folder, cables=(), **overrides)
        user = User(name="user-1", password_file=folder / "password")
        switch.config = switch.config.model_copy(update={"users": (user,)})
        switch.start("--fixture", str(fixture))
        made.append(switch)
        waits_for(lambda: "initializing" not in switch.links().values())
        return switch

    yield start
    stop_all(made)
