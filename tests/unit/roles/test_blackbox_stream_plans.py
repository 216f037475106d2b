"""What each operation of the streams does to a node in each state: the whole changeset as text. No node, no shell.

tests/cases/blackbox/streams.md has the changesets; UPDATE_DOCS=1 renews it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from core.model import Rack, load
from core.ops.host_facts import HostReading
from core.ops.operation import Changeset
from core.probes.protocol import UnknownError
from core.util.managed_file import ManagedFile
from roles.blackbox import journal_stream, netconsole, stream_apply, stream_facts
from roles.blackbox.certificate_authority import RackAuthority
from roles.blackbox.stream_apply import NodeStreams
from tests import generated
from tests.unit.model import serving_racks
from tests.unit.model.racks import SWITCH, changed

CASES = "tests/cases/blackbox/streams.md"
OPERATIONS = (
    stream_apply.install_package,
    stream_apply.make_key,
    stream_apply.certify,
    stream_apply.receive_journals,
    stream_apply.send_journal,
    stream_apply.receive_kernel_messages,
    stream_apply.send_kernel_messages,
    stream_apply.remove_certificates,
)
RUNNING, STOPPED, NONE = "loaded active enabled", "loaded inactive disabled", "not-found inactive "
UNITS = (*stream_facts.ASKED_UNITS,)


@dataclass
class Site:
    """A rack of two nodes in a folder: spark2 receives what spark1 sends, and the other way round."""

    folder: Path
    key: bytes = field(default_factory=lambda: _public_bytes(ec.generate_private_key(ec.SECP256R1())))

    def rack(self, section: str) -> Rack:
        text = changed(SWITCH, ("rack: two\n", f"rack: two\nblackbox: {{{section}}}\n"))
        path = self.folder / "rack.yaml"
        path.write_text(text)
        return load(path)

    @property
    def authority(self) -> RackAuthority:
        return RackAuthority(self.folder, "two")


def _public_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    found = Site(tmp_path_factory.mktemp("site"))
    found.rack("remote: tls")
    found.authority.make()
    return found


@dataclass
class Node:
    """A node that has all as declared, but for what differs. `files`: those with another content; None removes one."""

    section: str = "remote: tls, netconsole: plain"
    name: str = "spark1"
    has: str = "remote: tls, netconsole: plain"
    files: Mapping[str, bytes | None] = field(default_factory=dict)
    modes: Mapping[str, str] = field(default_factory=dict)
    live: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    netconsole: Mapping[str, str] = field(default_factory=dict)
    settings: str = ""
    had_authority: bool = True
    authority: bool = True

    def streams(self, site: Site) -> NodeStreams:
        """The same as facts."""
        has = site.rack(self.has)
        here = has.nodes[self.name]
        (there,) = (node for node in has.nodes.values() if node.name != self.name)
        made: list[ManagedFile] = []
        if to := journal_stream.receiver(has, here):
            made += journal_stream.sender_files(has, to)
        if journal_stream.senders(has, here):
            made += journal_stream.receiver_files(has, here)
        if to := netconsole.receiver(has, here):
            made += netconsole.sender_files(has, here, to)
        if netconsole.senders(has, here):
            made += netconsole.receiver_files(has, here)
        authority = site.authority
        if journal_stream.encrypted(has):
            assert authority.pem
            signed = authority.sign(site.key, here.name, str(here.address))
            made += [
                ManagedFile(journal_stream.AUTHORITY, authority.pem),
                ManagedFile(journal_stream.CERTIFICATE, signed),
            ]
        contents: dict[str, bytes | None] = dict.fromkeys(stream_facts.PATHS)
        contents |= {file.path: file.content for file in made} | dict(self.files)
        modes = {file.path: file.mode for file in made} | dict(self.modes)
        units = {
            journal_stream.UPLOAD: RUNNING if journal_stream.receiver(has, here) else NONE,
            journal_stream.RECEIVE: RUNNING if journal_stream.senders(has, here) else NONE,
            journal_stream.PACKAGE_SOCKET: STOPPED,
            netconsole.TIMER: RUNNING if netconsole.receiver(has, here) else NONE,
            netconsole.RECEIVE: RUNNING if netconsole.senders(has, here) else NONE,
            **self.units,
        }
        live = {
            "upload program": "yes",
            "openssl program": "yes",
            **{f"{name} pending": "no" for name in stream_facts.PENDING},
            **(
                {"key permissions": "600:root:root", "key public": base64.b64encode(site.key).decode()}
                if journal_stream.encrypted(has)
                else {}
            ),
            **self.live,
        }
        target = f"1 {here.address} {there.address} 1" if netconsole.receiver(has, here) else "absent"
        console = {
            "dynamic": "yes",
            "interfaces": f"{here.address}=enP7s7=mlx5_core",
            "target": target,
            "level": "5",
            **self.netconsole,
        }
        texts = {
            stream_facts.STATE: "".join(f"{key} {value}\n" for key, value in live.items() if value != "none"),
            stream_facts.UNITS: "\n".join(_unit_properties(name, *state.split(" ")) for name, state in units.items()),
            stream_facts.NETCONSOLE: "".join(f"netconsole {key} {value}\n" for key, value in console.items()),
            stream_facts.MODES: "".join(
                f"{mode} root:root {path}\n" for path, mode in modes.items() if contents.get(path) is not None
            ),
            stream_facts.SETTINGS: self.settings,
        }
        reading = HostReading({**contents, **{key: text.encode() for key, text in texts.items()}}, {})
        rack = site.rack(self.section)
        used = authority if self.authority else RackAuthority(site.folder / "elsewhere", "two")
        return NodeStreams(stream_facts.StreamFacts(reading, rack, rack.nodes[self.name]), used, self.had_authority)


def _unit_properties(name: str, load_state: str, active: str, enabled: str) -> str:
    return f"Id={name}\nLoadState={load_state}\nActiveState={active}\nUnitFileState={enabled}\nNeedDaemonReload=no\n"


OFF = "remote: false, netconsole: false"
PLAIN = "remote: plain, netconsole: plain"
ABSENT = {"key permissions": "none", "key public": "none"}
NODES: dict[str, Node] = {
    "as declared": Node(),
    "as declared, the other node": Node(name="spark2"),
    "as declared, unencrypted": Node(PLAIN, has=PLAIN),
    "declared is nothing, and nothing is there": Node(OFF, has=OFF),
    "a node without any of it": Node(has=OFF, live={"upload program": "no", **ABSENT}),
    "a node without any of it, in a rack without a CA": Node(
        has=OFF, live={"upload program": "no", **ABSENT}, authority=False, had_authority=False
    ),
    "a rack that no longer declares it": Node(OFF),
    "a rack that no longer encrypts it": Node(PLAIN),
    "a rack that encrypts it now": Node(has=PLAIN),
    "only the kernel's messages are no longer declared": Node("remote: tls"),
    "only the journal is no longer declared": Node("netconsole: plain"),
    "a key that others may read": Node(live={"key permissions": "644:root:root"}),
    "a key that cannot be used": Node(live={"key public": ""}),
    "no key": Node(live=ABSENT),
    "a certificate of another rack": Node(files={journal_stream.CERTIFICATE: b"garbage"}),
    "no certificate": Node(files={journal_stream.CERTIFICATE: None}),
    "no certificate of the CA": Node(files={journal_stream.AUTHORITY: None}),
    "another certificate of the CA": Node(files={journal_stream.AUTHORITY: b"other"}),
    "a certificate with another mode": Node(modes={journal_stream.CERTIFICATE: "600"}),
    "a certificate of the CA with another mode": Node(modes={journal_stream.AUTHORITY: "600"}),
    "a file of the sender that differs": Node(files={journal_stream.UPLOAD_SETTINGS: b"x"}),
    "a file of the receiver that is lacking": Node(files={journal_stream.PROGRAM: None}),
    "files of netconsole that differ": Node(
        files={netconsole.PROGRAM: b"x", netconsole.RECEIVE_PROGRAM: None}, modes={netconsole.SENDER_PATHS[1]: "600"}
    ),
    "a run that ended before the services were restarted": Node(
        live={f"{name} pending": "yes" for name in stream_facts.PENDING}
    ),
    "services that do not run": Node(
        units=dict.fromkeys((journal_stream.UPLOAD, journal_stream.RECEIVE, *netconsole.UNITS), STOPPED)
    ),
    "services that failed": Node(
        units=dict.fromkeys((journal_stream.UPLOAD, journal_stream.RECEIVE, *netconsole.UNITS), "loaded failed enabled")
    ),
    "a kernel that does not send": Node(netconsole={"target": "absent"}),
    "a kernel that the operator disabled": Node(netconsole={"target": "0 10.77.0.11 10.77.0.12 1"}),
    "a kernel that sends to another card": Node(netconsole={"target": "1 10.77.0.11 10.77.0.13 1"}),
    "a console of level 4": Node(netconsole={"level": "4"}),
    "blocked: the package's socket listens": Node(units={journal_stream.PACKAGE_SOCKET: RUNNING}),
    "blocked: no openssl": Node(live={"openssl program": "no"}),
    "not blocked: no openssl, and nothing is encrypted": Node(PLAIN, has=PLAIN, live={"openssl program": "no"}),
    "blocked: a kernel without netconsole": Node(netconsole={"dynamic": "no"}),
    "blocked: a driver that loses its port": Node(netconsole={"interfaces": "10.77.0.11=enP7s7=r8169"}),
    "not blocked: the driver of another port": Node(
        netconsole={"interfaces": "10.77.0.9=enP7s8=r8169 10.77.0.11=enP7s7=mlx5_core"}
    ),
    "blocked: another file has the last word": Node(
        settings="/etc/systemd/journal-upload.conf.d/zzz.conf:URL=http://elsewhere\n"
    ),
    "blocked: the key of the CA is elsewhere": Node(files={journal_stream.CERTIFICATE: None}, authority=False),
}
GARBLED: dict[str, tuple[Node, str]] = {
    "the program": (
        Node(live={"upload program": "maybe"}),
        "blackbox state: upload program: unexpected probe output 'maybe'",
    ),
    "a mark": (
        Node(live={"receive pending": "none"}),
        "blackbox state: receive pending: unexpected probe output 'no answer'",
    ),
    "the key": (Node(live={"key public": "no base64"}), "blackbox-stream-state: the public key is garbled"),
    "a unit": (
        Node(units={netconsole.TIMER: "loaded dancing enabled"}),
        (
            "blackbox units: unexpected probe output "
            f"{_unit_properties(netconsole.TIMER, 'loaded', 'dancing', 'enabled')[:80]!r}"
        ),
    ),
    "the target": (
        Node(netconsole={"target": "2 a b 1"}),
        "blackbox state: netconsole target: unexpected probe output '2 a b 1'",
    ),
    "the target, where it is not declared": (
        Node("remote: tls", netconsole={"target": "2 a b 1"}),
        "blackbox state: netconsole target: unexpected probe output '2 a b 1'",
    ),
    "the level": (
        Node(netconsole={"level": "100"}),
        "blackbox state: netconsole level: unexpected probe output '100'",
    ),
    "the interfaces": (
        Node(netconsole={"interfaces": "10.77.0.11"}),
        "blackbox state: netconsole interfaces: unexpected probe output '10.77.0.11'",
    ),
    "no interface has the address": (
        Node(netconsole={"interfaces": "10.77.0.12=enP7s7=mlx5_core"}),
        "blackbox state: netconsole interfaces: none has 10.77.0.11",
    ),
}


def _describe_changeset(found: Changeset, folder: Path) -> list[str]:
    lines = [f"blocked: {why}" for why in found.blockers]
    lines += [f"in sync: {found.in_sync_reason}"] if found.in_sync_reason else []
    lines += [f"warning: {event.message}" for event in found.warnings]
    lines += [f"event: {event.message}" for event in found.events]
    lines += ["its commands are not known yet"] if found.provisional else []
    for command in found.commands:
        text = command.get_raw_value()  # type: ignore[attr-defined]
        shown = text if len(text) < 700 else f"{text[:80]} ... ({text.count(chr(10))} lines)"
        lines.append(f"command: {shown}")
    return [line.replace(str(folder), "FOLDER") for line in lines]


@pytest.mark.parametrize("name", NODES)
def test_what_each_operation_does(site: Site, name: str) -> None:
    """But for the operations that do what they do on the first of these nodes, which is as declared."""

    def described(node: Node) -> dict[str, list[str]]:
        here = node.streams(site)
        return {one.changeset.__name__: _describe_changeset(one.changeset(here), site.folder) for one in OPERATIONS}

    usual = {} if name == "as declared" else described(NODES["as declared"])
    texts: dict[tuple[str, ...], list[str]] = {}
    for operation, found in described(NODES[name]).items():
        if found != usual.get(operation):
            texts.setdefault(tuple(found), []).append(operation)
    lines = [line for found, operations in texts.items() for line in (f"# {', '.join(operations)}", *found)]
    generated.check(CASES, name, "".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("name", GARBLED)
def test_a_part_that_is_not_known_stops_the_first_operation(site: Site, name: str) -> None:
    node, why = GARBLED[name]
    with pytest.raises((ValueError, UnknownError)) as caught:
        stream_apply.install_package.changeset(node.streams(site))
    assert str(caught.value) == why


@pytest.mark.parametrize(("section", "takes_part"), [("remote: tls, server: n1", True), ("netconsole: plain", False)])
def test_a_node_that_sends_and_receives_nothing_takes_part(tmp_path: Path, section: str, takes_part: bool) -> None:
    path = tmp_path / "rack.yaml"
    path.write_text(f"{serving_racks.machines(3)}blackbox: {{{section}}}\n")
    rack = load(path)
    for node in rack.nodes.values():
        facts = stream_facts.StreamFacts(HostReading({}, {}), rack, node)
        here = NodeStreams(facts, RackAuthority(tmp_path, "served"), had_authority=False)
        assert (here.takes_part, here.encrypted) == (takes_part, takes_part)
        assert here.senders == ({"n1": ["n0", "n2"], "n2": ["n1"]}.get(node.name, []) if takes_part else [])
