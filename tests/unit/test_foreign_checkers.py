"""scripts/foreign_checkers.py: what a checker reports is read completely, and only an explained failure is excused."""

from __future__ import annotations

import importlib.util
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.generated import REPOSITORY
from tests.unit.model.racks import SWITCH, loaded

FABRIC = {"spark1": ["192.168.100.1", "192.168.101.1"], "spark2": ["192.168.100.2", "192.168.101.2"]}
EUGR = """\
  Detected IB_IF: roceP2p1s0f1,rocep1s0f1
  Detected ETH_IF: enp1s0f1np1
  Detected Local IP: 192.168.100.1 (192.168.100.1/24)
  Found peer: 192.168.100.2
  SSH to 192.168.100.2: OK
"""


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("foreign_checkers", REPOSITORY / "scripts/foreign_checkers.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def bad(results: Any) -> list[tuple[str, str]]:
    """Check and outcome of each result that is not ok."""
    return [(result.check, result.outcome) for result in results if result.outcome != "ok"]


def test_eugr_is_ok_when_it_detects_what_the_rack_declares(script: Any) -> None:
    results = list(script.read_eugr(EUGR, 0, "spark1", "192.168.100.1", ["192.168.100.2"]))
    assert len(results) == 6
    assert not bad(results)


@pytest.mark.parametrize(
    ("line", "check"),
    [
        ("roceP2p1s0f1,", "RDMA devices"),
        ("  Detected ETH_IF: enp1s0f1np1\n", "Ethernet interface"),
        ("  Detected Local IP: 192.168.100.1 (192.168.100.1/24)\n", "own address"),
        ("  Found peer: 192.168.100.2\n", "peers"),
        ("  SSH to 192.168.100.2: OK\n", "login to peers"),
    ],
)
def test_eugr_fails_without_each_of_them(script: Any, line: str, check: str) -> None:
    assert line in EUGR
    results = script.read_eugr(EUGR.replace(line, ""), 0, "spark1", "192.168.100.1", ["192.168.100.2"])
    assert bad(results) == [(check, "failed")]


def test_eugr_fails_by_its_exit_code(script: Any) -> None:
    assert bad(script.read_eugr(EUGR, 1, "spark1", "192.168.100.1", ["192.168.100.2"])) == [("exit code", "failed")]


def test_nvidia_must_find_and_set_up_every_address(script: Any) -> None:
    addresses = [address for node in FABRIC.values() for address in node]
    found = "".join(f"Found: {address} (x.local)\n" for address in addresses)
    output = found + "".join(f"Successfully configured {address} with\n" for address in addresses)
    assert not bad(script.read_nvidia(output, 0, FABRIC))
    short = output.replace("configured 192.168.101.2", "")
    assert bad(script.read_nvidia(short, 0, FABRIC)) == [("key set up", "failed")]
    assert len(bad(script.read_nvidia("", 1, FABRIC))) == 5


def sparkrun_answer(**status: str) -> str:
    checks = [{"key": key, "status": word, "detail": "why"} for key, word in status.items()]
    return "a line before\n" + json.dumps({"results": {"10.77.0.11": {"checks": checks}}})


def test_sparkrun_has_four_outcomes_and_an_unknown_one_is_a_failure(script: Any) -> None:
    answer = sparkrun_answer(one="ok", two="warn", three="fail", four="skip", five="new")
    results = list(script.read_sparkrun(answer, {"10.77.0.11": "spark1"}))
    assert [result.outcome for result in results] == ["ok", "warning", "failed", "skipped", "failed"]


@pytest.mark.parametrize("answer", ["", "no document", "{broken", "{}", sparkrun_answer()])
def test_sparkrun_without_an_answer_about_a_node_is_not_a_result(script: Any, answer: str) -> None:
    with pytest.raises(script.CheckerError):
        list(script.read_sparkrun(answer, {"10.77.0.11": "spark1"}))


def report(node: str, check: str, words: str) -> str:
    return f'ok: [{node}] => (item={check}) => {{\n    "msg": "{words}"\n}}\n'


def test_epappas_must_answer_each_check_of_each_node(script: Any) -> None:
    output = "".join(
        report(node, "clock (ntp)", f"clock (ntp)           {word}")
        for node, word in (("spark1", "ok "), ("spark2", "FAILED no server"))
    )
    results = list(script.read_epappas(output, ["spark1", "spark2"], ["clock (ntp)"]))
    assert [(result.outcome, result.detail) for result in results] == [("ok", ""), ("failed", "no server")]
    with pytest.raises(script.CheckerError, match="GPU of spark1"):
        list(script.read_epappas(output, ["spark1", "spark2"], ["clock (ntp)", "GPU"]))


def test_epappas_must_compare_the_nodes(script: Any) -> None:
    lines = [f"ok: [spark1] => (item={item}) => {{\n" for item in ("driver", "kernel", "torch")]
    assert not bad(script.read_comparison("".join(lines), "spark1"))
    lines[1] = lines[1].replace("ok", "failed")
    assert bad(script.read_comparison("".join(lines), "spark1")) == [("same kernel", "failed")]
    with pytest.raises(script.CheckerError):
        list(script.read_comparison(lines[0], "spark1"))


def test_only_the_explained_outcome_of_a_check_is_excused(script: Any) -> None:
    known = script.Result("sparkrun", "earlyoom", "spark1", "warning")
    worse = script.Result("sparkrun", "earlyoom", "spark2", "failed", "x")
    assert not script.unexplained([known])
    assert script.unexplained([known, worse]) == [worse]
    ((_, _, shown, text),) = script.rows([known, worse])
    assert (shown, text) == ("spark1 warning, spark2 failed", "NEW: x")


def test_an_explanation_that_no_result_needs_is_outdated(script: Any) -> None:
    """Of the checkers that ran only."""
    fixed = script.Result("sparkrun", "earlyoom", "spark1", "ok")
    assert ("sparkrun", "earlyoom", "warning") in script.outdated([fixed])
    assert {key[0] for key in script.outdated([fixed])} == {"sparkrun"}


def test_an_explanation_names_a_page_that_exists(script: Any) -> None:
    for explanation in script.EXPLAINED.values():
        assert explanation.cause in ("lab", "choice", "scope")
        pages = re.findall(r"docs/\S+?\.md", explanation.text)
        pages += [
            str(path)
            for number in re.findall(r"decision (\d+)", explanation.text)
            for path in (REPOSITORY / "docs/decisions").glob(f"{number}-*.md")
        ]
        assert pages or explanation.cause == "scope", explanation.text
        assert all((REPOSITORY / page).exists() for page in pages), pages


def test_the_page_explains_what_the_script_explains(script: Any) -> None:
    """Each failure on the page is known, with the words of the script, and no entry of the script is without a row."""
    recorded = script.PAGE.read_text().partition(script.BEGIN)[2].partition(script.END)[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in recorded.splitlines() if line[:1] == "|"
    ]
    checks = [row for row in rows if len(row) == 4 and row[0] in script.CHECKERS]
    assert {row[0] for row in checks} == set(script.CHECKERS)
    found = {(checker, check): outcome for checker, check, outcome, _ in checks}
    assert {(*key, outcome) for key, outcome in found.items() if outcome != "ok"} == set(script.EXPLAINED)
    assert set(script.WEAK) <= {key for key, outcome in found.items() if outcome == "ok"}
    for checker, check, outcome, text in checks:
        known = script.EXPLAINED.get((checker, check, outcome))
        passed = script.WEAK.get((checker, check), "")
        assert text == (f"known: {known.cause}: {known.text}" if known else passed), (checker, check)
        assert bool(known) == (outcome != "ok")


def test_the_stand_in_for_avahi_names_each_fabric_address(script: Any) -> None:
    rack = loaded(SWITCH)
    done = subprocess.run(["sh", "-c", script.avahi_browse(rack)], capture_output=True, text=True, check=True)
    lines = [line.split(";") for line in done.stdout.splitlines()]
    assert len(lines) == 2 * len(rack.nodes)
    assert {(line[1], line[3], line[7]) for line in lines} == {
        (address.device, name, str(address.interface.ip))
        for name, addresses in rack.addresses_by_node.items()
        for address in addresses
    }


def test_the_stand_in_for_netcat_tells_an_open_port_from_a_closed_one(script: Any, tmp_path: Path) -> None:
    (tmp_path / "nc").write_text(script.NC)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        assert subprocess.run(["sh", tmp_path / "nc", "-z", "-w", "1", "127.0.0.1", port], check=False).returncode == 0
    assert subprocess.run(["sh", tmp_path / "nc", "-z", "-w", "1", "127.0.0.1", port], check=False).returncode != 0
