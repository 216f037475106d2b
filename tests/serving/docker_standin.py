"""Stand-in for docker with one container: a daemon, and a client that ends when the container or the daemon does.

    docker_standin.py daemon FOLDER GROUP      the daemon; the container is in the control group GROUP and outlives it
    docker_standin.py run FOLDER SCRIPT        `docker run`: ends with the exit code of the container
    docker_standin.py stop FOLDER SECONDS      `docker stop`: TERM, and KILL after so many seconds

As with docker, the processes of the container are not children of the client, and a daemon that is killed ends none of
them. While FOLDER/hangs exists, the daemon accepts connections and gives no answer. FOLDER/log has what the container
prints.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

LOST = 125
"""Exit code of `docker run` when the daemon is the cause."""


class Daemon:
    """The daemon. `group`: the folder of the control group of its container."""

    def __init__(self, folder: Path, group: Path) -> None:
        self.folder, self.group = folder, group
        self.container: subprocess.Popen[bytes] | None = None
        self.listener = socket.socket(socket.AF_UNIX)
        (folder / "docker.sock").unlink(missing_ok=True)
        self.listener.bind(str(folder / "docker.sock"))
        self.listener.listen()

    def serve(self) -> None:
        """Answer clients, a thread for each."""
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self._answer_client, args=(connection,), daemon=True).start()

    def _answer_client(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            verb, _, value = connection.makefile().readline().strip().partition(" ")
            self._wait_while_it_hangs()
            code = self._run_container(value) if verb == "run" else self._stop_container(float(value))
            self._wait_while_it_hangs()
            connection.sendall(f"{code}\n".encode())

    def _wait_while_it_hangs(self) -> None:
        while (self.folder / "hangs").exists():
            time.sleep(0.05)

    def _run_container(self, script: str) -> int:
        inside = 'echo $$ > "$1/cgroup.procs" && exec sh "$2"'
        with (self.folder / "log").open("ab") as log:
            self.container = subprocess.Popen(
                ["sh", "-c", inside, "sh", str(self.group), script],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        code = self.container.wait()
        self._kill_container()  # what the first process of a container leaves ends with it
        return 128 - code if code < 0 else code

    def _stop_container(self, seconds: float) -> int:
        if self.container and self.container.poll() is None:
            self.container.terminate()
            try:
                self.container.wait(seconds)
            except subprocess.TimeoutExpired:
                self._kill_container()
                self.container.wait()
        return 0

    def _kill_container(self) -> None:
        (self.group / "cgroup.kill").write_text("1")


def ask(folder: Path, question: str) -> int:
    """Ask the daemon, and return the exit code that it answers."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(folder / "docker.sock"))
            connection.sendall(f"{question}\n".encode())
            answer = connection.makefile().readline()
        except OSError:
            answer = ""
    return int(answer) if answer else LOST


def main(words: list[str]) -> int:
    """Run the daemon or a client."""
    verb, folder, value = words[0], Path(words[1]), words[2]
    if verb == "daemon":
        Daemon(folder, Path(value)).serve()
    if verb == "run":
        # The client hands signals on, and waits for the daemon to take them.
        signal.signal(signal.SIGTERM, lambda *_: ask(folder, "stop 0"))
    return ask(folder, f"{verb} {value}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
