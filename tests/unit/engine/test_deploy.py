"""deploy.py: which roles a run evaluates on a host, and at which line each stands."""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from pyinfra.context import ctx_host

from core.model.role import role_named, roles
from core.model.selection import NODE_ROLES, ROLES
from core.ops.apply_role import RUN_ROLES, runs
from core.util.project_files import DEPLOY

TEXT = DEPLOY.read_text()
LINES = {
    str(node.args[0].value): node.lineno
    for node in ast.walk(ast.parse(TEXT))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "apply_role"
    if isinstance(node.args[0], ast.Constant)
}
"""Where deploy.py applies which role."""
CAN_BE_LEFT = [role.key for role in roles() if role.can_be_left]


def called(
    selected: Collection[str] | None, machine: str, monkeypatch: pytest.MonkeyPatch, leave: tuple[str, ...] = ()
) -> dict[str, int]:
    """What is applied to a node or a switch, with its line in deploy.py, in a rack that leaves these roles alone.
    `selected`: the roles of a run of sparkrack; None for plain pyinfra. `lock`: that the run lock is looked at."""
    found: dict[str, int] = {}

    def note(name: str) -> Any:
        def call(**arguments: Any) -> None:
            assert name == "lock" or arguments.keys() == {"rack", role_named(name).machine}
            frame: FrameType | None = sys._getframe(1)
            while frame and frame.f_code.co_filename != str(DEPLOY):
                frame = frame.f_back
            assert frame
            found[name] = frame.f_lineno

        return call

    for role in roles():
        module = SimpleNamespace(apply=note(role.key), check_rack_lock=note("lock"))
        monkeypatch.setitem(sys.modules, f"{role.package}.apply", module)
    with ctx_host.use(host(selected, machine, leave)):
        exec(compile(TEXT, str(DEPLOY), "exec"), {"__name__": "deploy"})  # noqa: S102 - it is ours
    return found


class Data(SimpleNamespace):
    """The data of a host, as pyinfra gives them."""

    def get(self, key: str) -> Any:
        return getattr(self, key, None)


def host(selected: Collection[str] | None, machine: str, leave: tuple[str, ...] = ()) -> Any:
    chosen = {} if selected is None else {RUN_ROLES: frozenset(selected)}
    return SimpleNamespace(data=Data(rack=SimpleNamespace(leave=leave), **{machine: object()}, **chosen))


def test_the_roles_are_the_lines_of_deploy_in_their_order() -> None:
    assert tuple(LINES) == ROLES, "roles/registry.py and deploy.py differ"
    assert sorted(LINES.values()) == list(LINES.values())


def test_keys_and_titles_are_unique() -> None:
    assert len({role.title for role in roles()}) == len(set(ROLES)) == len(ROLES)


@pytest.mark.parametrize("role", ROLES)
def test_one_role(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = called({role, "preflight"}, "node", monkeypatch)
    switches = called({role, "preflight"}, "switch", monkeypatch)
    if role == "switch":
        assert (set(nodes), set(switches)) == ({"preflight"}, {"switch"})
    else:
        assert (set(nodes), set(switches)) == ({"preflight", role}, set())
    assert (nodes | switches).items() <= LINES.items()


def test_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert called(ROLES, "node", monkeypatch) | called(ROLES, "switch", monkeypatch) == LINES


def test_plain_pyinfra_applies_all_roles_and_looks_at_the_lock_first(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, switches = called(None, "node", monkeypatch), called(None, "switch", monkeypatch)
    assert next(iter(nodes)) == next(iter(switches)) == "lock"
    assert set(nodes) == {"lock", *NODE_ROLES}
    assert set(switches) == {"lock", "switch"}


@pytest.mark.parametrize("role", CAN_BE_LEFT)
def test_a_role_that_is_left_alone(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by plain pyinfra, which selects no roles."""
    assert set(called(None, "node", monkeypatch, (role,))) == {"lock", *NODE_ROLES} - {role}


def test_all_but_gates_and_switch_can_be_left_alone() -> None:
    assert {*CAN_BE_LEFT, "preflight", "switch"} == set(ROLES)


def test_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert called((), "node", monkeypatch) == {}


def test_data_of_the_command_line_select_no_roles() -> None:
    """`pyinfra --data run_roles=memory` sets a text."""
    one = host(None, "node")
    one.data.run_roles = "memory"
    with ctx_host.use(one):
        assert runs("fabric")


def test_a_role_that_does_not_exist_is_an_error() -> None:
    with ctx_host.use(host(None, "node")), pytest.raises(KeyError):
        runs("memroy")
