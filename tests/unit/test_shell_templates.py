"""Shell templates of the packages, as rendered, have no finding of shellcheck. `make lint` checks constant files."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import roles.fabric.facts
import roles.lossless.facts
import roles.preflight.facts
import serving.facts
from core.model import Rack, load
from core.ops import apt, host_facts
from core.util import resources
from roles.docker import scripts as docker
from roles.fabric import interface_owners
from roles.lossless import boot_unit
from roles.memory import cgroups, memory_gate, memory_guard
from roles.preflight import verify_probe
from roles.rdma import bandwidth, environment
from serving import gateway_facts as gateway_facts
from sparkrack.serving.export.lws import fabric_script
from sparkrack.serving.export.ray import ray_files
from tests.unit.roles.removal_node import PROBES
from tests.unit.serving.export.exported import SOURCES
from tests.unit.test_project import PACKAGES, TOP

RACK = load(TOP / "examples/rack.yaml")
NODE = next(iter(RACK.nodes.values()))


def probe(role: str, name: str) -> str:
    return host_facts._registered[role].commands[name]


def bandwidth_tools(rack: Rack) -> str:
    tests = bandwidth.tests(rack, NODE.name)
    return f"{bandwidth.server(tests[0])}\n{bandwidth.client(tests[0])}"


RENDERED: dict[str, Callable[[], str]] = {
    "core/ops/templates/apt-install.sh": lambda: apt.install_script(
        "a1", "b2=1.2", downgrade=True, held=True
    ).removeprefix(apt.wait()),
    "core/ops/templates/apt-wait.sh": apt.wait,
    "core/ops/templates/traces.sh": lambda: PROBES["removal-serving"].commands["removal-serving"],
    "roles/docker/templates/engine.sh": lambda: docker.ENGINE,
    "roles/docker/templates/reload.sh": lambda: docker.reload(live_restore=True, nvidia=True),
    "roles/docker/templates/restart.sh": lambda: docker.restart("0123abc", idle=False),
    "roles/docker/templates/running-containers.sh": lambda: docker.CONTAINERS,
    "roles/fabric/templates/owners.sh": lambda: interface_owners.PROBE,
    "roles/lossless/templates/live-settings.sh": lambda: probe("lossless", roles.lossless.facts.LIVE),
    "roles/lossless/templates/lossless.sh": lambda: boot_unit.script("two", {"a": "roce", "b": "pause"}).decode(),
    "roles/memory/templates/live-groups.sh": cgroups.question,
    "roles/memory/templates/memory-gate.sh": lambda: memory_gate.script(RACK).content.decode(),
    "roles/memory/templates/memory-guard.sh": lambda: memory_guard.script(RACK).content.decode(),
    "roles/preflight/templates/machine.sh": lambda: probe("preflight", roles.preflight.facts.LASTING),
    "roles/preflight/templates/now.sh": lambda: probe("preflight", roles.preflight.facts.NOW),
    "roles/preflight/templates/verify-probe.sh": lambda: verify_probe.script(["s1", "s2"], ["i1", "i2"], ["a", "b"]),
    "roles/rdma/templates/bandwidth-tools.sh": lambda: bandwidth_tools(RACK),
    "roles/rdma/templates/gid-index.sh": lambda: environment.gid_index(RACK, NODE, {}).decode(),
    "roles/rdma/templates/profile.sh": lambda: environment.profile(RACK).decode(),
    "serving/templates/gateway-state.sh": lambda: probe("serving", gateway_facts.STATE),
    "serving/templates/running-ranks.sh": lambda: probe("serving", serving.facts.CONTAINERS),
    "sparkrack/serving/export/templates/ray-serve.sh": lambda: ray_files(SOURCES["fabric"])[1].text,
    "sparkrack/serving/export/templates/with-fabric.sh": fabric_script,
}
"""A text with each template as it is sent to a node, or written there."""


def templates() -> list[str]:
    return sorted(str(path.relative_to(TOP)) for top in PACKAGES for path in (TOP / top).rglob("templates/*.sh"))


def findings(text: str, directives: str = "") -> str:
    """Findings of shellcheck in a text. The directives of its template hold for all of it: a rendered text has none."""
    codes = re.findall(r"^# shellcheck disable=(SC\d+) # \S", directives, re.MULTILINE)
    dialect = [] if text.startswith("#!") else ["--shell=sh"]
    excluded = [f"--exclude={','.join(codes)}"] if codes else []
    command = [str(Path(sys.executable).with_name("shellcheck")), "--format=gcc", "--norc", *dialect, *excluded, "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def test_every_template_is_checked() -> None:
    assert sorted(RENDERED) == sorted(templates())


@pytest.mark.parametrize("template", sorted(RENDERED))
def test_a_rendered_template_has_no_finding(template: str) -> None:
    text = RENDERED[template]()
    assert not resources._PLACEHOLDER.search(text)
    assert "# shellcheck" not in text
    assert findings(text, (TOP / template).read_text()) == ""


def test_a_fault_is_found() -> None:
    text = RENDERED["roles/memory/templates/memory-gate.sh"]()
    assert "SC2086" in findings(f"{text}cat $1\n")


@pytest.mark.parametrize("path", [path for top in PACKAGES for path in (TOP / top).rglob("*.sh")], ids=str)
def test_a_directive_gives_its_reason(path: Path) -> None:
    for line in path.read_text().splitlines():
        if line.lstrip().startswith("# shellcheck "):
            assert re.fullmatch(r"\s*# shellcheck (shell=(sh|bash)|disable=SC\d+ # .{10,})", line), line


def test_dash_reads_one_byte_below_proc_sys() -> None:
    """The reason of the next test: the kernel answers the second read of such a file with nothing."""
    done = subprocess.run(["dash", "-c", "read -r all < /proc/sys/kernel/printk"], capture_output=True)
    assert done.returncode == 1


@pytest.mark.parametrize("path", [path for top in PACKAGES for path in (TOP / top).rglob("*.sh")], ids=str)
def test_no_script_reads_below_proc_sys_by_line(path: Path) -> None:
    assert not re.search(r"\bread [^|;\n]*< */proc/sys", path.read_text())
