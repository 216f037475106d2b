"""Whatever a role writes is taken off: ours goes, and what was there before comes back byte for byte."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from core.ops.removal import Traces, changeset
from core.util import project_files
from core.util.event import EventKind
from roles.access import etc_hosts
from roles.docker import desired as docker
from roles.docker.options import DockerOptions
from roles.memory import desired as memory
from roles.rdma import desired as rdma
from tests.unit.model.racks import SWITCH, loaded
from tests.unit.ops.shells import stand_in
from tests.unit.roles.cases import OPERATIONS
from tests.unit.roles.removal_node import ROLES, TRACES, RemovalNode

RACK = loaded(SWITCH)
HOSTS = "127.0.0.1 localhost\n127.0.1.1 spark1\n::1 ip6-localhost\n"
FSTAB = "UUID=1 / ext4 defaults 0 1\n/swap.img none swap sw 0 0\n"
NCCL = "NCCL_DEBUG=WARN\nNCCL_IB_DISABLE=1\n"
DAEMON = '{\n  "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}},\n  "debug": false\n}\n'
WANTS = "/etc/systemd/system/multi-user.target.wants"
MASKED = "/etc/systemd/system/apt-daily.timer"
OTHERS = "/etc/systemd/system/fwupd-refresh.timer"
WRITTEN = re.compile(r'mv -fT \\?"\$new\\?" +(?P<path>/[^\s;\'"\\]+)')


def factory(root: Path) -> RemovalNode:
    """A node before the first run."""
    node = RemovalNode(root)
    node.write(etc_hosts.HOSTS, HOSTS)
    node.write(memory.FSTAB, FSTAB)
    node.write(rdma.NCCL_CONF, NCCL)
    node.write(docker.CONFIG, DAEMON)
    node.write("/etc/group", "docker:x:999:\n")
    node.write(OTHERS, "[Timer]\n")
    node.write("/etc/timezone", "Etc/UTC\n")
    node.link("/etc/localtime", "/usr/share/zoneinfo/Etc/UTC")
    node.link("/etc/systemd/system/dpkg.timer", "/dev/null")
    node.write("/etc/systemd/system/none")
    node.write("/etc/netplan/50-cloud-init.yaml", "network: {version: 2}\n")
    (root / "etc/netplan/50-cloud-init.yaml").chmod(0o600)
    return node


def concrete(pattern: str) -> str:
    """A path that matches a pattern."""
    return pattern.replace("*.wants", "multi-user.target.wants").replace("*", "one")


def apply(node: RemovalNode) -> None:
    """Leave on a node what the roles leave there."""
    for traces in TRACES.values():
        if traces.role == "record":
            continue
        for pattern in traces.own:
            if pattern.startswith(("/etc/", "/usr/local/lib/")):
                node.write(concrete(pattern), "ours\n")
        for folder in traces.folders:
            node.write(f"{folder}/one", "ours\n")
        for package in traces.packages:
            (node.root / "packages" / package).touch()
    node.write(etc_hosts.HOSTS, etc_hosts.hosts(RACK, RACK.nodes["spark1"], "spark1", HOSTS.encode()).decode())
    node.write(memory.FSTAB, memory.without_swap(FSTAB.encode()).decode())
    node.write(rdma.NCCL_CONF, rdma.with_rdma(NCCL.encode()).decode())
    node.write(docker.CONFIG, docker.edited(DAEMON, RACK.options(DockerOptions)))
    node.write("/etc/timezone", "Europe/Berlin\n")
    node.link("/etc/localtime", "/usr/share/zoneinfo/Europe/Berlin")
    node.link(MASKED, "/dev/null")
    node.link(OTHERS, "/dev/null")
    node.link(f"{WANTS}/docker.service", "/lib/systemd/system/docker.service")
    (node.root / "etc/netplan/50-cloud-init.yaml").unlink()
    (node.root / "holds/docker-ce").touch()
    (node.root / "sysctl").write_text("vm.min_free_kbytes = 1500000\nkernel.panic = 0\n")
    node.write("/var/backups/sparkrack/fstab.0123456789ab", FSTAB)


@pytest.fixture
def applied(tmp_path: Path) -> tuple[RemovalNode, dict[str, str]]:
    """A node after a run, and what it was before."""
    node = factory(tmp_path / "node")
    before = node.tree()
    node.record()
    apply(node)
    return node, before


def take_all_off(node: RemovalNode) -> list[str]:
    """Take all roles off in the order of remove.py; return those that changed anything."""
    changed = []
    for traces in [*reversed([one for one in TRACES.values() if one.role != "record"]), TRACES["record"]]:
        if node.take_off(traces).events:
            changed.append(traces.role)
    return changed


def test_a_node_is_as_it_was_before_the_first_run(applied: tuple[RemovalNode, dict[str, str]]) -> None:
    node, before = applied
    take_all_off(node)
    assert node.tree() == before


def test_a_container_of_an_all_reduce_that_docker_has_kept_goes_with_the_units(
    applied: tuple[RemovalNode, dict[str, str]],
) -> None:
    """Also one that is the last of its unit; others stay."""
    node, _ = applied
    (node.root / "containers").write_text("sparkrack-one-collective\nsparkrack-collective\nmine-one-collective\n")
    stand_in(
        node.root,
        "docker",
        f'case $1 in rm) shift 2; for n; do sed -i "/^$n\\$/d" {node.root}/containers; done ;; ps) p=${{4#name=^/?}}; '
        f'grep -E "^$p" {node.root}/containers | while read -r n; do case $5 in --quiet) echo "$n" ;; '
        '*) echo "${6%%\\{*}$n${6##*\\}}" ;; esac; done ;; esac',
    )
    done = node.take_off(TRACES["serving"])
    assert "container sparkrack-one-collective of a measurement goes, too" in [one.detail for one in done.warnings]
    assert (node.root / "containers").read_text() == "sparkrack-collective\nmine-one-collective\n"


def test_a_second_removal_changes_nothing(applied: tuple[RemovalNode, dict[str, str]]) -> None:
    node, _ = applied
    assert take_all_off(node)
    assert take_all_off(node) == []


def test_a_removal_that_was_killed_after_any_command_is_completed_by_the_next(
    applied: tuple[RemovalNode, dict[str, str]], tmp_path: Path
) -> None:
    node, _ = applied
    for role in ("watch", "docker", "memory", "access", "record"):
        traces = TRACES[role]
        whole = node.copy(tmp_path / role)
        count = len(whole.take_off(traces).commands)
        assert count > 2
        for most in range(1, count):
            killed = node.copy(tmp_path / f"{role}-{most}")
            killed.take_off(traces, most)
            killed.take_off(traces)
            assert killed.tree() == whole.tree(), f"{role}, killed after {most} commands"
            assert not killed.take_off(traces).events


def test_a_removal_that_was_killed_runs_again_what_comes_after_the_files(
    applied: tuple[RemovalNode, dict[str, str]],
) -> None:
    node, _ = applied
    node.take_off(TRACES["memory"], most=2)
    (node.root / "calls").unlink()
    node.take_off(TRACES["memory"])
    assert "swapon -a" in (node.root / "calls").read_text().splitlines()


def test_a_line_that_others_have_added_since_stays(applied: tuple[RemovalNode, dict[str, str]]) -> None:
    node, _ = applied
    for path in (etc_hosts.HOSTS, memory.FSTAB, rdma.NCCL_CONF):
        place = node.root / path.lstrip("/")
        place.write_text(f"{place.read_text()}10.9.9.9 theirs\n")
    take_all_off(node)
    assert (node.root / "etc/hosts").read_text() == f"{HOSTS}10.9.9.9 theirs\n"
    assert (node.root / "etc/fstab").read_text() == f"{FSTAB}10.9.9.9 theirs\n"
    assert (node.root / "etc/nccl.conf").read_text() == f"{NCCL}10.9.9.9 theirs\n"


def test_a_setting_of_docker_that_others_have_added_since_stays(applied: tuple[RemovalNode, dict[str, str]]) -> None:
    node, _ = applied
    place = node.root / "etc/docker/daemon.json"
    place.write_text(place.read_text().replace('"debug": false', '"debug": true'))
    take_all_off(node)
    assert place.read_text().count("true") == 1
    assert "sparkrack" not in place.read_text()
    assert '"path": "nvidia-container-runtime"' in place.read_text()


def test_what_was_not_recorded_is_unknown_and_kept(tmp_path: Path) -> None:
    node = factory(tmp_path / "node")
    apply(node)
    node.record()
    assert not (node.root / "var/lib/sparkrack/before/etc").exists(), "the record of a node that was changed already"
    traces = TRACES["memory"]
    made = node.take_off(traces)
    notes = {event.subject: event.message for event in made.warnings if event.kind is EventKind.NOTE}
    assert "unknown: kept" in notes[memory.FSTAB]
    assert memory.OFF.decode() in (node.root / "etc/fstab").read_text()
    assert not (node.root / memory.DROPIN.lstrip("/")).exists()
    assert TRACES["watch"].packages
    assert not any("package" in event.message for event in node.take_off(TRACES["watch"]).events)
    assert {path.name for path in (node.root / "packages").iterdir()} >= set(TRACES["watch"].packages)


def test_a_record_is_made_once(applied: tuple[RemovalNode, dict[str, str]]) -> None:
    node, before = applied
    node.record()
    take_all_off(node)
    assert node.tree() == before


@pytest.mark.parametrize("role", [role.key for role in ROLES])
def test_every_file_that_a_role_writes_is_among_its_traces(role: str) -> None:
    """By what the cases of its operations send."""
    texts = [path.read_text() for path in (OPERATIONS / role).glob("*.yaml")]
    written = {match["path"].rstrip(",") for text in texts for match in WRITTEN.finditer(text)}
    left = [path for path in sorted(written) if not _is_taken_off(role, path)]
    assert left == []


ELSEWHERE = {
    "access": (
        "/etc/ssh/sshd_config.d/00-sparkrack.conf",
        "/etc/tmpfiles.d/sparkrack-access.conf",
        "/home/ops/.ssh/authorized_keys",
        "/home/ops/.ssh/id_sparkrack.pub",
    )
}
"""Files that operations of their own take off: sshd's on trial, keys line by line."""


