"""`sparkrack seed`, judged by cloud-init's own tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cloud_init.cloud_init_schema import judged, read
from tests.unit.cloud_init.conftest import Seeding
from tests.unit.model.racks import changed


def test_cloud_init_takes_it(seeding: Seeding) -> None:
    done = seeding.run("--all")
    assert done.exit_code == 0, done.output
    for name in ("spark1", "spark2"):
        reported = judged(seeding.out / name / "user-data")
        assert reported.returncode == 0, reported.stderr
        assert "Valid cloud-config" in reported.stdout
        assert "deprecat" not in reported.stdout + reported.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("lock_passwd: true", "lock_passwd: 7"),
        ("ssh_genkeytypes:", "ssh_genkeytypes: ed25519\nx:"),
        ("hostname: spark1", "hostname: [spark1]"),
    ],
)
def test_a_broken_seed_is_refused_by_cloud_init(seeding: Seeding, right: str, wrong: str) -> None:
    assert seeding.run("spark1").exit_code == 0
    file = seeding.out / "spark1/user-data"
    file.write_text(changed(file.read_text(), (right, wrong)))
    assert judged(file).returncode != 0


def test_what_the_first_boot_does(seeding: Seeding) -> None:
    assert seeding.run("spark2").exit_code == 0
    assert sorted(path.name for path in seeding.out.rglob("*") if path.is_file()) == [
        "meta-data",
        "network-config",
        "user-data",
    ]
    data = read(seeding.out / "spark2/user-data")
    (user,) = data["users"]
    assert (seeding.out / "spark2/user-data").read_text().startswith("#cloud-config\n")
    assert data["hostname"] == "spark2"
    assert (user["name"], user["sudo"], user["lock_passwd"]) == ("ops", "ALL=(ALL:ALL) NOPASSWD:ALL", True)
    assert user["ssh_authorized_keys"] == [seeding.public]
    assert (data["ssh_pwauth"], data["disable_root"], data["ssh_deletekeys"]) == (False, True, True)
    assert (data["package_update"], data["package_upgrade"], data["package_reboot_if_required"]) == (
        False,
        False,
        False,
    )
    assert read(seeding.out / "spark2/meta-data")["local-hostname"] == "spark2"
    assert read(seeding.out / "spark2/network-config") == {"config": "disabled"}


def test_the_management_interface_gets_the_address_of_the_rack(seeding: Seeding) -> None:
    words = ("--interface", "enP7s7", "--prefix", "24", "--gateway", "10.77.0.1", "--dns", "10.77.0.1")
    assert seeding.run("spark2", *words).exit_code == 0
    assert read(seeding.out / "spark2/network-config") == {
        "version": 2,
        "ethernets": {
            "enP7s7": {
                "dhcp4": False,
                "addresses": ["10.77.0.12/24"],
                "routes": [{"to": "default", "via": "10.77.0.1"}],
                "nameservers": {"addresses": ["10.77.0.1"]},
            }
        },
    }


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "name the nodes, or pass --all"),
        (("spark9",), "spark9: not a node of the rack; there are spark1, spark2"),
        (("--all", "--prefix", "24"), "are about --interface"),
        (("--all", "--interface", "enP7s7"), "belong together"),
        (("--all", "--interface", "enp1s0f1np1", "--prefix", "24"), "the name of the management interface"),
        (("--all", "--interface", "a b", "--prefix", "24"), "the name of the management interface"),
        (
            ("--all", "--interface", "enP7s7", "--prefix", "24", "--gateway", "10.78.0.1"),
            "gateway 10.78.0.1 is not beside",
        ),
        (("--all", "--interface", "enP7s7", "--prefix", "24", "--gateway", "10.77.0.11"), "is not beside"),
        (("--all", "--interface", "enP7s7", "--prefix", "30"), "10.77.0.11/30 is not an address of a machine"),
        (("--all", "--erase-disk", "/dev/nvme0n1"), "--format autoinstall"),
        (("--all", "--format", "autoinstall", "--erase-disk", "nvme0n1"), "names a device"),
    ],
)
def test_what_cannot_be_meant_is_refused(seeding: Seeding, words: tuple[str, ...], why: str) -> None:
    done = seeding.run(*words)
    assert done.exit_code == 1
    assert why in done.output
    assert not seeding.out.exists()


def test_no_secret_is_in_it(seeding: Seeding) -> None:
    assert seeding.run("--all").exit_code == 0
    private = seeding.key.read_text().splitlines()[1:-1]
    for path in (path for path in seeding.out.rglob("*") if path.is_file()):
        text = path.read_text()
        assert "PRIVATE" not in text
        assert "passwd:" not in text.replace("lock_passwd:", "")
        assert not any(line in text for line in private)


def test_without_the_public_half_it_is_made_from_the_key(seeding: Seeding) -> None:
    public = seeding.public
    Path(f"{seeding.key}.pub").unlink()
    assert seeding.run("spark1").exit_code == 0
    assert public in (seeding.out / "spark1/user-data").read_text()


def test_a_key_with_a_passphrase_asks_nothing(tmp_path: Path) -> None:
    seeding = Seeding(tmp_path, "a long passphrase")
    Path(f"{seeding.key}.pub").unlink()
    done = seeding.run("spark1")
    assert done.exit_code == 1
    assert f"write its public half to {seeding.key}.pub; nothing was written" in done.output


@pytest.mark.parametrize("spoilt", ["a private key", "two keys", "a command"])
def test_what_is_not_one_public_key_is_refused(seeding: Seeding, spoilt: str) -> None:
    public = Path(f"{seeding.key}.pub")
    line = public.read_text()
    text = {"a private key": seeding.key.read_text(), "two keys": line * 2, "a command": f'command="sh" {line}'}[spoilt]
    public.write_text(text)
    done = seeding.run("spark1")
    assert done.exit_code == 1
    assert "is not one public key; nothing was written" in done.output
    assert not seeding.out.exists()


def test_without_a_key_it_says_how_to_make_one(seeding: Seeding) -> None:
    seeding.key.unlink()
    Path(f"{seeding.key}.pub").unlink()
    done = seeding.run("spark1")
    assert done.exit_code == 1
    assert f"ssh-keygen -t ed25519 -f {seeding.key}" in done.output


def test_the_same_again_is_the_same(seeding: Seeding) -> None:
    seeding.run("--all")
    first = {path: path.read_bytes() for path in seeding.out.rglob("*") if path.is_file()}
    assert seeding.run("--all").exit_code == 0
    assert {path: path.read_bytes() for path in seeding.out.rglob("*") if path.is_file()} == first


def test_a_file_of_another_user_stays(seeding: Seeding) -> None:
    own = seeding.out / "spark2/meta-data"
    own.parent.mkdir(parents=True)
    own.write_text("instance-id: mine\n")
    done = seeding.run("--all")
    assert done.exit_code == 1
    assert "was not written by sparkrack seed; nothing was written" in done.output
    assert own.read_text() == "instance-id: mine\n"
    assert [path.name for path in seeding.out.iterdir()] == ["spark2"]


def test_root_is_not_what_a_seed_makes(seeding: Seeding) -> None:
    text = seeding.rack.read_text()
    seeding.rack.write_text(changed(text, ("  user: ops", "  user: root\n  hardening: false")))
    ended = seeding.run("spark1")
    assert (ended.exit_code, seeding.out.exists()) == (1, False)
    assert "access.user: a seed keeps root from logging in; write another user, like ops" in ended.output


def test_a_user_that_sudoers_reads_otherwise_is_refused(seeding: Seeding) -> None:
    seeding.rack.write_text(changed(seeding.rack.read_text(), ("  user: ops", "  user: ALL")))
    ended = seeding.run("spark1")
    assert (ended.exit_code, seeding.out.exists()) == (1, False)
    assert "access.user: ALL cannot be a user name" in ended.output
