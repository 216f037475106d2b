"""The bundle of `sparkrack accept`: nothing in it identifies the rack, and `--import` finds what differs there."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from core.claims.claims import known_claims
from core.routeros.session import Client
from core.ssh import node_shells
from core.util.archive import read_archive, write_archive
from sparkrack.accept import collect
from sparkrack.accept.bundle import IDENTITY, MOST_BYTES, read_bundle, write_bundle
from sparkrack.accept.imported import ImportReport, ImportTest
from sparkrack.cli.main import sparkrack
from switch.probe import ProbeReading, read_probe
from tests.emulator.switch_runs import waits_for
from tests.emulator.test_accept import plant
from tests.emulator.verify_fixtures import Kept, declared
from tests.unit.cli.accept_nodes import GOOD, HALVES, Nodes, ethtool

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


def bundle(kept: Kept, path: Path, *words: str | Path) -> Path:
    ended = accept("--rack", kept.folder / "rack.yaml", "--bundle", path, *words)
    assert path.exists(), ended.output
    return path


def imported(path: Path) -> ImportReport:
    ended = accept("--import", path, "--json")
    assert ended.exit_code != 1, ended.output
    found = ImportReport.model_validate_json(ended.stdout)
    assert found.exit == ended.exit_code
    return found


def failed(path: Path) -> list[ImportTest]:
    return [test for test in imported(path).tests if test.outcome == "failed"]


def test_nothing_in_a_bundle_identifies_the_rack(kept: Kept, nodes: Nodes, tmp_path: Path) -> None:
    path = bundle(kept, tmp_path / "rack.tar.gz")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_size < 100_000
    files = read_archive(path, MOST_BYTES)
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


def test_a_rack_on_which_everything_holds_passes(kept: Kept, nodes: Nodes, tmp_path: Path) -> None:
    before = kept.emulator.writes()
    path = bundle(kept, tmp_path / "rack.tar.gz")
    assert kept.emulator.writes() == before
    found = imported(path)
    assert [test for test in found.tests if test.outcome == "failed"] == []
    passed = {test.claim for test in found.tests if test.outcome == "passed"}
    assert passed >= {"switch.monitor.fields", "fabric.ethtool-speed", "fabric.interface-names", "switch.qos.menus"}
    assert {test.claim for test in found.tests} <= CLAIMS
    assert accept("--import", path).exit_code == 0


Plant = Callable[[Nodes, pytest.MonkeyPatch], object]


def monitor(patch: pytest.MonkeyPatch, change: Callable[[dict[str, str]], object]) -> None:
    """Let the switch answer otherwise to the monitor: when it is read for the claims, and for the bundle."""
    plant(patch, "/interface/ethernet/monitor", change)

    def probe(line: Client) -> ProbeReading:
        reading = read_probe(line)
        rows = [dict(row) for row in reading.monitor]
        for row in rows:
            change(row)
        return replace(reading, monitor=rows)

    patch.setattr(collect, "read_probe", probe)


PLANTED: Mapping[str, tuple[str, Plant, str]] = {
    "another speed word of ethtool": (
        "fabric.ethtool-speed",
        lambda nodes, _: nodes.changed.update({"fabric.ethtool-speed": ethtool("100Gb/s")}),
        "100Gb/s",
    ),
    "another speed word of the monitor": (
        "switch.monitor.fields",
        lambda _, patch: monitor(patch, lambda row: "rate" in row and row.update(rate="100G-baseCR2")),
        "100G-baseCR2",
    ),
    "a monitor without fec": (
        "switch.monitor.fields",
        lambda _, patch: monitor(patch, lambda row: row.pop("fec", None)),
        "fec is absent",
    ),
    "another interface name": (
        "fabric.interface-names",
        lambda nodes, _: nodes.changed.update(
            {"fabric.interface-names": str(GOOD["fabric.interface-names"]).replace(HALVES[2], "enp1s0f1np9")}
        ),
        "enp1s0f1np9",
    ),
    "another DMI string": (
        "preflight.dmi",
        lambda nodes, _: nodes.changed.update({"preflight.dmi": "sys_vendor=D3LL\nboard_vendor=NVIDIA\n"}),
        "D3LL",
    ),
}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.soak if "word of the monitor" in case else ()) for case in PLANTED],
)
def test_a_planted_difference_is_a_failing_test(
    case: str, kept: Kept, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    claim, change, text = PLANTED[case]
    rack = kept.folder / "rack.yaml"
    if claim == "preflight.dmi":
        rack = tmp_path / "rack.yaml"
        rack.write_text((kept.folder / "rack.yaml").read_text().replace("vendor: asus", "vendor: dell"))
    change(nodes, monkeypatch)
    path = tmp_path / "rack.tar.gz"
    assert accept("--rack", rack, "--bundle", path).exit_code == 2
    monkeypatch.undo()
    wrong = failed(path)
    # The speed of a half is compared with the rate that the switch reports.
    assert {claim} <= {test.claim for test in wrong} <= {claim, "fabric.ethtool-speed"}
    assert {"the claim"} < {test.test for test in wrong if test.claim == claim}
    assert any(text in test.text for test in wrong)
    ended = accept("--import", path)
    assert ended.exit_code == 2
    assert f"failed: {claim}: " in ended.stdout


def test_a_changed_bundle_is_refused(kept: Kept, nodes: Nodes, tmp_path: Path) -> None:
    path = bundle(kept, tmp_path / "rack.tar.gz")
    files, made = read_archive(path, MOST_BYTES), read_bundle(path).manifest.made
    changes: Mapping[str, tuple[Mapping[str, bytes], str]] = {
        "content": ({**files, "rack.json": files["rack.json"] + b" "}, "rack.json is not what manifest.json lists"),
        "missing": ({n: c for n, c in files.items() if n != "nodes/node1.json"}, "nodes/node1.json is in"),
        "more": ({**files, "more.json": b"{}"}, "more.json is in"),
        "manifest": ({**files, "manifest.json": b"{}"}, "AcceptManifest: "),
        "no manifest": ({"x": b""}, "has no manifest.json"),
    }
    for name, (content, reason) in changes.items():
        other = tmp_path / f"{name}.tar.gz"
        write_archive(other, content, made)
        ended = accept("--import", other)
        assert (ended.exit_code, reason in ended.stderr) == (1, True), ended.output
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 9):
        cut = tmp_path / "cut.tar.gz"
        cut.write_bytes(whole[:size])
        ended = accept("--import", cut)
        assert ended.exit_code == 1, size
        assert ended.stderr.startswith("Error: ")
        assert len(ended.stderr.splitlines()) == 1
    with tarfile.open(tmp_path / "link.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("top/../../etc/passwd")
        entry.type = tarfile.SYMTYPE
        archive.addfile(entry)
    assert "is not one file below one folder" in accept("--import", tmp_path / "link.tar.gz").stderr


HOSTILE: Mapping[str, tuple[str, Callable[[str], str], str]] = {
    "a deep answer": ("nodes/node1.json", lambda _: "[" * 100_000, "cannot be read as a bundle: "),
    "another form": ("nodes/node1.json", lambda _: "[]", "cannot be read as a bundle: "),
    "a node with terminal controls": (
        "rack.json",
        lambda text: text.replace('"nodes": {', '"nodes": {"\\u001b[2Jx": 3, '),
        "RecordedRack: nodes.\\x1b[2Jx: ",
    ),
    "a node that leaves its folder": (
        "rack.json",
        lambda text: text.replace('"node1": {', '"../../node1": {'),
        "its rack cannot be used here: rack.json",
    ),
    "a switch that leaves its folder": (
        "rack.json",
        lambda text: text.replace('"switch1": {', '"../switch1": {').replace('"switch1/', '"../switch1/'),
        "its rack cannot be used here: rack.json",
    ),
    "no fixture": ("switches/switch1.json", lambda _: "[]", "switches/switch1.json is no fixture"),
}
"""File of a bundle, what is done to its text, and the reason of the refusal."""


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_bundle_is_refused(case: str, kept: Kept, nodes: Nodes, tmp_path: Path) -> None:
    """Its checksums are right: they were made again after the change."""
    name, change, reason = HOSTILE[case]
    path = bundle(kept, tmp_path / "rack.tar.gz")
    bundled = read_bundle(path)
    files = {at: content for at, content in read_archive(path, MOST_BYTES).items() if at != "manifest.json"}
    changed = change(files[name].decode())
    assert changed != files[name].decode()
    other = tmp_path / "other.tar.gz"
    write_bundle(other, {**files, name: changed.encode()}, bundled.manifest.made, "x", None)
    ended = accept("--import", other)
    assert ended.exit_code == 1, ended.output
    assert reason in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.strip().isprintable()


def test_a_bundle_cannot_move_the_cursor(kept: Kept, nodes: Nodes, tmp_path: Path) -> None:
    """Its report may name claims and hosts that there are not."""
    path = bundle(kept, tmp_path / "rack.tar.gz")
    bundled = read_bundle(path)
    files = {at: content for at, content in read_archive(path, MOST_BYTES).items() if at != "manifest.json"}
    report = json.loads(files["accept.json"])
    report["claims"][0] |= {
        "id": "a\x1b[2Jb",
        "hosts": [{"host": "c\x1b[3Jd", "result": "refuted", "evidence": "e\x1bf"}],
    }
    other = tmp_path / "other.tar.gz"
    write_bundle(other, {**files, "accept.json": json.dumps(report).encode()}, bundled.manifest.made, "x", None)
    ended = accept("--import", other)
    assert "\x1b" not in ended.output
    assert "failed: a\\x1b[2Jb: c\\x1b[3Jd: " in ended.stdout


def test_a_signature(kept: Kept, nodes: Nodes, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)], check=True)
    path = bundle(kept, tmp_path / "rack.tar.gz", "--sign", key)
    shown = subprocess.run(["ssh-keygen", "-l", "-f", str(key)], check=True, capture_output=True, text=True).stdout
    assert read_bundle(path).signer == shown.split()[1]
    assert f"signed by {shown.split()[1]}" in accept("--import", path).stdout
    files = read_archive(path, MOST_BYTES)
    text = files["manifest.json"].replace(b'"versions": "', b'"versions": "x')
    other = tmp_path / "other.tar.gz"
    write_archive(other, {**files, "manifest.json": text}, read_bundle(path).manifest.made)
    assert "manifest.json.sig is no signature of manifest.json" in accept("--import", other).stderr


def test_hosts_without_an_answer(kept: Kept, nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes.silent = {"spark1": "Connection timed out to 10.77.0.11"}
    path = bundle(kept, tmp_path / "rack.tar.gz")
    found = imported(path)
    assert found.exit == 0
    texts = {test.text for test in found.tests if test.host == "node1"}
    assert any("cannot be reached" in text for text in texts)
    assert not any("10.77" in text for text in texts)
    monkeypatch.setenv("CRS812_READER", "wrong")
    (kept.folder / "crs812").write_text("wrong")
    try:
        silent = bundle(kept, tmp_path / "silent.tar.gz")
    finally:
        kept.rack()
    assert read_bundle(silent).switches == {}
    assert imported(silent).exit == 0


def test_options_that_do_not_fit(kept: Kept, nodes: Nodes, tmp_path: Path) -> None:
    (tmp_path / "there.tar.gz").write_text("")
    rack = ("--rack", kept.folder / "rack.yaml")
    assert "exists already" in accept(*rack, "--bundle", tmp_path / "there.tar.gz").stderr
    assert nodes.scripts == []
    (tmp_path / "no-key").write_text("no key\n")
    ended = accept(*rack, "--bundle", tmp_path / "new.tar.gz", "--sign", tmp_path / "no-key")
    assert ended.exit_code == 1
    assert f"{tmp_path}/no-key signs nothing: " in ended.stderr
    assert nodes.scripts == []
    assert "--sign signs a bundle" in accept(*rack, "--sign", tmp_path / "there.tar.gz").stderr
    assert "only --json and --quiet" in accept("--import", tmp_path / "there.tar.gz", "--claim", "preflight.dmi").stderr


@pytest.mark.parametrize(
    "name",
    [
        # The modules of the emulator have the vendor SPARKRACK LAB; the others are words of RouterOS, of claims, of the
        # files themselves, and of a DMI table.
        *("lab", "remote", "fabric", "output"),
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("sparkrack-lab", "copper", "operator", "dell")),
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
    files = read_archive(path, MOST_BYTES)
    if name != "dell":
        assert name not in json.loads(files["nodes/node1.json"])["fabric.interface-names"]["output"].lower()
    assert b"SPARKRACK LAB" in files["switches/switch1.json"]
    assert failed(path) == []


def test_a_name_that_is_left_in_a_text_of_the_owner_stops_the_bundle(
    kept: Kept, nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comment of a port has the name of the rack, and nothing hides comments."""
    file = tmp_path / "rack.yaml"
    file.write_text(re.sub(r"(?m)^rack: .*$", "rack: wolpertinger", (kept.folder / "rack.yaml").read_text()))
    monkeypatch.setattr("switch.anonymize.PRIVATE", re.compile("(?!)"))
    monkeypatch.setattr("switch.anonymize.Mask._text", lambda _self, _name, value: value)
    ended = accept("--rack", file, "--bundle", tmp_path / "rack.tar.gz")
    assert ended.exit_code == 1
    assert "switches/switch1.json would still have a name: wolpertinger" in ended.stderr


def test_what_is_left_of_an_original_stops_the_bundle(
    kept: Kept, nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkrack.accept.anonymize.Anonymizer._address", lambda _, text: text)
    ended = accept("--rack", kept.folder / "rack.yaml", "--bundle", tmp_path / "rack.tar.gz")
    assert ended.exit_code == 1
    assert "would still have an address: 10.77.0.1" in ended.stderr
    assert not (tmp_path / "rack.tar.gz").exists()
