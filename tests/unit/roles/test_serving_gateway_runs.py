"""Whole runs with a gateway on nodes in folders: what is installed, renewed and removed, and what a run refuses."""

from __future__ import annotations

import datetime
import json
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from serving import gateway as gateway
from serving import gateway_certificate as gateway_certificate
from serving import gateway_router as gateway_router
from serving.options import gateway_of
from serving.services import GATEWAY, ROUTER, SERVICES
from tests.unit.model.serving_racks import unit
from tests.unit.ops.shells import write
from tests.unit.roles.serving_nodes import ServingNode, ServingWorld
from tests.unit.roles.serving_units import KEY

CLIENT = "client-quiet-horse-1234"
SERVICE = gateway.SERVICE


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServingWorld:
    """Two nodes with a unit, and a gateway on the second node."""
    monkeypatch.setenv("UNIT_KEY", KEY)
    monkeypatch.setenv("ALICE", CLIENT)
    made = ServingWorld(tmp_path, monkeypatch)
    declare(made)
    return made


def declare(world: ServingWorld, served: bool = True, **keys: Any) -> None:
    """Write rack.yaml with a gateway that has these keys besides; without any where `node` is None. `served`: a
    unit."""
    own = unit(api={"port": 8000, "listen": "management", "key": {"env": "UNIT_KEY"}})
    whole = {"node": "n1", "keys": {"alice": {"env": "ALICE"}}, **keys}
    units = {"one": own} if served else {}
    sections: dict[str, Any] = {"serving": {"units": units, **({"gateway": whole} if whole["node"] else {})}}
    world.write(units, **sections)


@pytest.fixture
def alone(world: ServingWorld) -> ServingWorld:
    """The same without a unit."""
    declare(world, served=False)
    return world


@pytest.fixture
def installed(alone: ServingWorld) -> ServingWorld:
    """The same after a run."""
    ended = alone.run(only=("n1",))
    assert ended.failed == [], ended.log
    alone.forget()
    return alone


def place(node: ServingNode, path: str) -> Path:
    return node.root / path.lstrip("/")


def wanted(node: ServingNode, service: str) -> Path:
    """The link by which a service starts at boot."""
    return place(node, f"/etc/systemd/system/multi-user.target.wants/{service}")


def sent(world: ServingWorld) -> list[int]:
    return [len(node.changes) for node in world.nodes.values()]


def pem(node: ServingNode) -> x509.Certificate:
    return x509.load_pem_x509_certificate(place(node, gateway.CERTIFICATE).read_bytes())


@pytest.mark.parametrize(("key", "sent_on"), [({"key": {"env": "UNIT_KEY"}}, "$gateway_key_one"), ({}, '""')])
def test_the_key_of_a_client_is_replaced_by_that_of_the_unit_or_by_none(
    world: ServingWorld, key: dict[str, Any], sent_on: str
) -> None:
    units = {"one": unit(api={"port": 8000, "listen": "management", **key})}
    world.write(units, serving={"units": units, "gateway": {"node": "n1", "keys": {"alice": {"env": "ALICE"}}}})
    declared = gateway_of(world.rack)
    assert declared
    files = {file.path: file.content.decode() for file in gateway.files(world.rack, declared)}
    assert f"proxy_set_header Authorization {sent_on};" in files[gateway.CONFIGURATION]


