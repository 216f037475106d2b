"""The folder of an operator who rebuilds a rack with stand-in commands: each records its words and behaves as a file
says.

Phases, journal, lock and signals are the real ones, in a separate process, which may be killed. Machines are sockets of
this process; `ssh` is a script that prints control groups.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparkrack.engine.subcommands import WITHIN
from sparkrack.rebuild.journal import journals
from tests.generated import REPOSITORY
from tests.unit.model.racks import SWITCH, changed

SECONDS = 60
"""Seconds after which a test has failed."""
SSH = """\
#!/bin/sh
# ssh -F CONFIG NODE COMMAND
node="$DESK/nodes/$3"
[ ! -e "$node.away" ] || { echo "ssh: connect to host 127.77.0.9 port 22: No route to host" >&2; exit 255; }
[ ! -e "$node.foreign" ] || { echo "Host key verification failed." >&2; exit 255; }
[ ! -e "$node.mad" ] || { echo "sh: find: not found"; exit 0; }
cat "$node" 2>/dev/null || :
"""
VERB = '''\
"""A verb: notes its words, then does what `verbs/VERB` says, if it says anything."""
import json, os, signal, sys, time
from pathlib import Path

desk = Path(os.environ["DESK"])
words = sys.argv[1:]
with (desk / "calls").open("a") as file:
    file.write(json.dumps(words) + "\\n")
verb = words[0]
reported = desk / "verbs" / verb
does = json.loads(reported.read_text()) if reported.exists() else {}


def ended(number, _):
    with (desk / "signals").open("a") as file:
        file.write(f"{int(number)}\\n")
    (desk / "ending").touch()
    while does.get("slow") and not (desk / "let go").exists():
        time.sleep(0.02)
    with (desk / "ended").open("a") as file:
        file.write(f"{verb} {number}\\n")
    os._exit(130)


signal.signal(signal.SIGTERM, ended)
signal.signal(signal.SIGINT, ended)
if does.get("blocks"):
    (desk / "blocking").write_text(str(os.getpid()))
    (desk / "blocking").replace(desk / "blocked")
    while True:
        time.sleep(0.02)
for node, groups in does.get("nodes", {}).items():
    (desk / "nodes" / node).write_text(groups)
if words[:2] == ["serve", "stop"]:  # on all nodes
    for node in (desk / "nodes").iterdir():
        left = [line for line in node.read_text().splitlines(True) if f"-{words[2]}." not in line]
        node.write_text("".join(left))
kept = desk / f"{verb}.json"
if "--out" in words:
    Path(words[words.index("--out") + 1]).write_text(kept.read_text())
for name, content in does.get("then", {}).items():
    (desk / name).write_text(content)
if words[:2] == ["serve", "import"]:
    print((desk / "import.yaml").read_text(), end="")
else:
    print(kept.read_text() if "--json" in words and kept.exists() else f"{verb} speaks")
sys.exit(does.get("exit", 0))
'''
MAIN = """\
import sys
from sparkrack.engine import subcommands
from sparkrack.rebuild import runner
subcommands.CALL = (sys.executable, {verb!r})
runner.POLL_SECONDS = 0.05
from sparkrack.maintenance import rebuild_run, up_run
if {works!r}:
    rebuild_run.switch_works = up_run.switch_works = lambda rack, name: True
