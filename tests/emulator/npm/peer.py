"""A client from npm in a Node.js process of its own."""

from __future__ import annotations

import json
import select
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.emulator.emulator_process import USER, Crs812Process

FOLDER = Path(__file__).parent
ANSWERS_WITHIN = 60.0

Row = dict[str, str]


class ClientError(Exception):
    """The client rejected a command, with an error of this name, message and number."""

    def __init__(self, name: str, message: str, errno: str | None) -> None:
        super().__init__(message)
        self.name, self.message, self.errno = name, message, errno


class ClientCrashError(ClientError):
    """The client threw where its caller cannot catch it, so its process is over."""


class NpmClient:
    """One connection of the npm package `package`, logged in. Raises ClientError when that is refused, and
    AssertionError when Node.js or the packages are missing: nothing may leave these tests out.
    """

    def __init__(
        self, package: str, switch: Crs812Process, *, secure: bool = False, user: str = USER, password: str = ""
    ) -> None:
        node = shutil.which("node")
        assert node, "Node.js is missing; `scripts/setup tests` installs it"
        assert (FOLDER / "node_modules" / package).is_dir(), f"{package} is missing; `scripts/setup tests` installs it"
        self._process = subprocess.Popen(
            [node, str(FOLDER / "client.js")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        asked = {
            "client": package,
            "host": "127.0.0.1",
            "port": switch.tls_port if secure else switch.plain_port,
            "user": user,
            "password": password or switch.password,
        }
        if secure:
            asked["certificate"] = (switch.folder / "cert.pem").read_text()
        try:
            _rows_of_answer(self._ask_client(asked))
        except BaseException:
            self.close()
            raise

    def write(self, *words: str) -> list[Row]:
        """Send one sentence and give the rows that the client makes of the answers. Raises ClientError."""
        return _rows_of_answer(self._ask_client({"write": words}))

    def together(self, *sentences: list[str]) -> list[list[Row]]:
        """Send several sentences before any is answered. Raises ClientError for the first that is refused."""
        return [_rows_of_answer(answer) for answer in self._ask_client({"together": sentences})["answers"]]

    def stream(self, *words: str, rows: int) -> list[Row]:
        """Read that many rows or a few more from a command without end, then cancel it."""
        return _rows_of_answer(self._ask_client({"stream": words, "rows": rows}))

    def close(self) -> int:
        """Leave, and give the exit code of the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            return self._process.wait(ANSWERS_WITHIN)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()

    def _ask_client(self, value: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()
        readable, _, _ = select.select([self._process.stdout], [], [], ANSWERS_WITHIN)
        assert readable, f"no answer within {ANSWERS_WITHIN:g} s"
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


def _rows_of_answer(answer: dict[str, Any]) -> list[Row]:
    for key, kind in (("uncaught", ClientCrashError), ("error", ClientError)):
        if fault := answer.get(key):
            raise kind(fault["name"], fault["message"], fault.get("errno"))
    rows: list[Row] = answer["rows"]
    return rows
