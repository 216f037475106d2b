"""The rebuild drill in a lab with machines in factory state: the commands of an operator, and of a killed run."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import namespace as ns
from lab.layout import MANAGEMENT
from sparkrack.rebuild.journal import journals
from tests.lab.virtual import REPOSITORY, VirtualRack

SWITCH = "crs812"
PHASES = ("wait", "bootstrap", "apply", "reboot", "verify")
STEPS = 10
"""Number of operations of apply after which the run is killed."""
BOUND = 900
"""Seconds for a phase to be under way."""


def _read_command_lines() -> list[str]:
    """Return the command lines in the page's section about a new rack."""
    text = (REPOSITORY / "docs/rebuild.md").read_text()
    section = text.partition("\n## A new rack with a switch\n")[2].partition("\n## ")[0]
    typed = re.sub(r"^```$.*?^```$", "", section, flags=re.MULTILINE | re.DOTALL)  # what was printed is in fences
    lines = re.findall(r"^    (\S(?:.*\\\n)*.*)$", typed, re.MULTILINE)
    return [line.replace("\\\n", " ") for line in lines]


def page() -> list[tuple[str, ...]]:
    """Its commands about the rack, word by word."""
    commands = [tuple(shlex.split(line, comments=True)) for line in _read_command_lines()]
    return [words for words in commands if words[0] in ("sparkrack", "pyinfra")]


def preparations() -> list[str]:
    """Its other lines, for a shell: what this machine needs before."""
    return [
        line for line in _read_command_lines() if shlex.split(line, comments=True)[0] not in ("sparkrack", "pyinfra")
    ]


