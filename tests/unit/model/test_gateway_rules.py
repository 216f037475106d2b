"""`serving.gateway` of a rack file: what is accepted, what is refused by its line, and the secrets that it refers
to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.model import load
from core.model.declared_secrets import declared_secrets, missing_file
from serving.gateway_router import units_by_model
from serving.gateway_rules import shared_names
from serving.options import frozen_argument, gateway_of, served_units, serving_of
from tests.unit.model.serving_racks import loaded, machines, put, refusals, text, unit

D = "serving.gateway"


def with_gateway(hosts: str = "", api: dict[str, Any] | None = None, **keys: Any) -> str:
    """A rack file with a gateway on n0 and a unit whose head is n0; None removes a key of the gateway."""
    whole = {"node": "n0", "keys": {"alice": {"file": "alice.key"}}, **keys}
    declared = {key: value for key, value in whole.items() if value is not None}
    units = {"qwen": unit(api=api or {"listen": "management"})}
    return text({}, hosts, serving={"units": units, "gateway": declared})


@pytest.mark.parametrize(
    "file",
    [
        with_gateway(),
        with_gateway(node="n1", port=8443, listen="local", body="1G"),
        with_gateway(api={"listen": "local"}),
        with_gateway(node="n1", api={"port": 443, "listen": "management"}),
        with_gateway(keys={"alice": {"env": "ALICE"}, "ci.nightly": {"command": ["pass", "show", "ci"]}}),
        with_gateway(certificate={"chain": "/etc/ssl/gateway.pem", "key": {"file": "gateway.key"}}),
        with_gateway(listen="fabric"),
        with_gateway(machines(3, "ring")),
        with_gateway(machines(3, "ring"), listen="local", api={"listen": "local"}),
    ],
)
def test_a_sound_gateway_is_accepted(file: str) -> None:
    assert refusals(file) == []


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (
            with_gateway(keys={}),
            (
                f"{D}.keys @ keys: has no key, so no client could use a unit; "
                "write one by its name, like alice: {file: alice.key}"
            ),
        ),
        (with_gateway(keys=None), f"{D}.keys @ gateway: is missing; write keys: {{alice: {{file: alice.key}}}}"),
        (with_gateway(node="n0x"), f"{D}.node @ node: there is no node called n0x; did you mean n0?"),
        (with_gateway(node="x"), f"{D}.node @ node: there is no node called x; write the name of a node in this file"),
        (with_gateway(port=22), f"{D}.port @ port: 22 is already the port of sshd; write another, like 443"),
        (
            with_gateway(port=8000),
            f"{D}.port @ port: 8000 is already the port of the API of unit qwen; write another, like 443",
        ),
        (
            with_gateway(port=29400),
            f"{D}.port @ port: 29400 is already a port of the coordinators (serving.port); write another, like 443",
        ),
        (
            with_gateway(port=40000),
            (
                f"{D}.port @ port: 40000 is one of 32768 to 60999, which the kernel gives to outgoing connections; "
                "write another, like 443"
            ),
        ),
        (
            with_gateway(node="n1", api={"listen": "local"}),
            (
                "serving.units.qwen.api.listen @ listen: the unit answers on loopback of n0 only, and the gateway is "
                "on "
                "n1; write management, or n0 at serving.gateway.node"
            ),
        ),
        (
            with_gateway(certificate={"chain": "gateway.pem"}),
            f"{D}.certificate.key @ certificate: is missing; write key: {{file: gateway.key}}",
        ),
        (with_gateway(body="2000M"), f"{D}.body @ body: 2000M is not a fit size for a request; write 1M to 1G"),
        (with_gateway(keyz={}), f"{D}.keyz @ keyz: unknown key; did you mean keys?"),
    ],
)
def test_a_mistake_in_a_gateway_is_refused(file: str, expected: str) -> None:
    assert refusals(file) == [expected]


def two_units(first: object, second: object, gateway: bool = True) -> str:
    """A rack file with two units that have these names of their model; None for that of the model itself."""
    units = {
        name: unit(
            nodes=[f"n{number}"],
            parallel=None,
            api={"listen": "management", "port": 8000 + number},
            args={"served-model-name": names} if names else None,
        )
        for number, (name, names) in enumerate((("one", first), ("two", second)))
    }
    declared = {"gateway": {"node": "n0", "keys": {"alice": {"file": "alice.key"}}}} if gateway else {}
    return text({}, serving={"units": units, **declared})


@pytest.mark.parametrize(
    ("first", "second", "line"),
    [
        (None, None, "serving.units.two.model @ model: unit one serves qwen, too"),
        (
            "glm",
            ["other", "glm"],
            "serving.units.two.args.served-model-name @ served-model-name: unit one serves glm, too",
        ),
        (["a", "qwen"], None, "serving.units.two.model @ model: unit one serves qwen, too"),
    ],
)
def test_a_name_that_two_units_serve_is_refused(first: object, second: object, line: str) -> None:
    (found,) = refusals(two_units(first, second))
    assert found.startswith(line)
    assert "write args: {served-model-name: two}, or one slot for units of which one is up at a time" in found
    assert refusals(two_units(first, second, gateway=False)) == []


def test_a_change_of_which_unit_is_up_changes_no_file_of_the_gateway() -> None:
    """So that a rack is as declared after `serve use`."""
    units = served_units(loaded(two_units(["qwen", "a"], None, gateway=False)))
    down = units["one"].model_copy(update={"state": "down"})
    for one in (units["one"], down):
        assert units_by_model([one, units["two"]]) == {"qwen": ("one", "two"), "a": ("one",)}


@pytest.mark.parametrize(
    "given",
    [
        "a=/cache/a",
        ["a=/cache/a"],
        '{"name": "a", "path": "/cache/a"}',
        [{"name": "a", "path": "/cache/a"}],
        ["{x", "a=b"],
    ],
)
def test_an_adapter_of_vllm_is_a_model_of_its_unit(given: object) -> None:
    units = served_units(loaded(two_units(None, "b", gateway=False)))
    one = units["one"].model_copy(update={"args": {"lora-modules": frozen_argument(given)}})
    assert units_by_model([one, units["two"]]) == {"qwen": ("one",), "a": ("one",), "b": ("two",)}


def test_units_whose_models_have_different_names_are_accepted() -> None:
    assert refusals(two_units(["qwen", "a", "a"], ["b", "Qwen"])) == []


@pytest.mark.parametrize(("slots", "refused"), [(("x", "x"), 0), (("x", "y"), 1), (("x", None), 1), ((None, None), 1)])
def test_units_of_one_slot_may_serve_one_name(slots: tuple[str | None, str | None], refused: int) -> None:
    serving = serving_of(loaded(two_units(None, None, gateway=False)))
    assert serving
    units = dict(zip(serving.units, slots, strict=True))
    changed = {name: serving.units[name].model_copy(update={"slot": slot}) for name, slot in units.items()}
    assert len(list(shared_names(serving.model_copy(update={"units": changed})))) == refused


@pytest.mark.parametrize(("kinds", "refused"), [(("chat", "chat"), 0), (("chat", "embedding"), 1)])
def test_units_of_a_slot_with_one_name_are_of_one_kind(kinds: tuple[str, str], refused: int) -> None:
    serving = serving_of(loaded(two_units(None, None, gateway=False)))
    assert serving
    changed = {
        name: one.model_copy(update={"slot": "x", "kind": kind})
        for (name, one), kind in zip(serving.units.items(), kinds, strict=True)
    }
    found = list(shared_names(serving.model_copy(update={"units": changed})))
    assert [one.path[-1] for one in found] == ["kind"] * refused
    assert all("of the same slot serves qwen as chat" in one.what for one in found)


def test_a_ring_has_no_fabric_address_for_a_gateway() -> None:
    (found,) = refusals(with_gateway(machines(3, "ring"), listen="fabric"))
    assert found.startswith(f"{D}.listen @ listen: n0 has an address for each of its cables, and none that all nodes")


@pytest.mark.parametrize("key", ["sk-quiet-horse", ["sk-quiet-horse"], {"value": "sk-quiet-horse"}])
def test_a_literal_key_is_refused_and_is_not_repeated(key: object) -> None:
    for file in (with_gateway(keys={"alice": key}), with_gateway(certificate={"chain": "gateway.pem", "key": key})):
        (found,) = refusals(file)
        assert "name where it is kept: {env: VARIABLE}, {file: path} or {command: [program, argument]}" in found
        assert "quiet-horse" not in found


def test_its_secrets_are_declared_and_a_missing_file_has_its_own_fix(tmp_path: Path) -> None:
    certificate = {"chain": "gateway.pem", "key": {"file": "gateway.key"}}
    rack = load(put(tmp_path, with_gateway(certificate=certificate)))
    secrets = {secret.path: missing_file(secret) for secret in declared_secrets(rack) if "gateway" in secret.path}
    alice, key = tmp_path / "alice.key", tmp_path / "gateway.key"
    assert secrets == {
        ("serving", "gateway", "keys", "alice"): (
            f"file {alice} does not exist; create it: (umask 077; openssl rand -hex 24 > {alice})"
        ),
        ("serving", "gateway", "certificate", "key"): (
            f"file {key} does not exist; put the private key of the certificate there: (umask 077; cat > {key})"
        ),
    }


def test_a_rack_without_a_gateway_has_none() -> None:
    rack = loaded(text({"qwen": unit()}))
    assert gateway_of(rack) is None
