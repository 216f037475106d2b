"""Which packages are held, which are installed, and when a reboot is needed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.driver import desired, driver_upgrade, reboot_reasons
from roles.driver.desired import NodePackage
from roles.driver.options import DriverOptions

KERNEL = "6.17.0-1021-nvidia"
DRIVER = DriverOptions(version="580.159", kernel=KERNEL)


def package(name: str, version: str = "580.159.03-0ubuntu1", status: str = "hold ok installed") -> NodePackage:
    return NodePackage(name, version, *status.split())


DGX = [
    *map(package, ["nvidia-driver-580-open", "nvidia-dkms-580-open", "libnvidia-compute-580:arm64"]),
    package(f"linux-image-{KERNEL}", "6.17.0-1021.21"),
    package(f"linux-modules-{KERNEL}", "6.17.0-1021.21"),
    package(f"linux-modules-nvidia-580-open-{KERNEL}", "6.17.0-1021.21+1"),
]


NAMES = """
    nvidia-driver-580-open nvidia-dkms-580-open nvidia-kernel-common-580 nvidia-utils-580 nvidia-compute-utils-580
    nvidia-firmware-580-580.159.03 libnvidia-compute-580 libnvidia-cfg1-580 libnvidia-gl-580-server nvidia-modprobe
    xserver-xorg-video-nvidia-580 nvidia-persistenced nvidia-driver-open linux-nvidia-hwe-24.04
    linux-image-nvidia-hwe-24.04 linux-headers-nvidia-hwe-24.04 linux-image-6.17.0-1021-nvidia
    linux-modules-6.17.0-1021-nvidia linux-modules-nvidia-580-open-6.17.0-1021-nvidia
    linux-modules-nvidia-580-open-nvidia-hwe-24.04 linux-objects-nvidia-580-open-6.17.0-1021-nvidia
    linux-tools-nvidia-hwe-24.04 docker-ce docker-ce-cli docker-ce-rootless-extras docker.io docker-buildx-plugin
    docker-compose-plugin containerd containerd.io nvidia-container-toolkit nvidia-container-toolkit-base
    libnvidia-container1 libnvidia-container-tools"""


@pytest.mark.parametrize("name", NAMES.split())
def test_what_must_not_move(name: str) -> None:
    assert desired.held(name)
    assert desired.to_hold([package(name, status="install ok installed")]) == [name]
    assert desired.to_hold([package(name)]) == []
    assert desired.to_hold([package(name, status="install ok half-configured")]) == []


@pytest.mark.parametrize(
    "name", ["lab-sample", "libc6", "linux-libc-dev", "linux-base", "nvidia-spark-ota-check", "runc"]
)
def test_what_may_move(name: str) -> None:
    assert not desired.held(name)


@pytest.mark.parametrize(
    ("name", "major"),
    [
        ("nvidia-driver-580-open", "580"),
        ("nvidia-driver-580-server-open", "580"),
        ("libnvidia-compute-580", "580"),
        ("libnvidia-cfg1-1000", "1000"),
        ("xserver-xorg-video-nvidia-580", "580"),
        ("nvidia-firmware-580-580.159.03", None),
        ("nvidia-modprobe", None),
        ("nvidia-driver-58", None),
        ("nvidia-settings", None),
        ("linux-modules-nvidia-580-open-6.17.0-1021-nvidia", None),
    ],
)
def test_packages_with_the_version_of_the_driver(name: str, major: str | None) -> None:
    match = desired.OF_A_MAJOR.fullmatch(name)
    assert (match and match["major"]) == major


@pytest.mark.parametrize(
    ("version", "same"),
    [
        ("580.159", True),
        ("580.159.03-0ubuntu1", True),
        ("580.159-1", True),
        ("580.1590", False),
        ("580.15", False),
        ("1:580.159", False),
        ("580.173.02-0ubuntu1", False),
        ("", False),
    ],
)
def test_versions(version: str, same: bool) -> None:
    assert desired.is_version(version, "580.159") == same


def test_nothing_to_install() -> None:
    assert desired.apt_arguments(DGX, DRIVER) == []
    assert desired.apt_arguments(DGX[:3], DriverOptions(version="580.159.03-0ubuntu1")) == []


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], ["nvidia-driver-580-open=580.159*"]),
        ([package("libnvidia-compute-580")], ["nvidia-driver-580-open=580.159*"]),
        ([package("nvidia-headless-580-open")], []),
        ([package("nvidia-driver-580-open", "580.173.02-1")], ["nvidia-driver-580-open=580.159*"]),
        ([package("nvidia-driver-580-open", status="hold ok unpacked")], ["nvidia-driver-580-open=580.159*"]),
        ([package("nvidia-driver-580-open", status="hold reinstreq installed")], ["nvidia-driver-580-open=580.159*"]),
        ([package("nvidia-driver-580-open", status="deinstall ok config-files")], ["nvidia-driver-580-open=580.159*"]),
        (
            [package("nvidia-driver-580-open"), package("libnvidia-gl-580:arm64", "580.173.02-1")],
            ["libnvidia-gl-580:arm64=580.159*"],
        ),
        ([package("nvidia-driver-580-open"), package("libnvidia-gl-535", "535.1")], []),
        ([package("nvidia-driver-580-open"), package("nvidia-firmware-580-580.173.02", "580.173.02-1")], []),
    ],
)
def test_what_is_to_be_installed_of_the_driver(found: list[NodePackage], words: list[str]) -> None:
    assert desired.apt_arguments(found, DriverOptions(version="580.159")) == words


def test_the_kernel_comes_with_the_drivers_modules() -> None:
    built = f"linux-modules-nvidia-580-open-{KERNEL}"
    kernel = [f"linux-image-{KERNEL}", f"linux-modules-{KERNEL}"]
    assert desired.apt_arguments([DGX[0]], DRIVER) == [*kernel, built]
    assert desired.apt_arguments(DGX[:2], DRIVER) == [*kernel, f"linux-headers-{KERNEL}"]
    assert desired.apt_arguments([*DGX[:2], package("linux-modules-nvidia-580-open-6.1", "6.1")], DRIVER) == [
        *kernel,
        built,
    ]


@pytest.mark.parametrize("version", ["58", "580-1", "58x.1", "1:580.1"])
def test_versions_that_are_none(version: str) -> None:
    with pytest.raises(ValueError, match=r"driver\.version"):
        desired.major(DriverOptions.model_construct(version=version))


def test_a_repaired_node_is_right() -> None:
    found = [package("nvidia-driver-580-open", "580.173.02-1"), package("libnvidia-compute-580", "580.159.03-1")]
    after = [package(word.partition("=")[0], "580.159.03-0ubuntu1") for word in desired.apt_arguments(found, DRIVER)]
    assert desired.apt_arguments([*found[1:], *after], DRIVER) == []


REBOOT = {"kernel": KERNEL, "loaded": "580.159.03\n", "asked": False, "asking": ""}


@pytest.mark.parametrize(
    ("printed", "reported"),
    [
        ({}, []),
        ({"loaded": "580.159.03\n580.159.03\n"}, []),
        ({"loaded": "580.173.02\n"}, ["driver 580.173.02 is loaded, 580.159.03 is installed"]),
        ({"loaded": "580.159.03\n580.1\n"}, ["driver 580.1, 580.159.03 is loaded, 580.159.03 is installed"]),
        ({"loaded": ""}, ["no driver is loaded, 580.159.03 is installed"]),
        ({"kernel": "6.17.0-1014-nvidia"}, [f"kernel 6.17.0-1014-nvidia runs, {KERNEL} is declared"]),
        ({"asked": True}, ["a package asked for it"]),
        ({"asked": True, "asking": "a\nb\na\n"}, ["a, b asked for it"]),
        ({"asked": False, "asking": "a\n"}, []),
    ],
)
def test_reasons_for_a_reboot(printed: dict[str, object], reported: list[str]) -> None:
    assert reboot_reasons.reasons(DRIVER, DGX, **(REBOOT | printed)) == reported  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("image", "newer"),
    [
        ("linux-image-6.17.0-1029-nvidia", "6.17.0-1029-nvidia"),
        ("linux-image-7.0.0-1019-nvidia", "7.0.0-1019-nvidia"),
        ("linux-image-6.17.0-999-nvidia", None),
        ("linux-image-6.9.0-1000-nvidia", None),
        ("linux-image-nvidia-hwe-24.04", None),
    ],
)
def test_a_newer_kernel_comes_back_after_a_reboot(image: str, newer: str | None) -> None:
    (reported,) = reboot_reasons.reasons(DRIVER, [*DGX, package(image)], "6.17.0-1029-nvidia", "580.159.03", False, "")
    assert reported.partition("; ")[2].partition(" is newer and what GRUB starts")[0] == (newer or "")


@pytest.mark.parametrize(
    ("version", "plain"),
    [("580.159.03-0ubuntu1", "580.159.03"), ("580.159", "580.159"), ("1:2.0-3-1", "2.0-3"), ("1:2.0", "2.0")],
)
def test_upstream(version: str, plain: str) -> None:
    assert reboot_reasons.upstream(version).removeprefix("1:") == plain


WORDS = st.text(alphabet="$();'\" \n-a1`|", max_size=12)


@given(WORDS)
def test_hostile_names_are_refused(name: str) -> None:
    try:
        (found,) = desired.packages(f"{name} 1 hold ok installed")
    except ValueError:
        return
    assert found.name.strip("a1-") == ""


def test_what_moved() -> None:
    before = [package("a", "1"), package("b", "1"), package("c", "", "unknown ok not-installed")]
    after = [package("a", "2"), package("b", "1"), package("c", "3")]
    assert driver_upgrade.moved(before, after) == ["a: 1 -> 2", "c: absent -> 3"]
