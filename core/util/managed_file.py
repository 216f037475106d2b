"""A file on a node that is wholly ours: its desired state, the probe of its actual one, and their comparison. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from core.util.event import Action, Event, file_acted
from core.util.joined_questions import JoinableQuestion, split_lines


@dataclass(frozen=True)
class FileState:
    """State of an existing file: mode, owner and group as in `644 root:root`, and the SHA-256 of its content."""

    permissions: str
    sha256: str


@dataclass(frozen=True)
class ManagedFile:
    """Path, content and mode of a file; root owns it. `validate`: shell text that must succeed with the new file as
    "$new" before it replaces the old one.
    """

    path: str
    content: bytes
    mode: str = "644"
    validate: str = ""

    @property
    def state(self) -> FileState:
        """The desired state."""
        return FileState(f"{self.mode} root:root", _content_sha256(self.content))


_SELECT_EXISTING = 'for f; do shift; [ ! -e "$f" ] || set -- "$@" "$f"; done; [ $# -gt 0 ] || exit 0; '
# Two programs for all files: starting a program costs more than its work.
_HASHES = (
    'm=$(stat -c "%a %U:%G" -- "$@") && s=$(sha256sum -- "$@") || exit 9; '
    'while read -r a <&3 && read -r h f <&4; do echo "$a $h $f"; done 3<<MODES 4<<SUMS\n$m\nMODES\n$s\nSUMS\n'
)


def header(rack: str, comment: str = "#") -> str:
    """Return the first line of each managed file, as a comment of its language."""
    return f"{comment} Written by sparkrack for the rack {rack}; a change here is overwritten."


def probe_hashes(paths: Iterable[str]) -> JoinableQuestion:
    """Return shell text that prints mode, owner, hash and path of each existing file, without its content.

    A dangling link is not a file. The shell text ends with exit 9 when a file cannot be read.
    """
    return JoinableQuestion(f"{_SELECT_EXISTING}{_HASHES}", paths, split_lines)


def probe_trees(folder: str, name: str) -> str:
    """Return shell text that prints the same of each file at any depth below the folders of `folder` with this name,
    which may have a *. What is neither a file nor a folder has a hash of zeros.
    """
    return (
        f'set -- {folder}/{name}; [ -d "$1" ] || exit 0; '
        f"find \"$@\" -type f -exec sh -c '{_HASHES}' sh {{}} + || exit 9; "
        f"find \"$@\" ! -type f ! -type d -printf '%m %u:%g {'0' * 64} %p\\n' || exit 9"
    )


def probe_permissions(paths: Iterable[str]) -> JoinableQuestion:
    """Return shell text that prints mode, owner and path of each existing file, for files whose content is read."""
    return JoinableQuestion(f'{_SELECT_EXISTING}stat -c "%a %U:%G %n" -- "$@"', paths, split_lines)


def parse_hashes(name: str, answer: str) -> dict[str, FileState]:
    """Parse the answer to `probe_hashes`: the state of each existing file, by its path.

    Raises ValueError, which names the fact `name`, for any other line.
    """
    found = {}
    for line in answer.splitlines():
        words = line.split(" ", 3)
        if len(words) != 4 or len(words[2]) != 64 or not words[3].startswith("/"):
            raise ValueError(f"{name}: unexpected probe output {line[:80]!r}")
        found[words[3]] = FileState(f"{words[0]} {words[1]}", words[2])
    return found


def states(answer: str, contents: Mapping[str, bytes | None]) -> dict[str, FileState]:
    """Return the state of each existing file from the answer to `probe_permissions` and its content, None for absent.

    A file without a line has no known permissions, so it differs and is written again, which does no harm.
    """
    shown = permissions(answer)
    return {
        path: FileState(shown.get(path, ""), _content_sha256(content))
        for path, content in contents.items()
        if content is not None
    }


def permissions(answer: str) -> dict[str, str]:
    """Parse the answer to `probe_permissions`: mode, owner and group by path; any other line says nothing of a file."""
    found = (line.split(" ", 2) for line in answer.splitlines())
    return {words[2]: f"{words[0]} {words[1]}" for words in found if len(words) == 3}


def differing(files: Iterable[ManagedFile], actual: Mapping[str, FileState]) -> list[ManagedFile]:
    """Return the files whose content, owner or mode differs from the desired state."""
    return [file for file in files if actual.get(file.path) != file.state]


def changes(files: Iterable[ManagedFile], actual: Mapping[str, FileState]) -> list[Event]:
    """Return the change of each of these files, for files whose content is not read."""
    return [
        event
        for file in files
        for event in file_acted(Action.REWRITE if file.path in actual else Action.WRITE, file.path)
    ]


def validate_shell(shell: str = "sh") -> str:
    """Return shell text for `ManagedFile.validate`: the shell can parse the new file."""
    return f'{shell} -n "$new"'


def validate_unit(name: str) -> str:
    """Return shell text for `ManagedFile.validate`: systemd accepts the new file as a unit of this name.

    systemd knows a unit by its file's name, which the new file does not have yet.
    """
    return (
        f'as=$(mktemp -d)/{name}; cp "$new" "$as"; '
        'systemd-analyze verify --man=no --recursive-errors=no "$as" || { rm -r "${as%/*}"; exit 1; }; '
        'rm -r "${as%/*}"'
    )


def _content_sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
