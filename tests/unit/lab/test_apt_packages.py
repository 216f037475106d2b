"""The vendor's packages: what an upgrade moves, what a hold keeps, and what lies in a package."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lab.image import apt_packages
from lab.image.apt_packages import FILES, LIST, LabPackage, index, listed, release

ALL = listed(LIST.read_text())
FACTORY = {package.name: package for package in ALL if package.factory}
DRIVER = ("nvidia-driver-580-open", "libnvidia-compute-580", "nvidia-utils-580", "nvidia-kernel-common-580")
KERNEL = "6.17.0-1021-nvidia"


def test_a_factory_node_has_the_declared_driver_and_kernel() -> None:
    assert {FACTORY[name].version for name in (*DRIVER, "nvidia-dkms-580-open")} == {"580.159.03-0ubuntu1"}
    assert FACTORY["nvidia-modprobe"].version == "580.159.03-1"
    kernel = [f"linux-image-{KERNEL}", f"linux-modules-{KERNEL}", f"linux-modules-nvidia-580-open-{KERNEL}"]
    metas = [f"linux-{part}nvidia-hwe-24.04" for part in ("image-", "headers-", "")]
    assert {FACTORY[name].version for name in (*kernel, *metas)} == {"6.17.0-1021.21"}
    assert not [name for name in FACTORY if "595" in name or "1029" in name]


def test_no_version_is_there_twice() -> None:
    assert len({package.file for package in ALL}) == len(ALL)


def test_everything_that_is_needed_is_there() -> None:
    for package in ALL:
        for need in package.depends:
            name, _, version = need.partition(" (= ")
            found = {other.version for other in ALL if other.name == name}
            assert found if not version else version.rstrip(")") in found, f"{package.file}: {need}"


def test_every_folder_of_files_belongs_to_a_package() -> None:
    assert {path.name for path in FILES.iterdir()} <= {package.content for package in ALL}


def test_a_branch_and_a_kernel_have_their_names() -> None:
    text = """
    package = [{name = "image-{kernel}", versions = ["1.2-3.4", "1.2-5.6"], depends = ["meta-{kernel} (= {version})"]}]
    [[set]]
    branches = {7 = ["7.1"], 8 = ["8.1"]}
    factory = "8"
    package = [{name = "driver-{branch}"}]
    """
    assert [(one.name, one.version, one.factory) for one in listed(text)] == [
        ("image-1.2-3-nvidia", "1.2-3.4", True),
        ("image-1.2-5-nvidia", "1.2-5.6", False),
        ("driver-7", "7.1", False),
        ("driver-8", "8.1", True),
    ]
    assert listed(text)[1].depends == ("meta-1.2-5-nvidia (= 1.2-5.6)",)


def test_the_index_says_what_apt_checks() -> None:
    first, second = (LabPackage("a", version, factory=True, content="a") for version in ("1", "2"))
    text = index({first: b"old", second: b"newer"})
    one, two = text.split("\n\n")
    assert one.startswith(first.control)
    assert "Filename: ./a_2_all.deb\nSize: 5\n" in two
    assert f" {len(text.encode())} Packages" in release(text)


class Apt:
    """The real apt in a folder: a factory node's packages installed, the repository configured."""

    def __init__(self, folder: Path) -> None:
        repository = folder / "repository"
        repository.mkdir()
        text = index(dict.fromkeys(ALL, b"a package"))
        (repository / "Packages").write_text(text)
        (repository / "Release").write_text(release(text))
        for name in ("state/lists/partial", "cache/archives/partial", "preferences.d"):
            (folder / name).mkdir(parents=True)
        (folder / "sources.list").write_text(f"deb [trusted=yes] file:{repository} ./\n")
        self.status = folder / "status"
        self.state("install")
        options = {
            "Dir::Etc": folder,
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State": folder / "state",
            "Dir::State::Status": self.status,
            "Dir::Cache": folder / "cache",
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Sandbox::User": "",
            "Debug::NoLocking": "1",
        }
        self.command = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
        subprocess.run([*self.command, "update"], check=True, capture_output=True)

    def state(self, wanted: str, *, free: tuple[str, ...] = ()) -> None:
        """What dpkg knows: all of the factory, each as it is `wanted` to be."""
        entries = []
        for name, package in FACTORY.items():
            word = "install" if name in free else wanted
            entries.append(package.control.replace("\nVersion:", f"\nStatus: {word} ok installed\nVersion:", 1))
        self.status.write_text("\n".join(entries))

    def moves(self, *words: str) -> dict[str, str]:
        """The packages that a command would install, with their versions, and that it would remove."""
        done = subprocess.run([*self.command, "--simulate", *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found = {}
        for line in done.stdout.splitlines():
            if line.startswith(("Inst ", "Remv ")):
                found[line.split()[1]] = line.split("(")[1].split()[0] if line.startswith("Inst") else "removed"
        return found


@pytest.fixture(scope="module")
def apt(tmp_path_factory: pytest.TempPathFactory) -> Apt:
    return Apt(tmp_path_factory.mktemp("apt"))


def test_an_upgrade_of_a_factory_node_moves_all(apt: Apt) -> None:
    apt.state("install")
    moved = apt.moves("full-upgrade")
    assert moved.keys() >= FACTORY.keys(), "a hold that is forgotten would not show"
    assert "removed" not in moved.values()
    assert {moved[name] for name in DRIVER} == {"580.173.02-0ubuntu1"}
    assert moved["nvidia-modprobe"] == "610.10-1"
    assert moved["linux-image-6.17.0-1029-nvidia"] == moved["linux-image-nvidia-hwe-24.04"] == "6.17.0-1029.29"


def test_a_hold_keeps_them(apt: Apt) -> None:
    apt.state("hold", free=("lab-sample",))
    assert apt.moves("full-upgrade") == {"lab-sample": "1.1"}


def test_a_node_has_one_branch_of_the_driver() -> None:
    """Asked for the other one, the node's own apt replaces the first; an older apt wants the removals spelled out."""
    branches = {package.name: package.one for package in ALL if package.name in (*DRIVER, "nvidia-utils-595")}
    assert branches["nvidia-utils-580"] == branches["nvidia-utils-595"] == "nvidia-utils"
    assert None not in branches.values()
    assert "\nProvides: nvidia-utils\nConflicts: nvidia-utils\n" in FACTORY["nvidia-utils-580"].control


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of the packages that have something in them."""
    patch = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("built")
    (folder / "list.toml").write_text(
        """
        [[package]]
        name = "nvidia-container-toolkit-base"
        versions = ["1"]
        [[package]]
        name = "unattended-upgrades"
        versions = ["1"]
        enable = ["unattended-upgrades.service"]
        configuration = ["/etc/apt/apt.conf.d/20auto-upgrades"]
        [[package]]
        name = "nvidia-utils-580"
        versions = ["1"]
        links = {"usr/bin/nvidia-smi" = "/usr/lib/x"}
        """
    )
    patch.setattr(apt_packages, "LIST", folder / "list.toml")
    apt_packages.build(folder / "repository")
    patch.undo()
    return folder / "repository"


def reported(*command: str) -> str:
    return subprocess.run(["dpkg-deb", *command], check=True, capture_output=True, text=True).stdout


def test_a_package_has_its_files(repository: Path) -> None:
    listing = reported("--contents", str(repository / "nvidia-container-toolkit-base_1_all.deb"))
    assert [line.split()[:2] for line in listing.splitlines() if line.endswith("/nvidia-ctk")] == [
        ["-rwxr-xr-x", "root/root"]
    ]
    listing = reported("--contents", str(repository / "nvidia-utils-580_1_all.deb"))
    assert "./usr/bin/nvidia-smi -> /usr/lib/x" in listing


def test_a_package_enables_its_units_once(repository: Path, tmp_path: Path) -> None:
    reported("--control", str(repository / "unattended-upgrades_1_all.deb"), str(tmp_path / "control"))
    script = (tmp_path / "control/postinst").read_text()
    assert 'if [ "$1" = configure ] && [ -z "$2" ]; then' in script
    assert "systemctl --quiet enable unattended-upgrades.service" in script
    assert (tmp_path / "control/conffiles").read_text() == "/etc/apt/apt.conf.d/20auto-upgrades\n"


def test_the_same_list_gives_the_same_bytes(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apt_packages, "LIST", repository.parent / "list.toml")
    apt_packages.build(tmp_path / "again")
    assert (tmp_path / "again/Packages").read_text() == (repository / "Packages").read_text()
