"""The services of the gateway under systemd itself, with all that their files take from them: nginx finds its
router."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from core.model import Rack
from core.util.managed_file import ManagedFile
from lab import namespace
from serving import gateway as gateway
from serving import gateway_certificate as gateway_certificate
from serving import gateway_router as gateway_router
from serving.options import gateway_of
from tests.serving.running_gateway import NGINX
from tests.serving.running_systemd import PATIENCE, RunningSystemd, lacking
from tests.unit.model.serving_racks import loaded, text, unit

WHY = lacking() or ("" if shutil.which(NGINX) else "nginx is not unpacked: make setup FOR=tests")
pytestmark = pytest.mark.skipif(bool(WHY), reason=WHY or "systemd and nginx can be started")
KEY = "a-quiet-horse-1234"
NODE = "/run/node"
"""Where the files of the node are: a service has no /tmp of others, and /etc is that of this machine."""
SERVICES = (gateway_router.SERVICE, gateway.SERVICE)
_ENGINE = """
import http.server
class Engine(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Engine).serve_forever()
"""


def placed(content: bytes) -> str:
    """A file of the node with the places that this test has for the others."""
    found = content.decode().replace("/etc/sparkrack/gateway", f"{NODE}/gateway")
    return found.replace("/usr/local/lib/sparkrack", NODE).replace(gateway.NGINX, f"{NODE}/nginx")


class Node:
    """The node of the gateway, and of a unit whose engine echoes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.systemd = RunningSystemd(folder, f"gs{os.getpid()}")

    @property
    def rack(self) -> Rack:
        declared = {"node": "n0", "listen": "local", "keys": {"alice": {"env": "ALICE"}}}
        units = {"one": unit(nodes=["n0"], parallel=None)}
        return loaded(text({}, serving={"units": units, "gateway": declared}))

    def files(self) -> tuple[ManagedFile, ...]:
        declared = gateway_of(self.rack)
        assert declared
        keys = gateway.keys_file(self.rack, declared, {"alice": KEY}, {})
        pem = gateway_certificate.self_signed_pem(declared, "127.0.0.1")
        private = (
            ManagedFile(keys.path, keys.content.get_secret_value(), "600"),
            ManagedFile(gateway.CERTIFICATE, pem),
        )
        return (*gateway.files(self.rack, declared), *gateway_router.files(self.rack, declared), *private)

    def start(self) -> None:
        namespace.create(self.systemd.namespace)
        namespace.ip("link", "set", "lo", "up", namespace=self.systemd.namespace)
        (self.folder / "gateway").mkdir()
        for file in self.files():
            if file.path.startswith("/etc/systemd/system/"):
                self.systemd.write(Path(file.path).name, placed(file.content))
                continue
            path = self.folder / Path(placed(file.path.encode())).relative_to(NODE)
            path.write_text(placed(file.content))
            path.chmod(int(file.mode, 8))
        shutil.copy(NGINX, self.folder / "nginx")
        (self.folder / "engine.py").write_text(_ENGINE)
        self.systemd.write("engine.service", f"[Unit]\n[Service]\nExecStart={sys.executable} -S {NODE}/engine.py\n")
        self.systemd.start()
        self.wait_for_systemd()
        self.run(f"cp -a {self.folder} {NODE} && chmod 755 {NODE} && chmod 700 {NODE}/gateway")
        self.run(f"systemctl start engine.service {' '.join(SERVICES)}")

    def wait_for_systemd(self) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            # Before its process is there, no command can be run among its own.
            with suppress(ValueError, OSError):
                if self.systemd.run("systemctl", "is-active", "node.target").returncode == 0:
                    return
            assert time.monotonic() < until, self.systemd.log.read_text()[-4000:]
            time.sleep(0.1)

    def run(self, script: str) -> str:
        done = self.systemd.run("sh", "-c", script)
        assert done.returncode == 0, (script, done.stdout, done.stderr, self.systemd.log.read_text()[-4000:])
        return done.stdout

    def wait(self, script: str) -> None:
        self.run(f"n=0; until {script}; do n=$((n + 1)); [ $n -lt 300 ] || exit 1; sleep 0.1; done")

    def complete(self, model: str, size: int = 10) -> tuple[int, str]:
        """The status of a request by the name of its model, and its answer."""
        body = json.dumps({"model": model, "prompt": "x" * size})
        words = ["curl", "-sk", "-w", "\n%{http_code}", "-H", f"Authorization: Bearer {KEY}", "--data-binary", "@-"]
        inside = ["ip", "netns", "exec", self.systemd.namespace, *words, "https://127.0.0.1/v1/completions"]
        done = subprocess.run(inside, input=body, capture_output=True, text=True, check=True)
        answer, _, status = done.stdout.rpartition("\n")
        return int(status), answer

    def end(self) -> None:
        self.systemd.end()
        namespace.delete(self.systemd.namespace)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = Node(tmp_path_factory.mktemp("node"))
    try:
        made.start()
        yield made
    finally:
        made.end()


def test_a_request_by_the_name_of_its_model_passes_both_services(node: Node) -> None:
    node.wait(f"[ $(systemctl is-active {' '.join(SERVICES)} | sort -u) = active ]")
    status, answer = node.complete("qwen", 3_000_000)
    assert (status, len(json.loads(answer)["prompt"])) == (200, 3_000_000)
    assert node.complete("other")[0] == 404


def test_the_socket_of_the_router_is_for_nginx_alone(node: Node) -> None:
    states = node.run(f"stat -c '%a %G' {gateway_router.RUN} {gateway_router.SOCKET}").split("\n")
    assert states[:2] == ["750 www-data", "660 www-data"]
    user = node.run(f"stat -c %u {gateway_router.SOCKET}").strip()
    assert int(user) >= 61184, "a user that systemd has made for it"


def test_the_memory_of_the_router_is_bounded_by_the_largest_body(node: Node) -> None:
    most = gateway_router.BESIDE_BODIES + gateway_router.BODIES * 64
    shown = node.run(f"systemctl show --property=MemoryMax --value {gateway_router.SERVICE}")
    assert int(shown) == most << 20


def test_a_killed_router_is_started_again_and_a_restart_waits_for_it(node: Node) -> None:
    node.run(f"systemctl kill --signal=KILL {gateway_router.SERVICE}")
    node.wait(f"[ $(systemctl is-active {gateway_router.SERVICE}) = active ]")
    assert node.complete("qwen")[0] == 200
    for _ in range(3):
        node.run(f"systemctl restart {gateway_router.SERVICE}")
        assert node.complete("qwen")[0] == 200


def test_a_closed_unit_is_closed_at_both_paths(node: Node) -> None:
    node.run(f"touch {gateway.RUN}/one.closed")
    try:
        assert (node.complete("qwen")[0], json.loads(node.complete("qwen")[1])["error"]["code"]) == (503, "unit_closed")
    finally:
        node.run(f"rm {gateway.RUN}/one.closed")


def test_a_router_that_is_stopped_leaves_a_reason(node: Node) -> None:
    node.run(f"systemctl stop {gateway_router.SERVICE}")
    try:
        assert json.loads(node.complete("qwen")[1])["error"]["code"] == "router_down"
    finally:
        node.run(f"systemctl start {gateway_router.SERVICE}")
