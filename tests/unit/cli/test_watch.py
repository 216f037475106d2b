"""`sparkrack watch` without a Prometheus, and the files for a server outside; with one: test_watch_end_to_end.py."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
from click.testing import CliRunner, Result
from ruamel.yaml import YAML

from sparkrack.cli.main import sparkrack
from tests.own_terminal import Terminal
from tests.unit.model.racks import SWITCH, changed

OUTSIDE = "{server: 10.77.0.50, notify: {webhook: {env: WATCH_WEBHOOK}}}"


def ended(folder: Path, section: str, *words: str, environment: Mapping[str, str] | None = None) -> Result:
    file = folder / "rack.yaml"
    file.write_text(changed(SWITCH, ("rack: two", f"rack: two\nwatch: {section}")) if section else SWITCH)
    return CliRunner().invoke(
        sparkrack, ["watch", "--rack", str(file), *words], catch_exceptions=False, env=dict(environment or {})
    )


def test_a_rack_that_declares_none(tmp_path: Path) -> None:
    done = ended(tmp_path, "")
    assert done.exit_code == 1
    assert "has no section watch; docs/roles/watch.md has an example" in done.output


def test_a_prometheus_that_is_not_there(tmp_path: Path) -> None:
    done = ended(tmp_path, "{}", "--url", "http://127.0.0.1:1")
    assert done.exit_code == 1
    assert "Error: http://127.0.0.1:1: connection refused" in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>", "the answer is not that of Prometheus"),
        (b"[]", "query: unexpected answer"),
        (b'{"status": "success", "data": null}', "query: unexpected answer"),
        (b'{"status": "success", "data": {"result": [{"metric": 3}]}}', "query: unexpected answer"),
        (b'{"status": "error", "error": "too many samples"}', "query: too many samples"),
        (b'{"status": "success", "data": {"result": [{"metric": {}, "value": [1]}]}}', "alerts: unexpected answer"),
    ],
)
def test_something_else_answers(tmp_path: Path, body: bytes, said: str) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        done = ended(tmp_path, "{}", "--once", "--url", f"http://127.0.0.1:{server.server_address[1]}")
    finally:
        server.shutdown()
        server.server_close()
    assert done.exit_code == 1
    assert said in done.output
    assert "Traceback" not in done.output


class Prometheus:
    """A server that answers each query as Prometheus does, with no series; those that contain a word, with an error."""

    def __init__(self, *refused: str, port: int = 0) -> None:
        def answer(path: str) -> dict[str, Any]:
            asked = parse_qs(urlparse(path).query).get("query", [urlparse(path).path])[0]
            if any(word in asked for word in refused):
                return {"status": "error", "error": "query timed out"}
            return {"status": "success", "data": {"alerts": [], "result": []}}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(answer(self.path)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.mark.parametrize(
    ("word", "part"),
    [("sparkrack_gpu_power_watts", "nodes: gpu_power"), ("/alerts", "alerts"), ('(up{job="node"', "nodes: up")],
)
def test_a_query_that_fails_is_unknown_and_the_others_are_shown(tmp_path: Path, word: str, part: str) -> None:
    with Prometheus(word) as server:
        done = ended(tmp_path, "{}", "--once", "--url", server.url)
        assert done.exit_code == 1
        assert f"unknown: {part}: " in done.output
        assert "query timed out" in done.output
        assert "spark1" in done.output
        found = json.loads(ended(tmp_path, "{}", "--json", "--url", server.url).output)
        assert [(one["part"], "query timed out" in one["reason"]) for one in found["unread"]] == [(part, True)]
    with Prometheus() as server:
        assert json.loads(ended(tmp_path, "{}", "--json", "--url", server.url).output)["unread"] == []


def test_the_live_screen_outlives_a_prometheus_that_does_not_answer(tmp_path: Path) -> None:
    """It says so, and shows the rack when there is an answer again; the exit code is of what was shown last."""
    file = tmp_path / "rack.yaml"
    file.write_text(changed(SWITCH, ("rack: two", "rack: two\nwatch: {}")))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    words = [sys.executable, "-m", "sparkrack.cli.main", "watch", "--rack", str(file), "--url", url]
    with Terminal(words) as terminal:
        terminal.until("connection refused")
        with Prometheus(port=int(url.rpartition(":")[2])):
            terminal.until("0 of 2 nodes answer")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.finish() == 1
        assert "Traceback" not in terminal.shown


@pytest.mark.parametrize(
    "words",
    [
        ("--files", "a", "--once"),
        ("--files", "a", "--url", "http://127.0.0.1:1"),
        ("--files", "a", "--json"),
        ("--files", "a", "--limit", "spark1"),
        ("--dashboards", "a", "--html", "b"),
        ("--dashboards", "a", "--quiet"),
        ("--html", "b", "--files", "a"),
        ("--exclude", "spark1", "--dashboards", "a"),
    ],
)
def test_options_that_would_be_ignored_are_refused(
    tmp_path: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = ended(tmp_path, "{}", *words)
    assert done.exit_code == 1
    assert "write files and ask nothing" in done.output
    assert not Path("a").exists()


def test_files_for_a_server_outside(tmp_path: Path) -> None:
    """Nothing is asked; only their owner reads them."""
    folder = tmp_path / "files"
    secret = {"WATCH_WEBHOOK": "http://hooks.example.org/s3cret"}
    done = ended(tmp_path, OUTSIDE, "--files", str(folder), environment=secret)
    assert done.exit_code == 0, done.output
    names = ("sparkrack-rules.yml", "sparkrack.yml", "sparkrack-alertmanager.yml")
    assert done.output.split() == [str(folder / name) for name in names]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert "s3cret" in (folder / "sparkrack-alertmanager.yml").read_text()
    assert "s3cret" not in done.output
    assert "10.77.0.50:9090" in (folder / "sparkrack.yml").read_text()


def test_files_without_their_secret(tmp_path: Path) -> None:
    environment = {"WATCH_WEBHOOK": ""} if "WATCH_WEBHOOK" in os.environ else {}
    done = ended(tmp_path, OUTSIDE, "--files", str(tmp_path / "files"), environment=environment)
    assert done.exit_code == 1
    assert "environment variable WATCH_WEBHOOK" in done.output
    assert not (tmp_path / "files").exists()


def test_files_with_a_webhook_that_is_not_an_url(tmp_path: Path) -> None:
    done = ended(tmp_path, OUTSIDE, "--files", str(tmp_path / "files"), environment={"WATCH_WEBHOOK": "hooks/s3cret"})
    assert done.exit_code == 1
    assert "watch.notify.webhook: environment variable WATCH_WEBHOOK does not give the URL" in done.output
    assert "s3cret" not in done.output
    assert not (tmp_path / "files").exists()


@pytest.mark.parametrize(
    ("notify", "warned"),
    [
        ("", False),
        ("notify: {webhook: {env: WATCH_WEBHOOK}}", True),
        ("notify: {webhook: {env: WATCH_WEBHOOK}, heartbeat: {env: WATCH_HEARTBEAT}}", False),
    ],
)
def test_check_warns_of_alerts_whose_end_nothing_outside_notices(tmp_path: Path, notify: str, warned: bool) -> None:
    file = tmp_path / "rack.yaml"
    file.write_text(changed(SWITCH, ("rack: two", f"rack: two\nwatch: {{{notify}}}")))
    done = CliRunner().invoke(sparkrack, ["check", "--rack", str(file)], catch_exceptions=False)
    assert done.exit_code == 0
    line = "warning: " + str(file) + ":2: watch.notify: nothing outside of the rack notices when the server is off"
    assert (line in done.stderr) == warned, done.stderr


def test_a_heartbeat_that_is_not_an_url_is_refused(tmp_path: Path) -> None:
    section = "{server: 10.77.0.50, notify: {webhook: {env: WATCH_WEBHOOK}, heartbeat: {env: WATCH_HEARTBEAT}}}"
    secrets = {"WATCH_WEBHOOK": "http://hooks.example.org/x", "WATCH_HEARTBEAT": "beats/s3cret"}
    done = ended(tmp_path, section, "--files", str(tmp_path / "files"), environment=secrets)
    assert done.exit_code == 1
    assert "watch.notify.heartbeat: environment variable WATCH_HEARTBEAT does not give the URL" in done.output
    assert "s3cret" not in done.output


def test_dashboards_for_a_grafana(tmp_path: Path) -> None:
    """Each has a name of its own, and its pictures do not overlap; their expressions: test_watch_dashboards.py."""
    folder = tmp_path / "grafana"
    done = ended(tmp_path, "{server: spark2}", "--dashboards", str(folder))
    assert done.exit_code == 0, done.output
    made = [json.loads(path.read_text()) for path in sorted((folder / "dashboards").iterdir())]
    names = ("blackbox", "engines", "fabric", "node", "rack", "switch")
    assert sorted(one["uid"] for one in made) == [f"sparkrack-{name}" for name in names]
    for one in made:
        places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in one["panels"]}
        assert len(places) == len({panel["id"] for panel in one["panels"]}) == len(one["panels"])
        asked = any("$node" in target["expr"] for panel in one["panels"] for target in panel["targets"])
        assert asked == bool(one["templating"].get("list"))
    source = YAML(typ="safe").load(folder / "provisioning/datasources/sparkrack.yaml")["datasources"][0]
    assert source["url"] == "http://127.0.0.1:9090"
    used = {panel["datasource"]["uid"] for one in made for panel in one["panels"]}
    assert used == {source["uid"]}
    provider = YAML(typ="safe").load(folder / "provisioning/dashboards/sparkrack.yaml")["providers"][0]
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards/sparkrack"
