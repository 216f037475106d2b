"""Desired packages of a node, installed and held. Pure: from rack.yaml and the facts of a node."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from core.model.fields import DRIVER, KERNEL
from core.util.event import Event, value_change
from roles.driver.options import DriverOptions

HELD = (
    *("nvidia-*-[0-9][0-9][0-9]*", "libnvidia-*-[0-9][0-9][0-9]*", "xserver-xorg-video-nvidia-*"),
    *("nvidia-driver*", "nvidia-open*", "nvidia-modprobe", "nvidia-persistenced"),
    *("linux-image-*", "linux-modules-*", "linux-headers-*", "linux-objects-*", "linux-*nvidia*"),
    *("docker-ce*", "docker.io", "docker-cli", "docker-*-plugin", "containerd*"),
    *("nvidia-container-*", "libnvidia-container*"),
)
"""Name patterns of the held packages, for dpkg-query and fnmatch alike: the driver's user space and modules; its setuid
helper, which NVIDIA's own pin leaves out; every kernel with its modules and the packages that pull in a newer one; the
engine and the packages that give its containers the GPU.
"""

OF_A_MAJOR = re.compile(
    r"(?:nvidia|libnvidia|xserver-xorg-video-nvidia)-(?:[a-z0-9]+-)*?(?P<major>[0-9]{3,})(?:-[a-z-]+)?"
)
"""Packages that have the driver's own version: nvidia-utils-580, nvidia-driver-580-open. Not those with a whole
version in their names, nvidia-firmware-580-580.159.03: another version of the driver has another one."""

NAME = re.compile(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+](:[a-z0-9]+)?")

WHOLE = re.compile(r"(?:nvidia-driver|nvidia-headless)-[0-9]{3,}(?:-[a-z-]+)?")
"""Packages that pull in all of the driver."""


@dataclass(frozen=True)
class NodePackage:
    """A package in dpkg's database: its name (with the architecture where dpkg prints it), version and three words of
    status.
    """

    name: str
    version: str
    want: str
    flag: str
    status: str

    @property
    def bare(self) -> str:
        """Its name without an architecture."""
        return self.name.partition(":")[0]

    @property
    def installed(self) -> bool:
        """Whether it is completely installed: `hold ok installed` as well as `install ok installed`."""
        return (self.flag, self.status) == ("ok", "installed")

    @property
    def there(self) -> bool:
        """Whether any part of it is on the node, even a half-installed one."""
        return self.status not in ("not-installed", "config-files")


def packages(listing: str) -> list[NodePackage]:
    """The packages in lines `name version want flag status`; the version is empty where nothing is installed.

    Raises ValueError when a line is anything else.
    """
    found = []
    for line in listing.splitlines():
        words = line.split(" ")
        if len(words) != 5 or not NAME.fullmatch(words[0]):
            raise ValueError(f"packages: unexpected probe output {line!r}")
        found.append(NodePackage(*words))
    return found


def listed(more: str = "") -> str:
    """Shell text that prints them; `more` is done with each line of a pipe, where what is nowhere is not a failure."""
    names = " ".join(f"'{name}'" for name in HELD)
    query = "dpkg-query -W -f '${binary:Package} ${Version} ${Status}\\n'"
    return f"{{ {query} {names} 2>/dev/null || [ $? -eq 1 ]; }}{more}"


def loaded_driver(timeout: int) -> str:
    """Return shell text that prints the version of the NVIDIA driver that is loaded. timeout: seconds for nvidia-smi,
    which is started only when the kernel does not report the version: it takes ten times as long, and hangs where the
    GPU does.
    """
    smi = f"timeout {timeout} nvidia-smi --query-gpu=driver_version --format=csv,noheader"
    return f"if [ -r /sys/module/nvidia/version ]; then cat /sys/module/nvidia/version; else {smi}; fi"


def is_version(version: str, wanted: str) -> bool:
    """Return whether a package's version is the desired one or begins with it: 580.159.03-0ubuntu1 is 580.159, 580.1590
    is not.
    """
    return version == wanted or (version.startswith(wanted) and not version[len(wanted)].isdigit())


def major(driver: DriverOptions) -> str:
    """Return the declared major version, which is part of package names. Raises ValueError if there is none."""
    match = DRIVER.fullmatch(driver.version or "")
    if not match:
        raise ValueError(f"driver.version: {driver.version} is not a version of the driver; write one like 580.159")
    return match["major"]


def majors(found: Iterable[NodePackage], driver: DriverOptions) -> set[str]:
    """Return the major versions whose packages are the driver: the declared one, else those that are installed."""
    if driver.version is not None:
        return {major(driver)}
    return {number for one in found if one.installed and WHOLE.fullmatch(one.bare) and (number := _major_version(one))}


# claim: driver.packages
def of_the_driver(found: Iterable[NodePackage], number: str) -> list[NodePackage]:
    """The packages on a node that have the version of the driver of that major."""
    return [one for one in found if one.there and _major_version(one) == number]


def blockers(
    found: Iterable[NodePackage], driver: DriverOptions, source: str = "rack.yaml declares driver.version"
) -> list[str]:
    """Why the declared driver cannot be put beside what is there. `source`: what asks for its version."""
    if driver.version is None:
        return []
    wanted = major(driver)
    others = [one for one in found if one.there and WHOLE.fullmatch(one.bare) and _major_version(one) != wanted]
    return [
        f"{one.bare} {one.version} is installed and {source} {driver.version}: one major "
        "version replaces another only by removing packages, which is left to the operator (docs/runbooks/driver.md)"
        for one in others
    ]


def apt_arguments(found: Collection[NodePackage], driver: DriverOptions) -> list[str]:
    """Return the packages to install, as words for apt: driver packages with another version or half installed, and
    missing packages of the kernel; none where what is installed is held.
    """
    if driver.version is None:
        return []
    number = major(driver)
    ours = of_the_driver(found, number)
    wrong = [one.name for one in ours if not (one.installed and is_version(one.version, driver.version))]
    if not any(WHOLE.fullmatch(one.bare) for one in ours):
        wrong.append(f"nvidia-driver-{number}-open")
    whole = {one.bare for one in found if one.installed}
    return [f"{name}={driver.version}*" for name in wrong] + [
        name for name in _of_the_kernel(found, driver, number) if name not in whole
    ]


def _of_the_kernel(found: Iterable[NodePackage], driver: DriverOptions, number: str) -> list[str]:
    """Return the packages of the declared kernel, with the driver's modules in this node's form: built by NVIDIA or by
    the node.
    """
    if driver.kernel is None:
        return []
    if not KERNEL.fullmatch(driver.kernel):
        raise ValueError(f"driver.kernel: {driver.kernel} is in no package's name; write one like 6.17.0-1021-nvidia")
    there = [one.bare for one in found if one.there]
    built = any(name.startswith("linux-modules-nvidia-") for name in there)
    here = any(name.startswith(f"nvidia-dkms-{number}") for name in there)
    built_for = f"linux-modules-nvidia-{number}-open-{driver.kernel}"
    modules = f"linux-headers-{driver.kernel}" if here and not built else built_for
    return [f"linux-image-{driver.kernel}", f"linux-modules-{driver.kernel}", modules]


def to_hold(found: Iterable[NodePackage]) -> list[str]:
    """The installed packages that must not move and are not held."""
    return sorted(one.name for one in found if one.installed and one.want != "hold" and held(one.bare))


def held(name: str) -> bool:
    """Return whether a package of that name must be held."""
    return any(fnmatchcase(name, pattern) for pattern in HELD)


def hold_all() -> str:
    """Shell text that holds all of them, whatever they are by now."""
    loose = 'case "$want $status" in "install installed") echo "$name";; esac'
    names = listed(f" | while read -r name _ want _ status; do {loose}; done")
    return f'names=$({names}); [ -z "$names" ] || apt-mark hold $names > /dev/null'


def changes(found: Iterable[NodePackage], wanted: Iterable[str]) -> list[Event]:
    """What installing these words will change, one event a package."""
    before = {one.name: one for one in found if one.there}
    events = []
    for word in wanted:
        name, _, version = word.partition("=")
        one = before.get(name)
        now = "absent" if one is None else one.version if one.installed else f"{one.version} ({one.status})"
        events.append(value_change(name, now, version.rstrip("*") or "installed"))
    return events


def _major_version(one: NodePackage) -> str | None:
    match = OF_A_MAJOR.fullmatch(one.bare)
    return match["major"] if match else None
