"""The passwords of SNMP communities: a switch prints them to users with the policy `sensitive`, we never do."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.routeros_emulator.export import text
from tests.emulator import reference
from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import USER, Crs812Process, stop_all
from tests.emulator.in_process_device import Bench, limited
from tests.emulator.rest_client import Web
from tests.emulator.restore_fixtures import SECRETS, SNMP, Restorer
from tests.emulator.switch_runs import Workdir
from tests.emulator.transactions import WHOLE
from tests.unit.cli.runs import forked

COMMUNITY = "/snmp/community"
FIELDS = ("authentication-password", "encryption-password")
BY_HAND = ("canary-by-hand-a", "canary-by-hand-e")
"""Passwords of a community that rack.yaml does not declare: the program cannot know them as its secrets."""
CANARIES = (*BY_HAND, *SECRETS.values())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    given = (f"={name}={value}" for name, value in zip(FIELDS, BY_HAND, strict=True))
    made.ask(f"{COMMUNITY}/add", "=name=hand", *given)
    return made


def test_users_with_the_policy_sensitive_see_them(bench: Bench) -> None:
    public, hand = bench.rows(COMMUNITY)
    assert tuple(hand[name] for name in FIELDS) == BY_HAND
    assert tuple(public[name] for name in FIELDS) == ("", "")
    assert bench.ask(f"{COMMUNITY}/get", "=number=hand", f"=value-name={FIELDS[0]}").ret == BY_HAND[0]
    assert len(bench.rows(COMMUNITY, f"?{FIELDS[0]}={BY_HAND[0]}")) == 1


def test_others_do_not(bench: Bench) -> None:
    eve = limited(bench.client, "read", "api")
    rows = bench.ask(f"{COMMUNITY}/print", client=eve).rows
    assert [row["name"] for row in rows] == ["public", "hand"]
    assert not [name for row in rows for name in FIELDS if name in row]
    assert bench.ask(f"{COMMUNITY}/print", f"?{FIELDS[0]}={BY_HAND[0]}", client=eve).rows == []
    for words in (("=number=hand",), ("=number=hand", f"=value-name={FIELDS[0]}")):
        assert BY_HAND[0] not in str(bench.ask(f"{COMMUNITY}/get", *words, client=eve).ret)


def test_an_export_has_them_on_request_only(bench: Bench) -> None:
    bench.ask("/export", "=file=plain")
    bench.ask("/export", "=file=all", "=show-sensitive=")
    plain, everything = (bench.device.files.read(f"{name}.rsc").decode() for name in ("plain", "all"))
    assert "add name=hand" in plain.replace('"', "")
    assert [value in plain for value in BY_HAND] == [False, False]
    assert [value in everything for value in BY_HAND] == [True, True]
    assert BY_HAND[0] not in text(bench.device)


def test_over_rest_too_and_after_a_restart(make_switch: MakeSwitch) -> None:
    switch = make_switch()
    assert switch.www_port
    owner = Web(f"http://127.0.0.1:{switch.www_port}", USER, switch.password)
    body = {"name": "hand", **dict(zip(FIELDS, BY_HAND, strict=True))}
    owner.ask("PUT", COMMUNITY, body)
    assert owner.ask("GET", f"{COMMUNITY}/hand").json() | body == owner.ask("GET", f"{COMMUNITY}/hand").json()
    owner.ask("PUT", "/user/group", {"name": "viewer", "policy": "read,rest-api"})
    owner.ask("PUT", "/user", {"name": "eve", "group": "viewer", "password": "look"})
    eve = Web(f"http://127.0.0.1:{switch.www_port}", "eve", "look")
    assert not set(FIELDS) & eve.ask("GET", f"{COMMUNITY}/hand").json().keys()
    switch.stop()
    assert not [value for value in BY_HAND if value in switch.config.log.read_text()]
    switch.start()
    owner = Web(f"http://127.0.0.1:{switch.www_port}", USER, switch.password)
    assert owner.ask("GET", f"{COMMUNITY}/hand").json()[FIELDS[1]] == BY_HAND[1]


@pytest.fixture(scope="module")
def produced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What our programs print and keep about a switch that shows us these passwords: text by its source."""
    folder = tmp_path_factory.mktemp("snmp")
    emulator = Crs812Process(folder / "switch", settle=0.05).start()
    (folder / "desk").mkdir()
    try:
        yield _produce_outputs(folder / "desk", emulator)
    finally:
        stop_all([emulator])


def _produce_outputs(folder: Path, emulator: Crs812Process) -> dict[str, str]:
    workdir = Restorer(folder, emulator)
    workdir.deploy()
    workdir.add(COMMUNITY, name="hand", **dict(zip((name.replace("-", "_") for name in FIELDS), BY_HAND, strict=True)))
    workdir.write("/system/identity", name="spoilt")
    with workdir.operator.open() as session:
        seen = json.dumps(session.talk(f"{COMMUNITY}/print"))
    assert all(canary in seen for canary in CANARIES), "the switch shows them to the user of rack.yaml"
    reference.refuse_at_first_node(folder / "rack.yaml")
    state, out = folder / "state", folder / "out"
    out.mkdir()
    settings: dict[str, Any] = {
        "CRS812_PASSWORD": emulator.password,
        "XDG_STATE_HOME": str(state),
        "RACK": str(folder / "rack.yaml"),
    }
    limit = ("--limit", "crs812")
    found = {}
    for name, words in {
        "plan": ("-v", "plan", *limit, "--out", out / "kept.plan"),
        "drift": ("-v", "drift", *limit, "--json"),
        "apply": ("-v", "apply", *limit, "-y", "--no-lock"),
        "accept": ("-v", "accept", "--limit", "switches", "--bundle", out / "bundle.tar.gz"),
        "support": ("support", "switches", "--out", out / "support"),
    }.items():
        ended = forked("sparkrack", *words, **settings)
        # `accept`: the switch of this test has no reader, so some claims are unknown.
        assert ended.code == {"plan": 2, "drift": 2, "accept": 1}.get(name, 0), f"{name}: {ended.text}"
        found[f"output of {name}"] = ended.text
    workdir.write("/system/identity", name="spoilt")
    desk = Workdir(folder, emulator, {**WHOLE, "snmp": SNMP})
    desk.write()
    found["output of pyinfra"] = desk.run("-y", "-vvv", "--debug", "--diff").text
    for path in (path for top in (state, out) for path in top.rglob("*") if path.is_file()):
        if path.name.endswith(".tar.gz"):
            with tarfile.open(path) as archive:
                parts = {entry.name.partition("/")[2]: archive.extractfile(entry) for entry in archive}
                found |= {f"{path.name}: {name}": part.read().decode() for name, part in parts.items() if part}
        elif path.name != "unit.backup":  # encrypted on a real switch
            found[str(path.relative_to(folder))] = path.read_text()
    return found


@pytest.mark.parametrize(
    "kind", [".ndjson", ".log", "rows.json", "export.rsc", "bundle.tar.gz: ", "support-", "output of"]
)
def test_nothing_of_ours_has_them(produced: dict[str, str], kind: str) -> None:
    texts = {name: text for name, text in produced.items() if kind in name}
    assert texts, list(produced)
    assert not [(name, canary) for name, text in texts.items() for canary in CANARIES if canary in text]


def test_nor_has_any_other_file(produced: dict[str, str]) -> None:
    assert not [(name, canary) for name, text in produced.items() for canary in CANARIES if canary in text]
    assert "/snmp/community" in produced["output of plan"], "their menu was read"
