"""Host names and role names are whole at 60 columns and through a pipe."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from core.model.selection import ROLES
from core.util.event import value_change
from core.verify import report_text
from core.verify.report import report
from sparkrack.drift.findings import drift_of
from sparkrack.drift.render import show_drift
from sparkrack.engine.render_plan import show_plan
from sparkrack.status.render import WIDTH, show
from tests.unit.drift.plans import machine, modified, plan
from tests.unit.status.machines import machines, reference
from tests.unit.verify.reports import ORIGIN, RACK, passed

HOSTS = [f"spark-of-the-second-rack-{number}" for number in range(1, 9)]
NARROW = 60


def words(text: str) -> set[str]:
    return set(text.replace(":", " ").replace(",", " ").split())


@pytest.mark.parametrize("columns", ["60", None], ids=["60 columns", "pipe"])
def test_plan_and_drift(
    columns: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    else:
        monkeypatch.delenv("COLUMNS", raising=False)
    made = plan(
        *(
            machine(host, *((role, value_change("vm.min_free_kbytes", 45155, 1572864)) for role in ROLES))
            for host in HOSTS
        )
    )
    show_plan(made)
    assert {*HOSTS, *ROLES} <= words(capsys.readouterr().out)
    show_drift(drift_of(made))
    assert {*HOSTS, *ROLES} <= words(capsys.readouterr().out)


def test_a_line_of_a_file_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    long = f"+GRUB_CMDLINE_LINUX_DEFAULT={' '.join(f'parameter{number}=value' for number in range(20))}"
    show_plan(plan(machine("spark1", ("memory", modified("/etc/default/grub", long)))))
    assert long in capsys.readouterr().out


@pytest.mark.parametrize("width", [NARROW, 80], ids=["60 columns", "pipe"])
def test_verify(width: int) -> None:
    made = report(RACK, HOSTS, list(ROLES), [passed(host, role) for host in HOSTS for role in ROLES], ORIGIN)
    paper = io.StringIO()
    report_text.render_report(made, Console(file=paper, width=width, highlight=False))
    assert {*HOSTS, *ROLES} <= words(paper.getvalue())
    assert "…" not in paper.getvalue()


@pytest.mark.parametrize("width", [NARROW, WIDTH], ids=["60 columns", "pipe"])
def test_status(width: int, tmp_path: Path) -> None:
    rack = reference(tmp_path)
    paper = io.StringIO()
    show(machines(rack).status(), Console(file=paper, width=width, highlight=False, markup=False))
    first = {line.split()[0] for line in paper.getvalue().splitlines() if line.strip()}
    assert {*rack.nodes, *rack.switches} <= first
    assert "…" not in paper.getvalue()
