"""A session is about the rack that the command has loaded."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
import pytest
from paramiko import BadHostKeyException, ECDSAKey, SSHException
from pyinfra import logger
from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_config, ctx_inventory, ctx_state

from core.model import ConfigError, load
from core.model.errors import ConfigProblem
from core.model.fields import GROUPS
from core.model.selection import select
from core.ops.apply_role import RUN_ROLES
from core.util.command_error import CommandError, DeclinedError
from core.util.debug_log import recording
from core.util.project_files import INVENTORY
from sparkrack.engine import evaluated as evaluated_module
from sparkrack.engine import run_log as run_log_module
from sparkrack.engine import session as session_module
from sparkrack.engine.session import RunSession, machine
from switch.served_units import UNASKED
from tests.unit.model.racks import DIRECT, SWITCH


def test_a_file_that_is_edited_meanwhile_is_not_read_again(tmp_path: Path) -> None:
    file = tmp_path / "rack.yaml"
    file.write_text(DIRECT)
    rack = load(file)
    file.write_text(DIRECT.replace("left", "west"))
    session = RunSession(rack, file, select(rack))
    try:
        assert list(session.hosts) == ["left", "right"]
        assert all(host.data.rack is not None and machine(host) == name for name, host in session.hosts.items())
        assert session.hosts["left"].data.rack == rack
    finally:
        session.close()


def test_no_machine_can_have_the_name_of_a_group(tmp_path: Path) -> None:
    """`pyinfra --limit NAME` takes a group before a host."""
    file = tmp_path / "rack.yaml"
    file.write_text(SWITCH)
    rack = load(file)
    session = RunSession(rack, file, select(rack))
    try:
        # those of connectors, like @routeros, are not names of machines
        groups = {group for group in session.state.inventory.groups if not group.startswith("@")}
        assert {*groups, "all"} == GROUPS
    finally:
        session.close()


def test_a_host_that_was_connected_for_its_lock_only_is_disconnected(tmp_path: Path) -> None:
    """pyinfra itself disconnects only from the hosts of the run."""
    file = tmp_path / "rack.yaml"
    file.write_text(DIRECT)
    rack = load(file)
    session = RunSession(rack, file, select(rack))
    ended: list[str] = []

    class Connector:
        def disconnect(self) -> None:
            ended.append("left")

    host = session.hosts["left"]
    host.connector = Connector()
    host.connected = True
    session.close()
    assert ended == ["left"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "rack.yaml").write_text(SWITCH)
    return tmp_path / "rack.yaml"


@contextmanager
def opened(file: Path, *limit: str, **more: Any) -> Iterator[RunSession]:
    rack = load(file)
    session = RunSession(rack, file, select(rack, limit), **more)
    try:
        yield session
    finally:
        session.close()


def is_set(context: Any) -> bool:
    """Whether pyinfra has something there."""
    return bool(context.isset())


def test_a_session_is_about_what_was_selected_in_the_order_of_the_rack(file: Path) -> None:
    with opened(file, "crs812", "spark1") as session:
        assert [machine(host) for host in session.state.limit_hosts] == ["spark1", "crs812"]
        assert all(getattr(host.data, RUN_ROLES) == session.selection.roles for host in session.hosts.values())
        assert session.active == []
        for name in ("crs812", "spark2", "spark1"):
            session.state.active_hosts.add(session.hosts[name])
        assert [machine(host) for host in session.active] == ["spark1", "crs812"]
        for unasked in (True, False):
            session.no_nodes(unasked)
            assert {getattr(host.data, UNASKED) for host in session.hosts.values()} == {unasked}


def test_pyinfra_is_set_up_for_one_session_and_left_as_it_was(file: Path) -> None:
    contexts = (ctx_state, ctx_config, ctx_inventory)
    with opened(file) as session:
        assert all(is_set(context) for context in contexts)
        assert (session.state.config.FAIL_PERCENT, session.state.check_for_changes) == (None, False)
        assert session.state.cwd == str(INVENTORY.parent)
        assert os.environ["RACK"] == str(file)
        assert logging.getLogger("paramiko").level == logging.CRITICAL
        assert gevent.get_hub().exception_stream is None
    assert not any(is_set(context) for context in contexts)


def test_the_log_of_pyinfra_goes_to_the_handler_and_the_debug_log_alone(file: Path) -> None:
    heard: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    with recording() as log, opened(file, handler=Handler()):
        logger.info("%s is \x1b[31mred\x1b[0m", "it")
        logger.debug("too much")
        log.keep(file.with_suffix(".log"))
    assert heard == ["it is \x1b[31mred\x1b[0m"]
    assert not logger.propagate
    text = file.with_suffix(".log").read_text()
    assert "pyinfra: it is red" in text
    assert "too much" not in text


class Progress:
    """What a progress picture is reported."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, ...]] = []

    def phase(self, name: str, machines: Iterable[str] = ()) -> None:
        self.reported.append(("phase", name, *machines))

    def finish(self, name: str, how: str = "") -> None:
        self.reported.append(("finish", name, how))


