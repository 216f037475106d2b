"""Prove a node's driver and kernel: what runs, what apt would do, what systemd would start."""

from __future__ import annotations

import re

import pytest

from core.model import Node, Rack
from core.ssh.client import Machine
from core.verify.reporter import CheckReporter
from roles.driver import desired, upgrade_blockers
from roles.driver.options import DriverOptions


@pytest.fixture
def driver(rack: Rack) -> DriverOptions:
    """The declared driver."""
    declared = rack.declared(DriverOptions)
    if declared is None:
        pytest.skip("rack.yaml declares no driver")
    return declared


def test_the_declared_driver_is_installed(
    node: Node, machine: Machine, driver: DriverOptions, report: CheckReporter
) -> None:
    """Every package of the driver that `dpkg -l` shows, and there is one that pulls in all of it."""
    if driver.version is None:
        pytest.skip("rack.yaml declares no version of the driver")
    found = _listed_packages(node, machine)
    number = desired.major(driver)
    ours = [(status, name, version) for status, name, version in found if _is_of(name, number)]
    faults = [] if any(desired.WHOLE.fullmatch(name) for _, name, _ in ours) else [f"no nvidia-driver-{number}-open"]
    for status, name, version in ours:
        if not desired.is_version(version, driver.version):
            faults.append(f"{name} is {version}, wanted {driver.version}")
        if status[1:] != "i":
            faults.append(f"{name} is only half installed (dpkg -l: {status})")
    report.judge(f"{node.name}: {fault}" for fault in faults)


def test_what_must_not_move_is_on_hold(
    node: Node,
    machine: Machine,
    driver: DriverOptions,  # noqa: ARG001
    report: CheckReporter,
) -> None:
    """Every package that must not change is on hold, by apt-mark."""
    showing = machine.run("apt-mark showhold")
    assert showing.rc == 0, f"{node.name}: apt-mark: {showing.stderr.strip()}"
    on_hold = {name.partition(":")[0] for name in showing.stdout.split()}
    names = [name for _, name, _ in _listed_packages(node, machine)]
    report.judge(f"{node.name}: {name} is not on hold" for name in names if desired.held(name) and name not in on_hold)


def test_a_full_upgrade_moves_nothing_of_it(
    node: Node,
    machine: Machine,
    driver: DriverOptions,  # noqa: ARG001
    report: CheckReporter,
) -> None:
    """apt's own plan for `full-upgrade`, from the lists it has; nothing is done."""
    plan = machine.run("apt-get -s -o Debug::NoLocking=1 full-upgrade")
    assert plan.rc == 0, f"{node.name}: apt-get -s full-upgrade: {plan.stderr.strip()}"
    moved = re.findall(r"^(?:Inst|Remv) (\S+)", plan.stdout, re.MULTILINE)
    report.judge(f"{node.name}: a full upgrade would move {name}" for name in moved if desired.held(name))


def test_no_unit_upgrades_the_node(node: Node, machine: Machine, driver: DriverOptions, report: CheckReporter) -> None:  # noqa: ARG001
    """Every timer and service of the kind that systemd knows is masked, and none runs."""
    patterns = " ".join(f"'{pattern}'" for pattern in upgrade_blockers.SELF_UPGRADING)
    listing = machine.run(f"systemctl list-unit-files --no-legend --plain --no-pager {patterns}")
    assert listing.rc in (0, 1), f"{node.name}: systemctl: {listing.stderr.strip()}"  # 1: none at all (systemd 257)
    states = {line.split()[0]: line.split()[1] for line in listing.stdout.splitlines()}
    running = machine.run(f"systemctl list-units --no-legend --plain --no-pager --state=active,activating {patterns}")
    assert running.rc == 0, f"{node.name}: systemctl: {running.stderr.strip()}"
    faults = [f"{name} is {how}, wanted masked" for name, how in states.items() if how != "masked"]
    faults += [f"{line.split()[0]} runs" for line in running.stdout.splitlines()]
    report.judge(f"{node.name}: {fault}" for fault in faults)


