"""The secrets of the role watch: Alertmanager reads each as it was given, what it would refuse is refused before a
change, and none is shown in a plan, a difference, the words of a program, or a file that others may read."""

from __future__ import annotations

import os
import string
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from core.model import Rack
from core.model.secrets import SecretRef
from core.ops.shell import sudo_script
from roles.watch import desired, notifications, scrape, verify
from sparkrack.cli.main import sparkrack
from tests.unit.model.racks import SWITCH, changed
from tests.unit.ops import fakenode
from tests.unit.ops.shells import run, stand_in
from tests.unit.roles.blackbox_node import BlackboxConnector
from tests.unit.roles.watch_node import OTHERWISE, SECRETS, WatchWorld
from tests.unit.roles.watch_server import Server, on_loopback, own_loopback, wait_for  # noqa: F401
from tests.unit.roles.watch_tools import HOOK, PROGRAMS, call, rack, written

MAIL = SecretRef(env="MAIL")
EMAIL = "email: {to: a@example.org, sender: b@example.org, smarthost: 'mail:25', user: a, password: {env: MAIL}}"
NOTIFY = f"{{server: spark1, notify: {{webhook: {{env: WATCH_WEBHOOK}}, {EMAIL}}}}}"
URL = "https://hooks.example.org/t0ken"


@pytest.fixture
def both() -> Rack:
    """A rack that notifies a webhook and a mailbox."""
    return rack(NOTIFY)


def fetched(found: Rack, monkeypatch: pytest.MonkeyPatch, url: str = URL, mail: str = "x") -> dict[SecretRef, str]:
    monkeypatch.setenv("WATCH_WEBHOOK", url)
    monkeypatch.setenv("MAIL", mail)
    return notifications.secret_values(found)


@pytest.mark.parametrize(
    "url",
    [
        "t0ken",
        "ftp://h/t0ken",
        "https://",
        "https:///t0ken",
        "https://h t/t0ken",
        "https://h/t0ken\nx",
        "https://h/t0ken\x7f",
        "https://h/%zzt0ken",
        "https://h:port/t0ken",
        "http://[::t0ken",
        " https://h/t0ken",
        "{{ .t0ken }}",
        "https://h/\N{GRINNING FACE}t0ken",
        "-t0ken",
    ],
)
def test_what_is_not_an_url_is_refused_in_a_line_without_it(
    both: Rack, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    with pytest.raises(
        ValueError, match=r"watch\.notify\.webhook: environment variable WATCH_WEBHOOK does not give"
    ) as said:
        fetched(both, monkeypatch, url)
    assert "t0ken" not in str(said.value)
    assert len(str(said.value).splitlines()) == 1


@pytest.mark.parametrize("password", ["a\nb", "a\x1b[31mb", "a\tb", "a\u2028b"])
def test_a_password_of_several_lines_is_refused(both: Rack, monkeypatch: pytest.MonkeyPatch, password: str) -> None:
    with pytest.raises(ValueError, match=r"watch\.notify\.email\.password: environment variable MAIL gives") as said:
        fetched(both, monkeypatch, mail=password)
    assert len(str(said.value).splitlines()) == 1


ODD = '/t0ken/%20%C3%BC/{{ x }}\'`$(id)|^\\<>;&*?a="b"&c=%25#frag'.replace(" ", "")


@pytest.mark.parametrize(
    "url", [f"http://h{ODD}", "https://u:p%40ss@h.example.org:8443/", "http://[::1]:9/x", "http://h", "http://h?x"]
)
def test_every_url_that_is_taken_is_one_for_alertmanager(
    both: Rack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str
) -> None:
    written(tmp_path, both, fetched(both, monkeypatch, url))
    done = call("amtool", "check-config", tmp_path / "sparkrack-alertmanager.yml")
    assert done.returncode == 0, done.stdout + done.stderr


HOSTILE = (
    *(
        "$HOME",
        "$(id)",
        "`id`",
        "a'b",
        'a"b',
        "a\\nb",
        "%s%n",
        "{{ x }}",
        "-x",
        "- a",
        "--",
        "---",
        "...",
        "# x",
        "a #b",
    ),
    *(
        ": ",
        "a: b",
        "[a",
        "{a",
        "*a",
        "&a",
        "!a",
        "!!binary YQ==",
        "|",
        ">",
        "@a",
        "?",
        ", ",
        "~",
        "null",
        "yes",
        "no",
    ),
    *("true", "017", "0x1f", "1e5", "1_000", "1:30", ".nan", "<<", "=", "2026-01-01", " a ", "ünïcödé", "\u4e2d\u6587"),
    *("\N{GRINNING FACE}", "a  b " * 1500, string.punctuation),
)


def test_alertmanager_reads_the_same_string_back(both: Rack, tmp_path: Path) -> None:
    """As the name of a receiver, which its tool prints; a password is written by the same function."""
    routes = [{"receiver": text, "matchers": [f'n="{number}"']} for number, text in enumerate(HOSTILE)]
    document = {
        "route": {"receiver": "rack", "routes": routes},
        "receivers": [{"name": "rack"}, *({"name": text} for text in HOSTILE)],
    }
    file = tmp_path / "alertmanager.yml"
    file.write_text(scrape.yaml_text(both, document))
    for number, text in enumerate(HOSTILE):
        done = call("amtool", "config", "routes", "test", f"--config.file={file}", f"n={number}")
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{text}\n"


def test_the_url_and_the_password_are_written_by_that_function(both: Rack) -> None:
    for text in HOSTILE:
        made = notifications.alertmanager_text(both, {HOOK: URL, MAIL: text}).decode()
        (receiver,) = parsed(made)["receivers"]
        assert receiver["email_configs"][0]["auth_password"] == text


def parsed(text: str) -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    return found


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """A receiver of alerts: its address, and the paths that were asked for."""
    found: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            found.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}", found
    server.shutdown()
    server.server_close()


