"""Write a described rack to a file: validated first, shown if a file exists, and then written whole."""

from __future__ import annotations

import difflib
import stat
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from core.model import ConfigError, Rack
from core.model.errors import ConfigProblem, printable_line
from core.model.loader import load_text
from core.ssh.host_keys import HostKeyError, pin
from core.util import regular_file
from core.util.atomic_file import write_atomic
from core.util.command_error import CommandError
from core.util.screen import Screen
from sparkrack.discovery.discovery_run import Pins
from sparkrack.discovery.draft import RackDraft
from sparkrack.discovery.yaml_writer import text

LARGEST = 1024 * 1024
SECRETS = ("*.password", "*.secret", "*.key", "*.pem", "*.env", "id_ed25519", "id_ecdsa", "id_rsa")
"""What git must not keep of a folder with a rack file: names that files with secrets commonly have. Rack file,
known_hosts and rack.lock.json hold no secret."""


def validated_text(content: str, out: Path) -> tuple[Rack | None, tuple[ConfigProblem, ...]]:
    """Return the rack in the text, for the folder of the file; or the output of `sparkrack check` for it."""
    try:
        return load_text(content, str(out)), ()
    except ConfigError as wrong:
        return None, wrong.faults


def written(
    sheet: RackDraft,
    out: Path,
    pins: Pins,
    known_hosts: Path,
    port: int,
    screen: Screen,
    *,
    yes: bool,
    prepare: Callable[[], None] = lambda: None,
) -> None:
    """Write file and host keys. A file that is there is shown as a difference first, and stays unless that is agreed
    to. `prepare`: called directly before the file is written, for the files that it refers to. Raises CommandError;
    then the file was not written."""
    content = text(sheet)
    mode = 0o644
    try:
        if out.exists():
            before = regular_file.read_bytes(out, LARGEST).decode(errors="backslashreplace")
            mode = stat.S_IMODE(out.stat().st_mode)
            if before != content:
                _show_difference(before, content, out, screen)
                if not yes:
                    _confirm_overwrite(out, screen)
        known_hosts.parent.mkdir(parents=True, exist_ok=True)
        for address, keys in pins.items():
            pin(known_hosts, address, port, keys)
        ignore_secrets(out.absolute().parent, sheet.data, screen)
        prepare()
        write_atomic(out, content, mode)
    except OSError as fault:
        raise CommandError(f"{out}: cannot be written: {fault.strerror or fault}") from None
    except HostKeyError as fault:
        raise CommandError(f"{fault}; {out} was not written") from None
    _warn_operator(
        screen, f"{out}: written" + (f", and {len(pins)} host keys in {_shorten_path(known_hosts)}" if pins else "")
    )


def ignore_secrets(folder: Path, data: Mapping[str, Any], screen: Screen) -> None:
    """Keep the secrets of the folder out of git: write a .gitignore, or report which lines the existing one lacks.

    `data`: the rack; the files that it refers to and that are below the folder are ignored too. Raises OSError.
    """
    own = folder / ".gitignore"
    files = [f"/{name}" for name in _secret_files(data) if not any(fnmatch(Path(name).name, one) for one in SECRETS)]
    ignored = _read_gitignore_lines(folder)
    missing = [line for line in (*SECRETS, *files) if line not in ignored]
    if not missing:
        return
    if own.exists():
        _warn_operator(screen, f"{own}: add these lines, so that git keeps no secret: {' '.join(missing)}")
        return
    write_atomic(
        own, "\n".join(("# Secrets; rack.yaml, known_hosts and rack.lock.json are for git.", *missing, "")), 0o644
    )
    _warn_operator(screen, f"{_shorten_path(own)}: written; it keeps secrets out of git")


def _secret_files(data: Mapping[str, Any]) -> Iterator[str]:
    """The files with secrets that the rack refers to by a path from its own folder on."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _secret_files(value)
        elif key in ("file", "key") and isinstance(value, str) and not value.startswith(("/", "~", "../")):
            yield value


def _read_gitignore_lines(folder: Path) -> set[str]:
    """The lines of every .gitignore that git reads for the folder; of its own alone where there is no repository."""
    places = [folder, *folder.parents]
    top = next((place for place in places if (place / ".git").exists()), folder)
    found: set[str] = set()
    for place in places[: places.index(top) + 1]:
        file = place / ".gitignore"
        if file.exists():
            found.update(regular_file.read_bytes(file, LARGEST).decode(errors="replace").splitlines())
    return found


def _shorten_path(path: Path) -> Path:
    """A path from the working folder on where it is below that, so that its line stays short."""
    folder = Path.cwd()
    return path.relative_to(folder) if path.is_relative_to(folder) else path


def _warn_operator(screen: Screen, text: str) -> None:
    screen.warn(printable_line(text))


def _show_difference(before: str, after: str, out: Path, screen: Screen) -> None:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{out} (as it is)", f"{out} (new)", lineterm=""
    )
    for line in lines:
        screen.say(printable_line(line))


def _confirm_overwrite(out: Path, screen: Screen) -> None:
    if not screen.interactive:
        raise CommandError(f"{out} is there and differs; pass --yes to write over it; nothing was written")
    if not screen.confirm(f"write over {out}?"):
        raise CommandError("nothing was written")
