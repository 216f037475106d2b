"""deploy.py as pyinfra evaluates it, or only some of its calls."""

from __future__ import annotations

import ast
from collections.abc import Collection
from pathlib import Path
from types import CodeType

DEPLOY = Path(__file__).parents[2] / "deploy.py"


class _Only(ast.NodeTransformer):
    """Takes out every call that stands by itself, but for those of the roles."""

    def __init__(self, roles: Collection[str]) -> None:
        self.roles = roles

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        match node.value:
            case ast.Call(func=ast.Name(id=name)) if name not in self.roles:
                return ast.copy_location(ast.Pass(), node)
        return node


def code(roles: Collection[str], path: Path = DEPLOY) -> CodeType:
    """The file's code with the calls of these roles alone. Lines keep their numbers: pyinfra tells operations apart by
    them."""
    return compile(_Only(roles).visit(ast.parse(path.read_text(), str(path))), str(path), "exec")
