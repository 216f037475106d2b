"""The rack.yaml of a lab: made up for N nodes, or the user's own with the lab's keys in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.model import load
from lab.errors import LabError
from lab.paths import LabPaths
from lab.rack_file import copy_unit_files, invented, own, write
from roles.driver.options import DriverOptions
from tests.unit.model import serving_racks
from tests.unit.model.racks import SWITCH, loaded

USERS = """\
# my rack
rack: mine   # its name
access: {user: me, key: ~/.ssh/mine, known_hosts: ~/known, port: 2222}

nodes:
  # the one under the desk
  a: {address: 10.1.0.1, vendor: asus, ports: {1: sw/qsfp56-dd-1-1}}
  b: {address: 10.1.0.2, vendor: asus, ports: {0: sw/qsfp56-dd-1-3}}   # the other
switches:
  sw:
    address: 10.1.0.3
    tls: {sha256: "1111111111111111111111111111111111111111111111111111111111111111"}
    user: admin
    password: {command: [pass, show, sw]}
    model: 'CRS812-8DS-2DQ-2DDQ'
    cages: {qsfp56-dd-1: {split: 4x100G}}
  plain:
    address: 10.1.0.4
    tls: false
    user: admin
    password: {env: PLAIN}
    model: CRS812-8DS-2DQ-2DDQ
    cages: {}
fabric: {mtu: 4200, subnets: [192.168.100.0/24, 192.168.101.0/24]}
driver: {version: "580.10"}   # in quotes, else it is a number
images: ["a/b:1.0"]
"""


@pytest.mark.parametrize("count", range(1, 9))
def test_an_invented_rack_loads(count: int) -> None:
    rack = loaded(invented(count))
    assert list(rack.nodes) == [f"spark{number}" for number in range(1, count + 1)]
    assert len(rack.cabling.legs("crs812")) == count
    assert all(leg.gbps == 100 for leg, _ in rack.cabling.legs("crs812"))
    # every declared cage is used, so that no split is set up without a use
    assert set(rack.switches["crs812"].cages) == {leg.cage for leg, _ in rack.cabling.legs("crs812")}


def test_the_largest_is_the_reference_rack() -> None:
    reference = load(Path(__file__).parents[3] / "examples/rack.yaml")
    made = loaded(invented(8))
    assert made.addresses == reference.addresses
    assert made.cabling.cables == reference.cabling.cables
    assert (made.declared(DriverOptions), made.images) == (reference.declared(DriverOptions), reference.images)


@pytest.mark.parametrize("count", [-1, 0, 9, 100])
def test_what_does_not_fit_is_refused(count: int) -> None:
    with pytest.raises(LabError, match=f"a lab of {count} nodes cannot be made up: 1 to 8 fit"):
        invented(count)


def owned(text: str, folder: Path) -> str:
    rack = loaded(text)
    switches = list(rack.switches)
    return own(
        text,
        rack,
        LabPaths(folder),
        {name: f"{number:064x}" for number, name in enumerate(switches, 10)},
        {name: (folder / f"password of {name}", folder / f"reader of {name}") for name in switches},
    )


def test_only_the_labs_keys_are_put_in(tmp_path: Path) -> None:
    after = owned(USERS, tmp_path)
    rack = loaded(after)
    assert rack.access.key == tmp_path / "id_ed25519"
    assert rack.access.user == "me"
    assert str(rack.access.known_hosts).endswith("/known_hosts")
    sw, plain = rack.switches["sw"], rack.switches["plain"]
    assert sw.tls
    assert sw.tls.sha256 == f"{10:064x}"
    assert plain.tls is False
    assert sw.password.file == tmp_path / "password of sw"
    before = loaded(USERS)
    changes = {"access", "switches", "source"}
    assert rack.model_dump(exclude=changes) == before.model_dump(exclude=changes)
    keys = {"tls", "password"}
    for name in before.switches:
        assert rack.switches[name].model_dump(exclude=keys) == before.switches[name].model_dump(exclude=keys)


def test_everything_else_is_as_it_was_written(tmp_path: Path) -> None:
    touched = ("access:", "tls:", "password:")
    lines = [line for line in USERS.splitlines() if not line.strip().startswith(touched)]
    after = owned(USERS, tmp_path).splitlines()
    assert [line for line in lines if line not in after] == []
    assert [line for line in after if line in lines] == lines


def test_doing_it_again_changes_nothing(tmp_path: Path) -> None:
    once = owned(SWITCH, tmp_path)
    assert owned(once, tmp_path) == once


def test_what_units_mount_is_copied_beside_the_rack_of_the_lab(tmp_path: Path) -> None:
    (tmp_path / "own/patches/glm").mkdir(parents=True)
    (tmp_path / "own/patches/glm/run.sh").write_text("echo")
    (tmp_path / "own/t.jinja").write_text("x")
    (tmp_path / "lab/patches/glm").mkdir(parents=True)
    (tmp_path / "lab/patches/glm/old").touch()
    text = serving_racks.text(
        {"one": serving_racks.unit(files={"/workspace/fix": "patches/glm", "/workspace/t.jinja": "t.jinja"})}
    )
    rack = load(serving_racks.put(tmp_path / "own", text))
    copy_unit_files(rack, tmp_path / "lab")
    copied = {str(path.relative_to(tmp_path / "lab")) for path in (tmp_path / "lab").rglob("*") if path.is_file()}
    assert copied == {"patches/glm/run.sh", "t.jinja"}
    assert load(serving_racks.put(tmp_path / "lab", text))
    copy_unit_files(rack, tmp_path / "own")
    assert (tmp_path / "own/patches/glm/run.sh").read_text() == "echo", "a lab in the folder of its rack file"


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "rack.yaml"
    file.write_text("old")
    reader = file.open()
    write(file, "new")
    assert (reader.read(), file.read_text()) == ("old", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["rack.yaml"]
