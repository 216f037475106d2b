"""Shell texts by which a node fetches a model on its own, and the meaning of its output. Pure."""

from __future__ import annotations

import base64
import io
import json
import re
import shlex
import zipfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from core.model.model_lock import OWN_FOLDER, ModelFile
from core.model.models import Model
from core.ops.detached_unit import DetachedUnit, output_of
from core.ops.distribution import Route
from core.util import resources
from roles.models import desired

FOLDER = "/run/sparkrack-models"
UNIT = "sparkrack-model-"
PYTHON = ("/usr/bin/python3", "-I", "-B")
MODULES = {
    "__main__.py": "files/fetch_model.py",
    "model_folder.py": "files/model_folder.py",
    "model_hub.py": "files/model_hub.py",
}
"""The modules of the program that fetches a model, by their names in its archive."""
_AT = re.compile(r"sparkrack: at (\d+) (\d+) (\d+)")
_LACKS = re.compile(r"sparkrack: lacks (\d+) ([0-9a-f]{64}) (/\S+) (.+)")
_ENDED = re.compile(r"sparkrack: ended (\d+)")
_STOPPED = "the transfer of the other node ended before it had the model"


def unit(name: str) -> DetachedUnit:
    """The systemd unit that fetches a model on a node, whatever way it comes."""
    return DetachedUnit(f"{UNIT}{name}", FOLDER)


def start(model: Model, job: dict[str, Any]) -> tuple[str, str]:
    """Return shell text that starts the unit of a model, and its standard input: the job, which may hold a token."""
    one = unit(model.name)
    text = one.start(fetch_program(), PYTHON, f"sparkrack fetches the model {model.name}", arguments=("fetch", one.job))
    return f"set -eu; umask 022; {text}", encoded(job)


def ask_hub(model: Model, verb: str, job: dict[str, Any]) -> tuple[str, str]:
    """Return shell text that asks the hub for files of a revision, and its standard input; `verb`: list or resolve."""
    program = base64.b64encode(fetch_program()).decode()
    base = f"{FOLDER}/{unit(model.name).name}"
    text = (
        f"set -eu; umask 022; mkdir -p {FOLDER}; printf %s {program} | base64 -d > {base}.new; "
        f"mv {base}.new {base}.script; base64 -d | {shlex.join([*PYTHON, f'{base}.script', verb])}"
    )
    return text, encoded(job)


def encoded(job: dict[str, Any]) -> str:
    """A job as it is sent: in base64, since standard input is line-based."""
    return base64.b64encode(json.dumps(job).encode()).decode()


def job(model: Model, files: Collection[ModelFile], source: dict[str, Any] | None) -> dict[str, Any]:
    """What the program on the node does. `source` None: it takes what the operator's machine has written."""
    return {
        "folder": str(model.folder),
        "files": [[file.path, file.size, file.sha256] for file in files],
        "reserve": desired.MARGIN,
        "source": source,
    }


def from_node(model: Model, route: Route, user: str) -> dict[str, Any]:
    """The source of a job: another node, reached as the user who may log in there."""
    return {
        "ssh": route.ssh(user),
        "folder": str(model.folder),
        "unit": f"{unit(model.name).name}.service",
        "program": resources.file_text("roles.models", "files/send_files.py"),
    }


def from_hub(endpoint: str, source: str, revision: str, token: str | None) -> dict[str, Any]:
    """The source of a job: the hub."""
    return {"url": f"{endpoint}/{source}/resolve/{revision}/", "token": token}


@dataclass(frozen=True)
class LackingFile:
    """A file that the operator's machine must send: from `start` on, to the end of the file `part` of the node."""

    path: str
    start: int
    part: str


@dataclass(frozen=True)
class FetchState:
    """State of a fetch. `running`: not ended yet. `fine`: ended, with success. `done`: bytes that are there, of
    `total`; `received`: bytes that came since it was started. `source_stopped`: it failed only because the other node's
    own fetch did. `lacks`: what the operator's machine must send. `reported`: the output of its program.
    """

    running: bool
    fine: bool
    done: int
    total: int
    received: int
    source_stopped: bool
    lacks: tuple[LackingFile, ...]
    reported: tuple[str, ...]


def progress(lines: Collection[str]) -> FetchState:
    """Parse the progress from the output of `look`. Raises ValueError for an empty output."""
    running, log = output_of(lines)
    counts = [found for line in log if (found := _AT.fullmatch(line))]
    done, total, received = map(int, counts[-1].groups()) if counts else (0, 0, 0)
    ends = [found[1] for line in log if (found := _ENDED.fullmatch(line))]
    known = (_AT, _ENDED, _LACKS)
    reported = tuple(line for line in log if line and not any(one.fullmatch(line) for one in known))
    return FetchState(
        running=running,
        fine=not running and ends == ["0"],
        done=done,
        total=total,
        received=received,
        source_stopped=not running and _STOPPED in reported,
        lacks=tuple(
            LackingFile(found[4], int(found[1]), found[3]) for line in log if (found := _LACKS.fullmatch(line))
        ),
        reported=reported,
    )


def append(part: str, start: int) -> str:
    """Return shell text that writes standard input to a part, from `start` on. Raises ValueError for another path."""
    if f"/{OWN_FOLDER}/parts/" not in part or ".." in part:
        raise ValueError(f"{part[:200]!r} is not a part of a model")
    flags = f"bs=1M iflag=fullblock oflag=seek_bytes seek={start} conv=notrunc status=none"
    return f"set -eu; umask 022; exec dd of={shlex.quote(part)} {flags}"


def reason(ended: FetchState) -> str:
    """Return why a transfer has failed."""
    return "; ".join(ended.reported[-3:]) or "it was ended from outside"


def answered(lines: Sequence[str], *keys: str) -> dict[str, Any]:
    """Parse the output of `list` or `resolve`, which has these keys and the revision. Raises ValueError."""
    found = json.loads(lines[-1] if lines else "")
    if not isinstance(found, dict) or set(found) != {"revision", *keys}:
        raise ValueError("unexpected output")
    return found


@cache
def fetch_program() -> bytes:
    """Return the program that fetches a model on a node: an archive of its modules, which python3 runs as one file.

    Python puts an archive that it runs on the path of imports, also with -I. As one file it is written as a whole, so
    that no module of it is missing or from another version.
    """
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as into:
        for name, file in MODULES.items():
            into.writestr(zipfile.ZipInfo(name), resources.file_text("roles.models", file))
    return archive.getvalue()