def test_alertmanager_asks_for_the_path_that_was_given(
    asked: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With characters of templates, shells and YAML in it. Its log has no secret."""
    path = "/t0ken/{{x}}$(id)'%25%C3%BC?a=b:c&d=~%22"
    found, _ = on_loopback(rack("{notify: {webhook: {env: WATCH_WEBHOOK}}}"))
    monkeypatch.setenv("WATCH_WEBHOOK", f"http://{asked[0]}{path}")
    written(tmp_path, found, notifications.secret_values(found))
    file = tmp_path / "sparkrack-alertmanager.yml"
    file.write_text(file.read_text().replace("group_wait: 10s", "group_wait: 1s"))
    server = Server(found, tmp_path)
    server.start("alertmanager", desired.alertmanager_dropin(found))
    url = f"http://{desired.listen_address(found)}:{desired.ALERTMANAGER_PORT}/api/v2/alerts"

    def post() -> bool:
        body = b'[{"labels": {"alertname": "Test", "severity": "page"}}]'
        try:
            asking = urllib.request.Request(url, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(asking, timeout=60):  # noqa: S310
                return True
        except OSError:
            return False

    try:
        wait_for("Alertmanager takes an alert", post)
        wait_for("the receiver is asked", lambda: asked[1])
    finally:
        server.stop_all()
    assert unquote(asked[1][0]) == unquote(path), "it encodes what need not be in a path"
    assert "t0ken" not in (tmp_path / "alertmanager.log").read_text()


def test_a_file_that_amtool_refuses_is_not_quoted(tmp_path: Path) -> None:
    """amtool's own message has the URL."""
    file = tmp_path / "new"
    file.write_text('route: {receiver: r}\nreceivers: [{name: r, webhook_configs: [{url: "ht tp://h/t0ken"}]}]\n')
    real = call("amtool", "check-config", file)
    assert "t0ken" in real.stdout + real.stderr, "else the check would not have to hide it"
    stand_in(tmp_path, "amtool", f'exec {PROGRAMS}/amtool "$@"')
    done = run(sudo_script(f"new={file}; {notifications.CHECK}; echo taken"), tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "amtool check-config refuses the new file" in done.stderr
    assert "t0ken" not in done.stderr
    file.write_text("route: {receiver: r}\nreceivers: [{name: r}]\n")
    assert run(sudo_script(f"new={file}; {notifications.CHECK}; echo taken"), tmp_path).stdout == "taken\n"


def test_no_secret_is_shown_by_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in its plan with differences, nor in its log, the words of a program, or a file that others may read."""
    monkeypatch.setattr(fakenode, "Node", BlackboxConnector)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    world = WatchWorld(tmp_path / "world", OTHERWISE)
    world.node.install()
    shown = [world.show_differences()]
    ended = world.run()
    assert ended.failed == [], ended.log
    monkeypatch.setenv("OTHER_WEBHOOK", SECRETS["WATCH_WEBHOOK"])
    shown += [ended.log, *world.node.texts, (world.node.root / "calls").read_text(), world.show_differences()]
    assert f"rewrite {desired.NOTIFICATIONS}" in shown[-1]
    used = [SECRETS["OTHER_WEBHOOK"], SECRETS["WATCH_WEBHOOK"], SECRETS["MAIL"], SECRETS["READER"]]
    for text in shown:
        assert not [secret for secret in used if secret in text]
    holding = {
        str(file.relative_to(world.node.root)): f"{file.stat().st_mode & 0o777:o}"
        for file in world.node.root.rglob("*")
        if file.is_file() and any(secret.encode() in file.read_bytes() for secret in used)
    }
    assert holding == {
        "etc/prometheus/sparkrack-alertmanager.yml": "640",
        "etc/sparkrack/watch/switch-passwords.json": "600",
    }


def test_the_files_for_a_server_outside_are_whole(tmp_path: Path) -> None:
    """Prometheus' and Alertmanager's own tools take them; no engine and no switch is asked that it cannot reach."""
    section = f"watch: {{server: 10.77.0.50, notify: {{webhook: {{env: WATCH_WEBHOOK}}, {EMAIL}}}}}"
    (tmp_path / "rack.yaml").write_text(changed(SWITCH, ("rack: two", f"rack: two\n{section}")))
    words = ["watch", "--rack", str(tmp_path / "rack.yaml"), "--files", str(tmp_path / "files")]
    done = CliRunner(env={**os.environ, **SECRETS}).invoke(sparkrack, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert not [secret for secret in SECRETS.values() if secret in done.output]
    etc = tmp_path / "etc"
    etc.mkdir()
    for file in (tmp_path / "files").iterdir():
        (etc / file.name).write_text(file.read_text().replace("/etc/prometheus/", f"{etc}/"))
    for tool in (
        ("promtool", "check", "rules", etc / "sparkrack-rules.yml"),
        ("promtool", "check", "config", etc / "sparkrack.yml"),
        ("amtool", "check-config", etc / "sparkrack-alertmanager.yml"),
    ):
        checked = call(*tool)
        assert checked.returncode == 0, checked.stdout + checked.stderr
    config = parsed((etc / "sparkrack.yml").read_text())
    assert config["alerting"]["alertmanagers"] == [{"static_configs": [{"targets": ["10.77.0.50:9093"]}]}]
    nodes = next(job for job in config["scrape_configs"] if job["job_name"] == "node")["static_configs"]
    assert [one["targets"] for one in nodes] == [["10.77.0.11:9100"], ["10.77.0.12:9100"]]
    assert config["rule_files"] == [f"{etc}/sparkrack-rules.yml"]


def test_a_url_that_alertmanager_would_refuse_writes_no_file(tmp_path: Path) -> None:
    section = "watch: {server: 10.77.0.50, notify: {webhook: {env: WATCH_WEBHOOK}}}"
    (tmp_path / "rack.yaml").write_text(changed(SWITCH, ("rack: two", f"rack: two\n{section}")))
    words = ["watch", "--rack", str(tmp_path / "rack.yaml"), "--files", str(tmp_path / "files")]
    done = CliRunner(env={**os.environ, "WATCH_WEBHOOK": "t0ken"}).invoke(sparkrack, words, catch_exceptions=False)
    assert done.exit_code == 1
    assert "watch.notify.webhook: environment variable WATCH_WEBHOOK does not give the URL of a webhook" in done.output
    assert "t0ken" not in done.output
    assert not (tmp_path / "files").exists()


@pytest.mark.parametrize(
    "running",
    [{"receivers": [{"url": URL}, {"url": URL}]}, {"receivers": [{"url": {"x": URL}}]}, {"receivers": [{"url": URL}]}],
)
def test_a_difference_of_what_runs_shows_no_secret(running: dict[str, Any]) -> None:
    wanted = {"receivers": [{"url": verify.HIDDEN}]}
    assert "t0ken" not in "".join(verify.differences("alertmanager", wanted, running))
    assert list(verify.differences("alertmanager", wanted, {"receivers": [{}]})) == [
        "alertmanager.receivers.0.url is not there, wanted <secret>"
    ]
