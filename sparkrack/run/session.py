"""One run of pyinfra over the machines that were selected: connect, evaluate, carry out, disconnect."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import gevent
from pyinfra import logger
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all, disconnect_all
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.state import BaseStateCallback, State, StateStage
from pyinfra.connectors import util as connecting
from pyinfra.context import ctx_config, ctx_inventory, ctx_state
from pyinfra_cli.inventory import make_inventory
from pyinfra_cli.util import PYTHON_CODES, load_deploy_file

from sparkrack.fleet import Rack
from sparkrack.fleet.selection import Selection
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
        inventory = make_inventory(str(INVENTORY), cwd=self.state.cwd)
        ctx_inventory.set(inventory)  # type: ignore[no-untyped-call]
        self.state.init(inventory, config, initial_limit=[])
        self.hosts = {machine(host): host for host in inventory}
        self.state.limit_hosts = [self.hosts[name] for name in selection.machines]
        self.state.add_callback_handler(_Deaf(self.unreachable))  # type: ignore[no-untyped-call]

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
    connecting.getpass = _ask_nobody  # type: ignore[attr-defined]
    # paramiko logs a traceback for a server that says nothing; why it was not reached is in `unreachable`.
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    # gevent prints what ends a greenlet, Ctrl-C as well; whoever waits for that greenlet is told anyway.
    gevent.get_hub().exception_stream = None


def _ask_nobody(prompt: str = "", stream: Any = None) -> str:  # noqa: ARG001 - as getpass has them
    """In the place of getpass: pyinfra asks for a password when sudo wants one, and nobody may be there to answer."""
    raise PermissionError("sudo wants a password; access.user needs sudo without one")


class _Deaf(BaseStateCallback):
    """Keeps why a host could not be reached."""

    def __init__(self, reasons: dict[str, str]) -> None:
        self.reasons = reasons

    def host_connect_error(self, _state: State, host: Host, error: Any) -> None:  # type: ignore[override]
        self.reasons[machine(host)] = str(error)