def test_the_first_run_installs_the_gateway_on_its_node(world: ServingWorld) -> None:
    plan = world.run("dry").log
    for line in ("install nginx", f"write {gateway.CONFIGURATION}", f"write {gateway.KEYS}", f"start {SERVICE}"):
        assert line in plan, line
    assert world.nodes["n1"].changes == []
    ended = world.run()
    assert ended.failed == [], ended.log
    n0, n1 = world.nodes.values()
    for path in (*GATEWAY.paths, *ROUTER.paths):
        assert not place(n0, path).exists()
        assert place(n1, path).exists(), path
    assert not place(n1, gateway.INSTALLING).exists()
    modes = {gateway.FOLDER: 0o700, gateway.KEYS: 0o600, gateway.CERTIFICATE: 0o600, gateway.PROGRAM: 0o755}
    for path, mode in modes.items():
        assert stat.S_IMODE(place(n1, path).stat().st_mode) == mode, path
    keys = place(n1, gateway.KEYS).read_text()
    assert f'"~^(?i:Bearer) +\\Q{CLIENT}\\E$" alice;' in keys
    assert f'geo $gateway_key_one {{\n    default "Bearer {KEY}";\n}}' in keys
    assert (
        f"proxy_pass http://{world.rack.nodes['n0'].address}:8000/v1/;" in place(n1, gateway.CONFIGURATION).read_text()
    )
    called = n1.calls("systemctl", "nginx")
    for one, other in (
        ("systemctl --runtime mask --quiet nginx.service", "systemctl disable --quiet nginx.service"),
        ("systemctl disable --quiet nginx.service", f"systemctl restart {SERVICE}"),
        (f"systemctl --no-reload enable --quiet {SERVICE}", f"systemctl restart {SERVICE}"),
    ):
        assert called.index(one) < called.index(other)
    assert [call for call in called if call.startswith("nginx -e stderr -t -q -c ")]


def test_a_run_without_changes_is_one_command(installed: ServingWorld) -> None:
    ended = installed.run()
    assert (ended.failed, sent(installed)) == ([], [0, 0])
    assert [len(node.texts) for node in installed.nodes.values()] == [1, 1]
    assert installed.run("dry").changing == 0


def test_no_secret_is_in_a_command_or_a_line(world: ServingWorld) -> None:
    logs = [world.run("dry").log, world.run().log]
    private = place(world.nodes["n1"], gateway.CERTIFICATE).read_text().partition("-----END")[0].splitlines()[1]
    world.patch.setenv("ALICE", "another-quiet-horse")
    logs.append(world.run("asked").log)
    scripts = [script for node in world.nodes.values() for script in node.texts]
    for secret in (CLIENT, "another-quiet-horse", KEY, private):
        assert not [text for text in (*logs, *scripts) if secret in text]
    assert f"rewrite {gateway.KEYS}" in logs[2]
    assert "another-quiet-horse" in place(world.nodes["n1"], gateway.KEYS).read_text()


def test_other_keys_are_reloaded(installed: ServingWorld) -> None:
    installed.patch.setenv("ALICE", "another-quiet-horse")
    ended = installed.run()
    assert ended.failed == [], ended.log
    assert f"reload {SERVICE}" in ended.log
    assert installed.nodes["n1"].calls("systemctl") == [f"systemctl reload-or-restart {SERVICE}"]
    assert sent(installed)[0] == 0


def test_an_nginx_of_the_node_stays_as_it_is(alone: ServingWorld) -> None:
    n1 = alone.nodes["n1"]
    n1.shell("apt-get")
    n1.forget()
    ended = alone.run()
    assert ended.failed == [], ended.log
    assert "install nginx" not in ended.log
    assert not [call for call in n1.calls("systemctl", "apt-get") if "nginx.service" in call or "apt-get" in call]


def test_an_interrupted_installation_is_finished(alone: ServingWorld) -> None:
    """Else the server of the package would start at the next boot."""
    n1 = alone.nodes["n1"]
    (n1.root / "apt-fails").touch()
    assert alone.run().failed == ["n1"]
    (n1.root / "apt-fails").unlink()
    n1.shell("apt-get")  # what was installed before the connection was lost
    n1.forget()
    ended = alone.run()
    assert ended.failed == [], ended.log
    assert "install nginx" in ended.log
    assert "systemctl disable --quiet nginx.service" in n1.calls("systemctl")


