"""The gateway as rack.yaml declares it, on loopback: nginx itself and its router, before engine stand-ins and a server
that echoes."""

from __future__ import annotations

import grp
import hashlib
import json
import os
import pwd
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from core.model import Rack
from serving import gateway as gateway
from serving import gateway_certificate as gateway_certificate
from serving import gateway_router as gateway_router
from serving.options import ServingGateway, gateway_of
from tests.contact.nodes import free_port
from tests.serving.engines import ENGINE
from tests.unit.model.serving_racks import loaded, text, unit
from tests.unit.ops.shells import rooted, run

NGINX = str(Path(__file__).parents[2] / ".venv/nginx/usr/sbin/nginx")
"""scripts/setup unpacks the package. Installed, it would serve port 80 of this machine."""
CLIENTS = {"alice": "alice-Quiet.horse~1234+/=", "ci.nightly": "0f" * 24}
UNIT_KEYS = {"one": 'sk-"quiet\\$horse;{1}#~'}
"""What nginx takes for more than a character, in quotes or without."""
PATIENCE = 60.0
ROUTER_COMMAND = (gateway_router.PROGRAM, gateway_router.SOCKET, gateway_router.MODELS)
MODELS = {"one": ("qwen",), "two": ("glm",), "echo": ("echo", "owner/echo 2", "größe")}
"""The names of the model of each unit."""


class Echo(BaseHTTPRequestHandler):
    """An engine that answers with what it was asked. `held`: while this file exists, it has a request and no answer.
    `accel`: the content of this file is an X-Accel-Redirect of its answers."""

    held: Path
    accel: Path
    waiting = 0

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        Echo.waiting += 1
        while self.held.exists():
            time.sleep(0.02)
        Echo.waiting -= 1
        whole = {"method": self.command, "path": self.path, "headers": dict(self.headers.items()), "bytes": len(body)}
        content = json.dumps({**whole, "sha256": hashlib.sha256(body).hexdigest()}).encode()
        self.send_response(200)
        if self.accel.exists():
            self.send_header("X-Accel-Redirect", self.accel.read_text())
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


def allowed_port(after: int) -> int:
    """An unused port that rack.yaml accepts: none that the kernel gives to outgoing connections."""
    for port in range(after, after + 25):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


@dataclass
class Reply:
    """What curl got."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error in the form of OpenAI, which is one line."""
        assert self.body.endswith("}\n"), self.body
        assert self.body.count("\n") == 1
        error = self.json["error"]
        assert sorted(error) == ["code", "message", "param", "type"]
        return str(error["code"])