def _is_taken_off(role: str, path: str) -> bool:
    found = [traces for traces in TRACES.values() if traces.role.partition("-")[0] == role]
    return path in ELSEWHERE.get(role, ()) or any(_is_traced(traces, path) for traces in (*found, TRACES["record"]))


def _is_traced(traces: Traces, path: str) -> bool:
    patterns = (*traces.own, *traces.edited, *traces.links)
    return any(fnmatchcase(path, one) for one in patterns) or any(path.startswith(f"{one}/") for one in traces.folders)


def test_every_role_of_a_node_can_be_taken_off() -> None:
    text = project_files.REMOVE.read_text()
    named = re.findall(r'^remove_role\("(\w+)"\)$', text, re.MULTILINE)
    assert sorted(named) == sorted(role.key for role in ROLES)


def test_a_service_that_a_timer_starts_is_not_in_the_plan_by_chance_and_is_stopped_all_the_same(tmp_path: Path) -> None:
    """Between the plan and the removal it starts and ends: a plan that names it would have moved."""
    node = factory(tmp_path)
    line = "sparkrack-switch-reader.service loaded activating start a reader"
    stand_in(tmp_path, "systemctl", f"case $* in *activating*) echo '{line}' ;; is-active*) exit 3 ;; esac")
    node.record()
    node.write("/etc/systemd/system/sparkrack-switch-reader.timer")
    found = changeset(node.found(TRACES["watch"]))
    assert not [event for event in found.events if "switch-reader.service" in str(event)]
    assert "systemctl stop 'sparkrack-node-metrics.*' 'sparkrack-switch-reader.*'" in "".join(map(str, found.commands))