def test_apt_upgrades_nothing_by_itself(
    node: Node,
    machine: Machine,
    driver: DriverOptions,  # noqa: ARG001
    report: CheckReporter,
) -> None:
    """The shell variables that apt's daily script takes."""
    keys = " ".join(f"v{number} {key}" for number, key in enumerate(upgrade_blockers.PERIODIC))
    shown = machine.run(f"apt-config shell {keys}")
    assert shown.rc == 0, f"{node.name}: apt-config: {shown.stderr.strip()}"
    values = dict(re.findall(r"^v(\d+)='(.*)'$", shown.stdout, re.MULTILINE))
    report.judge(
        f"{node.name}: {key} is {values.get(str(number), 'not set')} for apt, wanted 0"
        for number, key in enumerate(upgrade_blockers.PERIODIC)
        if values.get(str(number)) != "0"
    )


def test_the_declared_kernel_runs(node: Node, machine: Machine, driver: DriverOptions) -> None:
    """`uname` shows the declared kernel."""
    if driver.kernel is None:
        pytest.skip("rack.yaml declares no kernel")
    runs = machine.run("uname -r")
    assert runs.rc == 0, f"{node.name}: uname: {runs.stderr.strip()}"
    name = runs.stdout.strip()
    assert name == driver.kernel, f"{node.name}: kernel {name} runs, wanted {driver.kernel}; reboot required"


def test_the_declared_driver_is_loaded(node: Node, machine: Machine, driver: DriverOptions) -> None:
    """`nvidia-smi` shows the declared driver for each GPU; the installed one where no version is declared."""
    answer = machine.run("timeout 60 nvidia-smi --query-gpu=driver_version --format=csv,noheader")
    reported = (answer.stdout or answer.stderr).strip()
    assert answer.rc == 0, f"{node.name}: nvidia-smi does not reach the driver; reboot required: {reported}"
    # Loaded is 580.159.03 where the package is 580.159.03-0ubuntu1.
    assert reported, f"{node.name}: nvidia-smi names no driver"
    wanted = [driver.version] if driver.version else _installed_versions(node, machine)
    assert wanted, f"{node.name}: dpkg lists no package that pulls in the driver, so which one is wanted is unknown"
    wrong = [one for one in reported.split() if not any(_is_loaded_as(one, version) for version in wanted)]
    assert not wrong, f"{node.name}: driver {', '.join(wrong)} is loaded, wanted {' or '.join(wanted)}"


def test_no_reboot_is_asked_for(node: Node, machine: Machine, driver: DriverOptions) -> None:  # noqa: ARG001
    """No package has asked for one since the last."""
    asked = machine.run("[ ! -e /var/run/reboot-required ] || { echo 'a package'; cat /var/run/reboot-required.pkgs; }")
    names = ", ".join(dict.fromkeys(asked.stdout.split("\n")[1:-1])) or asked.stdout.strip()
    assert not asked.stdout, f"{node.name}: reboot required, asked for by {names}"


def _listed_packages(node: Node, machine: Machine) -> list[tuple[str, str, str]]:
    """Status, name and version of everything that dpkg lists as being there."""
    listing = machine.run("dpkg -l")
    assert listing.rc == 0, f"{node.name}: dpkg: {listing.stderr.strip()}"
    found = re.findall(r"^([a-z][A-Za-z]{1,2}) +(\S+) +(\S+) ", listing.stdout, re.MULTILINE)
    return [(how, name.partition(":")[0], version) for how, name, version in found if how[1] not in "nc"]


def _is_of(name: str, number: str) -> bool:
    match = desired.OF_A_MAJOR.fullmatch(name)
    return match is not None and match["major"] == number


def _installed_versions(node: Node, machine: Machine) -> list[str]:
    """Return the version of each package that pulls in the driver, without an epoch."""
    packages = _listed_packages(node, machine)
    return [version.rpartition(":")[2] for _, name, version in packages if desired.WHOLE.fullmatch(name)]


def _is_loaded_as(loaded: str, version: str) -> bool:
    """Return whether a loaded driver is of a version, which a package may have with a revision of its own."""
    return desired.is_version(loaded, version) or loaded == version.rpartition("-")[0]