@pytest.mark.parametrize(
    ("break_it", "line"),
    [
        (lambda n1: place(n1, gateway.CONFIGURATION).write_text("x"), f"rewrite {gateway.CONFIGURATION}"),
        (lambda n1: place(n1, gateway.KEYS).chmod(0o644), f"rewrite {gateway.KEYS}"),
        (lambda n1: place(n1, gateway.KEYS).unlink(), f"write {gateway.KEYS}"),
        (lambda n1: place(n1, gateway.CERTIFICATE).chmod(0o640), f"rewrite {gateway.CERTIFICATE}"),
        (lambda n1: place(n1, gateway.CERTIFICATE).write_text("x"), f"rewrite {gateway.CERTIFICATE}"),
        (lambda n1: place(n1, gateway.PROGRAM).unlink(), f"write {gateway.PROGRAM}"),
        (lambda n1: place(n1, gateway.FOLDER).chmod(0o755), f"{gateway.FOLDER}/: owner and mode are put right"),
        (lambda n1: n1.shell(f"systemctl stop {SERVICE}"), f"start {SERVICE}"),
        (lambda n1: wanted(n1, SERVICE).unlink(), f"enable {SERVICE}"),
        (lambda n1: write(n1.root, GATEWAY.mark), f"restart {SERVICE}: it has not read its files"),
        (lambda n1: place(n1, gateway.SERVICE_FILE).write_text("x"), f"restart {SERVICE}"),
        (lambda n1: place(n1, gateway.NGINX).unlink(), "install nginx"),
        (lambda n1: place(n1, gateway_router.PROGRAM).write_text("x"), f"rewrite {gateway_router.PROGRAM}"),
        (lambda n1: place(n1, gateway_router.MODELS).unlink(), f"restart {gateway_router.SERVICE}"),
        (lambda n1: place(n1, gateway_router.SERVICE_FILE).chmod(0o600), f"rewrite {gateway_router.SERVICE_FILE}"),
        (lambda n1: n1.shell(f"systemctl stop {gateway_router.SERVICE}"), f"start {gateway_router.SERVICE}"),
        (lambda n1: wanted(n1, gateway_router.SERVICE).unlink(), f"enable {gateway_router.SERVICE}"),
        (lambda n1: write(n1.root, ROUTER.mark), f"restart {gateway_router.SERVICE}: it has not read its files"),
    ],
)
def test_each_thing_that_differs_is_put_right(
    installed: ServingWorld, break_it: Callable[[ServingNode], object], line: str
) -> None:
    break_it(installed.nodes["n1"])
    assert line in installed.run("dry").log
    installed.forget()
    ended = installed.run()
    assert ended.failed == [], ended.log
    installed.forget()
    assert (installed.run().failed, sent(installed)) == ([], [0, 0])


def test_the_certificate_of_another_key_is_replaced(installed: ServingWorld) -> None:
    n1 = installed.nodes["n1"]
    file = place(n1, gateway.CERTIFICATE)
    other = gateway_certificate.self_signed_pem(gateway_of(installed.rack), "10.77.0.2")  # type: ignore[arg-type]
    file.write_bytes(file.read_bytes().partition(b"-----BEGIN CERT")[0] + other[other.index(b"-----BEGIN CERT") :])
    assert f"rewrite {gateway.CERTIFICATE}" in installed.run().log


def test_a_self_signed_certificate_is_made_again_for_another_address(installed: ServingWorld) -> None:
    before = pem(installed.nodes["n1"])
    names = before.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == [str(installed.rack.nodes["n1"].address), "n1"]
    assert before.not_valid_after_utc > datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=3600)
    declare(installed, served=False, listen="local", node="n0")
    assert installed.run().failed == []
    after = pem(installed.nodes["n0"]).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in after] == ["127.0.0.1", "n0"]


