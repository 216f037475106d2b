"""`sparkrack init`: what can be found is filled in, what cannot is said."""

from __future__ import annotations

import os

from click.testing import CliRunner

from sparkrack.cli.main import sparkrack

from .site import HAND, Site, by_hand, settled


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
    code, said = site.run("adopt", *plain, switch=False)
    assert code == 2, said
    switch = site.rack.switches["crs812"]
    assert (switch.tls, switch.port) == (False, int(port))
    code, said = site.run("init", *plain, "--yes", switch=False)
    # Complete but for one line: the port that a switch has from the factory is this machine's own at 127.0.0.1.
    assert code == 2, said
    assert "switches.crs812.address: 127.0.0.1 with port 8729 is this machine itself" in said
    written = site.out.read_text()
    assert "0" * 64 in written
    assert "tls: false" not in written