def test_hosts_that_cannot_be_reached_are_reported_and_the_others_are_connected(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Connector:
        def __init__(self, _state: object, host: Any) -> None:
            self.host = host

        def connect(self) -> None:
            if machine(self.host) == "spark2":
                raise ConnectError("No route to host")

        def disconnect(self) -> None:
            pass

    progress: Any = Progress()
    with opened(file, "nodes", progress=progress) as session:
        for host in session.hosts.values():
            host.connector = Connector(None, host)
        session.connect()
        assert session.unreachable == {"spark2": "No route to host"}
        assert [machine(host) for host in session.active] == ["spark1"]
        assert progress.reported[0] == ("phase", "connect", "spark1", "spark2")
        ends = {("finish", "spark1", "connected"), ("finish", "spark2", "unreachable")}
        assert {*progress.reported[1:]} == ends
        session.state.active_hosts.clear()
        monkeypatch.setattr(session_module, "connect_all", lambda _state: None)
        session.connect()
        assert session.unreachable == {"spark1": "no connection", "spark2": "No route to host"}


@pytest.mark.parametrize("reached", [True, False])
def test_a_fault_of_pyinfra_counts_only_if_a_host_was_reached(
    file: Path, monkeypatch: pytest.MonkeyPatch, reached: bool
) -> None:
    def fail(state: Any) -> None:
        if reached:
            state.active_hosts.add(session.hosts["spark1"])
        raise PyinfraError("No hosts remaining!")

    monkeypatch.setattr(session_module, "connect_all", fail)
    with opened(file, "spark1") as session:
        if reached:
            with pytest.raises(PyinfraError):
                session.connect()
        else:
            session.connect()
        assert session.unreachable == ({} if reached else {"spark1": "no connection"})


def chained(cause: Exception, how: str) -> Exception:
    """An error that pyinfra raises because of another, or while it handles that."""
    error = ConnectError("no connection")
    setattr(error, how, cause)
    return error


@pytest.mark.parametrize("how", ["__cause__", "__context__"])
def test_an_unknown_host_key_names_the_command_that_pins_it(tmp_path: Path, how: str) -> None:
    known = tmp_path / "known_hosts"
    known.touch()
    error = chained(SSHException("Server '[10.0.0.1]:22' not found in known_hosts"), how)
    reason = session_module._why_unreachable("spark1", error, known)
    assert reason == (
        "shows a host key, and known_hosts has none for its address; "
        "sparkrack bootstrap nodes spark1 shows its fingerprint and pins it"
    )
    known.unlink()
    assert session_module._why_unreachable("spark1", error, known) == reason
    known.write_bytes(b"a\nb\n\xff\n")
    found = session_module._why_unreachable("spark1", error, known)
    assert found == f"{known}:3: is not UTF-8 text, so no key of the file is read; remove it"
    assert session_module._why_unreachable("spark1", ConnectError("No route to host"), known) == "No route to host"


def test_another_host_key_is_shown_with_the_pinned_one(tmp_path: Path) -> None:
    seen, pinned = ECDSAKey.generate(), ECDSAKey.generate()
    reason = session_module._why_unreachable("spark1", BadHostKeyException("spark1", seen, pinned), tmp_path)
    assert reason == (
        f"shows the host key {seen.get_name()} {seen.fingerprint}, and known_hosts has {pinned.get_name()} "
        f"{pinned.fingerprint}; compare it with the console, and if the node was re-imaged: "
        "sparkrack bootstrap nodes spark1 --replace-host-key"
    )


# A session for one command


def test_options_that_leave_nothing_are_a_message(file: Path) -> None:
    rack, selection = evaluated_module.selected(file, ["nodes"], ["spark1"], ["memory"])
    assert (rack.rack, selection.machines, set(selection.roles)) == ("two", ("spark2",), {"preflight", "memory"})
    with pytest.raises(CommandError, match=r"^--limit spark9: not in the rack; "):
        evaluated_module.selected(file, ["spark9"], [], [])


@pytest.mark.parametrize("fault", [PyinfraError("No hosts remaining!"), ValueError("other")])
def test_a_session_is_closed_however_its_block_ends(file: Path, fault: Exception) -> None:
    rack = load(file)
    kind = CommandError if isinstance(fault, PyinfraError) else ValueError
    with pytest.raises(kind) as ended, evaluated_module.open_run(rack, file, select(rack)) as session:  # noqa: PT012
        assert is_set(ctx_state)
        assert session.rack is rack
        raise fault
    assert not is_set(ctx_state)
    assert str(fault) in str(ended.value)


@pytest.mark.parametrize("no_nodes", [True, False])
def test_a_run_is_connected_and_prepared_before_it_is_evaluated(
    file: Path, monkeypatch: pytest.MonkeyPatch, no_nodes: bool
) -> None:
    done: list[str] = []
    for name in ("connect", "prepare"):
        monkeypatch.setattr(RunSession, name, lambda _self, name=name: done.append(name))

    def evaluate(*words: object) -> object:
        done.append("evaluate")
        return words

    monkeypatch.setattr(evaluated_module, "evaluate", evaluate)
    rack = load(file)
    with evaluated_module.evaluated(rack, file, select(rack), no_nodes=no_nodes) as run:
        assert done == ["connect", "prepare", "evaluate"]
        assert run.plan == (run.session, file)  # type: ignore[comparison-overlap]
        assert {getattr(host.data, UNASKED) for host in run.session.hosts.values()} == {no_nodes}


def test_the_progress_of_a_session_is_reported_phase_by_phase(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress: Any = Progress()
    loaded: list[str] = []
    monkeypatch.setattr(session_module, "load_deploy_file", lambda _state, name: loaded.append(name))
    with opened(file, progress=progress) as session:
        session.prepare()
        assert session.state.current_stage is StateStage.Prepare
    assert progress.reported == [("phase", "list the operations")]
    assert loaded == [str(session_module.DEPLOY)]


# The log of a run


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (CommandError("the rack is locked"), "ended: the rack is locked"),
        (DeclinedError("stopped"), "ended: stopped"),
        (ConfigError([ConfigProblem("f", 1, "", "is empty", "write it")]), "ended: f:1: "),
        (BrokenPipeError(32, "Broken pipe"), "ended: [Errno 32] Broken pipe"),
        (ValueError("odd"), "unexpected error"),
    ],
)
def test_the_end_of_a_run_is_in_its_log(tmp_path: Path, fault: Exception, said: str) -> None:
    path = tmp_path / "run.log"
    with pytest.raises(type(fault)), run_log_module.run_log() as log:  # noqa: PT012 - how a block ends
        log.keep(path)
        raise fault
    text = path.read_text()
    assert said in text
    assert ("Traceback" in text) is isinstance(fault, ValueError)
    assert run_log_module.versions() in text
    assert "command line: " in text


def test_the_versions_of_a_log_are_those_of_this_program_and_its_libraries() -> None:
    text = run_log_module.versions()
    names = ("sparkrack", "pyinfra", "paramiko", "gevent", "pydantic", "click", "routeros-api", "requests", "Python")
    assert [part.split()[0] for part in text.split(", ")][:9] == list(names)
    assert "unknown" not in text
    assert run_log_module._version_of_package("no-such-package") == "unknown"
