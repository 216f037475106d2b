"""What a machine of the lab is that comes from its box, and what its operator knows of it beforehand."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from core.model import load
from lab.errors import LabError
from lab.layout import Layout
from lab.machines import PLACEHOLDER, LabMachines
from lab.paths import LabPaths
from lab.rack_file import invented, write
from lab.routeros_emulator.config import read
from tests.unit.model.racks import changed, loaded


def machines(folder: Path, text: str = invented(3)) -> LabMachines:
    """The machines of a lab that are not prepared yet."""
    paths = LabPaths(folder)
    write(paths.plan, text)
    return LabMachines(Layout(loaded(text)), paths)


@pytest.fixture
def factory(tmp_path: Path) -> LabMachines:
    made = machines(tmp_path)
    made.prepare(factory=True)
    return made


def plain(text: str) -> str:
    """The rack with a switch that speaks no TLS, and so has no reader."""
    return changed(
        text, (f'tls: {{sha256: "{PLACEHOLDER}"}}', "tls: false"), ("    reader: {password: {file: reader}}\n", "")
    )


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_first_two_came_with_one_image_and_the_others_have_an_identity_of_their_own(factory: LabMachines) -> None:
    one, two, three = (files(node.seed) for node in factory.nodes)
    for kind in ("ed25519", "ecdsa", "rsa"):
        for name in (f"ssh_host_{kind}_key", f"ssh_host_{kind}_key.pub"):
            assert one[name] == two[name] != three[name]
    assert one["machine-id"] == two["machine-id"]
    assert len(one["machine-id"].strip()) == 32
    assert "machine-id" not in three  # it makes one at its first boot
    names = [seed["hostname"].decode().strip() for seed in (one, two, three)]
    assert names == ["spark-01ff", "spark-02ff", "spark-03ff"]


def test_a_node_gets_the_hash_of_the_password_and_nothing_of_the_operators(factory: LabMachines) -> None:
    password = factory.paths.password.read_text().strip()
    private = factory.paths.key.read_text().splitlines()[2].encode()
    public = factory.paths.key.with_suffix(".pub").read_text().split()[1].encode()
    for node in factory.nodes:
        assert node.password.read_text().strip() == password
        assert stat.S_IMODE(node.password.stat().st_mode) == 0o600
        for name, content in files(node.shared).items():
            for secret in (password.encode(), private, public):
                assert secret not in content, f"{node.name}: {name}"
        user, hashed = files(node.seed)["wizard"].decode().strip().split(":")
        assert user == "nvidia"
        salt = hashed.split("$")[2]
        command = ["openssl", "passwd", "-6", "-salt", salt, "-stdin"]
        assert subprocess.run(command, input=password, capture_output=True, text=True).stdout.strip() == hashed
        assert stat.S_IMODE((node.seed / "wizard").stat().st_mode) == 0o600
        assert stat.S_IMODE((node.seed / "ssh_host_rsa_key").stat().st_mode) == 0o600
    assert stat.S_IMODE(factory.paths.password.stat().st_mode) == 0o600


def test_the_consoles_fingerprints_are_those_that_ssh_will_show(factory: LabMachines) -> None:
    lines = [line.split() for line in factory.paths.host_keys.read_text().splitlines()]
    assert [name for name, _ in lines] == [name for name in ("spark1", "spark2", "spark3") for _ in range(3)]
    key = factory.nodes[2].seed / "ssh_host_rsa_key.pub"
    shown = subprocess.run(["ssh-keygen", "-l", "-f", key], capture_output=True, text=True).stdout.split()[1]
    assert ["spark3", shown] in lines


def test_the_operator_knows_nothing_of_them_beforehand(factory: LabMachines) -> None:
    rack = load(factory.paths.rack)
    tls = rack.switches["crs812"].tls
    assert tls
    assert tls.sha256 == PLACEHOLDER
    assert factory.paths.known_hosts.read_text() == ""
    switch = factory.switches[0]
    assert not switch.password.exists()  # first contact makes it
    assert switch.reader.exists()
    assert read(switch.folder / "config.json").boxed


def test_again_changes_nothing_that_first_contact_wrote(factory: LabMachines) -> None:
    factory.paths.known_hosts.write_text("10.77.0.11 ssh-ed25519 AAAA\n")
    factory.paths.rack.write_text(factory.paths.rack.read_text().replace(PLACEHOLDER, "1" * 64))
    before = files(factory.paths.folder)
    for flag in (False, True):
        factory.prepare(factory=flag)
        assert files(factory.paths.folder) == before


def test_ordinary_machines_are_not_brought_to_factory_state_by_prepare(tmp_path: Path) -> None:
    made = machines(tmp_path)
    made.prepare(factory=False)
    before = files(tmp_path)
    with pytest.raises(LabError, match="this lab's spark1, spark2, spark3, crs812 are not in factory state"):
        made.prepare(factory=True)
    assert files(tmp_path) == before


def test_one_node_goes_into_its_box_and_stays_a_boxed_one(tmp_path: Path) -> None:
    made = machines(tmp_path)
    made.prepare(factory=False)
    known = made.paths.known_hosts.read_text()
    assert len(known.splitlines()) == 3
    third = made.nodes[2]
    made.box(third)
    assert third.in_factory_state
    assert not (third.seed / "authorized_keys").exists()
    assert [line.split()[0] for line in made.paths.host_keys.read_text().splitlines()] == ["spark3"] * 3
    made.prepare(factory=False)
    assert third.in_factory_state
    assert made.paths.known_hosts.read_text() == known  # what was known of it is the operator's to replace


def test_a_node_that_is_imaged_again_is_another_one_unless_it_is_a_clone(factory: LabMachines) -> None:
    before = [node.host_key for node in factory.nodes]
    console = factory.paths.host_keys.read_text()
    for node in factory.nodes:
        factory.box(node)
    after = [node.host_key for node in factory.nodes]
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, True, False]
    assert factory.paths.host_keys.read_text() != console
    assert all(node.password.read_text() == factory.paths.password.read_text() for node in factory.nodes)


def test_a_rack_whose_switches_would_meet_in_their_boxes_is_refused(tmp_path: Path) -> None:
    text = invented(2)
    at, to = text.index("  crs812:\n"), text.index("\nfabric:")
    other = text[at:to].replace("  crs812:", "  other:").replace("10.77.0.2", "10.77.0.3")
    made = machines(tmp_path, text[:to] + other + text[to:])
    with pytest.raises(LabError, match="one switch"):
        made.prepare(factory=True)
    assert list(files(tmp_path)) == ["asked.yaml"]


def test_a_switch_that_no_one_would_take_from_its_box_is_refused(tmp_path: Path) -> None:
    made = machines(tmp_path, plain(invented(2)))
    with pytest.raises(LabError, match="crs812 has tls: false"):
        made.prepare(factory=True)
    assert list(files(tmp_path)) == ["asked.yaml"]
