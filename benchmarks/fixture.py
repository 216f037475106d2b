"""Inputs of a measurement of N hosts: keys, rack file, inventories and contents, written once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from benchmarks import desired_state as wanted
from core.model import Rack, load

HOSTS = "127.0.0.1 localhost\n127.0.1.1 {name}\n::1 localhost ip6-localhost ip6-loopback\n"
"""A node's /etc/hosts from the factory: its own name resolves to loopback."""


@dataclass(frozen=True)
class Key:
    """A key pair, as OpenSSH writes it."""

    private: bytes
    public: str

    @classmethod
    def made(cls) -> Key:
        """Generate a new key pair."""
        key = Ed25519PrivateKey.generate()
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
        return cls(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), public)


@dataclass(frozen=True)
class BenchmarkFixture:
    """A folder for one number of hosts, and what is in it."""

    folder: Path
    rack: Rack
    operator: Key
    host_keys: dict[str, Key]
    own_keys: dict[str, Key]
    others: Path
    """The folder of programs of what is compared with."""

    @property
    def count(self) -> int:
        """Number of hosts."""
        return len(self.rack.nodes)

    @property
    def addresses(self) -> dict[str, str]:
        """The address of each host."""
        return {name: str(node.address) for name, node in self.rack.nodes.items()}

    def seed(self, name: str, tree: Path) -> None:
        """Write the factory state of one target. The node's key pair exists already, so that every tool ends with the
        same bytes; each still has to check it.
        """
        ssh = tree / "home/ops/.ssh"
        for folder in (tree / "etc/ssh", ssh):
            folder.mkdir(parents=True)
        ssh.chmod(0o700)
        _write_file(tree / wanted.HOST_KEY[1:], self.host_keys[name].private, 0o600)
        _write_file(tree / f"{wanted.HOST_KEY[1:]}.pub", f"{self.host_keys[name].public} root@{name}\n".encode(), 0o644)
        _write_file(tree / wanted.KEY[1:], self.own_keys[name].private, 0o600)
        _write_file(tree / f"{wanted.KEY[1:]}.pub", f"{self.own_keys[name].public} sparkrack {name}\n".encode(), 0o644)
        _write_file(tree / wanted.AUTHORIZED[1:], f"{self.operator.public} operator\n".encode(), 0o600)
        _write_file(tree / "etc/hosts", HOSTS.format(name=name).encode(), 0o644)


def made(folder: Path, count: int, others: Path) -> BenchmarkFixture:
    """Write everything for `count` hosts into a new folder."""
    folder.mkdir(parents=True)
    operator = Key.made()
    _write_file(folder / "id_ed25519", operator.private, 0o600)
    _write_file(folder / "id_ed25519.pub", f"{operator.public} operator\n".encode(), 0o644)
    memory = {name: int(Path("/proc/sys/vm", name).read_text()) for name in ("min_free_kbytes", "overcommit_memory")}
    (folder / "rack.yaml").write_text(wanted.rack_file(count, **memory))
    (folder / "known_hosts").touch()
    rack = load(folder / "rack.yaml")
    keys = {name: Key.made() for name in rack.nodes}
    place = BenchmarkFixture(folder, rack, operator, keys, {name: Key.made() for name in rack.nodes}, others)
    known = [f"{address} {keys[name].public}\n" for name, address in place.addresses.items()]
    (folder / "known_hosts").write_text("".join(known))
    _for_others(place)
    return place


def _for_others(place: BenchmarkFixture) -> None:
    hosts = {}
    for name, node in place.rack.nodes.items():
        hosts[name] = wanted.variables(place.rack, node, f"{place.operator.public} operator")
        for file in wanted.files(place.rack, node):
            path = place.folder / "files" / name / file["path"][1:]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file["content"])
    (place.folder / "hosts.json").write_text(json.dumps(hosts))
    ssh = f"-F none -o UserKnownHostsFile={place.folder}/known_hosts"
    common = {
        "ansible_user": wanted.USER,
        "ansible_ssh_private_key_file": str(place.folder / "id_ed25519"),
        "ansible_ssh_common_args": ssh,
        "ansible_python_interpreter": "/usr/bin/python3",
        "work": str(place.folder),
    }
    found = {name: {"ansible_host": str(data["address"]), **data} for name, data in hosts.items()}
    inventory = {"nodes": {"hosts": found, "vars": common}}
    (place.folder / "inventory.json").write_text(json.dumps(inventory))
    lines = [
        f"IdentityFile {place.folder}/id_ed25519",
        "IdentitiesOnly yes",
        f"User {wanted.USER}",
        f"UserKnownHostsFile {place.folder}/known_hosts",
    ]
    (place.folder / "ssh_config").write_text("\n".join([*lines, ""]))
    (place.folder / "addresses").write_text("".join(f"{address}\n" for address in place.addresses.values()))


def _write_file(path: Path, content: bytes, mode: int) -> None:
    path.write_bytes(content)
    path.chmod(mode)
