"""The two files that apply the policy whenever an interface appears: a script and a unit. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from core.model import lossless_classes
from core.util import resources
from core.util.managed_file import ManagedFile, header, validate_shell, validate_unit
from roles.lossless import desired

DEVICE_WAIT_SECONDS = 30
"""Seconds that the script waits for the RDMA device, which its driver creates after the interface."""
_MAPS = " ".join(f"{dscp}:{priority}" for dscp, priority in desired.PRIORITIES.items())


def script(rack: str, policies: Mapping[str, desired.Policy]) -> bytes:
    """The script of a node in the rack of that name: what it sets follows from the interface it is given.

    Any other interface gets what a driver starts with.
    """
    return resources.file_text(
        "roles.lossless",
        "templates/lossless.sh",
        header=header(rack),
        seconds=DEVICE_WAIT_SECONDS,
        maps=_MAPS,
        notice_point=desired.NOTICE,
        reaction_point=desired.REACT,
        cnp=desired.CNP,
        cnp_dscp=lossless_classes.CNP_DSCP,
        traffic_class=lossless_classes.ROCE_TRAFFIC_CLASS,
        priority=lossless_classes.ROCE_CLASS,
        cases="".join(f'{name}) {policy} "$1" ;;\n' for name, policy in policies.items()),
    ).encode()


def unit(rack: str) -> bytes:
    """The unit: bound to its interface, so that it runs again whenever that comes back."""
    return resources.file_text(
        "roles.lossless",
        "templates/sparkrack-lossless@.service",
        header=header(rack),
        script=desired.SCRIPT,
    ).encode()


def files(rack: str, policies: Mapping[str, desired.Policy]) -> list[ManagedFile]:
    """Return both files of a node with policies, the script first: the unit names it."""
    return [
        ManagedFile(desired.SCRIPT, script(rack, policies), "755", validate_shell()),
        ManagedFile(desired.UNIT, unit(rack), validate=validate_unit(desired.TEMPLATE)),
    ]


def instance(name: str) -> str:
    """Return the unit of one interface."""
    return desired.TEMPLATE.replace("@", f"@{name}")
