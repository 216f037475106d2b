"""One run of pyinfra over the machines that were selected: connect, evaluate, carry out, disconnect."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import gevent
from paramiko import BadHostKeyException
from pyinfra import logger
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all, disconnect_all
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.state import BaseStateCallback, State, StateStage
from pyinfra.context import ctx_config, ctx_inventory, ctx_state
from pyinfra_cli.inventory import make_inventory
from pyinfra_cli.util import PYTHON_CODES, load_deploy_file

from sparkrack.fleet import Rack, regular
from sparkrack.fleet.errors import one_line
from sparkrack.fleet.load import handed
from sparkrack.fleet.selection import Selection
from sparkrack.ops.terminal import guard
from sparkrack.run import deployfile

INVENTORY = deployfile.DEPLOY.with_name("inventory.py")


class Session:
    """pyinfra's state for one command. Hosts that cannot be reached are told in `unreachable`, by name of the machine.

    pyinfra itself says nothing while it runs; what it logs goes to `handler`, if given. There is one session at a time:
    pyinfra's notion of what runs is one for the process.
    """

    def __init__(self, rack: Rack, file: Path, selection: Selection, handler: logging.Handler | None = None) -> None:
        self.rack = rack
        self.selection = selection
        self.unreachable: dict[str, str] = {}
        logger.handlers[:] = [handler or logging.NullHandler()]
        logger.setLevel(logging.INFO)
        logger.propagate = False
        _hush()
        os.environ["RACK"] = str(file)
        # Evaluated whole by us, so pyinfra shall not look ahead by itself; a failure of one host is for us to judge.
        self.state = State(check_for_changes=False)
        self.state.cwd = str(INVENTORY.parent)
        config = Config()  # type: ignore[no-untyped-call]
        config.FAIL_PERCENT = None
        ctx_state.set(self.state)  # type: ignore[no-untyped-call]
        ctx_config.set(config)  # type: ignore[no-untyped-call]
        with handed(rack):
            inventory = make_inventory(str(INVENTORY), cwd=self.state.cwd)
        ctx_inventory.set(inventory)  # type: ignore[no-untyped-call]
        self.state.init(inventory, config, initial_limit=[])
        self.hosts = {machine(host): host for host in inventory}
        self.state.limit_hosts = [self.hosts[name] for name in selection.machines]
        self.state.add_callback_handler(_Deaf(self.unreachable, rack.access.known_hosts))  # type: ignore[no-untyped-call]

    @property
    def active(self) -> list[Host]:
        """The hosts that were reached, in the order of the rack."""
        return [self.hosts[name] for name in self.selection.machines if self.hosts[name] in self.state.active_hosts]

    def connect(self) -> None:
        """Connect to all that are selected, side by side."""
        self.state.set_stage(StateStage.Connect)
        try:
            connect_all(self.state)
        except PyinfraError:
            if self.state.active_hosts:  # else nobody was reached, which `unreachable` tells
                raise
        for name in self.selection.machines:
            if self.hosts[name] not in self.state.active_hosts:
                self.unreachable.setdefault(name, "no connection")

    def prepare(self) -> None:
        """Let deploy.py say which operations there are; none is evaluated yet."""
        path = str(deployfile.DEPLOY)
        PYTHON_CODES[path] = deployfile.code(self.selection.roles)
        self.state.set_stage(StateStage.Prepare)
        load_deploy_file(self.state, path)

    def close(self) -> None:
        """Disconnect from every host, and leave nothing of this session with pyinfra."""
        try:
            disconnect_all(self.state)
            for host in self.hosts.values():  # one that was connected for its lock alone
                if host.connected:
                    host.disconnect()
        finally:
            for context in (ctx_state, ctx_config, ctx_inventory):
                context.reset()


def machine(host: Host) -> str:
    """The name of a host's machine, as rack.yaml has it."""
    about = host.data.get("node") or host.data.get("switch")
    return str(about.name)


def title(state: State, op_hash: str) -> tuple[str, str]:
    """The role of an operation, and its sentence."""
    role, _, sentence = min(state.get_op_meta(op_hash).names).partition(" | ")
    return role.lower(), sentence


def _hush() -> None:
    """Nothing but the command itself speaks to a person, or asks one."""
    guard()
    # paramiko logs a traceback for a server that says nothing; why it was not reached is in `unreachable`.
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    # gevent prints what ends a greenlet, Ctrl-C as well; whoever waits for that greenlet is told anyway.
    gevent.get_hub().exception_stream = None


class _Deaf(BaseStateCallback):
    """Keeps why a host could not be reached."""

    def __init__(self, reasons: dict[str, str], known_hosts: Path) -> None:
        self.reasons = reasons
        self.known_hosts = known_hosts

    def host_connect_error(self, _state: State, host: Host, error: Any) -> None:  # type: ignore[override]
        self.reasons[machine(host)] = _why(machine(host), error, self.known_hosts)


def _why(name: str, error: BaseException, known_hosts: Path) -> str:
    """Why a host could not be reached; of a host key that is not the pinned one, what it is and how it is replaced."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BadHostKeyException):
            seen, pinned = (f"{key.get_name()} {key.fingerprint}" for key in (cause.key, cause.expected_key))
            return (
                f"shows the host key {seen}, and known_hosts has {pinned}; compare it with the console, "
                f"and if the node was re-imaged: sparkrack bootstrap nodes {name} --replace-host-key"
            )
        if str(cause).endswith("found in known_hosts"):
            return _no_text(known_hosts) or (
                "shows a host key, and known_hosts has none for its address; "
                f"sparkrack bootstrap nodes {name} shows its fingerprint and pins it"
            )
        cause = cause.__cause__ or cause.__context__
    return str(error)


def _no_text(known_hosts: Path) -> str:
    """Why paramiko reads no line of a known_hosts file that ssh reads; empty when it does."""
    try:
        raw = regular.read_bytes(known_hosts)
        raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return (
            f"{one_line(str(known_hosts))}:{line}: is not UTF-8 text, so no key is read from the file; remove the line"
        )
    except OSError:
        return ""
    return ""
