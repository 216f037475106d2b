"""The desired state of the bench, and that others are asked to bring the same one."""

from __future__ import annotations

import base64
import json
from ipaddress import IPv4Address
from pathlib import Path

import jinja2
import pytest

from benchmarks import desired_state as wanted
from benchmarks import fixture as places
from benchmarks.fixture import BenchmarkFixture
from core.model import load
from roles.access import authorized_keys, etc_hosts, known_hosts
from roles.access.desired import NodeAccount, Peer
from roles.memory.options import MemoryOptions

TEMPLATES = Path(wanted.__file__).parent / "ansible" / "templates"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> BenchmarkFixture:
    return places.made(tmp_path_factory.mktemp("bench") / "3", 3, Path("/opt/others/bin"))


@pytest.mark.parametrize("count", [1, 2, 8, 9, 128, 200])
def test_the_rack_file_is_a_rack_of_that_many_cabled_nodes(count: int, tmp_path: Path) -> None:
    path = tmp_path / "rack.yaml"
    path.write_text(wanted.rack_file(count, 67584, 1))
    rack = load(path)
    assert len(rack.nodes) == count == len(rack.cabling.cables)
    assert len(rack.switches) == -(-count // 8)
    assert (rack.options(MemoryOptions).min_free_kbytes, rack.options(MemoryOptions).overcommit_memory) == (67584, 1)
    assert not rack.access.hardening
    assert rack.nodes[f"spark{count}"].address == IPv4Address("10.77.0.11") + count - 1
    assert all(node.address != IPv4Address(wanted.GATEWAY) for node in rack.nodes.values())


def _make_peers(place: BenchmarkFixture) -> dict[str, Peer]:
    account = NodeAccount(user="ops", uid=1000, gid=1000, home="/home/ops")
    return {
        name: Peer(account, place.own_keys[name].public, (place.host_keys[name].public,)) for name in place.rack.nodes
    }


def _render_template(place: BenchmarkFixture, name: str, template: str) -> str:
    """As Ansible does it: blocks are trimmed, the last line end is kept."""
    hosts = json.loads((place.folder / "inventory.json").read_text())["nodes"]["hosts"]
    for one in hosts:
        lines = (f"{place.own_keys[one].public} a comment\n", f"{place.host_keys[one].public} another\n")
        hosts[one]["public"] = {"results": [{"content": base64.b64encode(line.encode()).decode()} for line in lines]}
    environment = jinja2.Environment(  # noqa: S701 - no HTML
        trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["b64decode"] = lambda text: base64.b64decode(text).decode()
    known_to = {"hostvars": hosts, "groups": {"nodes": list(hosts)}, "inventory_hostname": name, **hosts[name]}
    return environment.from_string((TEMPLATES / template).read_text()).render(known_to)


def test_the_templates_of_the_playbook_give_what_the_role_gives(place: BenchmarkFixture) -> None:
    rack, peers = place.rack, _make_peers(place)
    operator = f"{place.operator.public} operator"
    before = f"{operator}\n".encode()
    for name in rack.nodes:
        keys = authorized_keys.authorized(rack, before, peers, operator)
        assert _render_template(place, name, "authorized_keys.j2").encode() == keys
        assert _render_template(place, name, "known_hosts.j2").encode() == known_hosts.known_hosts(rack, b"", peers)


def test_others_are_reported_the_block_of_etc_hosts_that_the_role_writes(place: BenchmarkFixture) -> None:
    reported = json.loads((place.folder / "hosts.json").read_text())
    for name, node in place.rack.nodes.items():
        lines = [f"{reported[other]['address']} {other}" for other in place.rack.nodes]
        text = "\n".join([reported[name]["hosts_begin"], *lines, reported[name]["hosts_end"], ""])
        assert text.encode() == etc_hosts.block(place.rack, node, [name])


def test_every_file_that_others_write_is_looked_at_afterwards(place: BenchmarkFixture) -> None:
    node = place.rack.nodes["spark2"]
    written = {file["path"] for file in wanted.files(place.rack, node)}
    looked = set(wanted.managed(place.rack, node))
    assert written < looked
    assert {
        etc_hosts.HOSTS,
        known_hosts.HOSTS,
        wanted.AUTHORIZED,
        wanted.KEY,
        f"{wanted.KEY}.pub",
        "/etc/nccl.conf",
    } < looked
    for path in written:
        content = (place.folder / "files" / "spark2" / path[1:]).read_text()
        assert content == next(file["content"] for file in wanted.files(place.rack, node) if file["path"] == path)


def test_modes_are_octal_words_and_folders_are_those_of_the_files(place: BenchmarkFixture) -> None:
    files = wanted.files(place.rack, place.rack.nodes["spark1"])
    assert {file["mode"] for file in files} == {"0644", "0755"}
    assert wanted.folders(files) == ["/etc/sparkrack", "/etc/systemd/system.conf.d", "/usr/local/lib/sparkrack"]


def test_no_kernel_setting_is_of_an_interface_that_a_target_lacks(place: BenchmarkFixture) -> None:
    keys = wanted.settings(place.rack, place.rack.nodes["spark1"])
    assert len(keys) == 6
    assert not [key for key in keys if "enp" in key or "enP" in key]


def test_a_target_begins_with_faults_to_fix_and_a_key_of_its_own(place: BenchmarkFixture, tmp_path: Path) -> None:
    place.seed("spark1", tmp_path)
    assert "127.0.1.1 spark1" in (tmp_path / "etc/hosts").read_text()
    assert (tmp_path / "home/ops/.ssh/id_sparkrack").stat().st_mode & 0o777 == 0o600
    assert (
        tmp_path / "home/ops/.ssh/id_sparkrack.pub"
    ).read_text() == f"{place.own_keys['spark1'].public} sparkrack spark1\n"
    assert (tmp_path / "home/ops/.ssh/authorized_keys").read_text() == f"{place.operator.public} operator\n"