def test_a_self_signed_certificate_is_renewed_before_its_end(
    installed: ServingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pem(installed.nodes["n1"]).serial_number
    monkeypatch.setattr(gateway_certificate, "RENEWED", datetime.timedelta(days=gateway_certificate.DAYS))
    assert installed.run().failed == []
    assert pem(installed.nodes["n1"]).serial_number != before


def write_declared(folder: Path, world: ServingWorld, **changes: bytes) -> None:
    """A certificate and its key beside rack.yaml, as another program made them."""
    made = gateway_certificate.self_signed_pem(gateway_of(world.rack), "10.77.0.2")  # type: ignore[arg-type]
    key, mark, chain = made.partition(b"-----BEGIN CERT")
    (folder / "gateway.pem").write_bytes(changes.get("chain", mark + chain))
    (folder / "gateway.key").write_bytes(changes.get("key", key))
    (folder / "gateway.key").chmod(0o600)


def test_a_declared_certificate_is_installed_and_renewed(installed: ServingWorld, tmp_path: Path) -> None:
    write_declared(tmp_path, installed)
    declare(installed, served=False, certificate={"chain": "gateway.pem", "key": {"file": "gateway.key"}})
    ended = installed.run()
    assert ended.failed == [], ended.log
    n1 = installed.nodes["n1"]
    whole = (tmp_path / "gateway.key").read_bytes() + (tmp_path / "gateway.pem").read_bytes()
    assert place(n1, gateway.CERTIFICATE).read_bytes() == whole
    installed.forget()
    assert (installed.run().failed, sent(installed)) == ([], [0, 0])
    write_declared(tmp_path, installed)
    assert f"reload {SERVICE}" in installed.run().log
    assert place(n1, gateway.CERTIFICATE).read_bytes() != whole


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"chain": b"x"},
            "certificate.chain: {}/gateway.pem has no certificate in PEM; name a file that begins with it",
        ),
        ({"key": b"x"}, "certificate.key: file {}/gateway.key is not a private key in PEM without a passphrase"),
        (
            {"other": b""},
            "certificate.key: file {}/gateway.key is not the key of the first certificate of {}/gateway.pem",
        ),
    ],
)
def test_a_declared_certificate_that_is_wrong_is_refused(
    alone: ServingWorld, tmp_path: Path, changes: dict[str, bytes], line: str
) -> None:
    write_declared(tmp_path, alone, **changes)
    if "other" in changes:
        chain = (tmp_path / "gateway.pem").read_bytes()
        write_declared(tmp_path, alone, chain=chain)
    declare(alone, served=False, certificate={"chain": "gateway.pem", "key": {"file": "gateway.key"}})
    ended = alone.run("dry")
    assert ended.failed == ["n1"]
    assert re.search(rf"rack\.yaml:\d+: serving\.gateway\.{re.escape(line.replace('{}', str(tmp_path)))}", ended.log)


def test_a_declared_certificate_that_has_expired_or_is_missing_is_refused(
    alone: ServingWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_certificate, "DAYS", -0.5)
    write_declared(tmp_path, alone)
    declare(alone, served=False, certificate={"chain": "gateway.pem", "key": {"file": "gateway.key"}})
    assert "gateway.pem has expired on" in alone.run("dry").log
    (tmp_path / "gateway.pem").unlink()
    assert "gateway.pem cannot be read: No such file or directory; name a file" in alone.run("dry").log


def test_a_declared_certificate_that_is_not_valid_yet_is_refused(
    alone: ServingWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_declared(tmp_path, alone)
    declare(alone, served=False, certificate={"chain": "gateway.pem", "key": {"file": "gateway.key"}})
    (first,) = x509.load_pem_x509_certificates((tmp_path / "gateway.pem").read_bytes())

    class EarlierClock(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> EarlierClock:
            return cls.fromtimestamp(first.not_valid_before_utc.timestamp() - 60, tz)

    monkeypatch.setattr(gateway_certificate, "datetime", EarlierClock)
    day = f"{first.not_valid_before_utc:%Y-%m-%d}"
    assert f"gateway.pem is valid from {day} on; wait, or renew it" in alone.run("dry").log


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("short", "serving.gateway.keys.alice: a key of the gateway has 16 to 512 letters"),
        ("a key with spaces in it", "serving.gateway.keys.alice: a key of the gateway has 16 to 512 letters"),
        ('quoted-"-quiet-horse', "serving.gateway.keys.alice: a key of the gateway has 16 to 512 letters"),
        ("expression-\\E-quiet-horse", "serving.gateway.keys.alice: a key of the gateway has 16 to 512 letters"),
        (None, "serving.gateway.keys.alice: environment variable ALICE is not set; export it before the run"),
    ],
)
def test_a_key_that_cannot_be_used_is_refused_without_it(alone: ServingWorld, key: str | None, line: str) -> None:
    alone.patch.delenv("ALICE") if key is None else alone.patch.setenv("ALICE", key)
    ended = alone.run("dry")
    assert ended.failed == ["n1"]
    assert line in ended.log
    assert key is None or key == "short" or key not in ended.log


def test_one_key_for_two_clients_is_refused(alone: ServingWorld) -> None:
    alone.patch.setenv("BOB", CLIENT)
    declare(alone, served=False, keys={"alice": {"env": "ALICE"}, "bob": {"env": "BOB"}})
    assert "serving.gateway.keys.bob: it is the key of alice, too; write one of its own" in alone.run("dry").log


