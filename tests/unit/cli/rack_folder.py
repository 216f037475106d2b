"""A folder for `tests.unit.cli.small_program`: three machines in a ring, each with two files to be made new."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.unit.cli.runs import REPOSITORY, Ended
from tests.unit.model.racks import RING

CANARY = "hunter2-canary"
"""A secret: it is sent to each machine, and must be found nowhere else."""
NAMES = ("spark1", "spark2", "spark3")
PROGRAM = (sys.executable, "-m", "tests.unit.cli.small_program")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY), "NO_COLOR": "1", "COLUMNS": "200"}


class World:
    """`peculiar`: see `small_program.Peculiar`. `new`: machines that are as they should be. `lock`: what lies
    on the head node from before."""

    def __init__(
        self, folder: Path, peculiar: dict[str, Any] | None = None, new: tuple[str, ...] = (), lock: str | None = None
    ) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        (folder / "rack.yaml").write_text(RING)
        (folder / "world.json").write_text(json.dumps(peculiar or {}))
        for name in NAMES:
            (folder / "nodes" / name / "run").mkdir(parents=True)
            for thing in ("memory", "rdma"):
                self.put(name, thing, "new" if name in new else "old")
        if lock is not None:
            self.lock.parent.mkdir()
            self.lock.write_text(lock)

    @property
    def lock(self) -> Path:
        return self.folder / "nodes/spark1/run/sparkrack/run.lock"

    def put(self, name: str, thing: str, text: str) -> None:
        file = self.folder / "nodes" / name / "etc" / f"{thing}.conf"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{text}\n")

    def things(self, name: str) -> list[str]:
        return [
            (self.folder / "nodes" / name / "etc" / f"{thing}.conf").read_text().strip() for thing in ("memory", "rdma")
        ]

    @property
    def sent(self) -> list[str]:
        """Return the commands that change hosts: `NAME THING`, a line for each."""
        return self._read_notes("sent")

    @property
    def connected(self) -> list[str]:
        return self._read_notes("connected")

    @property
    def read(self) -> list[str]:
        """The machines whose facts were read, as often as they were."""
        return self._read_notes("read")

    def _read_notes(self, what: str) -> list[str]:
        noted = self.folder / what
        return noted.read_text().splitlines() if noted.exists() else []

    @property
    def journals(self) -> list[Path]:
        return sorted((self.folder / "state").rglob("*.ndjson"))

    @property
    def journal(self) -> list[dict[str, Any]]:
        (path,) = self.journals
        return [json.loads(line) for line in path.read_text().splitlines()]

    def start(self, *words: str, **how: Any) -> subprocess.Popen[str]:
        """A process of its own about this folder."""
        usual = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(
            [*PROGRAM, str(self.folder), *words], env=ENVIRONMENT, cwd=REPOSITORY, **{**usual, **how}
        )


def many(runs: list[dict[str, Any]]) -> list[Ended]:
    """Run several runs in one process, which costs a second to start. Each: folder, words, and keys for typed input."""
    done = subprocess.run(
        PROGRAM,
        input=json.dumps(runs, default=str),
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        cwd=REPOSITORY,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [Ended(**one) for one in json.loads(done.stdout)]
