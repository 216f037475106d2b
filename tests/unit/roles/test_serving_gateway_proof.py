"""The proof of the gateway on a node in a folder: it passes there, and each thing broken fails it. What the gateway
answers is in tests/serving/test_gateway.py."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.model import Rack
from core.verify.reporter import NOTE, CheckReporter, properties_named
from serving import gateway as gateway
from serving import gateway_router as gateway_router
from serving import verify
from serving.desired import served_name
from serving.options import gateway_of, served_units
from tests.unit.model.serving_racks import loaded, text, unit
from tests.unit.ops.shells import stand_in, write
from tests.unit.roles.checked_node import Check, reported


def rack(port: int = 18443) -> Rack:
    declared = {"node": "n0", "port": port, "listen": "local", "keys": {"alice": {"env": "ALICE"}}}
    units = {"one": unit(nodes=["n0"], parallel=None)}
    return loaded(text({}, serving={"units": units, "gateway": declared}))


def node(root: Path, found: Rack) -> Path:
    declared = gateway_of(found)
    assert declared
    for file in (*gateway.files(found, declared), *gateway_router.files(found, declared)):
        write(root, file.path, file.content.decode()).chmod(int(file.mode, 8))
    write(root, gateway.KEYS, r'"~^(?i:Bearer) +\Qa-key-of-a-client\E$" alice;').chmod(0o600)
    certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    write(root, gateway.CERTIFICATE, certificate).chmod(0o600)
    stand_in(root, "stat", f'shift 2; exec {shutil.which("stat")} -c "%a root:root" "$@"')
    answers = "is-active) echo active ;; is-enabled) echo enabled ;; show) echo 4711 ;;"
    stand_in(root, "systemctl", f"case $1 in {answers} esac")
    stand_in(root, "dpkg-query", "echo 1.24.0-2ubuntu7.16")
    return root


SERVICES = [gateway.SERVICE, gateway_router.SERVICE]


@pytest.mark.parametrize(
    ("check", "values"),
    [
        (verify.test_the_files_of_the_gateway_are_those_of_the_rack, {}),
        *((verify.test_the_gateway_runs_and_starts_at_boot, {"service": service}) for service in SERVICES),
        (verify.test_nginx_of_the_gateway_has_no_known_weakness, {}),
    ],
)
def test_a_node_that_is_right_passes(tmp_path: Path, check: Check, values: dict[str, str]) -> None:
    assert reported(check, node(tmp_path, rack()), rack(), **values) == []
    other = rack().nodes["n1"]
    assert reported(check, tmp_path, rack(), node=other, **values) == ["skipped: n1 is not the node of the gateway"]


def test_a_file_of_another_content_or_mode_fails(tmp_path: Path) -> None:
    root = node(tmp_path, rack())
    write(root, gateway.CONFIGURATION, "events {}\n")
    Path(f"{root}{gateway.PROGRAM}").chmod(0o700)
    Path(f"{root}{gateway.SERVICE_FILE}").unlink()
    program, configuration, service = reported(verify.test_the_files_of_the_gateway_are_those_of_the_rack, root, rack())
    assert program.startswith(f"n0: {gateway.PROGRAM} is 700 root:root ")
    assert configuration.startswith(f"n0: {gateway.CONFIGURATION} is 644 root:root ")
    assert service == f"n0: {gateway.SERVICE_FILE} is missing"


@pytest.mark.parametrize("path", [gateway.KEYS, gateway.CERTIFICATE])
def test_a_private_file_that_others_read_or_that_is_missing_fails(tmp_path: Path, path: str) -> None:
    file = Path(f"{node(tmp_path, rack())}{path}")
    check = verify.test_the_files_of_the_gateway_are_those_of_the_rack
    file.chmod(0o640)
    assert reported(check, tmp_path, rack()) == [f"n0: {path} is 640 root:root, wanted 600 root:root"]
    file.unlink()
    assert reported(check, tmp_path, rack()) == [f"n0: {path} is missing, wanted 600 root:root"]


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("case $1 in is-active) echo failed ;; *) echo enabled ;; esac", "failed and enabled"),
        ("case $1 in is-active) echo active ;; *) echo disabled ;; esac", "active and disabled"),
        ("exit 1", "unknown"),
    ],
)
@pytest.mark.parametrize("service", SERVICES)
def test_a_gateway_that_does_not_run_or_does_not_start_at_boot_fails(
    tmp_path: Path, script: str, found: str, service: str
) -> None:
    stand_in(node(tmp_path, rack()), "systemctl", script)
    check = verify.test_the_gateway_runs_and_starts_at_boot
    assert reported(check, tmp_path, rack(), service=service) == [f"n0: {service} is {found}, wanted active, enabled"]


def test_an_nginx_with_a_known_weakness_fails(tmp_path: Path) -> None:
    root = node(tmp_path, rack())
    stand_in(root, "dpkg-query", "echo 1.24.0-2ubuntu7.8")
    (said,) = reported(verify.test_nginx_of_the_gateway_has_no_known_weakness, root, rack())
    assert said.startswith("n0: nginx of Ubuntu 24.04 1.24.0-2ubuntu7.8: one request without a login may run code")
    assert said.endswith("systemctl restart sparkrack-gateway` (nginx.map-regex, docs/reference/advisories.md)")


def test_an_nginx_that_was_replaced_while_it_ran_fails(tmp_path: Path) -> None:
    root = node(tmp_path, rack())
    (root / "proc/4711").mkdir(parents=True)
    (root / "proc/4711/exe").symlink_to("/usr/sbin/nginx (deleted)")
    (said,) = reported(verify.test_nginx_of_the_gateway_has_no_known_weakness, root, rack())
    assert said.startswith("n0: the gateway runs an nginx that was replaced; `systemctl restart")


def test_an_nginx_of_unknown_version_is_a_note(tmp_path: Path) -> None:
    root = node(tmp_path, rack())
    stand_in(root, "dpkg-query", "exit 1")
    noted: list[tuple[str, object]] = []
    check = verify.test_nginx_of_the_gateway_has_no_known_weakness
    assert reported(check, root, rack(), report=CheckReporter(noted)) == []
    assert properties_named(noted, NOTE) == ("n0: the version of nginx is unknown, so no advisory is looked up",)


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port at which nothing listens, and cannot."""
    with socket.socket() as holder:
        for port in range(18300, 18400):
            with suppress(OSError):
                holder.bind(("127.0.0.1", port))
                break
        yield holder.getsockname()[1]


