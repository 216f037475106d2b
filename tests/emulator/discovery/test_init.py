"""`sparkrack init`: what can be found is filled in, what cannot is reported."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner

from core.routeros.api import ApiSession
from core.routeros.sentences import writes
from roles.driver.options import DriverOptions
from sparkrack.cli.main import sparkrack
from switch.differences import switch_differences
from switch.target_state import DeclaredTarget
from switch.verify_client import SwitchChecks
from tests.emulator.discovery.discovery_fixtures import HAND, Site, by_hand, settled
from tests.emulator.emulator_process import USER
from tests.emulator.test_init_terminal import Person


def test_init_with_nothing_but_addresses_leaves_gaps_that_check_names(site: Site) -> None:
    ended = CliRunner().invoke(sparkrack, site.words("init", "--switch", "127.0.0.9", switch=False))
    assert ended.exit_code == 2, ended.output
    text = site.out.read_text()
    assert "NOT FOUND" in text
    assert "not ready" in ended.output
    checked = CliRunner().invoke(sparkrack, ["check", "--rack", str(site.out)])
    assert checked.exit_code == 1
    assert f"{site.out}:" in checked.output


def test_init_is_ready_when_what_cannot_be_found_is_said(site: Site) -> None:
    more = ["--vendor", "asus", "--cage", "qsfp56-dd-1=4x100G", "--switch", "127.0.0.9", "--api-port", "9"]
    cables = [
        word
        for name, lane in (("spark1", 1), ("spark2", 3))
        for word in ("--cable", f"{name}/1=crs812/qsfp56-dd-1-{lane}")
    ]
    ended = CliRunner().invoke(sparkrack, site.words("init", *more, *cables, switch=False))
    assert ended.exit_code == 0, ended.output
    assert site.rack.cabling == HAND.cabling
    assert site.rack.switches["crs812"].password.env == "CRS812_PASSWORD"
    tls = site.rack.switches["crs812"].tls
    assert tls
    assert tls.sha256 == "0" * 64
    assert os.access(site.out, os.R_OK)


def test_the_plain_api_is_described_as_such_by_adopt_and_as_it_shall_be_by_init(site: Site) -> None:
    by_hand(site.switch, companions=True)
    settled(site)
    port = str(site.switch.plain_port)
    plain = ("--plain", "--switch", "127.0.0.1", "--api-port", port, "--switch-password-env", "CRS")
    code, reported = site.run("adopt", *plain, switch=False)
    assert code == 2, reported
    switch = site.rack.switches["crs812"]
    assert (switch.tls, switch.port) == (False, int(port))
    code, reported = site.run("init", *plain, "--yes", switch=False)
    # Complete but for one line: the port that a switch has from the factory is this machine's own at 127.0.0.1.
    assert code == 2, reported
    assert "switches.crs812.address: 127.0.0.1 with port 8729 is this machine itself" in reported
    written = site.out.read_text()
    assert "0" * 64 in written
    assert "tls: false" not in written


READY = (
    *("--vendor", "asus", "--yes"),
    *("--cable", "spark1/1=crs812/qsfp56-dd-1-1", "--cable", "spark2/1=crs812/qsfp56-dd-1-3"),
)


def test_the_file_of_init_applies_and_verify_reads_as_its_reader(site: Site) -> None:
    by_hand(site.switch, companions=True)
    settled(site)
    code, reported = site.run("init", *READY)
    assert code == 0, reported
    password = site.folder / "crs812-reader.password"
    assert password.stat().st_mode & 0o777 == 0o600
    secret = password.read_text().strip()
    assert len(secret) >= 40
    assert secret not in reported
    assert secret not in site.out.read_text()
    assert "*.password" in (site.folder / ".gitignore").read_text().splitlines()
    switch = site.rack.switches["crs812"]
    assert [str(subnet) for subnet in switch.management or ()] == ["127.0.0.0/8"]
    assert switch.reader
    # The emulator listens at ports of its own; its www-ssl row has that of the factory.
    file = site.out.read_text()
    port = f"password: {{file: {password.name}}}, port: {site.switch.rest_port}" if switch.reader.port == 443 else ""
    site.out.write_text(file.replace(f"password: {{file: {password.name}}}", port) if port else file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CRS", site.switch.password)
        rack = site.rack
        switch = rack.switches["crs812"]
        goal = DeclaredTarget(rack, switch)
        with ApiSession(
            "127.0.0.1",
            site.switch.tls_port,
            tls=site.switch.fingerprint,
            user=USER,
            password=switch.password.resolve(),
        ) as session:
            reading = goal.read(lambda sentence: session.talk(*sentence))
            for write in writes(goal.plan(reading).changes, reading.release):
                secrets = (f"={name}={ref.resolve().get_secret_value()}" for name, ref in write.secrets)
                session.talk(*write.sentence, *secrets)
        look = SwitchChecks(rack, switch)
        try:
            assert look.way == "REST as sparkrack-reader"
            found = switch_differences(switch, look.reading, DeclaredTarget(rack, switch).plan(look.reading))
            assert [one.text for one in found] == ["user admin is not in rack.yaml"]
        finally:
            look.close()


def test_a_password_that_exists_stays_and_the_options_leave_both_out(site: Site) -> None:
    by_hand(site.switch, companions=True)
    settled(site)
    code, reported = site.run("init", *READY, "--no-reader", "--no-management")
    assert code == 0, reported
    switch = site.rack.switches["crs812"]
    assert (switch.reader, switch.management) == (None, None)
    assert not (site.folder / "crs812-reader.password").exists()
    kept = site.folder / "crs812-reader.password"
    kept.write_text("a-password-that-exists-already\n")
    assert site.run("init", *READY)[0] == 0
    assert kept.read_text() == "a-password-that-exists-already\n"


@pytest.mark.parametrize(("answer", "declared"), [("", True), ("n", False)], ids=["agreed", "refused"])
def test_a_terminal_is_asked_about_reader_and_management(
    site: Site, monkeypatch: pytest.MonkeyPatch, answer: str, declared: bool
) -> None:
    by_hand(site.switch, companions=True)
    settled(site)
    monkeypatch.setenv("CRS", site.switch.password)
    person = Person(*site.words("init", *READY, "--user", "ops"))
    person.answer("limit the services of crs812 to 127.0.0.0/8, the subnet of this machine? [Y/n]:", answer)
    person.answer("declare a read-only user of crs812 for verify? [Y/n]:", answer)
    person.answer("Also hold the driver", answer)
    assert person.finish() == 0, person.shown
    switch = site.rack.switches["crs812"]
    assert (switch.reader is not None, switch.management is not None) == (declared, declared)
    assert (site.rack.declared(DriverOptions) is not None) == declared
    assert (site.folder / "crs812-reader.password").exists() is declared
    assert site.switch.password not in person.shown
