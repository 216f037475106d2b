"""The types: frozen, hashable, copyable."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from core.model import load
from core.model.fields import Fingerprint, FrozenDict
from tests.unit.model.racks import SWITCH, VALID, changed, loaded


def test_a_rack_does_not_change() -> None:
    rack = load(VALID / "switch.yaml")
    with pytest.raises(ValidationError):
        rack.rack = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        rack.nodes["spark1"].ports[0] = "spark2/0"  # type: ignore[index]
    with pytest.raises(TypeError):
        rack.nodes.clear()  # type: ignore[attr-defined]


@pytest.mark.parametrize("change", ["clear", "pop", "popitem", "setdefault", "update", "__delitem__", "__ior__"])
def test_a_frozen_mapping_has_no_way_in(change: str) -> None:
    frozen = FrozenDict({"a": 1})
    with pytest.raises(TypeError):
        getattr(frozen, change)({"a": 2})
    assert frozen == {"a": 1}


def test_racks_are_compared_hashed_and_copied() -> None:
    rack, again = load(VALID / "ring.yaml"), load(VALID / "ring.yaml")
    assert rack == again
    assert hash(rack) == hash(again)
    assert len(rack.addresses) == 12  # derived values do not count
    assert rack == again
    for twin in (copy.copy(rack), copy.deepcopy(rack), pickle.loads(pickle.dumps(rack))):  # noqa: S301
        assert twin == rack
        assert twin.cabling == rack.cabling
    assert load(VALID / "direct.yaml") != rack


def test_a_rack_as_json_names_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {"CRS812_PASSWORD": "hunter2", "READER": "hunter3", "SNMP_A": "hunter4", "SNMP_E": "hunter5"}
    for name, secret in secrets.items():
        monkeypatch.setenv(name, secret)
    rack = load(VALID / "kept.yaml")
    crs812 = rack.switches["crs812"]
    assert crs812.reader
    assert crs812.snmp
    references = (crs812.password, crs812.reader.password, crs812.snmp.authentication, crs812.snmp.encryption)
    assert [reference.resolve().get_secret_value() for reference in references] == list(secrets.values())
    text = rack.model_dump_json()
    assert json.loads(text)["nodes"]["spark1"]["ports"] == {"1": "crs812/qsfp56-dd-1-1"}
    for section in (rack, crs812, crs812.reader, crs812.snmp):
        shown = json.dumps(section.to_json()) + repr(section) + str(section)
        assert "hunter" not in text + shown


@pytest.mark.parametrize("vendor", ["nvidia", "asus", "lenovo", "acer", "dell", "gigabyte", "hp", "msi"])
def test_vendors(vendor: str) -> None:
    assert loaded(changed(SWITCH, ("vendor: asus", f"vendor: {vendor}"))).nodes["spark1"].vendor == vendor


def test_mtu_bounds() -> None:
    rack = loaded(changed(SWITCH, ("    mtu: 9000", "    mtu: 9570"), ("l2mtu: 9500", "l2mtu: 9570")))
    assert rack.switches["crs812"].mtu == rack.switches["crs812"].l2mtu == 9570


def test_paths() -> None:
    text = changed(SWITCH, ("~/.ssh/id_ed25519", "keys/id"), ("known_hosts: known_hosts", "known_hosts: /etc/known"))
    rack = loaded(text)
    assert rack.access.key == rack.source.parent / "keys/id"
    assert rack.access.known_hosts == Path("/etc/known")


@given(st.binary(min_size=32, max_size=32), st.booleans(), st.booleans())
def test_fingerprints_are_normalised(raw: bytes, upper: bool, colons: bool) -> None:
    text = raw.hex(":") if colons else raw.hex()
    assert TypeAdapter(Fingerprint).validate_python(text.upper() if upper else text) == raw.hex()
