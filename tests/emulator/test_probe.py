"""`sparkrack probe switch` only reads, tells nobody's secrets, and what it records is enough to be that switch."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.crs812.config import Cable, Tail, User
from switch.probe import probe
from tests.emulator.conftest import MakeSwitch
from tests.emulator.direct import READER_PASSWORD, WHOLE, Operator
from tests.emulator.peer import USER, Crs812Process, stop_all
from tests.unit.cli.runs import Ended, command

NODE_MACS = ("E8:9E:49:12:34:56", "E8:9E:49:12:34:57", "5A:11:22:33:44:55")
CABLE = Cable(
    cage="qsfp56-dd-1",
    tails=tuple(
        Tail(lane=lane, lanes=2, gbps=100, node=f"spark{number}", port=1, macs=NODE_MACS if number == 1 else ())
        for number, lane in enumerate((1, 3, 5, 7), start=1)
    ),
)

PLANTED = (
    *("acme-berlin", "alice.smith", "hunter2-hunter2", "wolpertinger", "Invalidenstrasse", "+49 30 5550100"),
    *("sekrit-community", "uplink-to-acme", "9.9.9.9", "203.0.113", "198.51.100.77", "ntp.acme.example", "1.2.3.4"),
    *("0815-pin", "acme-script", "acme-schedule", "acmelog", "acme-class", "acme-group", "acme-lan", "Berlin"),
    *("ZX-9-SERIAL", *NODE_MACS, "12:34:5", "LAB00"),
)
"""What the switch is given that no fixture may show."""

VOLATILE = ("uptime", "free-memory", "cpu-load", "free-hdd-space", "when", "time", "date")


def _plant(operator: Operator) -> None:
    """Secrets and names of an owner wherever RouterOS takes any."""
    note = "=comment=wolpertinger of alice.smith"
    with operator.open() as session:

        def row(path: str, *query: str) -> str:
            return "=.id=" + session.talk(f"{path}/print", "=.proplist=.id", *query)[0][".id"]

        session.talk("/system/identity/set", "=name=acme-berlin")
        ethernet = "/interface/ethernet"
        session.talk(f"{ethernet}/set", row(ethernet, "?name=sfp56-7"), "=name=uplink-to-acme", note)
        session.talk("/interface/bridge/add", "=name=acme-lan", note)
        session.talk("/interface/bridge/vlan/add", "=bridge=bridge", "=vlan-ids=7", "=tagged=uplink-to-acme", note)
        session.talk("/interface/ethernet/switch/qos/profile/add", "=name=acme-class", "=dscp=9", note)
        session.talk("/user/group/add", "=name=acme-group", "=policy=read", note)
        user = ("=name=alice.smith", "=group=acme-group", "=password=hunter2-hunter2", "=address=203.0.113.0/24")
        session.talk("/user/add", *user, note)
        session.talk("/snmp/set", "=contact=+49 30 5550100", "=location=Invalidenstrasse", "=trap-target=1.2.3.4")
        keys = ("=authentication-password=hunter2-hunter2", "=encryption-password=hunter2-hunter2")
        session.talk("/snmp/community/add", "=name=sekrit-community", "=addresses=203.0.113.0/24", *keys)
        session.talk("/system/script/add", "=name=acme-script", "=source=:put hunter2-hunter2", note)
        session.talk("/system/scheduler/add", "=name=acme-schedule", "=on-event=acme-script 0815-pin", note)
        session.talk("/ip/dns/set", "=servers=9.9.9.9")
        session.talk("/system/ntp/client/set", "=servers=ntp.acme.example,198.51.100.77")
        session.talk("/system/logging/action/add", "=name=acmelog", "=target=remote", "=remote=198.51.100.77")
        session.talk("/system/logging/add", "=topics=info", "=action=acmelog", "=prefix=acme-berlin")
        session.talk("/ip/service/set", row("/ip/service", "?name=winbox"), "=address=203.0.113.0/24")


class Owner:
    """Somebody with a planted switch, who probes it."""

    def __init__(self, folder: Path, emulator: Crs812Process) -> None:
        self.folder, self.emulator = folder, emulator
        os.environ.setdefault(READER_PASSWORD, "a-reader's-own-long-password")
        self.operator = Operator(folder, emulator, WHOLE)
        goal = self.operator.goal()
        ended, _ = self.operator.run(goal)
        assert ended.done, ended
        _plant(self.operator)

    def probe(self, *words: str | Path) -> Ended:
        arguments: list[str | Path] = ["probe", "switch", "--rack", self.folder / "rack.yaml", *words]
        return command("sparkrack", *arguments, CRS812_PASSWORD=self.emulator.password)


def _cables() -> tuple[Cable, ...]:
    second = Cable(cage="qsfp56-dd-2", tails=tuple(tail.model_copy(update={"macs": ()}) for tail in CABLE.tails))
    return (CABLE, second)


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owner]:
    folder = tmp_path_factory.mktemp("owner")
    emulator = Crs812Process(folder / "switch", serial="ZX-9-SERIAL", cables=_cables()).start()
    yield Owner(folder, emulator)
    stop_all([emulator])


@pytest.fixture(scope="module")
def recorded(owner: Owner) -> Path:
    """The fixture that the owner may send."""
    path = owner.folder / "fixture.json"
    ended = owner.probe("-o", path)
    assert ended.code == 0, ended.text
    return path


def _state(emulator: Crs812Process) -> str:
    return hashlib.sha256(json.dumps(emulator.state()["tables"], sort_keys=True).encode()).hexdigest()


def test_a_probe_writes_nothing(owner: Owner) -> None:
    writes, before = owner.emulator.writes(), _settled(owner.emulator)
    assert owner.probe().code == 0
    assert owner.emulator.writes() == writes
    assert _settled(owner.emulator) == before
    verbs = {line["command"].rpartition("/")[2] for line in owner.emulator.log() if line.get("session")}
    assert verbs >= {"print", "monitor", "inspect"}


def _settled(emulator: Crs812Process) -> str:
    """A digest of all tables but for counters, which run."""
    tables = emulator.state()["tables"]
    kept = {
        path: [
            {name: value for name, value in row.items() if not name.endswith(("-bytes", "-corrected"))} for row in rows
        ]
        for path, rows in tables.items()
    }
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def test_nothing_but_reading_can_be_sent() -> None:
    from switch.probe import _ask

    with pytest.raises(ValueError, match="no sentence that reads"):
        _ask(None, "/user/add", "=name=x")  # type: ignore[arg-type]


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_the_owners_is_not_shown(recorded: Path, owner: Owner, planted: str) -> None:
    everything = json.dumps(owner.emulator.state()["tables"]) + json.dumps(PLANTED)
    assert planted.lower() in everything.lower()
    assert planted.lower() not in recorded.read_text().lower()


def test_nor_the_password_or_user_of_the_probe(recorded: Path, owner: Owner) -> None:
    text = recorded.read_text()
    assert owner.emulator.password not in text
    assert all(row["name"] != USER for row in json.loads(text)["menus"]["/user"])


def test_no_mac_of_the_unit_is_shown(recorded: Path, owner: Owner) -> None:
    text = recorded.read_text()
    macs = [row["mac-address"] for row in owner.emulator.state()["tables"]["/interface/ethernet"]]
    assert len(macs) == 34
    assert [mac for mac in macs if mac in text or mac[9:] in text] == []


def test_macs_keep_their_vendor_and_their_order(recorded: Path) -> None:
    rows = json.loads(recorded.read_text())["menus"]["/interface/ethernet"]
    macs = sorted(int(row["mac-address"].replace(":", ""), 16) for row in rows)
    assert macs == list(range(0xD401C3000000, 0xD401C3000000 + 34))


def test_what_refers_to_what_is_still_seen(recorded: Path) -> None:
    menus = json.loads(recorded.read_text())["menus"]
    named = next(row["name"] for row in menus["/interface/ethernet"] if row["default-name"] == "sfp56-7")
    assert named.startswith("interface-")
    assert [row["tagged"] for row in menus["/interface/bridge/vlan"] if row["vlan-ids"] == "7"] == [named]
    group = next(row["group"] for row in menus["/user"] if row["group"].startswith("group-"))
    assert group in [row["name"] for row in menus["/user/group"]]


def test_the_file_is_its_owners_alone_and_the_user_is_told(owner: Owner, tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    ended = owner.probe("-o", path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ended.stdout == ""
    assert "replaced by stand-ins: " in ended.stderr
    assert "MAC address 36" in ended.stderr or "MAC address 3" in ended.stderr
    assert f"look at {path} before you send it" in ended.stderr


def test_the_open_questions_are_answered(recorded: Path) -> None:
    document = json.loads(recorded.read_text())
    answers = {entry["question"][0]: entry for entry in document["questions"]}
    assert list(answers) == list("123456789")
    assert answers["2"]["answer"] == "status no-link; rate (not printed); running false"
    assert len(answers["2"]["evidence"]) == 8
    assert answers["3"]["evidence"][0] == {"egress-rate-queueN": ["100000000000"]}
    assert answers["3"]["evidence"][1] == {"max-l2mtu": ["9570", "9586"]}
    assert answers["4"]["answer"].startswith("the switch shows fec91")
    assert answers["5"]["evidence"][0]["qsfp56-dd-1-1"] == "*4"
    assert answers["7"]["answer"] == "7.23.7 (long-term) has all that we use of it"
    assert answers["8"]["answer"] == "needs a write, not asked"
    assert document["lacking"] == []
    assert document["hosts"] == {"all": 38, "own": 34} or document["hosts"]["own"] == 34


def test_an_illegal_pair_is_evidence(make_switch: MakeSwitch, tmp_path: Path) -> None:
    emulator = make_switch()
    operator = Operator(tmp_path, emulator)
    with operator.open() as session:
        (row,) = session.talk("/interface/ethernet/print", "=.proplist=.id", "?name=qsfp56-dd-2-2")
        session.talk("/interface/ethernet/set", f"=.id={row['.id']}", "=auto-negotiation=no", "=speed=200G-baseCR4")
        document = probe(session).document
    first = document["questions"][0]
    assert first["answer"].startswith("such a pair is set")
    assert [lane["default-name"] for lane in first["evidence"]] == ["qsfp56-dd-2-2"]


MakeRecorded = Callable[..., Crs812Process]


@pytest.fixture
def start_recorded(tmp_path: Path) -> Iterator[MakeRecorded]:
    """Start the emulator as the unit of a fixture, where `user-1` can log in."""
    made: list[Crs812Process] = []

    def start(fixture: Path, **overrides: Any) -> Crs812Process:
        folder = tmp_path / f"recorded{len(made)}"
        switch = Crs812Process(folder, cables=(), **overrides)
        user = User(name="user-1", password_file=folder / "password")
        switch.config = switch.config.model_copy(update={"users": (user,)})
        switch.start("--fixture", str(fixture))
        made.append(switch)
        return switch

    yield start
    stop_all(made)


def _probed(switch: Crs812Process) -> dict[str, Any]:
    from pydantic import SecretStr

    from switch.api import Session

    options: dict[str, Any] = {"tls": switch.fingerprint, "user": "user-1", "password": SecretStr(switch.password)}
    with Session("127.0.0.1", switch.tls_port, **options) as session:
        return probe(session).document


def _comparable(document: dict[str, Any]) -> dict[str, Any]:
    found = copy.deepcopy(document)
    for path, rows in found["menus"].items():
        for row in rows:
            for name in VOLATILE:
                row.pop(name, None)
            if path == "/user/active":
                row.pop(".id", None)
    return found


def test_the_emulator_started_from_a_fixture_gives_it_again(recorded: Path, start_recorded: MakeRecorded) -> None:
    document = json.loads(recorded.read_text())
    switch = start_recorded(recorded)
    again = _probed(switch)
    menus = document["menus"]
    assert {
        path for path in menus if _comparable(document)["menus"][path] != _comparable(again)["menus"][path]
    } == set()
    assert _comparable(again)["monitor"] == _comparable(document)["monitor"]
    differs = {key for key in document if _comparable(document)[key] != _comparable(again)[key]}
    # Who was heard behind which port is not in a fixture, so the emulator hears nobody but us.
    assert differs <= {"hosts"}


def test_fields_and_ids_of_a_real_unit_stay(recorded: Path, start_recorded: MakeRecorded, tmp_path: Path) -> None:
    document = json.loads(recorded.read_text())
    document["version"] = "7.23.9 (stable)"
    document["menus"]["/system/resource"][0] |= {"version": "7.23.9 (stable)", "cpu-model": "AL52400"}
    for row in document["menus"]["/interface/ethernet"]:
        row[".id"] = f"*{int(row['.id'][1:], 16) + 0x100:X}"
        row["sfp-new-field"] = "17"
    bridge = document["menus"]["/interface/bridge"][0]
    bridge[".id"] = "*1F0"
    for row in document["monitor"]:
        row["sfp-temperature"] = "41C"
    path = tmp_path / "real.json"
    path.write_text(json.dumps(document))
    again = _probed(start_recorded(path))
    assert again["version"] == "7.23.9 (stable)"
    assert again["menus"]["/system/resource"][0]["cpu-model"] == "AL52400"
    ids = {row["default-name"]: row[".id"] for row in again["menus"]["/interface/ethernet"]}
    assert ids["qsfp56-dd-1-1"] == "*104"
    assert {row["sfp-new-field"] for row in again["menus"]["/interface/ethernet"]} == {"17"}
    assert {row["sfp-temperature"] for row in again["monitor"]} == {"41C"}
    assert again["menus"]["/interface/bridge"][0][".id"] == "*1F0"


def test_a_recorded_unit_can_be_worked_with(recorded: Path, start_recorded: MakeRecorded) -> None:
    from pydantic import SecretStr

    from switch.api import Session

    switch = start_recorded(recorded)
    options: dict[str, Any] = {"tls": switch.fingerprint, "user": "user-1", "password": SecretStr(switch.password)}
    with Session("127.0.0.1", switch.tls_port, **options) as session:
        assert switch.links()["qsfp56-dd-1-3"] == "link-ok"
        (row,) = session.talk("/interface/ethernet/print", "=.proplist=.id", "?name=qsfp56-dd-1-3")
        session.talk("/interface/ethernet/set", f"=.id={row['.id']}", "=fec-mode=off")
        (added,) = session.talk("/interface/bridge/add", "=name=another")
        taken = {row[".id"] for row in session.talk("/interface/print", "=.proplist=.id")}
        assert added["ret"] in taken
    assert switch.links()["qsfp56-dd-1-3"] != "link-ok"


def test_a_release_without_a_menu_is_recorded_and_played_so(
    make_switch: MakeSwitch, start_recorded: MakeRecorded, tmp_path: Path
) -> None:
    old = make_switch(version="7.20.8 (long-term)")
    with Operator(tmp_path, old).open() as session:
        document = probe(session).document
    pfc = "/interface/ethernet/switch/qos/priority-flow-control"
    assert set(document["refused"]) == {pfc}
    assert f"{pfc}/add" in document["lacking"]
    assert document["questions"][6]["answer"] == "7.20.8 (long-term) does not have all of it"
    path = tmp_path / "old.json"
    path.write_text(json.dumps(document))
    again = _probed(start_recorded(path))
    assert again["refused"] == document["refused"]
    assert again["lacking"] == document["lacking"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a fixture"),
        ('{"format": 2}', "another format"),
        ('{"format": 1, "version": "7.23", "menus": {}, "monitor": [], "refused": {}}', "not of a CRS812"),
        ('{"format": 1, "version": "7.23", "menus": {"/x": [{"a": 1}]}, "monitor": [], "refused": {}}', "no text"),
    ],
)
def test_what_is_no_fixture_is_refused(start_recorded: MakeRecorded, tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "fixture.json"
    path.write_text(text)
    with pytest.raises(RuntimeError, match=why):
        start_recorded(path)
