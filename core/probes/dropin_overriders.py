"""Drop-in files: which setting is effective. Pure.

Settings of the kernel (sysctl.d) and of systemd (system.conf.d) come in files of several folders. Files are read in the
order of their names, regardless of their folder, and the last one wins; a file hides those of the same name in the
folders that come later (systemd: sysctl.d(5), systemd-system.conf(5)).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def overriders(listing: str, wanted: Mapping[str, str], own: str) -> list[str]:
    """Return settings of other files that override those in our file `own`, in one line each.

    `listing`: lines `path:line` of all drop-ins except those that another one hides. `wanted`: our settings by key. A
    pattern of sysctl.d (`net.ipv4.conf.*`) never overrides a literal key, so it is ignored. Raises ValueError for any
    other line.
    """
    faults = []
    for path, key, value in _list_settings(listing):
        if _file_name(path) > _file_name(own) and key in wanted and value != wanted[key]:
            faults.append(f"{path} sets {key} = {value} and is read after {own}; remove that line or rename the file")
    return faults


def _file_name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def lines_of_files(listing: str, what: str) -> Iterator[tuple[str, str]]:
    """The path and the text of each line `path:line`. Raises ValueError, which names `what`, for any other line."""
    for line in listing.splitlines():
        path, colon, text = line.partition(":")
        if not path.startswith("/") or not colon:
            raise ValueError(f"{what}: unexpected probe output {line[:80]!r}")
        yield path, text


def _list_settings(listing: str) -> Iterator[tuple[str, str, str]]:
    for path, setting in lines_of_files(listing, "drop-ins"):
        key, equals, value = setting.partition("=")
        if equals and not setting.lstrip().startswith(("#", ";")):
            # sysctl.d: a leading "-" forgives failure, and "/" may stand for ".".
            yield path, key.strip().lstrip("-").replace("/", "."), value.strip()
