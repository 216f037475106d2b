"""What applies of a rack when its file does not have it: by the folder, by the user, and the same everywhere."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from core.model import ConfigError, Rack, defaults, load
from core.model.loader import load_text

SMALLEST = """\
nodes:
  spark1: {address: 10.77.0.11, ports: {1: spark2/1}}
  spark2: {address: 10.77.0.12}
"""


@pytest.fixture(autouse=True)
def _an_operator_with_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(defaults, "local_user", lambda: "ops")


def rack_in(folder: Path, text: str = SMALLEST) -> Rack:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rack.yaml").write_text(text)
    return load(folder / "rack.yaml")


def fault(text: str, name: str = "/desk/rack.yaml") -> str:
    with pytest.raises(ConfigError) as caught:
        load_text(text, name)
    (found,) = caught.value.faults
    return f"{found.path}: {found.what}; {found.right}"


def test_two_addresses_and_one_cable_are_a_rack(tmp_path: Path) -> None:
    rack = rack_in(tmp_path / "desk")
    assert rack.rack == "desk"
    assert rack.access.user == "ops"
    assert rack.access.key == tmp_path / "home/.ssh/id_ed25519"
    assert rack.access.known_hosts == tmp_path / "desk/known_hosts"
    assert [str(cable.a) for cable in rack.cabling.cables] == ["spark1/1"]
    assert [str(address.interface) for address in rack.addresses] == [
        *("192.168.100.1/24", "192.168.101.1/24"),
        *("192.168.100.2/24", "192.168.101.2/24"),
    ]
    assert [node.vendor for node in rack.nodes.values()] == [None, None]


def test_a_copy_of_a_rack_still_tells_what_was_not_written(tmp_path: Path) -> None:
    rack = pickle.loads(pickle.dumps(rack_in(tmp_path)))  # noqa: S301 - our own bytes
    assert "rack" not in rack.model_fields_set
    assert "user" not in rack.access.model_fields_set
    written = rack_in(tmp_path, f"rack: desk\naccess: {{user: ops}}\n{SMALLEST}")
    assert "rack" in written.model_fields_set
    assert "user" in written.access.model_fields_set
    assert "key" not in written.access.model_fields_set


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("desk", "desk"),
        ("Übung mit Leerzeichen", "Ubung-mit-Leerzeichen"),
        ("desk/group_data", "desk"),
        ("..desk..", "desk"),
        ("d" * 80, "d" * 63),
    ],
)
def test_the_folder_names_the_rack(tmp_path: Path, folder: str, name: str) -> None:
    assert rack_in(tmp_path / folder).rack == name


def test_a_path_with_dots_names_the_folder_that_it_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rack_in(tmp_path / "desk")
    (tmp_path / "desk/below").mkdir()
    monkeypatch.chdir(tmp_path / "desk/below")
    assert load("../rack.yaml").rack == "desk"


@pytest.mark.parametrize("folder", ["", "/机架"])
def test_a_folder_without_a_letter_is_an_error_that_asks_for_a_name(folder: str) -> None:
    assert fault(SMALLEST, f"{folder}/rack.yaml") == (
        f"rack: is not written, and the folder {folder or '/'} gives no name; write rack: and a name, like rack: desk"
    )


@pytest.mark.parametrize(
    ("user", "what"),
    [
        ("root", "you are root here"),
        ("Ops.Name", "Ops.Name cannot be a user of the nodes"),
        ("", "a user without a name cannot be a user of the nodes"),
    ],
)
def test_who_cannot_be_the_user_of_the_nodes_is_asked_to_write_one(
    monkeypatch: pytest.MonkeyPatch, user: str, what: str
) -> None:
    monkeypatch.setattr(defaults, "local_user", lambda: user)
    right = "write the user of the nodes, like access: {user: ops}"
    assert fault(SMALLEST) == f"access.user: is not written, and {what}; {right}"


@pytest.mark.parametrize(
    ("there", "key"),
    [
        ([], "id_ed25519"),
        (["id_rsa"], "id_rsa"),
        (["id_rsa", "id_ecdsa"], "id_ecdsa"),
        (["id_rsa", "id_ed25519"], "id_ed25519"),
    ],
)
def test_the_key_is_the_first_that_exists(tmp_path: Path, there: list[str], key: str) -> None:
    (tmp_path / "home/.ssh").mkdir(parents=True)
    for name in there:
        (tmp_path / "home/.ssh" / name).touch()
    assert rack_in(tmp_path / "desk").access.key.name == key


def test_several_cables_between_nodes_have_the_pool() -> None:
    ports = {"a": "{0: b/1}", "b": "{0: c/1}", "c": "{0: a/1}"}
    nodes = "".join(f"  {name}: {{address: 10.77.0.{at}, ports: {ports[name]}}}\n" for at, name in enumerate(ports, 11))
    rack = load_text(f"nodes:\n{nodes}", "/desk/rack.yaml")
    assert rack.topology == "ring"
    assert str(rack.addresses[0].interface) == "10.100.0.1/24"
    assert fault(f"nodes:\n{nodes.replace('10.77.0.11', '10.100.1.7')}") == (
        "fabric.pool: is not written, and its default 10.100.0.0/20 contains 10.100.1.7, the address of a; "
        "write another private network, like pool: 10.200.0.0/20"
    )


def test_what_is_empty_is_an_error_and_not_the_default() -> None:
    empty = SMALLEST.replace("nodes:", "rack:\naccess: {user: , key: , known_hosts: }\nnodes:")
    with pytest.raises(ConfigError) as caught:
        load_text(empty, "/desk/rack.yaml")
    assert [(one.path, one.what) for one in caught.value.faults] == [
        ("rack", "is empty"),
        ("access.user", "is empty"),
        ("access.key", "is empty"),
        ("access.known_hosts", "is empty"),
    ]
