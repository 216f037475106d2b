"""What shall be installed on a node, and held. Pure: from rack.yaml and what a node has to what it shall have."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from sparkrack.fleet import Driver
from sparkrack.fleet.scalars import DRIVER, KERNEL

HELD = (
    *("nvidia-*-[0-9][0-9][0-9]*", "libnvidia-*-[0-9][0-9][0-9]*", "xserver-xorg-video-nvidia-*"),
    *("nvidia-driver*", "nvidia-open*", "nvidia-modprobe", "nvidia-persistenced"),
    *("linux-image-*", "linux-modules-*", "linux-headers-*", "linux-objects-*", "linux-*nvidia*"),
    *("docker-ce*", "docker.io", "docker-cli", "docker-*-plugin", "containerd*"),
    *("nvidia-container-*", "libnvidia-container*"),
)
"""The names of what must not move, for dpkg-query and fnmatch alike: the driver's user space and modules; its setuid
helper, which NVIDIA's own pin leaves out; every kernel with its modules and the packages that pull a newer one; the
engine and what gives its containers the GPU."""

OF_A_MAJOR = re.compile(
    r"(?:nvidia|libnvidia|xserver-xorg-video-nvidia)-(?:[a-z0-9]+-)*?(?P<major>[0-9]{3,})(?:-[a-z-]+)?"
)
"""Packages that have the driver's own version: nvidia-utils-580, nvidia-driver-580-open. Not those with a whole
version in their names, nvidia-firmware-580-580.159.03: another version of the driver has another one."""

NAME = re.compile(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+](:[a-z0-9]+)?")

WHOLE = re.compile(r"(?:nvidia-driver|nvidia-headless)-[0-9]{3,}(?:-[a-z-]+)?")
"""Packages that pull in all of the driver."""


@dataclass(frozen=True)
class Package:
    """A package that dpkg knows: its name (with the architecture where dpkg says it), version and three words of
    status."""

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
        """Whether it is whole: `hold ok installed` as well as `install ok installed`."""
        return (self.flag, self.status) == ("ok", "installed")

    @property
    def there(self) -> bool:
        """Whether anything of it is on the node, be it half a package."""
        return self.status not in ("not-installed", "config-files")


def packages(listing: str) -> list[Package]:
    """The packages in lines `name version want flag status`; the version is empty where nothing is installed.

    Raises ValueError when a line is anything else.
    """
    found = []
    for line in listing.splitlines():
        words = line.split(" ")
        if len(words) != 5 or not NAME.fullmatch(words[0]):
            raise ValueError(f"packages: cannot be told from {line!r}")
        found.append(Package(*words))
    return found


def listed(more: str = "") -> str:
    """Shell text that prints them; `more` is done with each line of a pipe, where what is nowhere is no failure."""
    names = " ".join(f"'{name}'" for name in HELD)
    query = "dpkg-query -W -f '${binary:Package} ${Version} ${Status}\\n'"
    return f"{{ {query} {names} 2>/dev/null || [ $? -eq 1 ]; }}{more}"


def is_version(version: str, wanted: str) -> bool:
    """Whether a package's version is the wanted one or begins with it: 580.159.03-0ubuntu1 is 580.159, 580.1590 not."""
    return version == wanted or (version.startswith(wanted) and not version[len(wanted)].isdigit())


def major(driver: Driver) -> str:
    """The declared major version, which is part of package names. Raises ValueError when it is none."""
    match = DRIVER.fullmatch(driver.version)
    if not match:
        raise ValueError(f"driver.version: {driver.version} is no version of the driver; write one like 580.159")
    return match["major"]


def of_the_driver(found: Iterable[Package], number: str) -> list[Package]:
    """The packages on a node that have the version of the driver of that major."""
    return [one for one in found if one.there and _major(one) == number]


def obstacles(found: Iterable[Package], driver: Driver) -> list[str]:
    """Why the declared driver cannot be put beside what is there."""
    wanted = major(driver)
    others = [one for one in found if one.there and WHOLE.fullmatch(one.bare) and _major(one) != wanted]
    return [
        f"{one.bare} {one.version} is installed and rack.yaml declares driver.version {driver.version}: one major "
        "version replaces another only by removing packages, which is left to a person (docs/runbooks/driver.md)"
        for one in others
    ]


def words(found: Collection[Package], driver: Driver) -> list[str]:
    """What is to be installed, as words for apt: of the driver what has another version or is not whole, and the
    kernel's packages that are not there."""
    number = major(driver)
    ours = of_the_driver(found, number)
    wrong = [one.name for one in ours if not (one.installed and is_version(one.version, driver.version))]
    if not any(WHOLE.fullmatch(one.bare) for one in ours):
        wrong.append(f"nvidia-driver-{number}-open")
    whole = {one.bare for one in found if one.installed}
    return [f"{name}={driver.version}*" for name in wrong] + [
        name for name in _of_the_kernel(found, driver, number) if name not in whole
    ]


def _of_the_kernel(found: Iterable[Package], driver: Driver, number: str) -> list[str]:
    """What the declared kernel needs, with the driver's modules as this node gets them: built by NVIDIA or here."""
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


def to_hold(found: Iterable[Package]) -> list[str]:
    """The installed packages that must not move and are not held."""
    return sorted(one.name for one in found if one.installed and one.want != "hold" and held(one.bare))


def held(name: str) -> bool:
    """Whether a package of that name must not move."""
    return any(fnmatchcase(name, pattern) for pattern in HELD)


def hold_all() -> str:
    """Shell text that holds all of them, whatever they are by now."""
    loose = 'case "$want $status" in "install installed") echo "$name";; esac'
    names = listed(f" | while read -r name _ want _ status; do {loose}; done")
    return f'names=$({names}); [ -z "$names" ] || apt-mark hold $names > /dev/null'


def changes(found: Iterable[Package], wanted: Iterable[str]) -> list[str]:
    """What installing these words will change, one line each."""
    before = {one.name: one for one in found if one.there}
    lines = []
    for word in wanted:
        name, _, version = word.partition("=")
        one = before.get(name)
        now = "absent" if one is None else one.version if one.installed else f"{one.version} ({one.status})"
        lines.append(f"{name}: {now} -> {version.rstrip('*') or 'installed'}")
    return lines


def _major(one: Package) -> str | None:
    match = OF_A_MAJOR.fullmatch(one.bare)
    return match["major"] if match else None
