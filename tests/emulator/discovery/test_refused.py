"""`sparkrack init` and `adopt` stop before they send, write or change anything."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from sparkrack.cli.main import sparkrack
from tests.emulator.discovery.discovery_fixtures import Site, by_hand, settled


@pytest.mark.parametrize("verb", ["init", "adopt"])
def test_a_host_key_that_no_one_vouches_for_stops_before_a_login(site: Site, verb: str) -> None:
    code, reported = site.run(verb, vouched=False)
    assert code == 1
    assert f"spark1: shows {site.nodes['spark1'].host_key.kind} SHA256:" in reported
    assert "pass --host-keys FILE" in reported
    assert not any(node.commands for node in site.nodes.values())
    site.untouched()


def test_a_host_key_that_another_vouches_for_or_that_is_pinned_otherwise_stops_it(site: Site) -> None:
    site.nodes["spark1"], site.nodes["spark2"] = site.nodes["spark2"], site.nodes["spark1"]
    swapped = site.vouched.read_text()
    site.nodes["spark1"], site.nodes["spark2"] = site.nodes["spark2"], site.nodes["spark1"]
    words = site.words("adopt", vouched=False)
    file = site.folder / "swapped"
    file.write_text(swapped)
    ended = CliRunner().invoke(sparkrack, [*words, "--host-keys", str(file)])
    assert (ended.exit_code, "which --host-keys does not have for it" in ended.output) == (1, True)
    other = site.nodes["spark2"].host_key
    pinned = f"[127.0.88.11]:{site.nodes['spark1'].port} {other}\n"
    (site.folder / "known_hosts").write_text(pinned)
    code, reported = site.run("adopt")
    assert (code, "it is another machine, or was re-imaged" in reported) == (1, True)
    assert (site.folder / "known_hosts").read_text() == pinned
    assert not any(node.commands for node in site.nodes.values())


def test_adopt_stops_at_a_node_without_sudo_and_init_goes_on_without_it(site: Site) -> None:
    by_hand(site.switch, companions=True)
    settled(site)
    site.nodes["spark2"].sudo = False
    before = site.switch.writes()
    code, reported = site.run("adopt")
    assert (code, reported.count("spark2: sudo: a password is required; nothing was written")) == (1, 1), reported
    assert not site.out.exists()
    code, reported = site.run("init")
    assert code == 2
    assert "spark2: not read: sudo: a password is required" in reported
    assert "  spark2: {address: 127.0.88.12, ports: {}} # NOT FOUND: no machine reports" in site.out.read_text()
    assert "nodes.spark2.ports" in reported
    assert site.switch.writes() == before


def test_a_wrong_password_is_tried_once_and_a_wrong_certificate_never(site: Site) -> None:
    code, reported = site.run("adopt", password="wrong")
    assert code == 1
    assert "login as sparkrack refused" in reported
    assert sum(line.get("command") == "/login" for line in site.switch.log()) == 1
    site.untouched()
    words = [word if word != site.switch.fingerprint else "ab" * 32 for word in site.words("adopt")]
    ended = CliRunner().invoke(sparkrack, words, env={"CRS": site.switch.password})
    assert (ended.exit_code, "not the one of --fingerprint" in ended.output) == (1, True)
    assert sum(line.get("command") == "/login" for line in site.switch.log()) == 1
    site.untouched()
