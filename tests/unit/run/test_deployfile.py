"""deploy.py with some of its calls: those alone, at the lines where they stand."""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, get_args

import pytest

from sparkrack.fleet.selection import ROLES
from sparkrack.fleet.settings import Role
from sparkrack.run import deployfile

TREE = ast.parse(deployfile.DEPLOY.read_text())
LINES = {
    node.value.func.id: node.lineno
    for node in ast.walk(TREE)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name)
    if node.value.func.id != "apart"
}
"""Where deploy.py itself calls which role. `apart` is no role: our own verbs hold the lock, and leave it out."""


def called(
    roles: Collection[str], group: str, monkeypatch: pytest.MonkeyPatch, leave: tuple[str, ...] = ()
) -> dict[str, int]:
    """What is called for a machine of that group, with the line, in a rack that leaves these roles alone."""
    found: dict[str, int] = {}

    def note(name: str) -> Any:
        def call(**arguments: Any) -> None:
            frame: FrameType = sys._getframe(1)
            assert frame.f_code.co_filename == str(deployfile.DEPLOY)
            found[name] = frame.f_lineno

        return call

    for name in LINES:
        module = "switch.apply" if name == "switch" else f"roles.{name}.apply"
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(apply=note(name), apart=lambda **_: None))
    data = SimpleNamespace(rack=SimpleNamespace(keeps=lambda role: role not in leave), node=None, switch=None)
    host = SimpleNamespace(groups=[group], data=data)
    monkeypatch.setitem(sys.modules, "pyinfra.context", SimpleNamespace(host=host))
    exec(deployfile.code(roles), {"__name__": "deploy"})  # noqa: S102 - it is ours
    return found


def test_the_roles_are_the_calls_of_deploy_in_their_order() -> None:
    assert tuple(LINES) == ROLES, "sparkrack/fleet/selection.py and deploy.py differ"


@pytest.mark.parametrize("role", ROLES)
def test_one_role(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = called({role, "preflight"}, "nodes", monkeypatch)
    switches = called({role, "preflight"}, "switches", monkeypatch)
    if role == "switch":
        assert (set(nodes), set(switches)) == ({"preflight"}, {"switch"})
    else:
        assert (set(nodes), set(switches)) == ({"preflight", role}, set())
    assert (nodes | switches).items() <= LINES.items()


def test_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert called(ROLES, "nodes", monkeypatch) | called(ROLES, "switches", monkeypatch) == LINES


@pytest.mark.parametrize("role", get_args(Role))
def test_a_role_that_is_left_alone(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by plain pyinfra, which evaluates the file as it stands."""
    assert called(ROLES, "nodes", monkeypatch, (role,)) == {
        name: line for name, line in LINES.items() if name not in (role, "switch")
    }


def test_all_but_gates_and_switch_can_be_left_alone() -> None:
    assert {*get_args(Role), "preflight", "switch"} == set(ROLES)


def test_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert called((), "nodes", monkeypatch) == {}


@pytest.mark.parametrize("role", ROLES)
def test_the_rest_of_the_file_stays(role: str) -> None:
    """Its conditions and imports, for what --only leaves away."""
    kept = deployfile.code({role})
    assert kept.co_filename == str(deployfile.DEPLOY)
    assert set(kept.co_names) >= {"host", "groups", role}


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "deploy.py"
    file.write_text("called = []\ndef memory(): called.append(1)\ndef fabric(): called.append(2)\nmemory()\nfabric()\n")
    names: dict[str, Any] = {}
    exec(deployfile.code({"fabric"}, file), names)  # noqa: S102 - it is ours
    assert names["called"] == [2]