@dataclass
class RunningGateway:
    """nginx with three units: `one` with a key and `two` without, both stand-ins, and `echo`."""

    root: Path
    body: str = "4M"
    ports: dict[str, int] = field(default_factory=dict)
    engines: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Another process of tests may look for ports at the same time.
        first = 20000 + os.getpid() % 80 * 100
        self.ports = {name: allowed_port(first + 25 * number) for number, name in enumerate(("one", "two", "echo"))}
        self.port = allowed_port(first + 75)
        self.pem = gateway_certificate.self_signed_pem(self.gateway, "127.0.0.1")
        self.faults = self.root / "faults"
        self.faults.mkdir()

    @property
    def rack(self) -> Rack:
        keys = {name: {"env": name.upper().replace(".", "_")} for name in CLIENTS}
        units = {
            name: unit(
                nodes=["n0"],
                parallel=None,
                state="up" if name == "one" else "down",
                args={"served-model-name": list(MODELS[name])},
                api={"port": port, **({"key": {"env": "UNIT_KEY"}} if name in UNIT_KEYS else {})},
            )
            for name, port in self.ports.items()
        }
        declared = {"node": "n0", "port": self.port, "listen": "local", "keys": keys, "body": self.body}
        return loaded(text({}, serving={"units": units, "gateway": declared}))

    @property
    def gateway(self) -> ServingGateway:
        gateway = gateway_of(self.rack)
        assert gateway
        return gateway

    def write(self, path: str, content: bytes, mode: int = 0o644) -> Path:
        """Write a file of the node, with the paths of this one."""
        file = Path(rooted(path, self.root))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(rooted(content.decode(), self.root).replace("unix:/dev/log", f"unix:{self.root}/log"))
        file.chmod(mode)
        return file

    def write_keys(self, clients: dict[str, str]) -> None:
        private = gateway.keys_file(self.rack, self.gateway, clients, UNIT_KEYS)
        self.write(private.path, private.content.get_secret_value(), 0o600)

    def start(self) -> None:
        for name in ("one", "two"):
            self.start_engine(name)
        Echo.held, Echo.accel = self.faults / "held", self.faults / "accel"
        self.echo = ThreadingHTTPServer(("127.0.0.1", self.ports["echo"]), Echo)
        threading.Thread(target=self.echo.serve_forever, daemon=True).start()
        for file in gateway.files(self.rack, self.gateway):
            self.write(file.path, file.content, int(file.mode, 8))
        self.write_keys(CLIENTS)
        self.write(gateway.CERTIFICATE, self.pem, 0o600)
        self.trusted = self.root / "trusted.pem"
        self.trusted.write_bytes(self.pem[self.pem.index(b"-----BEGIN CERTIFICATE") :])
        Path(rooted(gateway.RUN, self.root)).mkdir(parents=True)
        for file in gateway_router.files(self.rack, self.gateway):
            self.write(file.path, file.content, int(file.mode, 8))
        self.start_router()
        self.log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.log.bind(str(self.root / "log"))
        (self.root / "log").chmod(0o666)
        self.log.setblocking(False)
        self.nginx_log = self.root / "nginx.log"
        with self.nginx_log.open("wb") as log:
            self.nginx = subprocess.Popen(
                [
                    *self._limit_capabilities(),
                    NGINX,
                    "-e",
                    "stderr",
                    "-c",
                    rooted(gateway.CONFIGURATION, self.root),
                    "-g",
                    "daemon off;",
                ],
                stderr=log,
                start_new_session=True,
            )
        self.wait(lambda: self.curl("/one/v1/models").status == 200, "the gateway answers")

    def start_router(self) -> None:
        """Start the router as its service does: as a user of its own, with the group and the mode of its socket."""
        folder = Path(rooted(gateway_router.RUN, self.root))
        folder.mkdir(parents=True, exist_ok=True)
        ready = self.root / "ready"
        ready.unlink(missing_ok=True)
        other: dict[str, Any] = {}
        if not os.geteuid():
            group = grp.getgrnam("www-data").gr_gid
            os.chown(folder, pwd.getpwnam("nobody").pw_uid, group)
            folder.chmod(0o750)
            other = {"user": "nobody", "group": group, "extra_groups": [], "umask": 0o117}
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reports, self.router_log.open("ab") as log:
            reports.bind(str(ready))
            ready.chmod(0o666)
            reports.settimeout(PATIENCE)
            self.router = subprocess.Popen(
                # The interpreter of the environment may lie in a folder that other users do not enter.
                ["/usr/bin/python3", "-I", *(rooted(path, self.root) for path in ROUTER_COMMAND)],
                env={"NOTIFY_SOCKET": str(ready)},
                stdout=log,
                stderr=log,
                start_new_session=True,
                **other,
            )
            assert reports.recv(64) == b"READY=1"

    def stop_router(self) -> None:
        self.router.kill()
        self.router.wait(PATIENCE)

    @property
    def router_log(self) -> Path:
        return self.root / "router.log"

    def _limit_capabilities(self) -> list[str]:
        """The capabilities that the service leaves to nginx, where this process may take the others away."""
        if os.geteuid() or not shutil.which("setpriv"):
            return []
        (service,) = (
            file.content.decode()
            for file in gateway.files(self.rack, self.gateway)
            if file.path == gateway.SERVICE_FILE
        )
        (left,) = re.findall(r"^CapabilityBoundingSet=(.+)$", service, re.MULTILINE)
        words = left.lower().replace("cap_", "+").split()
        return ["setpriv", "--no-new-privs", f"--bounding-set=-all,{','.join(words)}", "--inh-caps=-all"]

    def start_engine(self, name: str) -> None:
        words = ["serve", MODELS[name][0], "--host", "127.0.0.1", "--port", str(self.ports[name])]
        own = {"STANDIN_NO_MODEL": "1", "STANDIN_SHM": str(self.root), "STANDIN_FAULTS": str(self.faults)}
        own |= {"STANDIN_STOP_SECONDS": "0.1"} | ({"VLLM_API_KEY": UNIT_KEYS[name]} if name in UNIT_KEYS else {})
        with (self.root / f"{name}.log").open("ab") as log:
            self.engines[name] = subprocess.Popen(
                [sys.executable, str(ENGINE), *words, "--master-port", str(free_port())],
                env={**os.environ, **own},
                stderr=log,
                start_new_session=True,
            )

        def answers() -> bool:
            with suppress(OSError):
                return bool(urllib.request.urlopen(f"http://127.0.0.1:{self.ports[name]}/health", timeout=5))
            return False

        self.wait(answers, f"engine {name} answers")

    def stop_engine(self, name: str) -> None:
        self.engines[name].terminate()
        self.engines[name].wait(PATIENCE)

    def end(self) -> None:
        for process in (getattr(self, "nginx", None), getattr(self, "router", None), *self.engines.values()):
            if process and process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if hasattr(self, "echo"):
            self.echo.shutdown()
            self.echo.server_close()

    def wait(self, reached: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + PATIENCE
        while not reached():
            log = self.nginx_log.read_text() if hasattr(self, "nginx_log") else ""
            assert time.monotonic() < until, f"not in {PATIENCE:g} s: {what}\n{log}"
            time.sleep(0.05)

    # Clients

    def words(self, path: str, *words: str, key: str | None = CLIENTS["alice"]) -> list[str]:
        """The command line of curl for a path, which is sent as it is."""
        head = ["curl", "-sS", "--path-as-is", "--max-time", str(PATIENCE), "--cacert", str(self.trusted)]
        held = [] if key is None else ["-H", f"Authorization: Bearer {key}"]
        return [*head, *held, *words, f"https://127.0.0.1:{self.port}{path}"]

    def curl(self, path: str, *words: str, key: str | None = CLIENTS["alice"]) -> Reply:
        done = subprocess.run(
            self.words(path, "-D", "/dev/stderr", *words, key=key), capture_output=True, text=True, check=False
        )
        lines = done.stderr.splitlines()
        # The last block: before a body curl asks for `100 Continue`.
        starts = [number for number, line in enumerate(lines) if line.startswith("HTTP/")]
        if not starts:
            return Reply(0, {}, done.stderr)
        head = lines[starts[-1] :]
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
        return Reply(int(head[0].split()[1]), headers, done.stdout)

    def complete(self, name: str, key: str | None = CLIENTS["alice"], **body: Any) -> Reply:
        content = json.dumps({"model": MODELS[name][0], "prompt": "2+2=", **body})
        return self.curl(f"/{name}/v1/completions", "-H", "Content-Type: application/json", "-d", content, key=key)

    @contextmanager
    def stream(self, name: str, path: str = "") -> Iterator[subprocess.Popen[str]]:
        """A stream by curl whose first part has arrived; the engine does not go on before `finish`. Its path is that of
        the unit, if there is no other."""
        (self.faults / "slow").touch()
        content = json.dumps({"model": MODELS[name][0], "prompt": "2+2=", "stream": True})
        words = self.words(path or f"/{name}/v1/completions", "-N", "-d", content)
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout
            assert json.loads(client.stdout.readline().removeprefix("data: "))["choices"][0]["text"] == "4"
            try:
                yield client
            finally:
                (self.faults / "slow").unlink(missing_ok=True)
                client.kill()

    def finish(self, client: subprocess.Popen[str]) -> str:
        """Let the engine go on, and return the rest of the stream."""
        (self.faults / "slow").unlink()
        rest, _ = client.communicate(timeout=PATIENCE)
        assert client.returncode == 0
        return rest

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.trusted))

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `serve-gateway` as on the node."""
        program = Path(rooted(gateway.PROGRAM, self.root)).read_text()
        return run(f"set -- {' '.join(words)}\n{program}", self.root)

    def logged(self) -> str:
        """The lines of the access log since the last call."""
        lines = []
        with suppress(BlockingIOError):
            while True:
                lines.append(self.log.recv(65536).decode())
        return "\n".join(lines)


@contextmanager
def running_gateway(kind: type[RunningGateway] = RunningGateway) -> Iterator[RunningGateway]:
    """A gateway that runs; its folder can be read by the processes of nginx, which are not root."""
    root = Path(mkdtemp(prefix="sparkrack-gateway-"))
    root.chmod(0o755)
    made = kind(root)
    try:
        made.start()
        yield made
    finally:
        made.end()
        shutil.rmtree(root, ignore_errors=True)
