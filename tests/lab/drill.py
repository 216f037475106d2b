"""The rebuild drill in a lab whose machines come from their boxes: what an operator types, and one who is killed."""

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
from lab.lab import Lab
from sparkrack.rebuild.journal import journals
from tests.lab.virtual import REPOSITORY, VirtualRack

SWITCH = "crs812"
PHASES = ("wait", "bootstrap", "apply", "reboot", "verify")
STEPS = 10
"""Into a run of apply so many operations, somebody pulls the plug."""
BOUND = 900
"""Seconds for a phase to be under way."""


def _lines() -> list[str]:
    """What the README's way from the boxes to a proven rack says to type."""
    text = (REPOSITORY / "README.md").read_text()
    section = text.partition("\n## Your own rack\n")[2].partition("\n## ")[0]
    typed = re.sub(r"^```$.*?^```$", "", section, flags=re.MULTILINE | re.DOTALL)  # what was printed is in fences
    lines = re.findall(r"^    (\S(?:.*\\\n)*.*)$", typed, re.MULTILINE)
    return [line.replace("\\\n", " ") for line in lines]


def page() -> list[tuple[str, ...]]:
    """Its commands about the rack, word by word."""
    commands = [tuple(shlex.split(line, comments=True)) for line in _lines()]
    return [words for words in commands if words[0] in ("sparkrack", "pyinfra")]


def preparations() -> list[str]:
    """Its other lines, for a shell: what this machine needs before."""
    return [line for line in _lines() if shlex.split(line, comments=True)[0] not in ("sparkrack", "pyinfra")]


@dataclass
class Drill(VirtualRack):
    """A boxed rack and its operator, who knows what the consoles showed and what the stickers say."""

    walked: list[tuple[str, ...]] = field(default_factory=list)
    """The commands that were run inside and ended with 0."""

    def inside(self, *command: str, check: bool = True, rack: Path | None = None) -> subprocess.CompletedProcess[str]:
        done = super().inside(*command, check=check, rack=rack)
        if done.returncode == 0:
            self.walked.append(command)
        return done

    def has_walked(self, words: tuple[str, ...]) -> bool:
        """Whether that command was run, perhaps with more words: what a person would have answered to."""
        return any(words[:2] == done[:2] and set(words) <= set(done) for done in self.walked)

    @property
    def inner(self) -> Lab:
        """The lab as its own commands have it."""
        return Lab(self.place, lambda _line: None)

    @property
    def for_nodes(self) -> list[str]:
        """Options of `bootstrap nodes`."""
        return ["--as", "nvidia", "--password-file", str(self.place.password), "--host-keys", str(self.place.host_keys)]

    @property
    def for_switch(self) -> list[str]:
        """Options of `bootstrap switch`."""
        return ["--password-file", str(self.place.switch(SWITCH) / "sticker")]

    @property
    def words(self) -> list[str]:
        """Options of `rebuild` about whatever is rebuilt."""
        nodes = ["--node-password-file" if word == "--password-file" else word for word in self.for_nodes]
        return [*nodes, *(word.replace("--password", "--switch-password") for word in self.for_switch)]

    def rebuild(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`sparkrack rebuild ...` with passwords and fingerprints at hand."""
        return self.inside("sparkrack", "rebuild", *words, *self.words, check=check)

    def killed(self, phase: str, *words: str) -> str:
        """The same, and SIGKILL once that phase is under way; what it said until then."""
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
        (pid,) = ns.matching(self.place.namespace, "rebuild")
        os.kill(pid, signal.SIGKILL)
        # What `sparkrack lab run` makes of SIGKILL.
        assert run.wait(60) == 256 - signal.SIGKILL, log.read_text()
        assert self.journal()[-1]["event"] != "ended"
        return log.read_text()

    def until(self, true: Callable[[], bool], alive: Callable[[], bool], log: Path) -> None:
        """Wait until it is so, as long as somebody lives who can make it so."""
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
        """How many operations all runs of apply have ended."""
        journals = (path for path in self.state.rglob("*.ndjson") if path.parent.name != "rebuild")
        return sum(path.read_text().count('"event": "step"') for path in journals)

    @property
    def state(self) -> Path:
        """Where the operator's machine keeps what it knows of runs."""
        return self.folder / "state/sparkrack/lab"

    def owner(self, node: str, script: str) -> str:
        """What a script prints for the user that the node's wizard made; `sudo -S` gets the password from stdin."""
        said = self.inner.logins.by_password(node, f"sh -c '{script}'")
        assert said is not None, f"{node}: {script}"
        return said

    def untouched(self, node: str) -> str:
        """What changes when anything is changed on a node that nobody but its owner can log in to."""
        places = "/etc /home /root /var/lib/AccountsService /var/spool"
        script = f"tar -c --sort=name {places} 2>/dev/null | sha256sum"
        return self.owner(node, f'sudo -S -p "" sh -c "{script}"')

    def cable(self, node: str, state: str) -> None:
        """Pull or plug the management cable of a node: `down` or `up`."""
        tap = self.inner.layout.management_tap(node)
        ns.ip("link", "set", tap, state, namespace=self.place.namespace)

    def files(self, node: str) -> dict[str, str]:
        """A hash of each file of /etc."""
        lines = self.ssh(node, "find /etc -type f -exec sha256sum {} +").splitlines()
        return {path: digest for digest, path in (line.split("  ", 1) for line in lines)}

    def keeps_secrets(self) -> None:
        """No password that first contact was given is on a node, in the operator's state or in the rack file."""
        secrets = [path.read_text().strip() for path in (self.place.password, self.place.switch(SWITCH) / "sticker")]
        kept = [path for path in self.state.rglob("*") if path.is_file()]
        for path in [*kept, self.place.rack, self.place.known_hosts]:
            assert not [secret for secret in secrets if secret in path.read_text(errors="replace")], path
        for node in self.nodes:
            pattern = self.place.node(node) / "shared/pattern"
            pattern.write_text("\n".join(secrets) + "\n")
            try:
                # What packages bring is no place for it, and takes long to read there.
                left_out = " ".join(f"--exclude-dir={name}" for name in ("docker", "apt", "dpkg", "cache"))
                places = "/etc /home /root /run /tmp /var"
                found = self.ssh(node, f"grep -rlsIF -f /lab/pattern {places} {left_out}; true")
            finally:
                pattern.unlink()
            assert found == "", f"{node}: {found}"