from sparkrack.cli.main import main
main()
"""


class Workdir:
    """One rack of two nodes and a switch, and its rebuild."""

    def __init__(self, folder: Path, edit: Callable[[str], str] = lambda text: text) -> None:
        self.folder = folder
        self.works = False
        self.verb = "rebuild"
        (folder / "nodes").mkdir()
        (folder / "verbs").mkdir()
        (folder / "bin").mkdir()
        ssh = folder / "bin/ssh"
        ssh.write_text(SSH)
        ssh.chmod(stat.S_IRWXU)
        (folder / "verb.py").write_text(VERB)
        self._listening: dict[str, socket.socket] = {}
        self.port = self._listen_for("spark1", 0)
        self._listen_for("spark2", self.port)
        self._listen_for("crs812", self.port)
        self.rack = folder / "rack.yaml"
        text = changed(
            SWITCH,
            ("known_hosts: known_hosts\n", f"known_hosts: known_hosts\n  port: {self.port}\n"),
            ("    user: sparkrack", f"    port: {self.port}\n    user: sparkrack"),
        )
        self.rack.write_text(edit(text.replace("10.77.0.", "127.77.0.")))
        self.status(spark1=False, spark2=False)

    def close(self) -> None:
        for one in self._listening.values():
            one.close()

    def _listen_for(self, name: str, port: int) -> int:
        last = {"spark1": 11, "spark2": 12, "crs812": 2}[name]
        self._listening[name] = socket.create_server((f"127.77.0.{last}", port))
        return int(self._listening[name].getsockname()[1])

    def away(self, name: str) -> None:
        """Close the port of a machine."""
        self._listening.pop(name).close()

    def back(self, name: str) -> None:
        self._listen_for(name, self.port)

    def runs(self, node: str, containers: int, *units: str) -> None:
        groups = [f"sparkrack.slice/docker-{number:064x}.scope" for number in range(containers)]
        for unit in units:
            groups.append(f"sparkrack.slice/sparkrack-{unit}.slice/docker-{'e' * 64}.scope")
            groups += [f"system.slice/sparkrack-serve-{unit}{end}.service" for end in ("", "-agent", "-coordinator")]
        (self.folder / "nodes" / node).write_text("".join(f"/sys/fs/cgroup/{group}\n" for group in groups))

    def marked(self, node: str, how: str) -> None:
        """`away`, `foreign` or `mad`, as seen by ssh."""
        (self.folder / "nodes" / f"{node}.{how}").touch()

    def does(self, verb: str, **what: Any) -> None:
        (self.folder / "verbs" / verb).write_text(json.dumps(what))

    def status(self, **reboot: bool | None) -> None:
        """Set the output of `sparkrack status --json`."""
        nodes = [
            {"name": name, "reachable": True, "images": {"declared": 0}, "reboot": asked}
            for name, asked in reboot.items()
        ]
        whole = {
            "schema": "sparkrack.status/2",
            "rack": "two",
            "file": "rack.yaml",
            "made": "2026-03-14T09:15:00Z",
            "nodes": nodes,
            "switches": [],
            "lock": {"known": True},
        }
        (self.folder / "status.json").write_text(json.dumps(whole))

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the command."""
        environment = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "DESK": str(self.folder),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "RACK": str(self.rack),
            "PYTHONPATH": str(REPOSITORY),
        }
        environment.pop(WITHIN, None)
        return environment

    def command(self, *words: str) -> list[str]:
        """The command line, of a process in which the other commands are stand-ins."""
        main = MAIN.format(verb=str(self.folder / "verb.py"), works=self.works)
        return [sys.executable, "-c", main, self.verb, "--timeout", "20", *words]

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        started = self.start(*words)
        reported, complained = started.communicate(timeout=SECONDS)
        return subprocess.CompletedProcess(started.args, started.returncode, reported, complained)

    @contextmanager
    def blocked_in(self, verb: str, *words: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
        """A rebuild that stands in a verb; afterwards the verb does as ever."""
        self.does(verb, blocks=True, **more)
        (self.folder / "blocked").unlink(missing_ok=True)
        started = self.start(*words)
        try:
            until((self.folder / "blocked").exists, started)
            yield started
        finally:
            if started.poll() is None:
                started.kill()
            started.communicate(timeout=SECONDS)
            (self.folder / "verbs" / verb).unlink()

    def killed_in(self, verb: str, *words: str) -> None:
        """SIGKILL while that verb runs; the verb ends by what the kernel sends it."""
        (self.folder / "ended").unlink(missing_ok=True)
        with self.blocked_in(verb, *words) as started:
            started.send_signal(signal.SIGKILL)
            started.wait(SECONDS)
            until((self.folder / "ended").exists)

    @property
    def calls(self) -> list[list[str]]:
        noted = self.folder / "calls"
        return [json.loads(line) for line in noted.read_text().splitlines()] if noted.exists() else []

    def verbs(self, since: int = 0) -> list[str]:
        """Return the called commands, in one to three words each."""
        return [
            " ".join(words[: 3 if words[0] == "serve" else 2 if words[0] in ("bootstrap", "upgrade") else 1])
            for words in self.calls[since:]
        ]

    @property
    def journals(self) -> list[Path]:
        return journals(self.folder / "state/sparkrack/two/rebuild")

    def lines(self, journal: int = -1) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.journals[journal].read_text().splitlines()]

    def entered(self, journal: int = -1) -> list[str]:
        """The phases that were begun, in order."""
        return [line["phase"] for line in self.lines(journal) if line["event"] == "phase"]


def until(true: Callable[[], bool], alive: subprocess.Popen[str] | None = None) -> None:
    """Wait for it. Raises AssertionError."""
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end, "it never came"
        assert alive is None or alive.poll() is None, alive.communicate()
        time.sleep(0.02)


def after(words: Sequence[str], option: str) -> list[str]:
    """The values of an option."""
    return [words[at + 1] for at, word in enumerate(words) if word == option]
