"""One run of pyinfra over the machines that were selected: connect, evaluate, carry out, disconnect."""

from __future__ import annotations

import logging
import os
import re
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
from pyinfra_cli.util import load_deploy_file

from core.model import Rack
from core.model.errors import printable_line
from core.model.loader import handed
from core.model.selection import Selection
from core.ops.apply_role import RUN_ROLES
from core.ops.terminal import guard
from core.util import project_files, regular_file
from core.util.debug_log import LOG
from core.util.progress import NO_PROGRESS, ProgressObserver
from core.util.project_files import INVENTORY
from switch.served_units import UNASKED

DEPLOY = project_files.DEPLOY
REMOVE = project_files.REMOVE
_COLOURS = re.compile(r"\x1b\[[;?0-9]*[a-zA-Z]")
"""Escape sequences with which pyinfra colours its log."""


class RunSession:
    """pyinfra's state for one command. Hosts that cannot be reached are in `unreachable`, by name of the host.

    pyinfra itself prints nothing during a run; its log goes to `handler`, if given, and how far it is to `progress`.
    There is one session at a time: pyinfra's current state is global for the process.
    """

    def __init__(
        self,
        rack: Rack,
        file: Path,
        selection: Selection,
        handler: logging.Handler | None = None,
        progress: ProgressObserver = NO_PROGRESS,
    ) -> None:
        self.progress = progress
        self.rack = rack
        self.selection = selection
        self.unreachable: dict[str, str] = {}
        logger.handlers[:] = [handler or logging.NullHandler(), _ToDebugLog()]
        logger.setLevel(logging.INFO)
        logger.propagate = False
        _silence_pyinfra()
        os.environ["RACK"] = str(file)
        # We evaluate everything, so pyinfra must not look ahead by itself; we handle a failure of one host.
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
        for host in inventory:
            setattr(host.data, RUN_ROLES, selection.roles)
        self.state.limit_hosts = [self.hosts[name] for name in selection.machines]
        self.state.add_callback_handler(_ConnectObserver(self.unreachable, rack.access.known_hosts, progress))  # type: ignore[no-untyped-call]

    @property
    def active(self) -> list[Host]:
        """The hosts that were reached, in the order of the rack."""
        return [self.hosts[name] for name in self.selection.machines if self.hosts[name] in self.state.active_hosts]

    def no_nodes(self, unasked: bool) -> None:
        """Have no node asked whether a unit runs there before links of a switch go down, if `unasked`."""
        for host in self.hosts.values():
            setattr(host.data, UNASKED, unasked)

    def connect(self) -> None:
        """Connect to all that are selected, side by side."""
        self.state.set_stage(StateStage.Connect)
        self.progress.phase("connect", self.selection.machines)
        try:
            connect_all(self.state)
        except PyinfraError:
            if self.state.active_hosts:  # otherwise no host was reached, which `unreachable` shows
                raise
        for name in self.selection.machines:
            if self.hosts[name] not in self.state.active_hosts:
                self.unreachable.setdefault(name, "no connection")

    def prepare(self) -> None:
        """Run deploy.py, or remove.py, to register the operations; none is evaluated yet."""
        self.state.set_stage(StateStage.Prepare)
        self.progress.phase("list the operations")
        load_deploy_file(self.state, str(REMOVE if self.selection.removes else DEPLOY))

    def close(self) -> None:
        """Disconnect from every host, and leave nothing of this session with pyinfra."""
        try:
            disconnect_all(self.state)
            for host in self.hosts.values():  # including a host that was connected only for its lock
                if host.connected:
                    host.disconnect()
        finally:
            for context in (ctx_state, ctx_config, ctx_inventory):
                context.reset()


def machine(host: Host) -> str:
    """The name of a host's machine, as rack.yaml has it."""
    about = host.data.get("node") or host.data.get("switch")
    return str(about.name)


def _silence_pyinfra() -> None:
    """Prevent output and prompts of pyinfra: only the command itself prints and asks."""
    guard()
    # paramiko logs a traceback for a silent server; the reason is in `unreachable`.
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    # gevent prints every exception that ends a greenlet, Ctrl-C as well; the waiting code gets it anyway.
    gevent.get_hub().exception_stream = None


class _ToDebugLog(logging.Handler):
    """Passes what pyinfra logs on to the debug log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one record on."""
        LOG.debug("pyinfra: %s", _COLOURS.sub("", record.getMessage()))


class _ConnectObserver(BaseStateCallback):
    """Keeps why a host could not be reached, and reports which hosts are connected."""

    def __init__(self, reasons: dict[str, str], known_hosts: Path, progress: ProgressObserver) -> None:
        self.reasons = reasons
        self.known_hosts = known_hosts
        self.progress = progress

    def host_connect(self, _state: State, host: Host) -> None:  # type: ignore[override]
        self.progress.finish(machine(host), "connected")

    def host_connect_error(self, _state: State, host: Host, error: Any) -> None:  # type: ignore[override]
        why = self.reasons[machine(host)] = _why_unreachable(machine(host), error, self.known_hosts)
        LOG.error("%s: not connected: %s", machine(host), why)
        self.progress.finish(machine(host), "unreachable")


def _why_unreachable(name: str, error: BaseException, known_hosts: Path) -> str:
    """Return why a host could not be reached; for a host key other than the pinned one, the key and how to
    replace it.
    """
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
    """Return why paramiko reads no line of a known_hosts file that ssh reads; empty when it does."""
    try:
        raw = regular_file.read_bytes(known_hosts)
        raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return f"{printable_line(str(known_hosts))}:{line}: is not UTF-8 text, so no key of the file is read; remove it"
    except OSError:
        return ""
    return ""
