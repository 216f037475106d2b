"""The bundle of `sparkrack accept`: nothing in it identifies the rack. Its record of a switch: test_fixture.py."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from core.claims.claims import known_claims
from core.ssh import node_shells
from sparkrack.accept import collect
from sparkrack.accept.bundle import IDENTITY, AcceptManifest, RecordedRack
from sparkrack.cli.main import sparkrack
from switch.accept_record import ProbeReading, read_probe
from tests.emulator.probe_fixtures import files_of
from tests.emulator.switch_runs import waits_for
from tests.emulator.verify_fixtures import Kept, declared
from tests.unit.cli.accept_nodes import GOOD, HALVES, Nodes

CLAIMS = {claim.id for claim in known_claims()}
SERIAL, MACHINE, MAC, KEY = (
    "ZX-9-SERIAL-1",
    "0123456789abcdef0123456789abcdef",
    "4c:bb:47:00:01:0a",
    "AAAAC3Nza" + "x" * 40,
)
OWNER = (
    *(SERIAL, MACHINE, MAC, "4cbb:4700:0001:0a", "4cbb4700010a", "4cbb47fffe00010a", "4C-BB-47-00-01-0A", KEY),
    *(
        "4cbb:4703:0000:010a",
        "4ebb47fffe00010a",
        "4c-bb-47-03-00-00-01-0a",
        "4c-bb-47-ff-ff-00-01-0a",
        "4cbb.4700.010a",
    ),
    *("5c-25-73-ab-cd-ef", "192.168.7.9", "2a02:908:1::8", "ntp.acme.example"),
    *(
        "acme-berlin",
        "lab7.acme.example",
        "acme.example",
        "10.77.0.11",
        "10.77.0.18",
        "192.168.100.1",
        "203.0.113.9",
        "9.9.9.9",
    ),
    *("fe80::4ebb:47ff:fe00:10a", "2a02:908:1::7", "spark8", "hunter2-hunter2", "HK70AB12CD3", "wolpertinger"),
    *("wg-acme", "acmevpn0", "br-acme", "encorp0", "11.0.77.10.in-addr.arpa", "77.10.in-addr.arpa"),
    "a.0.1.0.0.0.e.f.f.f.7.4.b.b.e.4.0.0.0.0.0.0.0.0.0.0.0.0.0.8.e.f.ip6.arpa",
)
"""What identifies a rack or its owner, in the forms in which the answers below have it."""
INTERFACES = ("wg-acme", "acmevpn0", "acmevpn0.7", "br-acme", "encorp0")
"""Names of interfaces that their owner chose."""
COMMON = (*HALVES, "enP7s7", "wlP9s9", "eth0", "lo", "docker0", "br-0a1b2c3d4e5f", "veth12ab34c", "enp1s0f0np0.100")
"""Those that any rack may have."""
PRIVATE = f"""
hostname lab7.acme.example acme-berlin spark8, machine-id {MACHINE}, serial {SERIAL}
link/ether {MAC} fe80::4ebb:47ff:fe00:10a/64 enx4cbb4700010a 4cbb:4700:ff:fe00:010a 4c-bb-47-00-01-0a
node_guid 4cbb47fffe00010a inet 10.77.0.11/24 peer 10.77.0.18 via 192.168.100.1 dns 9.9.9.9 203.0.113.9 2a02:908:1::7
ssh-ed25519 {KEY} alice@acme-berlin
guids 4cbb:4703:0000:010a 0x4ebb47fffe00010a, serial numbers 4c-bb-47-03-00-00-01-0a 4c-bb-47-ff-ff-00-01-0a
wlx4cbb4700010a, chassis 5c-25-73-ab-cd-ef 4cbb.4700.010a, ssh: 2a02:908:1::8: refused by 192.168.7.9. ntp.acme.example
\u017fpark8 spar\u212a8
password=hunter2-hunter2
7: wg-acme: mtu 1420, 8: acmevpn0.7@acmevpn0: master br-acme, encorp0 beside {" ".join(COMMON)}
PTR of 11.0.77.10.in-addr.arpa. in zone 77.10.IN-ADDR.ARPA and 11.0.77.10.in-addr.arpa
PTR of a.0.1.0.0.0.e.f.f.f.7.4.b.b.e.4.0.0.0.0.0.0.0.0.0.0.0.0.0.8.e.f.ip6.arpa
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """A switch with all legs up and a comment of its owner."""
    with declared(tmp_path_factory.mktemp("bundle")) as made:
        made.rack()
        made.by_hand("/interface/ethernet/set .id=</interface/ethernet name=sfp56-7> comment=wolpertinger")
        waits_for(lambda: "initializing" not in made.emulator.links().values())
        yield made


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Nodes:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = Nodes()
    made.changed[IDENTITY] = (
        f"acme-berlin\nlab7.acme.example\n{MACHINE}\n{MAC}\nserial {SERIAL}\nserial Default string\n"
        + "".join(f"interface {name}\n" for name in (*INTERFACES, *COMMON))
    )
    made.changed["fabric.interface-names"] = f"{GOOD['fabric.interface-names']}{PRIVATE}"
    monkeypatch.setattr(node_shells, "RootShell", made.shell)
    return made


