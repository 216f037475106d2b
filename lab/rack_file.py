"""The rack.yaml of a lab: the one it makes up for N nodes, or the user's own with the lab's keys put in."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

from ruamel.yaml import YAML

from core.hardware.cage_kinds import QSFP56_DD
from core.hardware.crs812 import CRS812
from core.model import Rack
from lab.errors import LabError
from lab.paths import LabPaths
from serving.options import served_units

SPLIT = "4x100G"
CAGES = tuple(cage for cage, kind in CRS812.cages.items() if kind is QSFP56_DD)
_LANES = QSFP56_DD.breakouts[SPLIT].first_lanes
MOST = len(CAGES) * len(_LANES)


def invented(count: int) -> str:
    """A rack of `count` nodes on one CRS812, two 400G -> 4x100G cables: the reference rack, or its first nodes.

    What only the lab knows (keys, passwords, fingerprints) is put in by `own`.
    """
    if not 1 <= count <= MOST:
        raise LabError(
            f"a lab of {count} nodes cannot be made up: 1 to {MOST} fit one CRS812; give --rack FILE for others"
        )
    legs = [f"{cage}-{lane}" for cage in CAGES for lane in _LANES][:count]
    cages = [cage for cage in CAGES if any(leg.startswith(cage) for leg in legs)]
    nodes = "\n".join(
        f"  spark{number}: {{address: 10.77.0.{10 + number}, vendor: {'asus' if number <= 4 else 'lenovo'}, "
        f"ports: {{1: crs812/{leg}}}}}"
        for number, leg in enumerate(legs, 1)
    )
    return f"""\
# A virtual rack. `sparkrack lab up` wrote this file; edit it to see what a change does.
rack: lab

access:
  user: ops
  key: id_ed25519
  known_hosts: known_hosts

nodes:
{nodes}

switches:
  crs812:
    address: 10.77.0.2
    port: 8729
    tls: {{sha256: "{"0" * 64}"}}
    user: sparkrack
    password: {{file: password}}
    model: {CRS812.board}
    identity: crs812
    cages:
{chr(10).join(f"      {cage}: {{split: {SPLIT}, medium: copper}}" for cage in cages)}
    mtu: 9000
    l2mtu: 9500
    bridge: bridge
    management: [10.77.0.0/24]
    reader: {{password: {{file: reader}}}}
    time_zone: UTC
    lldp: true
    syslog: head
    snmp: false

fabric:
  mtu: 9000
  subnets: [192.168.100.0/24, 192.168.101.0/24]

driver: {{version: "580.159", kernel: 6.17.0-1021-nvidia}}
images:
  - scitrera/dgx-spark-sglang:0.5.12
"""


def own(
    text: str, rack: Rack, paths: LabPaths, fingerprints: Mapping[str, str], passwords: Mapping[str, tuple[Path, Path]]
) -> str:
    """The same rack with the lab's key, known_hosts, certificates and passwords (of the user, and of the reader);
    everything else as it was written."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 200
    data = yaml.load(text)
    data["access"]["key"] = str(paths.key)
    data["access"]["known_hosts"] = paths.known_hosts.name
    for name, switch in rack.switches.items():
        if switch.tls is not False:
            data["switches"][name]["tls"] = {"sha256": fingerprints[name]}
        user, reader = passwords[name]
        data["switches"][name]["password"] = {"file": str(user)}
        if switch.reader:
            data["switches"][name]["reader"]["password"] = {"file": str(reader)}
    out = StringIO()
    yaml.dump(data, out)
    return out.getvalue()


def copy_unit_files(rack: Rack, folder: Path) -> None:
    """Bring what units mount from the folder of a rack file to the same place of another folder."""
    top = rack.source.parent.resolve()
    for source in (source for unit in served_units(rack).values() for source in unit.files.values()):
        target = folder / source.relative_to(top)
        if target == source:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)


def write(path: Path, text: str) -> None:
    """Replace a file at once, so that no reader sees half of it."""
    side = path.with_name(f".{path.name}.new")
    side.write_text(text)
    side.replace(path)
