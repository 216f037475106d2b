"""A program: `sparkrack` about machines that are folders, and with a deploy.py of two operations.

One run, in a process of its own: python -m tests.unit.cli.small_program FOLDER WORD...
Many, one after the other, in one process: python -m tests.unit.cli.small_program, with a list of runs as JSON on stdin.

A folder has `rack.yaml`, `world.json` and a folder for each machine below `nodes`. Each operation wants a file below
/etc to say `new`. `world.json` says what is peculiar about a machine, or about all (`*`), see `Peculiar`.
"""

from __future__ import annotations

import sparkrack.engine.gevent_patch  # noqa: F401 - first of all: it replaces parts of the standard library

# isort: split
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, TypedDict
from unittest.mock import patch

import gevent
from click.testing import CliRunner
from pyinfra.api.command import PyinfraCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.api.operation import operation
from pyinfra.connectors.fake import FakeConnector
from pyinfra.connectors.util import CommandOutput, OutputLine
from pyinfra.context import ctx_host

from core.model import load
from core.ops import announce, host_facts, refusals
from core.ops.record import RECORD
from core.ops.remote_files import encoded
from core.ops.run_lock import PATH
from core.ops.shell import run_script, sudo_script
from core.util.event import value_change
from sparkrack.cli import apply as command
from sparkrack.cli.main import main
from sparkrack.cli.main import sparkrack as cli
from sparkrack.engine import session
from sparkrack.engine.journal import Line, RunJournal
from sparkrack.terminal import prompts
from tests.unit.cli.rack_folder import CANARY
from tests.unit.ops.shells import rooted

host_facts.register("rdma", host_facts.Probe(commands={"rdma-conf": "cat /etc/rdma.conf"}))

DEPLOY = """\
from core.ops.apply_role import runs
from tests.unit.cli.small_program import memory, rdma

if runs("memory"):
    memory()
if runs("rdma"):
    rdma()
"""


class Peculiar(TypedDict, total=False):
    """Deviations of a host, always at its operation `memory`.

    away: it cannot be reached. unknown, refused: the operation reports that. late: it refuses, but only during
    execution. fails: its second command fails. moves: it has one change more once the rack is locked. creeps: one more
    during execution. bug: its operation has an internal error. waits: its second command waits for a file `go` in the
    folder; before, it creates a file `waiting-NAME`. unlocks: its second command removes the lock, as a restart of the
    head node does.
    """

    away: bool
    unknown: str
    refused: str
    late: str
    fails: bool
    moves: bool
    creeps: bool
    bug: bool
    waits: bool
    unlocks: bool


def _read_peculiarities(host: Host) -> Peculiar:
    world = json.loads((host.data.folder / "world.json").read_text())
    return Peculiar(**(world.get("*", {}) | world.get(host.data.node.name, {})))  # type: ignore[typeddict-item]