def accept(*words: str | Path) -> Result:
    return CliRunner().invoke(sparkrack, ["accept", *map(str, words)], catch_exceptions=False)


@pytest.fixture(scope="module")
def reading(kept: Kept) -> ProbeReading:
    """All that the switch prints, read once."""
    with kept.session() as session:
        return read_probe(session)


@pytest.fixture
def read_before(reading: ProbeReading, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record of the switch is made of that reading: its reading is tested without this fixture."""
    monkeypatch.setattr(collect, "read_probe", lambda _line: reading)


def bundle(kept: Kept, path: Path, *words: str | Path) -> Path:
    ended = accept("--rack", kept.folder / "rack.yaml", "--bundle", path, *words)
    assert path.exists(), ended.output
    return path


def test_nothing_in_a_bundle_identifies_the_rack(kept: Kept, nodes: Nodes, tmp_path: Path) -> None:
    before = kept.emulator.writes()
    path = bundle(kept, tmp_path / "rack.tar.gz")
    assert kept.emulator.writes() == before
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_size < 100_000
    files = files_of(path)
    assert {name for name in files if name.startswith("nodes/")} == {f"nodes/node{at}.json" for at in range(1, 9)}
    whole = "\n".join(content.decode() for content in files.values()).lower()
    names = "\n".join(files).lower()
    assert [text for text in (*OWNER, kept.emulator.password) if text.lower() in whole + names] == []
    private = json.loads(files["nodes/node1.json"])["fabric.interface-names"]["output"]
    # The same by the same: both addresses of one network are in one network.
    assert private.count("node8") == 3
    assert "inet 198.19.0.11/24 peer 198.19.0.18 via 198.19.1.1" in private
    assert private.count("machine-id HASH-") == 1
    assert "password=***" in private
    # Names that the kernel or systemd gives say nothing of the owner, and the claims are about them.
    assert f"beside {' '.join(COMMON)}" in private
    assert "PTR of REVERSED-1. in zone REVERSED-2 and REVERSED-1\nPTR of REVERSED-3" in re.sub(
        r"REVERSED-(\d+)", lambda found: f"REVERSED-{reversed_names(private).index(found[0]) + 1}", private
    )


def reversed_names(text: str) -> list[str]:
    """The stand-ins of reversed addresses, in the order of their first use."""
    return list(dict.fromkeys(re.findall(r"REVERSED-\d+", text)))


@pytest.mark.usefixtures("read_before")
def test_the_manifest_has_the_hash_of_every_other_file(kept: Kept, nodes: Nodes, tmp_path: Path) -> None:
    files = files_of(bundle(kept, tmp_path / "rack.tar.gz"))
    assert next(iter(files)) == "manifest.json"
    manifest = AcceptManifest.model_validate_json(files.pop("manifest.json"))
    assert {one.path: (one.bytes, one.sha256) for one in manifest.files} == {
        name: (len(content), hashlib.sha256(content).hexdigest()) for name, content in files.items()
    }


FOREIGN: Mapping[str, tuple[str, ...]] = {
    "SystemNTPServers=ntp1.corp.acme-secret.example atomuhr7 0.ubuntu.pool.ntp.org": ("acme-secret", "corp", "atomuhr"),
    "ServerName=zeit.acmesoehne.sh": ("zeit", "acmesoehne"),
    "       Server: 10.77.0.1 (funkuhr.acmenet.internal)": ("funkuhr", "acmenet"),
    "^,*,sonnenuhr,2,6,377,12,-0.000123456,-0.000123456,0.012": ("sonnenuhr",),
    "0A4D0001,sanduhr9,3,1795642520.1,-0.0001": ("sanduhr",),
    "a driver in /home/jdoe/acmesrc/mlx5_core.ko.zst: roce_np": ("jdoe", "acmesrc"),
    "read ~kdoe/x, /Users/mmuster/x, and file:///home/ldoe": ("kdoe", "mmuster", "ldoe"),
    "a driver in /lib/modules/6.17.0-1021-nvidia/updates/dkms/mlx5_core.ko.zst: nothing": (),
    "Could not resolve hostname node3.rz.acme-secret.example.: Name or service not known": ("acme-secret", "rz."),
    "ssh: connect to host sprungbrett port 22: Connection refused": ("sprungbrett",),
    "svc-acmebau@baurechner: Permission denied (publickey).": ("acmebau", "baurechner"),
    'Get "http://pxhaus:3128/" via https://ann@PX2.M\u00dcLLER-ACME.DE/x': ("pxhaus", "ller-acme", "ann@"),
    "sent to ops@mail.acmepost.cloud by acme_k8s.acmelab.svc": ("acmepost", "acmelab", "acme_k8s"),
    "spark1.hinterhof.acme-secret.example is spark1": ("hinterhof", "acme-secret"),
}
"""Names in answers that rack.yaml does not have, and what of each a bundle may not have."""
PUBLIC = (
    *("0.ubuntu.pool.ntp.org", "ntp.ubuntu.com", "nvidia-spark-ota-check.service", "mlx5_core.ko.zst"),
    *("580.95.05-0ubuntu1", "6.17.0-1021-nvidia", "enp1s0f0np0.100", "/lib/modules/6.17.0-1021-nvidia/updates/dkms"),
    *("-0.000123456", "NTPSynchronized=yes"),
)
"""Words that any rack may have, and that claims are about."""


@pytest.mark.usefixtures("read_before")
def test_a_bundle_has_no_name_that_is_not_on_a_short_list(kept: Kept, nodes: Nodes, tmp_path: Path) -> None:
    """Names that neither rack.yaml nor the nodes' own names have: of time servers, homes, hosts in messages of ssh."""
    answer = "\n".join(("NTPSynchronized=yes", *FOREIGN, *PUBLIC))
    nodes.changed["time.daemons"] = answer
    nodes.silent = {"spark2": list(FOREIGN)[8]}
    files = files_of(bundle(kept, tmp_path / "rack.tar.gz"))
    whole = "\n".join(content.decode() for content in files.values())
    whole += "\n".join(one["output"] for one in json.loads(files["nodes/node1.json"]).values())
    assert [word for words in FOREIGN.values() for word in words if word.lower() in whole.lower()] == []
    found = json.loads(files["nodes/node1.json"])["time.daemons"]["output"]
    assert [word for word in PUBLIC if word not in found] == []
    lines = dict(zip(FOREIGN, found.splitlines()[1:], strict=False))
    assert len(set(lines.values())) == len(FOREIGN), "a line is there, and only its names are replaced"
    assert all(text.startswith("node1.") and text.endswith(" is node1") for text in list(lines.values())[-1:])


@pytest.mark.usefixtures("read_before")
def test_a_bundle_has_the_cables_and_the_report_of_the_rack(kept: Kept, nodes: Nodes, tmp_path: Path) -> None:
    files = files_of(bundle(kept, tmp_path / "rack.tar.gz"))
    rack, report = RecordedRack.model_validate_json(files["rack.json"]), json.loads(files["accept.json"])
    assert rack.nodes["node1"].ports == {1: "switch1/qsfp56-dd-1-1"}
    assert rack.switches["switch1"].cages["qsfp56-dd-1"] == {"split": "4x100G", "medium": "copper"}
    assert {host["host"] for host in report["hosts"]} == {"switch1", *(f"node{at}" for at in range(1, 9))}
    assert {one["id"] for one in report["claims"]} == CLAIMS


def test_what_does_not_answer_is_in_the_bundle_with_its_reason(
    kept: Kept, nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.silent = {"spark1": "Connection timed out to 10.77.0.11"}
    monkeypatch.setenv("CRS812_READER", "wrong")
    (kept.folder / "crs812").write_text("wrong")
    try:
        files = files_of(bundle(kept, tmp_path / "rack.tar.gz"))
    finally:
        kept.rack()
    answers = json.loads(files["nodes/node1.json"])
    assert list(answers) == [IDENTITY]
    assert "cannot be reached" in answers[IDENTITY]["unknown"]
    assert b"10.77" not in b"".join(files.values())
    assert not [name for name in files if name.startswith("switches/")]


def test_a_file_that_exists_is_refused_before_anything_is_read(kept: Kept, nodes: Nodes, tmp_path: Path) -> None:
    (tmp_path / "there.tar.gz").write_text("")
    ended = accept("--rack", kept.folder / "rack.yaml", "--bundle", tmp_path / "there.tar.gz")
    assert "exists already" in ended.stderr
    assert nodes.scripts == []


@pytest.mark.usefixtures("read_before")
@pytest.mark.parametrize(
    "name",
    [
        # The modules of the emulator have the vendor SPARKRACK LAB; the others are words of RouterOS, of claims, of the
        # files themselves, and of a DMI table.
        *("lab", "remote", "fabric", "output", "sparkrack-lab", "copper", "operator", "dell"),
    ],
)
def test_a_rack_that_is_named_like_a_word_of_the_files(name: str, kept: Kept, nodes: Nodes, tmp_path: Path) -> None:
    file = tmp_path / "rack.yaml"
    file.write_text(re.sub(r"(?m)^rack: .*$", f"rack: {name}", (kept.folder / "rack.yaml").read_text()))
    nodes.changed["fabric.interface-names"] = (
        f"{GOOD['fabric.interface-names']}\nleft on {name.upper()} by {name}-admin"
    )
    path = tmp_path / "rack.tar.gz"
    ended = accept("--rack", file, "--bundle", path)
    assert ended.exit_code == 0, ended.output
    files = files_of(path)
    if name != "dell":
        assert name not in json.loads(files["nodes/node1.json"])["fabric.interface-names"]["output"].lower()
    assert b"SPARKRACK LAB" in files["switches/switch1.json"]


@pytest.mark.usefixtures("read_before")
def test_a_name_that_is_left_in_a_text_of_the_owner_stops_the_bundle(
    kept: Kept, nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comment of a port has the name of the rack, and nothing hides comments."""
    file = tmp_path / "rack.yaml"
    file.write_text(re.sub(r"(?m)^rack: .*$", "rack: wolpertinger", (kept.folder / "rack.yaml").read_text()))
    monkeypatch.setattr("switch.anonymize.PRIVATE", re.compile("(?!)"))
    monkeypatch.setattr("switch.anonymize.Mask._mask_text", lambda _self, _name, value: value)
    ended = accept("--rack", file, "--bundle", tmp_path / "rack.tar.gz")
    assert ended.exit_code == 1
    assert "switches/switch1.json would still have a name: wolpertinger" in ended.stderr


@pytest.mark.usefixtures("read_before")
def test_what_is_left_of_an_original_stops_the_bundle(
    kept: Kept, nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkrack.accept.anonymize.Anonymizer._anonymize_address", lambda _, text: text)
    ended = accept("--rack", kept.folder / "rack.yaml", "--bundle", tmp_path / "rack.tar.gz")
    assert ended.exit_code == 1
    assert "would still have an address: 10.77.0.1" in ended.stderr
    assert not (tmp_path / "rack.tar.gz").exists()
