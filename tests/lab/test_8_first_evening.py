"""`sparkrack up --serve` from two nodes in factory state and one cable to an answered chat, killed in three phases.

The rack file is the one that `init` writes, the recipe and its hub are those of scripts/first_hour.py, which records
the same way without kills. The first tier kills `up` in each verb in tests/unit/rebuild/test_up.py, with stand-ins for
the verbs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import namespace as ns
from lab.engine.api import CHAT_ANSWER
from tests.lab.virtual import REPOSITORY, VirtualRack

pytestmark = pytest.mark.soak(turn=11)

NODES = ("spark1", "spark2")
RACK = """\
rack: first
access: {user: ops, key: ~/.ssh/id_ed25519, known_hosts: known_hosts}
nodes:
  spark1: {address: 10.77.0.11, vendor: nvidia, ports: {1: spark2/1}}
  spark2: {address: 10.77.0.12, vendor: nvidia}
"""
"""The two Sparks and the cable that are simulated."""
BOUND = 300
"""Seconds until a phase begins, or an interrupted command has ended."""
STEPS = 3
"""Operations of `apply` that have ended when `up` is killed in it."""
RECIPE = "toy.yaml"


@dataclass
class Evening:
    """The virtual rack, and the folder of its owner."""

    rack: VirtualRack
    owner: Path

    @property
    def words(self) -> list[str]:
        """The command that is given again and again."""
        paths = self.rack.paths
        secrets = ["--node-password-file", str(paths.password), "--host-keys", str(paths.host_keys)]
        return ["sparkrack", "up", "-y", "--serve", RECIPE, "--as", "nvidia", *secrets]

    def start(self, words: list[str], output: Any) -> subprocess.Popen[str]:
        """Begin a command in the owner's folder, inside the network of the virtual rack."""
        inner = self.rack.inner
        environment = {**self.rack.environment, "XDG_STATE_HOME": inner.variables()["XDG_STATE_HOME"]}
        return subprocess.Popen(
            [*inner.entering(), *words],
            cwd=self.owner,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def done(self, words: list[str]) -> str:
        """Run a command that must end well; return its output."""
        with self.start(words, subprocess.PIPE) as run:
            output, _ = run.communicate(timeout=BOUND * 2)
        assert run.returncode == 0, output
        return output

    def killed(self, here: Callable[[], bool]) -> None:
        """Begin `up`, and SIGKILL it as soon as the condition is true."""
        log = self.rack.folder / "killed.log"
        with log.open("w") as file, self.start(self.words, file) as run:
            end = time.monotonic() + BOUND
            while not here():
                assert run.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.05)
            (pid,) = ns.matching(self.rack.paths.namespace, "up")
            os.kill(pid, signal.SIGKILL)
        assert self.journal()[-1]["event"] != "ended"

    def journal(self) -> list[dict[str, Any]]:
        """The newest journal of `up`, as far as it is written; an empty line before there is one."""
        found = sorted((self.state / "rebuild").glob("*.ndjson"))
        whole = found[-1].read_text().rpartition("\n")[0] if found else ""
        return [json.loads(line) for line in whole.splitlines()] or [{"event": "none"}]

    def calls(self, *words: str) -> bool:
        """Whether `up` has called this command, and waits for it."""
        last = self.journal()[-1]
        return last["event"] == "call" and tuple(last["words"][: len(words)]) == words

    def applied(self) -> bool:
        """Whether `apply` has ended some operations."""
        journals = (self.state / "runs").glob("*.ndjson")
        ended = sum(path.read_text().count('"event": "operation_finished"') for path in journals)
        return self.calls("apply") and ended >= STEPS

    @property
    def state(self) -> Path:
        """Records of the owner's machine. The rack has the name of the folder."""
        return self.rack.folder / "state/sparkrack" / self.owner.name


@pytest.fixture(scope="module")
def evening() -> Iterator[Evening]:
    """Two nodes in factory state, and a rack file that `init` has written."""
    folder = REPOSITORY / ".lab-test-evening"
    rack = VirtualRack(folder, NODES)
    rack.lab("down")
    owner = folder / "owner"
    owner.mkdir(parents=True)
    file = folder / "two-sparks.yaml"
    file.write_text(RACK)
    try:
        rack.lab("up", "--factory", "--rack", str(file))
        made = Evening(rack, owner)
        named = ["--node", "spark1=10.77.0.11", "--node", "spark2=10.77.0.12", "--switch", "-"]
        keys = ["--key", str(rack.paths.key), "--host-keys", str(rack.paths.host_keys)]
        made.done(["sparkrack", "init", *named, *keys, "--user", "ops", "--cable", "spark1/1=spark2/1"])
        done = rack.run("python", "-m", "lab.served_recipe", str(owner / RECIPE))
        rack.environment["HF_ENDPOINT"] = done.stdout.split()[-1]
        yield made
    finally:
        rack.lab("down")


def test_up_is_killed_in_three_phases_and_ends_with_an_answered_chat(evening: Evening) -> None:
    evening.killed(evening.applied)
    evening.killed(lambda: evening.calls("serve", "start"))
    evening.killed(lambda: evening.calls("verify"))
    lines = evening.done(evening.words).splitlines()
    assert " 0 failed" in "\n".join(lines)
    assert len(list((evening.state / "rebuild").glob("*.ndjson"))) == 1, "one run, resumed three times"
    place = next(number for number, line in enumerate(lines) if line.startswith("unit toy: http"))
    answer = json.loads(evening.done(["bash", "-c", lines[place + 1].strip()]))
    assert answer["choices"][0]["message"]["content"] == CHAT_ANSWER


def test_the_same_again_finds_nothing_to_do_and_ends_nothing(evening: Evening) -> None:
    key, pins = evening.rack.paths.key, evening.owner / "known_hosts"
    logins = [f"ssh -i {key} -o UserKnownHostsFile={pins} ops@10.77.0.1{number}" for number in (1, 2)]
    ask = ["sh", "-c", "; ".join(f"{login} sudo docker ps --quiet --no-trunc" for login in logins)]
    before = evening.done(ask).split()
    assert len(before) == len(NODES)
    assert "nothing to do: in sync, and verified at" in evening.done(evening.words)
    assert evening.done(ask).split() == before


def test_everything_comes_off_again_once_the_unit_is_down(evening: Evening) -> None:
    evening.done(["sparkrack", "serve", "stop", "toy"])
    evening.done(["sparkrack", "remove", "-y"])
    assert "nothing to do" in evening.done(["sparkrack", "remove", "-y"])
