"""A program: `sparkrack` about machines that are folders, and with a deploy.py of two operations.

One run, in a process of its own: python -m tests.unit.cli.applied FOLDER WORD...
Many, one after the other, in one process: python -m tests.unit.cli.applied, with a list of runs as JSON on stdin.

A folder has `rack.yaml`, `world.json` and a folder for each machine below `nodes`. Each operation wants a file below
/etc to say `new`. `world.json` says what is peculiar about a machine, or about all (`*`), see `Peculiar`.
"""

from __future__ import annotations

import sparkrack.run.gevented  # noqa: F401 - first of all: it replaces parts of the standard library

# isort: split
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import SimpleNamespace
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

from sparkrack.cli import apply as command
from sparkrack.cli.main import main
from sparkrack.cli.main import sparkrack as cli
from sparkrack.fleet import load
from sparkrack.ops import refusal, report
from sparkrack.ops.files import encoded
from sparkrack.ops.lock import PATH
from sparkrack.ops.shell import ask, root
from sparkrack.run import deployfile, session
from sparkrack.run.journal import Journal, Line
from tests.unit.cli.world import CANARY
from tests.unit.ops.shells import rooted

DEPLOY = """\
from tests.unit.cli.applied import memory, rdma

memory()
rdma()
"""


class Peculiar(TypedDict, total=False):
    """What is peculiar about a machine, always at its operation `memory`.

    away: it cannot be reached. unknown, refused: so its operation says. late: it refuses, but only when it is to begin.
    fails: its second command does not work.
    moves: it has one change more once the rack is locked. creeps: one more when it is carried out.
    bug: its operation has one. waits: its second command waits until there is a file `go` in the folder; before, it
    makes a file `waiting-NAME`. unlocks: its second command removes the lock, as a restart of the head node does.
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


def _peculiar(host: Host) -> Peculiar:
    world = json.loads((host.data.folder / "world.json").read_text())
    return Peculiar(**(world.get("*", {}) | world.get(host.data.node.name, {})))  # type: ignore[typeddict-item]


class Folder(FakeConnector):
    """A machine whose root is a folder. What is sent to change it stands in `sent`, in order."""

    def connect(self) -> None:
        with (self.host.data.folder / "connected").open("a") as noted:
            noted.write(f"{self.host.data.node.name}\n")
        if _peculiar(self.host).get("away"):
            raise ConnectError("No route to host")

    def run_shell_command(self, command: Any, *_: Any, **arguments: Any) -> tuple[bool, CommandOutput]:
        data, text = self.host.data, command.get_raw_value()
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
            stdout, stderr = shell.communicate(arguments.get("_stdin") or "")
        finally:
            shell.kill()
        lines = [OutputLine("stdout", line) for line in stdout.splitlines()]
        return shell.returncode == 0, CommandOutput(
            lines + [OutputLine("stderr", line) for line in stderr.splitlines()]
        )


@operation()
def bring(thing: str) -> Generator[PyinfraCommand, None, None]:
    """One file of /etc, in two commands; what is not ended is taken back."""
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    folder, name, about = host.data.folder, host.data.node.name, _peculiar(host) if thing == "memory" else {}
    if "unknown" in about:
        yield refusal.unknown(host, f"{thing}: {about['unknown']}")
        return
    if "refused" in about:
        yield refusal.refuse(host, f"{thing}: {about['refused']}")
        return
    if "late" in about and host.state.is_executing:
        yield refusal.refuse(host, f"{thing}: {about['late']}")
        return
    _, lines, _ = ask(host, f"cat /etc/{thing}.conf")
    if lines == ["new"]:
        return
    report.tell(host, [f"{thing}.level: {' '.join(lines)} -> new"])
    report.show(host, f"/etc/{thing}.conf", "\n".join(lines).encode(), b"new")
    head = Path(f"{folder}/nodes/spark1{PATH}")
    if (about.get("moves") and head.exists()) or (about.get("creeps") and host.state.is_executing):
        report.tell(host, [f"{thing}.swap: on -> off"])
    report.warn(host, f"{thing}: a reboot of {name} is needed")
    if about.get("bug") and host.state.is_executing:
        raise ZeroDivisionError("nobody foresaw this")
    done = False
    try:
        yield root(f"cp /etc/{thing}.conf /etc/{thing}.before; echo half > /etc/{thing}.conf")
        script = f"base64 -d > /etc/{thing}.secret; [ ! -e {head} ] || cat {head} > {folder}/seen; "
        if about.get("waits"):
            script += f"touch {folder}/waiting-{name}; while [ ! -e {folder}/go ]; do sleep 0.02; done; "
        if about.get("unlocks"):
            script += f"rm {head}; "
        if about.get("fails"):
            script += "echo 'it is \033]0;broken' >&2; exit 1; "
        yield root(f"{script}echo new > /etc/{thing}.conf", stdin=encoded(CANARY.encode()))
        done = True
    finally:
        if host.state.is_executing and not done:
            gevent.sleep(0.01)
            host.run_shell_command(root(f"mv /etc/{thing}.before /etc/{thing}.conf"))
            host.log(f"the old {thing} is back")


@deploy("Memory")
def memory() -> None:
    bring(name="Turn it off", thing="memory")


@deploy("Rdma")
def rdma() -> None:
    bring(name="Give it to users", thing="rdma")


def _inventory(folder: Path) -> Inventory:
    rack = load(folder / "rack.yaml")
    data = {name: {"rack": rack, "node": node, "folder": folder} for name, node in rack.nodes.items()}
    made = Inventory((list(data.items()), {}))  # type: ignore[no-untyped-call]
    for host in made:
        host.connector_cls = Folder
    return made


def _about(folder: Path) -> Any:
    """The program is about this folder."""
    path = folder / "deploy.py"
    path.write_text(DEPLOY)
    deployfile.DEPLOY = path
    deployfile.code.__defaults__ = (path,)
    os.environ.update(XDG_STATE_HOME=str(folder / "state"), RACK=str(folder / "rack.yaml"))
    return patch.object(session, "make_inventory", lambda *_, **__: _inventory(folder))


def _full(lines: int) -> Callable[..., None]:
    left, write = iter(range(lines)), Journal.write

    def filling(journal: Journal, line: Line) -> None:
        if next(left, None) is None:
            raise OSError(28, "No space left on device")
        write(journal, line)

    return filling


def _many(runs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """`folder`, `words`; `keys`: what a person types, at a terminal. `lines`: so many go into a journal before the disk
    is full."""
    for run in runs:
        terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True), exit=sys.exit)
        with (
            _about(Path(run["folder"])),
            patch.object(command, "sys", terminal if "keys" in run else sys),
            patch.object(Journal, "write", _full(run.get("lines", 10**9))),
        ):
            done = CliRunner().invoke(cli, run["words"], input=run.get("keys"))
        yield {"code": done.exit_code, "stdout": done.stdout, "stderr": done.stderr}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        folder, *sys.argv[1:] = Path(sys.argv[1]), *sys.argv[2:]
        with _about(folder):
            main()
    json.dump(list(_many(json.load(sys.stdin))), sys.stdout)
