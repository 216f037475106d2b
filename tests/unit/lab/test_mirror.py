"""Where Debian's packages come from, as the real apt of a machine says it, and whether mmdebstrap takes it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.image import mirror
from lab.image.mirror import debian_mirror
from tests.unit.apt_machine import AptMachine

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="this machine has no apt")
INVALID = "invalid mirror"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AptMachine:
    monkeypatch.delenv(mirror.VARIABLE, raising=False)
    made = AptMachine(tmp_path)
    monkeypatch.setenv("APT_CONFIG", str(made.configuration))
    return made


def reported_by_mmdebstrap(address: str, folder: Path) -> str:
    """What mmdebstrap says of an address, which it judges before it asks it."""
    command = ["mmdebstrap", "--mode=root", "--variant=custom", "--simulate", "trixie", str(folder / "tree"), address]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "APT_CONFIG": ""}).stderr


@pytest.mark.skipif(not shutil.which("mmdebstrap") or os.geteuid() != 0, reason="needs mmdebstrap and root")
@pytest.mark.parametrize("scheme", ["mirror+file", "file", "copy"])
def test_the_mirror_of_a_cloud_image_is_one_that_mmdebstrap_takes(machine: AptMachine, scheme: str) -> None:
    machine.publish("Debian")
    path = machine.repository
    if scheme == "mirror+file":
        path = machine.folder / "debian.list"
        path.write_text(f"file:{machine.repository}/\n")
    machine.use(f"{scheme}://{path}")
    assert debian_mirror() == f"{scheme}://{path}"
    assert INVALID not in reported_by_mmdebstrap(f"{scheme}://{path}", machine.folder)
    assert INVALID in reported_by_mmdebstrap(f"{scheme}:{path}", machine.folder)


NONE = "this machine's apt names no Debian mirror, as on Ubuntu; set SPARKRACK_DEBIAN_MIRROR=http://HOST/debian"


@pytest.mark.parametrize("origin", ["Ubuntu", None])
def test_a_machine_whose_apt_names_no_debian_mirror_is_refused_by_the_variable(
    machine: AptMachine, origin: str | None
) -> None:
    if origin:
        machine.publish(origin)
        machine.use(f"file://{machine.repository}")
    with pytest.raises(LabError, match=NONE):
        debian_mirror()


def test_a_machine_without_apt_is_refused_by_the_variable(
    machine: AptMachine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(LabError, match=NONE):
        debian_mirror()


@pytest.mark.parametrize("named", ["http://127.0.0.1/debian", "https://127.0.0.1/debian/", "mirror+file:///srv/list"])
def test_the_variable_names_the_mirror(machine: AptMachine, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("SPARKRACK_DEBIAN_MIRROR", named)
    assert debian_mirror() == named.rstrip("/")


@pytest.mark.parametrize(
    "named", ["mirror.example/debian", "/srv/debian", "http://a b", "http:", "deb http://x y main"]
)
def test_a_variable_that_is_not_an_address_is_refused_by_its_name(
    machine: AptMachine, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("SPARKRACK_DEBIAN_MIRROR", named)
    with pytest.raises(LabError, match=r"SPARKRACK_DEBIAN_MIRROR=.* is not the address of a Debian mirror; write one"):
        debian_mirror()