def test_a_configuration_that_nginx_refuses_is_not_installed(installed: ServingWorld) -> None:
    n1 = installed.nodes["n1"]
    before = place(n1, gateway.CONFIGURATION).read_text()
    (n1.root / "nginx-refuses").touch()
    declare(installed, served=False, body="8M")
    assert installed.run().failed == ["n1"]
    assert place(n1, gateway.CONFIGURATION).read_text() == before
    assert f"systemctl reload-or-restart {SERVICE}" not in n1.calls("systemctl")
    (n1.root / "nginx-refuses").unlink()
    assert installed.run().failed == []
    assert "client_max_body_size 8m;" in place(n1, gateway.CONFIGURATION).read_text()


def test_other_models_restart_the_router_alone(installed: ServingWorld) -> None:
    n1 = installed.nodes["n1"]
    place(n1, gateway_router.MODELS).write_text('{"old": ["old"]}\n')
    installed.forget()
    assert installed.run().failed == []
    assert n1.calls("systemctl") == [f"systemctl restart {gateway_router.SERVICE}"]
    assert json.loads(place(n1, gateway_router.MODELS).read_text()) == {}


@pytest.mark.parametrize("node", [None, "n0"])
def test_a_gateway_that_is_not_declared_there_is_removed(installed: ServingWorld, node: str | None) -> None:
    declare(installed, served=False, node=node)
    assert f"stop and remove {SERVICE}: rack.yaml has none on this node" in installed.run("dry").log
    ended = installed.run()
    assert ended.failed == [], ended.log
    n0, n1 = installed.nodes.values()
    own = [path for service in SERVICES for path in (*service.paths, *service.leftovers, service.mark)]
    left = (*own, gateway.FOLDER, gateway.RUN)
    assert [path for path in left if place(n1, path).exists()] == []
    assert f"systemctl stop {SERVICE}" in n1.calls("systemctl")
    assert f"systemctl stop {gateway_router.SERVICE}" in n1.calls("systemctl")
    assert not list(place(n1, "/etc/systemd/system").rglob("*gateway*"))
    assert place(n1, gateway.NGINX).exists()
    assert place(n0, gateway.CONFIGURATION).exists() == (node == "n0")
    installed.forget()
    assert (installed.run().failed, sent(installed)) == ([], [0, 0])


def test_a_unit_that_stays_closed_is_reported(installed: ServingWorld) -> None:
    closed = place(installed.nodes["n1"], f"{gateway.RUN}/one.closed")
    closed.parent.mkdir(parents=True, exist_ok=True)
    closed.touch()
    ended = installed.run("dry")
    assert f"unit one: closed at the gateway; `{gateway.PROGRAM} open one` there opens it" in ended.log
    assert ended.changing == 0


@pytest.mark.parametrize("after", range(0, 14, 2))
def test_an_interrupted_run_is_finished_by_the_next(installed: ServingWorld, after: int) -> None:
    declare(installed, served=False, body="8M")
    n1 = installed.nodes["n1"]
    for path in (gateway.KEYS, gateway.SERVICE_FILE, gateway.NGINX):
        place(n1, path).unlink()
    n1.lost = after
    assert installed.run().failed == ["n1"] or after >= 8
    n1.lost = None
    installed.forget()
    ended = installed.run()
    assert ended.failed == [], ended.log
    assert not place(n1, GATEWAY.mark).exists()
    installed.forget()
    assert (installed.run().failed, sent(installed)) == ([], [0, 0])


@pytest.mark.parametrize("answer", ["x\n", "certificate ?\n", "certificate AAA\n", "running now\nclosed $(x)\n"])
def test_a_garbled_answer_is_unknown(alone: ServingWorld, answer: str) -> None:
    n1 = alone.nodes["n1"]
    facts = n1.facts
    alone.patch.setattr(n1, "facts", lambda: {**facts(), "serving-gateway-state": answer.encode()})
    ended = alone.run("dry")
    assert ended.failed == ["n1"]
    assert "serving-gateway-state: " in ended.log
