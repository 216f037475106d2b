"""Whole runs of the role on nodes in folders: who sends to whom, keys and certificates, and what a run refuses."""

from __future__ import annotations

import getpass
import grp
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyinfra.connectors.util import CommandOutput, OutputLine

from core.model import Rack, load
from core.ops import host_facts
from roles.blackbox import certificate_authority, journal_stream, netconsole, stream_facts, stream_routes
from roles.blackbox.certificate_authority import CERTIFICATE, KEY
from sparkrack.cli.main import sparkrack
from tests.tiers import sampled
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.ops import fakenode
from tests.unit.ops.shells import calls, run, stand_in, write
from tests.unit.roles.cases import DEPLOYS, OPERATIONS, node_of, read

SYSTEMCTL = """
units=@ROOT@/units
mkdir -p "$units"
[ "$1" != --no-reload ] || shift
verb=$1; shift
case $verb in
show)
    shift
    for unit in "$@"; do
        load=not-found active=inactive file=
        [ ! -e @ROOT@/etc/systemd/system/$unit ] && [ ! -e @ROOT@/usr/lib/systemd/system/$unit ] || load=loaded
        [ ! -e "$units/$unit.active" ] || active=active
        [ ! -e "$units/$unit.enabled" ] || file=enabled
        printf 'Id=%s\\nLoadState=%s\\nActiveState=%s\\nUnitFileState=%s\\nNeedDaemonReload=no\\n\\n' \
            "$unit" "$load" "$active" "$file"
    done ;;
enable) : > "$units/$2.enabled" ;;
restart) : > "$units/$1.active" ;;
start)
    target=@ROOT@/sys/kernel/config/netconsole/sparkrack
    mkdir -p "$target"
    read -r _ local remote << END
$(grep ^ExecStart= @ROOT@/etc/systemd/system/$1)
END
    echo 1 > "$target/enabled"; echo 1 > "$target/extended"
    echo "$local" > "$target/local_ip"; echo "$remote" > "$target/remote_ip"
    echo "5 4 1 7" > @ROOT@/proc/sys/kernel/printk ;;
stop) rm -f "$units/$1.active" ;;
esac
"""
APT_GET = """
mkdir -p @ROOT@/usr/lib/systemd/system
: > @ROOT@/usr/lib/systemd/systemd-journal-upload
chmod 755 @ROOT@/usr/lib/systemd/systemd-journal-upload
: > @ROOT@/usr/lib/systemd/system/systemd-journal-upload.service
"""
ACCOUNT = f"{getpass.getuser()}:{grp.getgrgid(os.getgid()).gr_name}"


