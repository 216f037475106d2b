"""`sparkrack accept` on nodes: what is observed, refuted and not observed, and how it ends; the switch is in
tests/emulator/test_accept.py.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from core.claims.claims import CheckLook, NodeLook, SwitchLook, known_claims
from core.ssh import node_shells
from core.util import scrub
from core.util.provenance import Origin
from sparkrack.accept.checks import NODE_CHECKS, SWITCH_CHECKS
from sparkrack.accept.claim_results import EVIDENCE_LENGTH, switch_result
from sparkrack.accept.model import AcceptReport, ClaimResult, HostReading, MachineResult
from sparkrack.accept.model import Result as ClaimState
from sparkrack.accept.report_html import page
from sparkrack.accept.trials import TRIED
from sparkrack.cli.main import sparkrack
from sparkrack.engine.subcommands import WITHIN
from switch.verify_client import SwitchChecks
from tests.unit.cli.accept_nodes import FUNCTIONS, GOOD, HALVES, Nodes
from tests.unit.cli.runs import command
from tests.unit.status.machines import REFERENCE, reference

CLAIMS = {claim.id: claim for claim in known_claims()}
ON_NODES = [name for name in GOOD if name != "fabric.ethtool-speed"]
"""Claims that nodes alone settle."""
REST = ("preflight.lspci-link", "driver.packages", "time.daemons", "driver.upgrade-units")
"""Claims of which a reading of a node shows a part."""


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Nodes:
    """The nodes of the reference rack, one of them from a maker whose DMI strings are inferred."""
    text = REFERENCE.replace("vendor: asus", "vendor: dell", 1).replace("vendor: nvidia", "vendor: dell", 1)
    assert "vendor: dell" in text
    monkeypatch.setenv("RACK", str(reference(tmp_path, text).source))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = Nodes()
    monkeypatch.setattr(node_shells, "RootShell", made.shell)
    return made


def run(*words: str) -> Result:
    ended = CliRunner().invoke(sparkrack, ["accept", "--limit", "nodes", *words], catch_exceptions=False)
    assert "\x1b" not in ended.output
    return ended


def report(*words: str) -> AcceptReport:
    ended = run("--json", *words)
    found = AcceptReport.model_validate_json(ended.stdout)
    assert found.exit == ended.exit_code
    return found


def of(claim: str) -> ClaimResult:
    (found,) = report("--claim", claim).claims
    return found


def test_the_checks_are_those_that_claims_name() -> None:
    assert {*NODE_CHECKS, *SWITCH_CHECKS} == {
        one.look.check for one in known_claims() if isinstance(one.look, CheckLook)
    }


def test_every_claim_is_in_the_report(nodes: Nodes) -> None:
    found = report()
    assert sorted(one.id for one in found.claims) == sorted(CLAIMS)
    assert found.counts["refuted"] == 0
    others = {one.id: one for one in found.claims if one.level != "look"}
    assert {one.result for one in others.values()} == {"not observed"}
    assert {one.level for one in others.values()} == {"change", "load"}
    for name, one in others.items():
        spare = "it needs sparkrack accept --level change --spare SWITCH/CAGE"
        assert one.reason == (spare if name in TRIED else f"by hand: {CLAIMS[name].observe}")


@pytest.mark.parametrize("claim", ON_NODES)
def test_a_claim_that_holds(claim: str, nodes: Nodes) -> None:
    found = of(claim)
    assert (found.result, [host.unknown for host in found.hosts if host.unknown]) == (
        "not observed" if claim in REST else "observed",
        [],
    )
    assert found.hosts
    assert ("the rest holds" in found.reason) == (claim in REST)


PLANTED: dict[str, tuple[str, str, str]] = {
    "another interface name": (
        "fabric.interface-names",
        GOOD["fabric.interface-names"].replace("enp1s0f1np1", "enp1s0f1np9"),  # type: ignore[union-attr]
        "enp1s0f1np9",
    ),
    "another DMI string": ("preflight.dmi", "sys_vendor=D3LL\nboard_vendor=NVIDIA\n", "no string names dell"),
    "a file of the driver is absent": ("lossless.driver-files", f"{HALVES[0]}: no ecn\n", "no ecn"),
    "lspci is slow": ("preflight.lspci-vpd", "no answer within 20 s\nlspci ended with 124\n", "no answer within"),
    "lspci without its link": ("preflight.lspci-link", "0000:01:00.0: no LnkSta\n", "no LnkSta"),
    "the other driver has the file": ("lossless.driver-identity", "mlx5 of the kernel: roce_np\n", "roce_np"),
    "another package": ("driver.packages", "nvidia-gb10-driver 1\n", "not in the answer"),
    "another device": ("rdma.sysfs", "mlx5_0: has gids\n", "not in the answer"),
    "a folder of a device is absent": (
        "rdma.sysfs",
        f"{GOOD['rdma.sysfs']}\nrocep1s0f0: no hw_counters",
        "no hw_counters",
    ),
    "another field of timedatectl": (
        "time.daemons",
        "NTPSynchronized=yes\nSystemNTPServers=a\nServerName=a\n",
        "Offset",
    ),
    "another name of a unit": ("driver.upgrade-units", "DGX OS\nnvidia-ota.timer enabled\n", "not in the answer"),
}


@pytest.mark.parametrize("case", PLANTED)
def test_a_difference_refutes_its_claim_only(case: str, nodes: Nodes) -> None:
    claim, answer, text = PLANTED[case]
    nodes.changed[claim] = answer
    ended = run()
    assert ended.exit_code == 2
    assert f"refuted: {claim}: " in ended.stdout
    assert ended.stdout.count("refuted: ") == 1
    assert f"  this means: {CLAIMS[claim].matters}" in ended.stdout
    found = report()
    assert [one.id for one in found.claims if one.result == "refuted"] == [claim] == [found.claims[0].id]
    assert any(text in host.evidence for host in found.claims[0].hosts)


def test_one_node_refutes_a_claim_and_is_named(nodes: Nodes) -> None:
    nodes.changed["spark2", "fabric.interface-names"] = "lo\n"
    found = of("fabric.interface-names")
    assert found.result == "refuted"
    assert [host.host for host in found.hosts if host.result == "refuted"] == ["spark2"]


UNKNOWN: dict[str, Callable[[Nodes], object]] = {
    "no answer": lambda nodes: nodes.silent.update(spark2="Connection timed out"),
    "another answer": lambda nodes: nodes.raw.update(spark2="sudo: a password is required\n"),
    "the command fails": lambda nodes: nodes.changed.update({("spark2", "fabric.interface-names"): (2, "")}),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_is_unknown_is_not_observed(case: str, nodes: Nodes) -> None:
    UNKNOWN[case](nodes)
    found = of("fabric.interface-names")
    assert (found.result, found.unknown) == ("not observed", True)
    assert found.reason.startswith("spark2: ")
    ended = run("--claim", "fabric.interface-names")
    assert ended.exit_code == 0
    assert "spark2" in ended.stdout
    assert "unknown: " in ended.stdout


@pytest.mark.parametrize("answer", ["", "\n", "bash: lspci: command not found\n"])
@pytest.mark.parametrize("claim", ["preflight.lspci-vpd", "preflight.dmi", "lossless.driver-files", "time.daemons"])
def test_an_answer_that_is_not_understood_is_not_observed(claim: str, answer: str, nodes: Nodes) -> None:
    nodes.changed[claim] = answer
    found = of(claim)
    assert (found.result, found.unknown) == ("not observed", True)
    assert "the answer is not understood" in found.reason


def test_a_removed_function_is_no_other_name(nodes: Nodes) -> None:
    gone = "no function 0000:01:00.0\nno function 0002:01:00.0\n"
    nodes.changed["fabric.interface-names"] = f"lo\n{HALVES[2]}\n{HALVES[3]}\n{gone}"
    found = of("fabric.interface-names")
    assert (found.result, found.unknown) == ("not observed", False)
    assert "the node has no function 0000:01:00.0, 0002:01:00.0; the rest holds" in found.reason
    nodes.changed["spark2", "fabric.interface-names"] = f"lo\nenp1s0f1np9\n{HALVES[3]}\n{gone}"
    found = of("fabric.interface-names")
    assert [(host.host, host.evidence.partition(";")[0]) for host in found.hosts if host.result == "refuted"] == [
        ("spark2", f"not in the answer: {HALVES[2]}")
    ]


def test_a_claim_about_other_nodes(nodes: Nodes) -> None:
    nodes.changed["driver.upgrade-units"] = "fwupd-refresh.timer enabled\n"
    assert of("driver.upgrade-units").reason == "this rack has no host that it is about"
    assert all("/sys/class/dmi" not in script for node, script in nodes.scripts if node == "spark8")


def test_no_host_answers(nodes: Nodes) -> None:
    nodes.silent = dict.fromkeys((f"spark{number}" for number in range(1, 9)), "Connection timed out")
    ended = run()
    assert ended.exit_code == 1
    assert "0 observed" in ended.stdout
    assert "spark1: unknown: cannot be reached" in ended.stdout


def test_nothing_is_read_for_a_claim_of_another_level(nodes: Nodes) -> None:
    assert run("--claim", "switch.fec.auto").exit_code == 1
    assert nodes.scripts == []


def test_the_summary_fits_a_screen(nodes: Nodes) -> None:
    for claim, answer, _ in PLANTED.values():
        nodes.changed[claim] = answer
    nodes.silent = {"spark7": "Connection timed out", "spark8": "Connection timed out"}
    assert len(run().stdout.splitlines()) <= 35
    nodes.changed, nodes.silent = {}, {}
    assert len(run().stdout.splitlines()) <= 10


def test_quiet(nodes: Nodes) -> None:
    assert len(run("--quiet").stdout.splitlines()) == 1


def test_hostile_answers_and_secrets(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "_declared", set())
    scrub.declare("canary-7Qx")
    hostile = "lo\n\x1b[2J<script>alert(1)</script>\u202e password=hunter2 canary-7Qx " + "x" * 5000
    nodes.changed["fabric.interface-names"] = hostile
    out = tmp_path / "out"
    ended = run("--output", str(out))
    assert ended.exit_code == 2
    page = (out / "accept.html").read_text()
    document = (out / "accept.json").read_text()
    for text in (ended.output, page, document):
        assert not any(one in text for one in ("\x1b", "\u202e", "hunter2", "canary-7Qx", "x" * EVIDENCE_LENGTH))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    evidence = AcceptReport.model_validate_json(document).claims[0].hosts[0].evidence
    assert len(evidence) == EVIDENCE_LENGTH


def test_the_folder(nodes: Nodes, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    nodes.changed["preflight.dmi"] = PLANTED["another DMI string"][1]
    ended = run("--output", str(out))
    assert sorted(path.name for path in out.iterdir()) == ["accept.html", "accept.json"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()} == {0o600}
    assert ended.stdout.splitlines()[-1] == str(out / "accept.html")
    page = (out / "accept.html").read_text()
    assert page.index('id="preflight.dmi"') < min(
        page.index(f'id="{name}"') for name in CLAIMS if name != "preflight.dmi"
    )
    assert json.loads((out / "accept.json").read_text())["schema"] == "sparkrack.accept/2"


def claim(number: int, result: ClaimState, *, unknown: bool = False, text: str = "a claim") -> ClaimResult:
    host = MachineResult(host="spark1", result=result, evidence="what was read", unknown=unknown)
    why = "" if result != "not observed" else "reading `x` failed"
    return ClaimResult(
        id=f"claim.{number}",
        level="look",
        claim=text,
        result=result,
        reason=why,
        observe="`ethtool`",
        refutes="b",
        matters="c",
        hosts=(host,),
    )


def test_the_page_begins_with_what_is_refuted_then_unknown_and_shows_code_as_code() -> None:
    origin = Origin(when=datetime(2026, 11, 20, tzinfo=UTC), by="ops@desk", file="rack.yaml", revision="")
    claims = (
        claim(1, "observed"),
        claim(2, "not observed"),
        claim(3, "not observed", unknown=True),
        claim(4, "refuted", text="The monitor reports `status` <b>as</b> one`word"),
    )
    hosts = (HostReading(host="spark1", answered=True),)
    made = AcceptReport(rack="lab", origin=origin, level="look", hosts=hosts, claims=claims)
    text = page(made)
    order = [text.index(f'<article id="claim.{number}">') for number in (4, 3, 1, 2)]
    assert order == sorted(order)
    assert "The monitor reports <code>status</code> &lt;b&gt;as&lt;/b&gt; one`word" in text
    assert "What settles it: <code>ethtool</code>." in text
    assert '<a href="#unknown">unknown (1)</a>' in text
    assert '<tr><th>look</th><td class="figure">1</td><td class="figure">1</td><td class="figure">2</td></tr>' in text
    assert "A claim about the hardware is refuted" in text
    assert "Not all could be read" in page(made.model_copy(update={"claims": claims[:3]}))
    assert "No claim is refuted" in page(made.model_copy(update={"claims": claims[:2]}))


def test_a_folder_that_cannot_be_made(nodes: Nodes, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = run("--output", str(tmp_path / "file" / "below"))
    assert ended.exit_code == 1
    assert "choose another folder" in ended.stderr
    assert nodes.scripts == []


def test_an_unknown_claim(nodes: Nodes) -> None:
    ended = run("--claim", "preflight.dni")
    assert ended.exit_code == 1
    assert "--claim preflight.dni: there is no such claim; did you mean preflight.dmi?" in ended.stderr
    assert nodes.scripts == []


AGAIN = "accept --claim preflight.dmi --claim fabric.interface-names"


@pytest.mark.parametrize(
    ("change", "words", "step"),
    [
        (lambda _: None, (), f"{AGAIN} --output accept --limit nodes"),
        (lambda _: None, ("--output",), "verify"),
        (lambda nodes: nodes.changed.update({"preflight.dmi": "sys_vendor=D3LL\n"}), ("--output",), "support"),
        (lambda nodes: nodes.silent.update({f"spark{at}": "off" for at in range(1, 9)}), (), "status"),
        (
            lambda nodes: nodes.silent.update(spark1="off", spark2="off"),
            (),
            f"{AGAIN} --limit nodes --exclude spark1 --exclude spark2",
        ),
    ],
)
def test_the_next_step(
    change: Callable[[Nodes], object],
    words: tuple[str, ...],
    step: str,
    nodes: Nodes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(WITHIN)
    change(nodes)
    more = [*words, str(tmp_path / "out")] if words else []
    last = run("--claim", "preflight.dmi", "--claim", "fabric.interface-names", *more).stderr.splitlines()[-1]
    assert last.partition(": ")[2].replace(f" --rack {os.environ['RACK']}", "") == f"sparkrack {step}"


COMMANDS = {claim.id: claim.look.node for claim in known_claims() if isinstance(claim.look, NodeLook)}
WRITES = (
    "tee ",
    "rm ",
    "mv ",
    "cp ",
    "touch ",
    "mkdir ",
    "sysctl -w",
    "ip link set",
    "ethtool -",
    "systemctl re",
    " > ",
)


@pytest.mark.parametrize("claim", COMMANDS)
def test_a_command_is_valid_and_writes_nothing(claim: str) -> None:
    program = Path(sys.executable).with_name("shellcheck")
    text = COMMANDS[claim]
    # SC2015: `test && echo || echo`; echo does not fail. SC2012: names of interfaces.
    done = subprocess.run(
        [program, "--shell=sh", "--exclude=SC2015,SC2012,SC2016", "-"], input=text, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert not [word for word in WRITES if word in text]


@pytest.mark.parametrize("name", ["enp1s0f1np1", "enp1s0f1np9"])
def test_over_ssh_in_a_real_shell(name: str, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    listed = " ".join((*HALVES[:2], name, HALVES[3]))
    functions = " ".join(f"'{function} Ethernet controller: x'" for function in FUNCTIONS)
    for tool, text in {
        "ssh": "exec sh",
        "ls": f"printf '%s\\n' {listed}",
        "lspci": f"printf '%s\\n' {functions}",
    }.items():
        (tools / tool).write_text(f"#!/bin/sh\n{text}\n")
        (tools / tool).chmod(0o755)
    rack = reference(tmp_path)
    words = ("accept", "--limit", "spark1", "--claim", "fabric.interface-names", "--rack", str(rack.source))
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    ended = command("sparkrack", *words, XDG_STATE_HOME=str(tmp_path), PATH=path)
    assert ended.code == (0 if name in HALVES else 2), ended.text
    assert ("refuted: fabric.interface-names" in ended.stdout) == (name not in HALVES)


def crs804(name: str) -> SwitchLook:
    look = CLAIMS[name].look
    assert isinstance(look, SwitchLook)
    return look


LANES = [f"qsfp56-dd-{cage}-{lane}" for cage in range(1, 5) for lane in range(1, 9)]
PORTS = [{"default-name": name} for name in (*LANES, "ether1", "ether2")]
SMALL = {"default-name": "qsfp56-dd-1-1", "max-l2mtu": "9216"}
SIZES = [{"default-name": name, "max-l2mtu": "9570"} for name in LANES] + [{"name": "bridge"}]
ROWS: dict[str, tuple[str, list[dict[str, str]], str]] = {
    "the model": ("crs804.model", [{"model": "CRS804-4DDQ"}], "observed"),
    "another model": ("crs804.model", [{"model": "CRS804-4DDQ-hRM"}], "refuted"),
    "no model": ("crs804.model", [{}], "refuted"),
    "no row": ("crs804.model", [], "not observed"),
    "the ports": ("crs804.ports", PORTS, "observed"),
    "a port less": ("crs804.ports", PORTS[1:], "refuted"),
    "another port": ("crs804.ports", [*PORTS[1:], {"default-name": "sfp56-1"}], "refuted"),
    "the size": ("crs804.l2mtu", SIZES, "observed"),
    "another size of one lane": (
        "crs804.l2mtu",
        [*SIZES, SMALL],
        "refuted",
    ),
    "the package": ("crs804.package", [{"name": "routeros"}, {"name": "switch-marvell"}], "observed"),
    "another package": ("crs804.package", [{"name": "routeros"}, {"name": "switch-chip"}], "refuted"),
    "the mode": ("switch.device-mode", [{"mode": "advanced", "scheduler": "true", "flagged": "false"}], "observed"),
    "no flag in the mode": ("switch.device-mode", [{"mode": "advanced", "scheduler": "true"}], "refuted"),
}


@pytest.mark.parametrize("case", ROWS)
def test_rows_of_a_menu(case: str) -> None:
    claim, rows, result = ROWS[case]
    assert switch_result(crs804(claim), "crs804", rows).result == result


def test_no_switch_is_asked_when_none_is_selected(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SwitchChecks, "_open_way", lambda _: pytest.fail("it was asked"))
    assert {host.host for host in report().hosts} == {f"spark{number}" for number in range(1, 9)}