@dataclass
class Drill(VirtualRack):
    """A rack in factory state and its operator, who has the consoles' fingerprints and the stickers' passwords."""

    walked: list[tuple[str, ...]] = field(default_factory=list)
    """The commands that were run inside and ended with 0."""

    def inside(self, *command: str, check: bool = True, rack: Path | None = None) -> subprocess.CompletedProcess[str]:
        done = super().inside(*command, check=check, rack=rack)
        if done.returncode == 0:
            self.walked.append(command)
        return done

    def has_walked(self, words: tuple[str, ...]) -> bool:
        """Return whether that command was run, perhaps with more words: the answers that an operator would type."""
        return any(words[:2] == done[:2] and set(words) <= set(done) for done in self.walked)

    @property
    def for_nodes(self) -> list[str]:
        """Options of `bootstrap nodes`."""
        return ["--as", "nvidia", "--password-file", str(self.paths.password), "--host-keys", str(self.paths.host_keys)]

    @property
    def for_switch(self) -> list[str]:
        """Options of `bootstrap switch`."""
        return ["--password-file", str(self.paths.switch(SWITCH) / "sticker")]

    @property
    def words(self) -> list[str]:
        """Options of `rebuild` about whatever is rebuilt."""
        nodes = ["--node-password-file" if word == "--password-file" else word for word in self.for_nodes]
        return [*nodes, *(word.replace("--password", "--switch-password") for word in self.for_switch)]

    def rebuild(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `sparkrack rebuild ...` with passwords and fingerprints."""
        return self.inside("sparkrack", "rebuild", *words, *self.words, check=check)

    def killed(self, phase: str, *words: str) -> str:
        """Run the same, and SIGKILL it during that phase; return its output until then."""
        # One for each: what a killed rebuild called still ends its step, and says so.
        log, steps = self.folder / f"drill-{phase}.log", self.steps()
        with log.open("wb") as file:
            run = subprocess.Popen(
                ["sparkrack", "lab", "run", "--", "sparkrack", "rebuild", *words, *self.words],
                cwd=REPOSITORY,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        under_way: dict[str, Callable[[], bool]] = {
            "wait": lambda: True,
            "bootstrap": lambda: ": done: " in log.read_text(),
            "apply": lambda: self.steps() >= steps + STEPS,
            "reboot": lambda: ": restarts" in log.read_text(),
            "verify": lambda: "verify" in self.journal()[-1].get("words", []),
        }
        self.until(lambda: self.phase() == phase and under_way[phase](), lambda: run.poll() is None, log)
        (pid,) = ns.matching(self.paths.namespace, "rebuild")
        os.kill(pid, signal.SIGKILL)
        # `sparkrack lab run` is replaced by its command.
        assert run.wait(60) == -signal.SIGKILL, log.read_text()
        assert self.journal()[-1]["event"] != "ended"
        return log.read_text()

    def until(self, true: Callable[[], bool], alive: Callable[[], bool], log: Path) -> None:
        """Wait until the condition is true, as long as the responsible process is alive."""
        end = time.monotonic() + BOUND
        while not true():
            assert alive(), log.read_text()
            assert time.monotonic() < end, f"waited in vain\n{log.read_text()}"
            time.sleep(0.05)

    def journal(self) -> list[dict[str, Any]]:
        """The newest journal of a rebuild, as far as it is written; an empty line before there is one."""
        found = journals(self.state / "rebuild")
        whole = found[-1].read_text().rpartition("\n")[0] if found else ""
        return [json.loads(line) for line in whole.splitlines()] or [{"event": "none"}]

    def phase(self) -> str | None:
        """The phase that was begun last and has not ended."""
        for line in reversed(self.journal()):
            if line["event"] in ("left", "ended"):
                return None
            if line["event"] == "phase":
                return str(line["phase"])
        return None

    def steps(self) -> int:
        """Return how many operations all runs of apply have completed."""
        journals = (path for path in self.state.rglob("*.ndjson") if path.parent.name != "rebuild")
        return sum(path.read_text().count('"event": "operation_finished"') for path in journals)

    @property
    def state(self) -> Path:
        """State folder of the runs on the operator's machine."""
        return self.folder / "state/sparkrack/lab"

    def owner(self, node: str, script: str) -> str:
        """Return the output of a script for the user that the node's wizard created; `sudo -S` gets the password from
        stdin.
        """
        reported = self.inner.logins.run_by_password(node, f"sh -c '{script}'")
        assert reported is not None, f"{node}: {script}"
        return reported

    def untouched(self, node: str) -> str:
        """Return a value that changes with any change on a node before first contact."""
        places = "/etc /home /root /var/lib/AccountsService /var/spool"
        script = f"tar -c --sort=name {places} 2>/dev/null | sha256sum"
        return self.owner(node, f'sudo -S -p "" sh -c "{script}"')

    def cable(self, node: str, state: str) -> None:
        """Pull or plug the management cable of a node: `down` or `up`.

        The tap leaves its bridge and stays up: the kernel's vector device stops when a write to a tap that is
        down fails (`in_error` in arch/um/drivers/vector_kern.c), and the node would not come back with its cable.
        """
        tap = self.inner.layout.management_tap(node)
        join = ["master", MANAGEMENT] if state == "up" else ["nomaster"]
        ns.ip("link", "set", tap, *join, namespace=self.paths.namespace)

    def files(self, node: str) -> dict[str, str]:
        """A hash of each file of /etc."""
        lines = self.ssh(node, "find /etc -type f -exec sha256sum {} +").splitlines()
        return {path: digest for digest, path in (line.split("  ", 1) for line in lines)}

    def keeps_secrets(self) -> None:
        """No password that first contact was given is on a node, in the operator's state or in the rack file."""
        secrets = [path.read_text().strip() for path in (self.paths.password, self.paths.switch(SWITCH) / "sticker")]
        kept = [path for path in self.state.rglob("*") if path.is_file()]
        for path in [*kept, self.paths.rack, self.paths.known_hosts]:
            assert not [secret for secret in secrets if secret in path.read_text(errors="replace")], path
        for node in self.nodes:
            pattern = self.paths.node(node) / "shared/pattern"
            pattern.write_text("\n".join(secrets) + "\n")
            try:
                # What packages bring is not a place for it, and takes long to read there.
                left_out = " ".join(f"--exclude-dir={name}" for name in ("docker", "apt", "dpkg", "cache"))
                places = "/etc /home /root /run /tmp /var"
                found = self.ssh(node, f"grep -rlsIF -f /lab/pattern {places} {left_out}; true")
            finally:
                pattern.unlink()
            assert found == "", f"{node}: {found}"