class World:
    """A rack with two nodes in folders, and its rack.yaml in another."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = root / "rack"
        self.folder.mkdir()
        self.roots = {name: root / name for name in ("spark1", "spark2")}
        for name, place in self.roots.items():
            (place / "etc").mkdir(parents=True)
            (place / "run").mkdir()
            for tool, script in (
                ("systemctl", SYSTEMCTL),
                ("apt-get", APT_GET),
                ("apt-cache", "echo 'systemd-journal-remote | 255.4-1ubuntu8 | http://ports.ubuntu.com'"),
                ("dpkg", "exit 0"),
                ("systemd-analyze", "exit 0"),
                ("chown", "exit 0"),
                ("uname", "echo 6.17"),
                ("ip", f"echo '2: enP7s7    inet 10.77.0.1{name[-1]}/24 brd 10.77.0.255 scope global enP7s7'"),
            ):
                stand_in(place, tool, script.replace("@ROOT@", str(place)))
            write(place, "/proc/sys/kernel/printk", "4 4 1 7\n")
            (place / "sys/kernel/config/netconsole").mkdir(parents=True)
        self.sent: dict[str, list[str]] = {name: [] for name in self.roots}
        self.declare("remote: tls")
        patch.setattr(fakenode.Node, "run_shell_command", self._make_connector())

    @property
    def rack(self) -> Rack:
        return load(self.folder / "rack.yaml")

    def declare(self, section: str) -> None:
        text = changed(SWITCH, ("rack: two\n", f"rack: two\nblackbox: {{clock_cap: {{asus: 2200}}, {section}}}\n"))
        (self.folder / "rack.yaml").write_text(text)

    def _make_connector(self) -> Any:
        def run_shell_command(self_: fakenode.Node, command: Any, *_: Any, **__: Any) -> tuple[bool, CommandOutput]:
            name = self_.host.data.node.name
            if fakenode.is_probe(command.get_raw_value()):
                lines = fakenode.answer(self.facts(name))
                return True, CommandOutput([OutputLine("stdout", line) for line in lines])
            self.sent[name].append(command.get_raw_value())
            done = run(command, self.roots[name])
            return not done.returncode, CommandOutput([OutputLine("stderr", one) for one in done.stderr.splitlines()])

        return run_shell_command

    def facts(self, name: str) -> Mapping[str, Any]:
        """The answers of a node that has the rest of the role, and what its folder has of streams."""
        root = self.roots[name]
        found: dict[str, Any] = node_of("blackbox") | read(OPERATIONS / "blackbox.set.yaml")
        if name == "spark2":  # it has no cap
            found["/etc/systemd/system/sparkrack-clock-cap.service"] = None
            capped, usual = (
                next(block for block in answers["blackbox-units"].split("\n\n") if "clock-cap" in block)
                for answers in (found, node_of("blackbox"))
            )
            found["blackbox-units"] = found["blackbox-units"].replace(capped, usual)
        for path in stream_facts.PATHS:
            file = root / path.lstrip("/")
            found[path] = file.read_bytes() if file.exists() else None
        for key in stream_facts.COMMANDS:
            done = run(host_facts._registered["blackbox"].commands[key], root)
            assert done.returncode == 0, done.stderr
            shown = done.stdout.replace(str(root), "").replace(ACCOUNT, "root:root")
            found[key] = shown
        return found

    def run(self, mode: str = "yes") -> fakenode.Ended:
        self.sent = {name: [] for name in self.roots}
        rack = self.rack
        hosts = {
            name: {"rack": rack, "node": node, "answers": fakenode.Answers({})} for name, node in rack.nodes.items()
        }
        return fakenode.run(hosts, DEPLOYS["blackbox"], mode, diff=True)

    def file(self, node: str, path: str) -> Path:
        return self.roots[node] / path.lstrip("/")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


@pytest.fixture
def applied(world: World) -> World:
    """The same after a run."""
    ended = world.run()
    assert ended.failed == [], ended.log
    return world


def restarted(world: World, node: str) -> list[str]:
    return [call.split()[-1] for call in calls(world.roots[node]) if call.startswith("systemctl restart")]


def test_the_first_run_certifies_both_nodes(world: World) -> None:
    plan = world.run("dry")
    assert plan.failed == [], plan.log
    for line in (
        "install systemd-journal-remote",
        f"make the key pair {journal_stream.KEY}: there is none",
        f"write {journal_stream.CERTIFICATE}: signed by the rack's CA, which is made beside rack.yaml",
        f"start {journal_stream.RECEIVE}",
        f"start {journal_stream.UPLOAD}",
    ):
        assert line in plan.log, line
    assert not (world.folder / KEY).exists(), "a plan writes nothing"
    assert world.sent == {"spark1": [], "spark2": []}
    ended = world.run()
    assert ended.failed == [], ended.log
    assert stat.S_IMODE((world.folder / KEY).stat().st_mode) == 0o600
    for node, other in (("spark1", "10.77.0.12"), ("spark2", "10.77.0.11")):
        found = world.file(node, journal_stream.CERTIFICATE).read_bytes()
        ca = world.file(node, journal_stream.AUTHORITY).read_bytes()
        assert ca == (world.folder / CERTIFICATE).read_bytes()
        facts = stream_facts.StreamFacts(host_facts.HostReading({}, {}), world.rack, world.rack.nodes[node])
        public = stream_facts.StreamFacts(
            host_facts.HostReading({stream_facts.STATE: str(world.facts(node)[stream_facts.STATE]).encode()}, {}),
            facts.rack,
            facts.node,
        ).public
        address = stream_routes.address(world.rack.nodes[node])
        assert certificate_authority.node_fault(found, ca, public, node, address) == ""
        settings = world.file(node, journal_stream.UPLOAD_SETTINGS).read_text()
        assert f"URL=https://{other}:19532\n" in settings
        assert restarted(world, node) == [journal_stream.RECEIVE, journal_stream.UPLOAD]


def test_a_second_run_changes_nothing_and_needs_no_key(applied: World) -> None:
    (applied.folder / KEY).unlink()
    ended = applied.run()
    assert (ended.failed, ended.changing) == ([], 0), ended.log
    assert applied.sent == {"spark1": [], "spark2": []}


def test_no_private_key_is_in_a_command_an_answer_or_a_log(world: World) -> None:
    log = world.run("asked").log
    secrets = [(world.folder / KEY).read_text(), *(world.file(n, journal_stream.KEY).read_text() for n in world.roots)]
    seen = log + "".join(text for texts in world.sent.values() for text in texts)
    seen += "".join(str(value) for name in world.roots for value in world.facts(name).values())
    for secret in secrets:
        line = secret.splitlines()[1]
        assert len(line) > 40
        assert line not in seen
    assert journal_stream.KEY not in stream_facts.PATHS


def test_a_node_that_needs_a_certificate_needs_the_key_of_the_ca(applied: World) -> None:
    (applied.folder / KEY).unlink()
    applied.file("spark2", journal_stream.CERTIFICATE).unlink()
    for mode in ("dry", "yes"):
        ended = applied.run(mode)
        assert ended.failed == ["spark2"]
        assert f"{KEY} is missing, and the node needs a certificate; copy it from the machine that made it" in ended.log
        assert applied.sent == {"spark1": [], "spark2": []}
    assert not applied.file("spark2", journal_stream.CERTIFICATE).exists()


def test_a_machine_without_the_ca_makes_no_second_one(applied: World) -> None:
    for name in (KEY, CERTIFICATE):
        (applied.folder / name).unlink()
    ended = applied.run()
    assert ended.failed == ["spark1", "spark2"]
    assert f"{CERTIFICATE} is missing; copy {CERTIFICATE} and {KEY} from the machine that made them" in ended.log
    assert not (applied.folder / KEY).exists()


def test_another_ca_gives_all_nodes_new_certificates(applied: World) -> None:
    """What the messages about a CA that is lost, or about to end, tell the operator to remove, and nothing else."""
    words = certificate_authority.ANOTHER_CA
    old = (applied.folder / CERTIFICATE).read_bytes()
    for name in (KEY, CERTIFICATE):
        assert name in words
        (applied.folder / name).unlink()
    assert f"{journal_stream.AUTHORITY} on every node" in words
    for node in applied.roots:
        applied.file(node, journal_stream.AUTHORITY).unlink()
    ended = applied.run()
    assert ended.failed == [], ended.log
    new = (applied.folder / CERTIFICATE).read_bytes()
    assert new != old
    for node in applied.roots:
        assert applied.file(node, journal_stream.AUTHORITY).read_bytes() == new
        assert restarted(applied, node) == [journal_stream.RECEIVE, journal_stream.UPLOAD] * 2
    assert applied.run().changing == 0


@pytest.mark.parametrize("missing", [(KEY,), (CERTIFICATE, KEY)])
def test_a_lost_ca_is_reported_with_all_that_replaces_it(applied: World, missing: tuple[str, ...]) -> None:
    for name in missing:
        (applied.folder / name).unlink()
    applied.file("spark2", journal_stream.CERTIFICATE).unlink()
    assert certificate_authority.ANOTHER_CA in applied.run("dry").log


def broken(world: World, what: str) -> None:
    """Break one thing of spark1."""
    match what:
        case "certificate":
            shutil.copyfile(
                world.file("spark2", journal_stream.CERTIFICATE), world.file("spark1", journal_stream.CERTIFICATE)
            )
        case "key":
            world.file("spark1", journal_stream.KEY).unlink()
        case "mode of the key":
            world.file("spark1", journal_stream.KEY).chmod(0o644)
        case "authority":
            world.file("spark1", journal_stream.AUTHORITY).write_text("x")
        case "mode of the certificate":
            world.file("spark1", journal_stream.CERTIFICATE).chmod(0o666)
        case "stopped":
            (world.roots["spark1"] / f"units/{journal_stream.UPLOAD}.active").unlink()
        case "disabled":
            (world.roots["spark1"] / f"units/{journal_stream.RECEIVE}.enabled").unlink()
        case "pending":
            run("mkdir -p /run/sparkrack; : > /run/sparkrack/blackbox-receive.pending", world.roots["spark1"])
        case path:
            world.file("spark1", path).write_text("x")


BOTH = [journal_stream.RECEIVE, journal_stream.UPLOAD]


REPAIRED: list[tuple[str, list[str]]] = [
    ("certificate", BOTH),
    ("key", BOTH),
    ("mode of the key", []),
    ("authority", BOTH),
    ("mode of the certificate", BOTH),
    ("stopped", [journal_stream.UPLOAD]),
    ("disabled", []),
    ("pending", [journal_stream.RECEIVE]),
    (journal_stream.UPLOAD_SETTINGS, [journal_stream.UPLOAD]),
    (journal_stream.UPLOAD_DROPIN, [journal_stream.UPLOAD]),
    (journal_stream.PROGRAM, [journal_stream.RECEIVE]),
    (journal_stream.RECEIVER_PATHS[1], [journal_stream.RECEIVE]),
]


@pytest.mark.parametrize("case", sampled(REPAIRED, of=4, name=lambda case: str(case[0])))
def test_what_is_repaired(applied: World, case: tuple[str, list[str]]) -> None:
    """A run repairs it, restarts what has to read it, and then has nothing to do."""
    what, starts = case
    before = len(restarted(applied, "spark1"))
    broken(applied, what)
    planned = applied.run("dry")
    assert planned.changing > 0
    ended = applied.run()
    assert ended.failed == [], ended.log
    assert restarted(applied, "spark1")[before:] == starts
    assert applied.sent["spark2"] == []
    assert applied.run().changing == 0


def test_a_stream_that_is_no_longer_declared_is_removed(applied: World) -> None:
    received = applied.file("spark1", f"{journal_stream.RECEIVED}/remote-spark2.journal")
    received.parent.mkdir(parents=True)
    received.write_text("evidence")
    applied.declare("remote: false")
    ended = applied.run()
    assert ended.failed == [], ended.log
    for path in (*stream_facts.PATHS, journal_stream.KEY, journal_stream.FOLDER):
        assert not applied.file("spark1", path).exists(), path
    assert f"systemctl stop {journal_stream.UPLOAD}" in calls(applied.roots["spark1"])
    assert received.read_text() == "evidence"
    assert applied.run().changing == 0


def test_plain_after_tls_needs_no_certificates(applied: World) -> None:
    applied.declare("remote: plain")
    ended = applied.run()
    assert ended.failed == [], ended.log
    assert "its journal goes to spark2 unencrypted (blackbox.remote: plain)" in ended.log
    assert not applied.file("spark1", journal_stream.FOLDER).exists()
    assert "LoadCredential" not in applied.file("spark1", journal_stream.UPLOAD_DROPIN).read_text()
    assert applied.run().changing == 0


NETCONSOLE_PATHS = (*netconsole.SENDER_PATHS, *netconsole.RECEIVER_PATHS)


def test_kernel_messages_are_sent_and_stop(world: World) -> None:
    world.declare("netconsole: plain")
    assert f"start {netconsole.SERVICE}" in world.run("dry").log
    ended = world.run()
    assert ended.failed == [], ended.log
    assert "messages of its kernel go to spark1 unencrypted" in ended.log
    for path in NETCONSOLE_PATHS:
        assert world.file("spark2", path).exists(), path
    assert restarted(world, "spark2") == [netconsole.RECEIVE, netconsole.TIMER]
    assert not world.file("spark2", journal_stream.UPLOAD_SETTINGS).exists()
    assert world.run().changing == 0
    for field, value in (("enabled", "0"), ("remote_ip", "10.77.0.99")):
        file = world.file("spark2", f"/sys/kernel/config/netconsole/sparkrack/{field}")
        file.write_text(f"{value}\n")
        ended = world.run()
        assert [text.rpartition("; ")[2] for text in world.sent["spark2"]] == [f"systemctl start {netconsole.SERVICE}"]
        assert world.run().changing == 0, field
    write(world.roots["spark2"], "/usr/local/lib/sparkrack/netconsole-target", "#!/bin/sh\necho $1 > $0.off\n")
    world.file("spark2", netconsole.PROGRAM).chmod(0o755)
    world.declare("remote: false")
    ended = world.run()
    assert ended.failed == [], ended.log
    assert world.file("spark2", f"{netconsole.PROGRAM}.off").read_text() == "--off\n"
    assert [path for path in NETCONSOLE_PATHS if world.file("spark2", path).exists()] == []
    assert world.run().changing == 0


CAPS = "clock_cap: {asus: 2200}"


@pytest.mark.parametrize(
    ("section", "server"), [("{}", "spark1"), (f"{{{CAPS}}}", "spark2"), (f"{{{CAPS}, server: spark1}}", "spark1")]
)
def test_who_receives(section: str, server: str) -> None:
    rack = loaded(changed(SWITCH, ("rack: two\n", f"rack: two\nblackbox: {section}\n")))
    other = {"spark1": "spark2", "spark2": "spark1"}[server]
    assert stream_routes.server(rack).name == server
    found = {name: stream_routes.receiver(rack, node) for name, node in rack.nodes.items()}
    assert {name: to.name for name, to in found.items() if to} == {server: other, other: server}
    assert [node.name for node in stream_routes.senders(rack, rack.nodes[server])] == [other]


def test_the_last_node_as_server_sends_to_the_first() -> None:
    more = "  spark3:\n    address: 10.77.0.13\n    vendor: lenovo\n    ports: {1: crs812/qsfp56-dd-1-5}\nswitches:\n"
    text = changed(SWITCH, ("switches:\n", more), ("rack: two\n", "rack: two\nblackbox: {server: spark3}\n"))
    rack = loaded(text.replace("\n\n", "\n"))
    to = {name: stream_routes.receiver(rack, node) for name, node in rack.nodes.items()}
    assert {name: one.name for name, one in to.items() if one} == {
        "spark1": "spark3",
        "spark2": "spark3",
        "spark3": "spark1",
    }
    assert [node.name for node in stream_routes.senders(rack, rack.nodes["spark1"])] == ["spark3"]
    assert stream_routes.senders(rack, rack.nodes["spark2"]) == []


def test_nothing_leaves_a_node_by_default() -> None:
    rack = loaded(changed(SWITCH, ("rack: two\n", "rack: two\nblackbox: {}\n")))
    assert [journal_stream.receiver(rack, node) for node in rack.nodes.values()] == [None, None]
    assert [journal_stream.senders(rack, node) for node in rack.nodes.values()] == [[], []]


def test_check_says_what_leaves_unencrypted(world: World) -> None:
    file = str(world.folder / "rack.yaml")
    (world.folder / "id").write_text("")
    for section, keys in (
        ("remote: tls", []),
        ("remote: plain", ["remote"]),
        ("remote: plain, netconsole: plain", ["remote", "netconsole"]),
    ):
        world.declare(section)
        ended = CliRunner().invoke(sparkrack, ["check", "--rack", file])
        assert ended.exit_code == 0, ended.output
        said = [line for line in ended.stderr.splitlines() if "unencrypted" in line]
        assert [line.partition(": blackbox.")[2].partition(":")[0] for line in said] == keys
        assert all(line.startswith(f"warning: {file}:2: ") for line in said)