class Folder(FakeConnector):
    """A machine whose root is a folder. What is sent to change it stands in `sent`, in order."""

    def connect(self) -> None:
        with (self.host.data.folder / "connected").open("a") as noted:
            noted.write(f"{self.host.data.node.name}\n")
        if _read_peculiarities(self.host).get("away"):
            raise ConnectError("No route to host")

    def run_shell_command(self, command: Any, *_: Any, **arguments: Any) -> tuple[bool, CommandOutput]:
        data, text = self.host.data, command.get_raw_value()
        if f"record={RECORD}" in text:
            return True, CommandOutput([])
        if text == host_facts.READ:
            with (data.folder / "read").open("a") as noted:
                noted.write(f"{data.node.name}\n")
        if text.startswith("set -eu"):
            with (data.folder / "sent").open("a") as noted:
                noted.write(f"{data.node.name} {text.partition('/etc/')[2].partition('.')[0]}\n")
        top = data.folder / "nodes" / data.node.name
        shell = subprocess.Popen(
            ["/bin/sh", "-c", rooted(text, top)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            stdout, stderr = shell.communicate(rooted(arguments.get("_stdin") or "", top))
        finally:
            shell.kill()
        lines = [OutputLine("stdout", line) for line in stdout.splitlines()]
        return shell.returncode == 0, CommandOutput(
            lines + [OutputLine("stderr", line) for line in stderr.splitlines()]
        )


@operation()
def bring(thing: str) -> Generator[PyinfraCommand, None, None]:
    """Bring one file of /etc, in two commands; an incomplete change is reverted."""
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    folder, name, about = host.data.folder, host.data.node.name, _read_peculiarities(host) if thing == "memory" else {}
    if "unknown" in about:
        yield refusals.fail_unknown(host, about["unknown"], untouched="")
        return
    if "refused" in about:
        yield refusals.refuse(host, about["refused"])
        return
    if "late" in about and host.state.is_executing:
        yield refusals.refuse(host, about["late"])
        return
    if thing == "rdma":
        lines = host_facts.read(host, "rdma").text("rdma-conf").splitlines()
    else:
        _, lines, _ = run_script(host, f"cat /etc/{thing}.conf")
    if lines == ["new"]:
        return
    announce.announce_change(host, [value_change(f"{thing}.level", " ".join(lines), "new")])
    announce.announce_diff(host, f"/etc/{thing}.conf", "\n".join(lines).encode(), b"new")
    head = Path(f"{folder}/nodes/spark1{PATH}")
    if (about.get("moves") and head.exists()) or (about.get("creeps") and host.state.is_executing):
        announce.announce_change(host, [value_change(f"{thing}.swap", "on", "off")])
    announce.announce_warning(host, f"a reboot of {name} is needed")
    if about.get("bug") and host.state.is_executing:
        raise ZeroDivisionError("no one foresaw this")
    done = False
    try:
        yield sudo_script(f"cp /etc/{thing}.conf /etc/{thing}.before; echo half > /etc/{thing}.conf")
        script = f"base64 -d > /etc/{thing}.secret; [ ! -e {head} ] || cat {head} > {folder}/seen; "
        if about.get("waits"):
            script += f"touch {folder}/waiting-{name}; while [ ! -e {folder}/go ]; do sleep 0.02; done; "
        if about.get("unlocks"):
            script += f"rm {head}; "
        if about.get("fails"):
            script += "echo 'it is \033]0;broken' >&2; exit 1; "
        yield sudo_script(f"{script}echo new > /etc/{thing}.conf", stdin=encoded(CANARY.encode()))
        done = True
    finally:
        if host.state.is_executing and not done:
            gevent.sleep(0.01)
            host.run_shell_command(sudo_script(f"mv /etc/{thing}.before /etc/{thing}.conf"))
            host.log(f"the old {thing} is back")


@deploy("Memory")
def memory() -> None:
    bring(name="Turn it off", thing="memory")


@deploy("RDMA")
def rdma() -> None:
    bring(name="Give it to users", thing="rdma")


def _make_inventory(folder: Path) -> Inventory:
    rack = load(folder / "rack.yaml")
    data = {name: {"rack": rack, "node": node, "folder": folder} for name, node in rack.nodes.items()}
    made = Inventory((list(data.items()), {}))  # type: ignore[no-untyped-call]
    for host in made:
        host.connector_cls = Folder
    return made


def _run_in_folder(folder: Path) -> Any:
    """Run the program in this folder."""
    path = folder / "deploy.py"
    path.write_text(DEPLOY)
    session.DEPLOY = path
    os.environ.update(XDG_STATE_HOME=str(folder / "state"), RACK=str(folder / "rack.yaml"))
    return patch.object(session, "make_inventory", lambda *_, **__: _make_inventory(folder))


def _fill_disk_after(lines: int) -> Callable[..., None]:
    left, write = iter(range(lines)), RunJournal.write

    def filling(journal: RunJournal, line: Line) -> None:
        if next(left, None) is None:
            raise OSError(28, "No space left on device")
        write(journal, line)

    return filling


def _run_all(runs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Run `folder`, `words`; `keys`: typed input, at a terminal. `lines`: number of journal lines before the disk is
    full.
    """
    for run in runs:
        with (
            _run_in_folder(Path(run["folder"])),
            patch.object(command, "has_terminal", (lambda: True) if "keys" in run else prompts.has_terminal),
            patch.object(command, "require_terminal", (lambda _: None) if "keys" in run else prompts.require_terminal),
            patch.object(RunJournal, "write", _fill_disk_after(run.get("lines", 10**9))),
        ):
            done = CliRunner().invoke(cli, run["words"], input=run.get("keys"))
        yield {"code": done.exit_code, "stdout": done.stdout, "stderr": done.stderr}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        folder, *sys.argv[1:] = Path(sys.argv[1]), *sys.argv[2:]
        with _run_in_folder(folder):
            main()
    json.dump(list(_run_all(json.load(sys.stdin))), sys.stdout)
