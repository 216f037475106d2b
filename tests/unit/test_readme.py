"""What the README shows and says is so."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import click
import pytest

from core.model import ConfigError, defaults, load
from core.model.role import Role, roles
from sparkrack.cli.main import sparkrack
from tests import generated

README = generated.REPOSITORY / "README.md"


def test_the_fault_that_is_shown_is_the_one_that_is_printed(tmp_path: Path) -> None:
    text = (generated.REPOSITORY / "examples/rack.yaml").read_text()
    leg = re.search(r"spark3: .*?(crs812/\S+?)}", text)
    own = re.search(r"spark4: .*?(crs812/\S+?)}", text)
    assert leg
    assert own
    wrong = tmp_path / "rack.yaml"
    wrong.write_text(text.replace(own[1], leg[1], 1))
    with pytest.raises(ConfigError) as caught:
        load(wrong)
    generated.check("README.md", "faults", str(caught.value).replace(str(wrong), "rack.yaml") + "\n")


def test_every_command_that_is_named_exists() -> None:
    text = README.read_text() + (generated.REPOSITORY / "docs/lab.md").read_text()
    targets = re.findall(r"^([a-z-]+):", (generated.REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"(?:^    |`)make ([a-z-]+)", text, re.MULTILINE)
    assert named
    assert set(named) <= set(targets)
    for group, verb in re.findall(r"(?:^    |`|bin/)sparkrack (?:(lab) )?([a-z]+)\b", text, re.MULTILINE):
        context = click.Context(sparkrack)
        named_in = sparkrack.get_command(context, "lab") if group else sparkrack
        assert isinstance(named_in, click.Group)
        assert verb in named_in.list_commands(context), f"{group} {verb}"


def test_every_link_leads_somewhere() -> None:
    for document in [README, *generated.REPOSITORY.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", re.sub(r"\s+", " ", document.read_text())):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def _page_of_role(role: Role) -> str:
    page = f"{role.key}.md"
    return page if (generated.REPOSITORY / "docs/roles" / page).exists() else f"../../{role.package}/__init__.py"


def test_the_roles_are_those_of_the_registry() -> None:
    rows = [f"| [{role.key}]({_page_of_role(role)}) | {role.promise} | {role.proof} |" for role in roles()]
    lines = ("| | promise | proven by `sparkrack verify` with |", "| --- | --- | --- |", *rows)
    generated.check("docs/roles/README.md", "roles", "".join(f"{line}\n" for line in lines).replace("](docs/", "](../"))


def test_the_roles_that_are_tried_on_one_machine_first_are_named() -> None:
    risky, others = (sorted(role.key for role in roles() if role.risky is risk) for risk in (True, False))
    text = f"Tried alone on the first machine that they change: operations of {', '.join(risky)}.\n"
    generated.check("docs/apply.md", "canary", f"{text}Together from the start: {', '.join(others)}.\n")


def test_the_smallest_rack_file_is_accepted_and_each_of_its_lines_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(defaults, "local_user", lambda: "ops")
    shown = re.search(r"^```yaml\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    assert shown
    file = tmp_path / "rack.yaml"
    file.write_text(shown[1])
    rack = load(file)
    assert list(rack.nodes) == ["spark1", "spark2"]
    assert (len(rack.cabling.cables), rack.switches) == (1, {})
    lines = shown[1].splitlines()
    for number in range(len(lines)):
        file.write_text("\n".join(lines[:number] + lines[number + 1 :]))
        with contextlib.suppress(ConfigError):
            assert len(load(file).cabling.cables) == 0, f"without {lines[number]!r} the file says the same"


def test_each_contract_names_the_tests_that_guard_it() -> None:
    contracts = re.findall(r"^(\d)\. \*\*", README.read_text(), re.MULTILINE)
    page = (generated.REPOSITORY / "docs/tests.md").read_text()
    rows = dict(re.findall(r"^\| (\d) \| (.*) \|$", page, re.MULTILINE))
    assert list(rows) == contracts
    for number, tests in rows.items():
        named = re.findall(r"`(\S+)::(\w+)`", tests)
        assert named, number
        for file, test in named:
            assert f"\ndef {test}(" in (generated.REPOSITORY / file).read_text(), f"{number}: {file}::{test}"
