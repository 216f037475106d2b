"""`sparkrack upgrade switch`: from an older release to the one of the package files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.emulator.upgrade_runs import TARGET, MakePackageOwner, PackageOwner
from tests.unit.cli.test_reboot import SSH
from tests.unit.roles.watch_tools import AMTOOL, silenced


@pytest.fixture
def owner(make_owner: MakePackageOwner) -> PackageOwner:
    return make_owner()


@pytest.mark.parametrize("version", ["7.19.5 (stable)", "7.20.8 (stable)", "7.23.5 (long-term)"])
def test_whole_and_again(make_owner: MakePackageOwner, version: str) -> None:
    owner = make_owner(version=version)
    client = owner.admin()
    client.ask("/system/identity/set", "=name=in-the-rack")
    client.ask("/interface/bridge/vlan/add", "=bridge=bridge", "=vlan-ids=77", "=tagged=ether2")
    client.close()
    old = version.split()[0]
    code, text = owner.run("-y")
    assert code == 0, text
    owner.is_upgraded()
    assert f"RouterOS {version} -> {TARGET}: routeros, switch-marvell" in text
    assert f"firmware {old} -> {TARGET}" in text
    assert "the configuration is as before the upgrade" in text
    assert [row["name"] for row in owner.rows("/system/identity")] == ["in-the-rack"]
    assert "77" in [row["vlan-ids"] for row in owner.rows("/interface/bridge/vlan")]
    (kept,) = owner.backups()
    assert {path.name for path in kept.iterdir()} >= {"export.rsc", "unit.backup", "rows.json", "compared.txt"}
    rows = json.loads((kept / "rows.json").read_text())
    assert rows["release"][:3] == [int(part) for part in old.split(".")]
    assert "/interface/ethernet" in rows["tables"]
    before = owner.writes()
    code, text = owner.run("-y")
    assert (code, owner.writes()) == (0, before), text
    assert f"nothing to do: it runs RouterOS {TARGET} (stable), firmware {TARGET}" in text


def test_what_the_new_release_brings_is_shown_and_is_not_a_difference(owner: PackageOwner) -> None:
    code, text = owner.run("-y")
    assert code == 0, text
    assert "new in this release: /interface/ethernet/switch/qos/priority-flow-control" in text
    assert "not as before" not in text


def test_a_switch_that_routeros_has_marked_is_upgraded_after_a_warning(make_owner: MakePackageOwner) -> None:
    owner = make_owner(flagged=True)
    code, text = owner.run("-y")
    assert code == 0, text
    warning = text.index("RouterOS has marked this switch as compromised")
    assert text.index("keep its log elsewhere first, a restart clears it") > warning
    assert warning < text.index(f"RouterOS 7.19.5 (stable) -> {TARGET}")
    assert "flagged=no" not in text
    owner.is_upgraded()


def test_dry_shows_the_steps_and_writes_nothing(owner: PackageOwner) -> None:
    code, text = owner.run("--dry")
    assert code == 2, text
    assert f"RouterOS 7.19.5 (stable) -> {TARGET}: routeros, switch-marvell; the switch restarts" in text
    assert (owner.writes(), owner.software()["version"]) == ([], "7.19.5")
    code, text = owner.run()
    assert code == 1
    assert "there is no terminal for a prompt; pass -y" in text
    assert owner.writes() == []


def test_only_the_firmware(make_owner: MakePackageOwner) -> None:
    owner = make_owner(version=f"{TARGET} (stable)", firmware="7.19.5")
    code, text = owner.run("-y")
    assert code == 0, text
    owner.is_upgraded()
    assert [word for word in owner.writes() if "fetch" in word] == []
    assert owner.writes().count("/system/reboot") == 1


def test_a_missing_driver_is_installed(make_owner: MakePackageOwner) -> None:
    owner = make_owner(packages=("routeros",))
    code, text = owner.run("-y")
    assert code == 0, text
    owner.is_upgraded()


def test_packages_that_the_switch_does_not_need_stay_here(owner: PackageOwner) -> None:
    owner.put("container")
    code, text = owner.run("-y")
    assert code == 0, text
    assert f"not used: container-{TARGET}-arm64.npk" in text
    owner.is_upgraded()


def test_a_release_that_installs_by_apply_changes_only(make_owner: MakePackageOwner) -> None:
    owner = make_owner(version="7.20.8 (stable)", installs_on="apply-changes")
    code, text = owner.run("-y")
    assert code == 0, text
    assert "asking RouterOS to install them" in text
    owner.is_upgraded()


def test_files_that_were_copied_by_hand_are_not_uploaded(make_owner: MakePackageOwner) -> None:
    """Also the way for a switch whose device mode keeps /tool/fetch off."""
    owner = make_owner(device_mode="home")
    code, text = owner.run("-y")
    assert code == 1
    assert "device mode home keeps /tool/fetch off; /system/device-mode/update fetch=yes" in text
    assert owner.writes() == []
    for path in owner.folder.iterdir():
        owner.emulator.control({"op": "file", "name": path.name, "path": str(path)})
    code, text = owner.run("-y")
    assert code == 0, text
    assert "/tool/fetch" not in owner.writes()
    owner.is_upgraded()


def test_a_configuration_that_changed_is_reported(owner: PackageOwner) -> None:
    process = owner.start()
    owner.workdir.until(lambda: "/system/reboot" in owner.writes(), process)
    owner.workdir.until(lambda: owner.software()["version"] == TARGET, process)
    client = owner.admin()
    client.ask("/ip/dns/set", "=servers=9.9.9.9")
    client.close()
    text = process.communicate(timeout=60)[0]
    assert process.returncode == 2, text
    assert "not as before the upgrade: ~ /ip/dns: servers (none) -> 9.9.9.9" in text
    (kept,) = owner.backups()
    assert "servers=9.9.9.9" in (kept / "export.diff").read_text()


def test_a_switch_that_is_ours_over_the_pinned_certificate(make_owner: MakePackageOwner) -> None:
    owner = make_owner(version="7.23.8 (long-term)")
    assert owner.workdir.run()[0] == 0
    pinned = owner.workdir.rack.read_text()
    mark = len(owner.workdir.log())
    code, text = owner.run("-y")
    assert code == 1, text
    assert "nothing was changed. If no other run is active: --no-lock" in text
    code, text = owner.run("-y", "--no-lock")
    assert code == 1, text
    assert text.count("is unknown: it does not answer; make it answer in this run, or pass --no-nodes") == 8, text
    assert not {"/tool/fetch", "/system/reboot"} & set(owner.commands()[mark:])
    code, text = owner.run("-y", "--no-lock", "--no-nodes")
    assert code == 0, text
    assert f"upgraded to RouterOS {TARGET}" in text
    assert {line["service"] for line in owner.workdir.log()[mark:] if line.get("command") == "/login"} == {"api-ssl"}
    assert owner.workdir.rack.read_text() == pinned
    assert owner.workdir.run("--dry", password=False)[1].endswith("crs812: nothing is missing\n")


def test_alerts_of_the_switch_and_of_the_links_to_it_are_silent(
    owner: PackageOwner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made at the server of the watch, spark5, before the first restart. The nodes are folders."""
    file = owner.workdir.rack
    file.write_text(f"{file.read_text()}watch: {{server: spark5}}\n")
    nodes = tmp_path / "nodes"
    (nodes / "bin").mkdir(parents=True)
    for name, text in {"ssh": SSH, "bin/amtool": AMTOOL}.items():
        (nodes / name).write_text(text)
        (nodes / name).chmod(0o755)
    for name in ("spark1", "spark5"):
        (nodes / name / "run").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{nodes}:{os.environ['PATH']}")
    monkeypatch.setenv("NODES", str(nodes))
    code, text = owner.run("-y")
    assert code == 0, text
    assert "not silenced" not in text
    made = silenced(nodes)
    assert made[0] == 'upgrade of crs812: switch=~"crs812"'
    links = {line for line in made if "Link.+" in line}
    assert len(links) == 8
    assert all(line.startswith('upgrade of crs812: node=~"spark') for line in links)
    assert made[-1].startswith("expire ")
