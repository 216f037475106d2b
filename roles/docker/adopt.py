"""How `sparkrack adopt` reads the ceiling of a node's containers and the settings of its engine into `docker`."""

from __future__ import annotations

from core.model import CONTAINER_SLICE
from core.model.role import AdoptedOption
from roles.docker.desired import CONFIG


def _setting_command(key: str) -> str:
    """Return shell text that prints the line of a setting in daemon.json; nothing else leaves the node: the file may
    have the password of a proxy.
    """
    value = '("[^"]*"|true|false|[0-9]+)'
    return f"[ ! -e {CONFIG} ] || grep -oE '\"{key}\"[[:space:]]*:[[:space:]]*{value}' {CONFIG} || [ $? -eq 1 ]"


def _value_of_output(text: str) -> str | None:
    lines = text.splitlines()
    return lines[-1].partition(":")[2].strip().strip('"') if lines else None


def _log_size(text: str) -> str | None:
    value = _value_of_output(text)
    return None if value is None else value.upper()


def _log_files(text: str) -> int | str | None:
    value = _value_of_output(text)
    return int(value) if value and value.isascii() and value.isdecimal() else value


def _live_restore(text: str) -> bool:
    """A node without the setting has it off."""
    return _value_of_output(text) == "true"


def _ceiling_text(text: str) -> str | None:
    """A ceiling in bytes as rack.yaml has it; None for infinity, and for a number that the file cannot express."""
    word = text.strip()
    if not word:
        raise ValueError("is empty")
    mebibytes, rest = divmod(int(word), 1 << 20) if word.isascii() and word.isdecimal() else (0, 1)
    if rest:
        return None
    return f"{mebibytes // 1024}G" if mebibytes % 1024 == 0 else f"{mebibytes}M"


ADOPT = (
    AdoptedOption("memory", f"systemctl show -p MemoryMax --value {CONTAINER_SLICE}", _ceiling_text),
    AdoptedOption("logs", _setting_command("log-driver"), _value_of_output),
    AdoptedOption("log_size", _setting_command("max-size"), _log_size),
    AdoptedOption("log_files", _setting_command("max-file"), _log_files),
    AdoptedOption("live_restore", _setting_command("live-restore"), _live_restore),
)
