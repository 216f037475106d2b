"""A model in a folder of the operator's machine: its files and their hashes, and how they are sent to a node."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import stat
from collections.abc import Callable, Collection
from pathlib import Path

import gevent
from pyinfra.api.host import Host

from core.model.errors import reason
from core.model.model_lock import CONFIGURATIONS, OWN_FOLDER, ModelFile, path_fault
from core.ops.detached_unit import TransferStoppedError
from core.util import regular_file
from roles.models import choice

SKIPPED = (".git", ".cache", OWN_FOLDER)
"""Folders at the top of a model's folder that are not part of it: of git, of the hub's client, of this program."""
BLOCK = 1 << 18
SILENCE = 300.0
"""Seconds in which a node must take a block or end the command that it has been given."""
Sent = Callable[[int], None]
"""Takes the number of bytes of each block that was sent."""
_MAX_CONFIGURATION, _MAX_INDEX = 1 << 20, 100 << 20


def listed(
    folder: Path, patterns: Collection[str] | None, report: Callable[[str], None]
) -> tuple[list[list[object]], dict[str, str]]:
    """Return path, size and sha256 of each chosen file of a folder, and the configurations. Their bytes are read once.

    Args:
        folder: of the model.
        patterns: the choice of rack.yaml, None without one.
        report: takes the path of each file before it is read.

    Raises:
        TransferStoppedError: a file cannot be taken or read.
        ValueError: no choice can be made.
    """
    rows: list[list[object]] = []
    texts: dict[str, str] = {}
    try:
        names = [str(path.relative_to(folder)) for path in _list_files(folder)]
        for name in names:
            if fault := path_fault(name):
                raise TransferStoppedError(f"{folder}: {name!r} {fault}")
            if not stat.S_ISREG((folder / name).stat().st_mode):
                raise TransferStoppedError(f"{folder / name} is not a regular file")
        indexes = {name: _read_weight_index(folder / name) for name in names if choice.INDEX.fullmatch(name)}
        for name in choice.chosen(patterns, names, indexes):
            path = folder / name
            report(name)
            # In a thread: a whole model takes minutes, and the other hosts of the run go on.
            size, sha256 = gevent.get_hub().threadpool.apply(_hash_file, (path,))
            rows.append([name, size, sha256])
            if name in CONFIGURATIONS and size <= _MAX_CONFIGURATION:
                texts[name] = regular_file.read_bytes(path, _MAX_CONFIGURATION).decode(errors="replace")
    except OSError as error:
        raise TransferStoppedError(reason(error)) from None
    if not rows:
        raise TransferStoppedError(f"{folder} has no files")
    return rows, texts


def _read_weight_index(path: Path) -> list[str] | None:
    """Return the names in an index of weights, None for another file."""
    try:
        return sorted(set(json.loads(regular_file.read_bytes(path, _MAX_INDEX))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _list_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise TransferStoppedError(f"{folder} is not a folder of this machine")
    found = []
    for top, folders, names in os.walk(folder, onerror=_raise_error):
        folders[:] = sorted(name for name in folders if Path(top) != folder or name not in SKIPPED)
        found += [Path(top) / name for name in names]
    return sorted(found)


def _raise_error(error: OSError) -> None:
    raise error


def _hash_file(path: Path) -> tuple[int, str]:
    made, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            made.update(block)
            size += len(block)
    return size, made.hexdigest()


def send_rest(host: Host, folder: Path, file: ModelFile, start: int, script: str, sent: Sent) -> None:
    """Send a file from a byte on to the standard input of a script, which runs on the node as root.

    Raises TransferStoppedError, OSError for the line.
    """
    path = folder / file.path
    try:
        opened = path.open("rb")
    except OSError as error:
        raise TransferStoppedError(reason(error)) from None
    with opened:
        size = os.fstat(opened.fileno()).st_size
        if size != file.size:
            raise TransferStoppedError(f"{path} has {size} bytes, and {file.size} in the lock file")
        opened.seek(start)
        left = file.size - start
        client = getattr(host.connector, "client", None)
        transport = client.get_transport() if client else None
        if transport is None:
            raise OSError("the connection is closed")
        channel = transport.open_session()
        try:
            channel.settimeout(SILENCE)
            channel.exec_command(f"exec sudo -H -n sh -c {shlex.quote(script)}".encode())
            try:
                while left > 0 and (block := opened.read(min(BLOCK, left))):
                    channel.sendall(block)
                    left -= len(block)
                    sent(len(block))
                channel.shutdown_write()
            except OSError:
                # A command that ends early, as on a full disk, closes the channel; its own words say why.
                if not (channel.exit_status_ready() and channel.exit_status > 0):
                    raise
            with gevent.Timeout(SILENCE, OSError(f"the node does not end a command within {SILENCE:g} s")):
                code = channel.recv_exit_status()
            if code:
                complaints = channel.recv_stderr(2000).decode(errors="replace").strip()
                raise TransferStoppedError(f"{file.path}: {complaints or f'exit {code}'}")
        finally:
            channel.close()
    if left:
        raise TransferStoppedError(f"{path} became shorter while it was sent")
