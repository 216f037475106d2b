"""Write files of a node whole: a reader sees the old one or the new one, never a part, a wrong owner or mode."""

from __future__ import annotations

import base64
import hashlib
import posixpath
from collections.abc import Iterable

from pyinfra.api.command import StringCommand

from core.ops.shell import quick_script, quote
from core.util.managed_file import ManagedFile

BACKUPS = "/var/backups/sparkrack"


def put(
    path: str, content: bytes, mode: str, before: bytes | None = None, check: str = "", group: str = "root"
) -> StringCommand:
    """Return the command that makes `path` hold `content`, owned by root and `group`.

    The file is written beside its target under a private name, with its final mode, checked there, flushed and renamed.
    What an interrupted run has left there under such a name is removed.
    `before`: the content of a file that is not ours; it is kept in /var/backups/sparkrack under the hash of its
    content. `check`: shell text that must succeed, with the new file as "$new".
    """
    folder, name = posixpath.split(path)
    keep = ""
    if before is not None:
        copy = backup(path, before)
        keep = f"install -d -m 700 {BACKUPS}; [ -e {quote(copy)} ] || cp -a {quote(path, copy)}; "
    return quick_script(
        f"umask 077; {keep}rm -f {quote(f'{folder}/.{name}.')}??????; "
        f"new=$(mktemp {quote(f'{folder}/.{name}.XXXXXX')}); trap 'rm -f \"$new\"' EXIT; "
        f'base64 -d > "$new"; chown root:{group} "$new"; chmod {mode} "$new"; {check + "; " if check else ""}'
        f'sync "$new"; mv -fT "$new" {quote(path)}; sync {quote(folder)}',
        stdin=encoded(content),
    )


def put_managed(file: ManagedFile) -> StringCommand:
    """Return the command that brings a managed file to its desired state; its folder must exist."""
    return put(file.path, file.content, mode=file.mode, check=file.validate)


def put_files(files: Iterable[ManagedFile]) -> list[StringCommand]:
    """Return the commands that bring managed files to their desired state, in their order, and make their folders."""
    files = list(files)
    folders = sorted({posixpath.dirname(file.path) for file in files})
    commands: list[StringCommand] = [quick_script(f"umask 022; mkdir -p {quote(*folders)}")] if folders else []
    return commands + [put_managed(file) for file in files]


def move_aside(paths: Iterable[str]) -> StringCommand:
    """Return the command that moves files of others to the backups."""
    moves = [f"mv -fT {quote(path, f'{BACKUPS}/{_flat_name(path)}')}" for path in paths]
    return quick_script(f"install -d -m 700 {BACKUPS}; {'; '.join(moves)}")


def _flat_name(path: str) -> str:
    return path.strip("/").replace("/", "-")


def backup(path: str, before: bytes) -> str:
    """Return the path of the backup of a file that is not ours."""
    return f"{BACKUPS}/{posixpath.basename(path)}.{hashlib.sha256(before).hexdigest()[:12]}"


def encoded(content: bytes) -> str:
    """Bytes as text that survives a line-based channel; `base64 -d` on the node is its inverse."""
    return base64.b64encode(content).decode()
