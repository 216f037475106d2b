"""Loading: what is given back for sound files, how files and faults are named, and that it is quick."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from ruamel.yaml.error import YAMLError

from core.model import ConfigError, load, rack_path
from core.model.loader import is_default, new_path
from core.model.schema import rack_model
from core.model.yaml_reader import explain
from roles.docker.options import DockerOptions
from roles.driver.options import DriverOptions
from roles.memory.options import MemoryOptions
from tests.unit.model.racks import ACCESS, CASES, DIRECT, JOINED, SUBNETS, VALID, loaded, node, switch

REFERENCE = Path(__file__).parents[3] / "examples" / "rack.yaml"


def test_reference_rack() -> None:
    rack = load(REFERENCE)
    assert list(rack.nodes) == [f"spark{number}" for number in range(1, 9)]
    assert rack.topology == "switch"
    assert {str(leg) for leg, _ in rack.cabling.legs("crs812")} == {
        f"crs812/qsfp56-dd-{cage}-{lane}" for cage in (1, 2) for lane in (1, 3, 5, 7)
    }
    assert rack.source == REFERENCE
    assert rack.access.known_hosts == REFERENCE.parent / "known_hosts"
    assert rack.access.key == Path.home() / ".ssh/id_ed25519"
    assert rack.options(DriverOptions).version == "580.159"


def test_defaults() -> None:
    rack = load(VALID / "direct.yaml")
    assert (rack.access.port, rack.fabric.mtu, rack.options(DockerOptions).memory) == (22, 9000, "100G")
    assert rack.options(MemoryOptions).model_dump() == {
        "swap": False,
        "overcommit_memory": 0,
        "min_free_kbytes": 1572864,
        "floor": "3G",
    }
    assert (rack.declared(DriverOptions), rack.images, dict(rack.switches)) == (None, (), {})


def test_single_node_needs_no_cable() -> None:
    rack = loaded(f"rack: one\n{ACCESS}nodes:\n{node('n', 0, {})}{SUBNETS}")
    assert (rack.topology, rack.addresses) == ("direct", ())


def test_path_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RACK", "elsewhere.yaml")
    assert rack_path() == new_path() == Path("elsewhere.yaml")
    monkeypatch.setenv("RACK", "")
    assert rack_path() == new_path() == Path("rack.yaml")
    monkeypatch.delenv("RACK")
    assert rack_path() == new_path() == Path("rack.yaml")


def test_path_of_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RACK", raising=False)
    own, in_clone = Path("rack.yaml"), Path("group_data/rack.yaml")
    in_clone.parent.mkdir()
    in_clone.write_text("rack: one\n")
    assert rack_path() == in_clone
    assert is_default(tmp_path / in_clone)
    own.write_text("rack: one\n")
    assert rack_path() == own, "both are the same"
    own.write_text("rack: two\n")
    with pytest.raises(ConfigError) as caught:
        rack_path()
    right = "name one of them: RACK=rack.yaml or RACK=group_data/rack.yaml"
    assert str(caught.value) == f"rack.yaml: differs from group_data/rack.yaml; {right}"
    assert not is_default(own)
    monkeypatch.setenv("RACK", str(in_clone))
    assert rack_path() == in_clone
    monkeypatch.delenv("RACK")
    own.unlink()
    own.mkdir()
    with pytest.raises(ConfigError, match="differs from"):
        rack_path()


def test_a_new_file_does_not_hide_the_one_of_a_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RACK", raising=False)
    Path("group_data").mkdir()
    Path("group_data/rack.yaml").touch()
    with pytest.raises(ConfigError) as caught:
        new_path()
    right = "name the file to write: --out group_data/rack.yaml or --out rack.yaml"
    assert str(caught.value) == f"group_data/rack.yaml: is a rack file already; {right}"


def test_file_is_named_as_the_caller_named_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES.parent)
    for name in ("racks/wrong-type.yaml", str(CASES / "wrong-type.yaml")):
        with pytest.raises(ConfigError) as caught:
            load(name)
        assert str(caught.value).startswith(f"{name}:14: ")
        assert caught.value.faults[0].path == "nodes.spark2.address"
        assert caught.value.faults[0].line == 14


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    text = (VALID / "direct.yaml").read_text()
    file = tmp_path / "rack.yaml"
    file.write_text(f"{text}#{'x' * (1024 * 1024 - len(text.encode()) - 1)}")
    assert file.stat().st_size == 1024 * 1024
    assert load(file).nodes.keys() == load(VALID / "direct.yaml").nodes.keys()


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    where = "; write one with `sparkrack init`, or name another with RACK=path"
    to_a_file = "; write the rack to a file and name that"
    expected = {
        str(tmp_path): f"{tmp_path}: cannot be read: Is a directory{where}",
        "a\nb\x1b[31m.yaml": rf"a\nb\x1b[31m.yaml: cannot be read: No such file or directory{where}",
        "a\0b": rf"a\x00b: cannot be read: embedded null byte{where}",
        "/dev/zero": f"/dev/zero: cannot be read: is a device, not a regular file{to_a_file}",
        str(tmp_path / "fifo"): f"{tmp_path}/fifo: cannot be read: is a FIFO, not a regular file{to_a_file}",
        str(tmp_path / "socket"): f"{tmp_path}/socket: cannot be read: is a socket, not a regular file{to_a_file}",
        str(tmp_path / "large"): f"{tmp_path}/large: is larger than 1048576 bytes, which no rack file is{where}",
    }
    os.mkfifo(tmp_path / "fifo")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "socket"))
    with (tmp_path / "large").open("wb") as large:
        large.truncate(2**40)
    for name, message in expected.items():
        with pytest.raises(ConfigError) as caught:
            load(name)
        assert str(caught.value) == message
    listening.close()


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "rack.yaml"
    path.write_bytes(b"rack: x\naccess: \xff\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value) == f"{path}:2: is not UTF-8 text; save the file as UTF-8"
    path.write_bytes(b"\xef\xbb\xbf" + DIRECT.encode())  # what some editors put first
    assert load(path).rack == "pair"


def test_a_process_substitution_is_not_a_rack_file() -> None:
    """A run reads the file more than once, and the second reader of a pipe finds it empty, or waits."""
    reading, writing = os.pipe()
    os.write(writing, DIRECT.encode())
    try:
        with pytest.raises(ConfigError) as caught:
            load(f"/dev/fd/{reading}")
    finally:
        os.close(reading)
        os.close(writing)
    what = "cannot be read: is a FIFO, not a regular file; write the rack to a file and name that"
    assert str(caught.value) == f"/dev/fd/{reading}: {what}"


def test_of_many_faults_the_first_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "rack.yaml"
    path.write_text(DIRECT + "".join(f"key{number}: 1\n" for number in range(20_000)))
    with pytest.raises(ConfigError) as caught:
        load(path)
    lines = str(caught.value).splitlines()
    assert len(caught.value.faults) == 20_000
    assert len(lines) == 51
    assert lines[0].endswith(
        "known keys are " + ", ".join(name for name in rack_model().model_fields if name != "source")
    )
    assert lines[-1] == f"{path}: and 19950 more"


def test_sixty_four_nodes_and_eight_switches_load(tmp_path: Path) -> None:
    lanes = [f"{cage}-{lane}" for cage in ("qsfp56-dd-1", "qsfp56-dd-2") for lane in (1, 3, 5, 7)]
    nodes = "".join(
        node(f"spark{number}", number, {1: f"crs{number // 8}/{lanes[number % 8]}"}) for number in range(64)
    )
    cages = {"qsfp56-dd-1": "4x100G", "qsfp56-dd-2": "4x100G"}
    switches = "".join(switch(f"crs{number}", number, cages) for number in range(8))
    path = tmp_path / "rack.yaml"
    path.write_text(f"rack: large\n{ACCESS}nodes:\n{nodes}switches:\n{switches}{JOINED}")
    rack = load(path)
    assert len(rack.nodes) == 64
    assert len(rack.cabling.cables) == 64
    assert [len(rack.cabling.legs(name)) for name in rack.switches] == [8] * 8


def test_a_fault_without_a_place_is_reported_for_the_first_line() -> None:
    assert explain(YAMLError("odd"), "a: 1\nb: 2\n") == (1, "is not YAML", "check quotes, brackets and indentation")