def test_a_gateway_that_does_not_answer_fails(tmp_path: Path, closed_port: int) -> None:
    found = rack(closed_port)
    (said,) = reported(verify.test_the_gateway_answers_for_each_unit, node(tmp_path, found), found)
    assert said.startswith("n0: the gateway does not answer: ")
    assert said.endswith("Connection refused")


def test_a_gateway_whose_keys_cannot_be_read_fails(tmp_path: Path, closed_port: int) -> None:
    found = rack(closed_port)
    Path(f"{node(tmp_path, found)}{gateway.KEYS}").unlink()
    (said,) = reported(verify.test_the_gateway_answers_for_each_unit, tmp_path, found)
    assert said.startswith("n0: FileNotFoundError: ")


RIGHT = {"without a key": 401, "with another key": 401, "for its metrics": 404}


@pytest.mark.parametrize(
    ("status", "body", "passes"),
    [
        (200, '{"choices": []}', True),
        (200, "<html>", False),
        (500, '{"choices": []}', False),
        (503, "", False),
    ],
)
@pytest.mark.parametrize("how", ["directly", "by its model"])
def test_an_answer_through_the_gateway_has_the_status_and_what_was_asked_for(
    status: int, body: str, passes: bool, how: str
) -> None:
    found = rack()
    good = [200, '{"choices": []}']
    models = json.dumps({"data": [{"id": served_name(served_units(found)["one"])}]})
    answers = {"directly": good, "by its model": good, **RIGHT, how: [status, body]}
    shown = json.dumps({"certificate": True, "models": [200, models], "one": answers})
    machine = SimpleNamespace(run=lambda _: SimpleNamespace(rc=0, stdout=shown, stderr=""))
    reporter = CheckReporter([])
    with (
        nullcontext() if passes else pytest.raises(AssertionError, match=f"of unit one {how} has HTTP status {status}")
    ):
        verify.test_the_gateway_answers_for_each_unit(found.nodes["n0"], machine, found, reporter)
