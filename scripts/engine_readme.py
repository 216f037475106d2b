"""The options of llama-server from the tables of its README, which its source makes from the options themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

from serving.engines.option_table import EngineOption

_ROW = re.compile(r"\| `(-[^`]*)` \| (.*) \|")
_NAME = re.compile(r"--?[A-Za-z0-9][A-Za-z0-9.-]*")


def options(readme: str) -> dict[str, EngineOption]:
    """Return the options of a build by name."""
    found: dict[str, EngineOption] = {}
    for line in readme.splitlines():
        if row := _ROW.fullmatch(line.strip()):
            found |= dict(_list_names(row[1].replace("\\|", "|"), row[2].replace("\\|", "|")))
    return found


def _list_names(spelled: str, explained: str) -> Iterator[tuple[str, EngineOption]]:
    """Yield each name of a row. The value follows the last name: `-c, --ctx-size N`."""
    words = re.split(r",? +", spelled.strip())
    names = [word for word in words if _NAME.fullmatch(word)]
    if not names:
        raise ValueError(f"a row without a name: {spelled}")
    value = " ".join(word for word in words if not _NAME.fullmatch(word))
    dest = next((name for name in names if name.startswith("--")), names[0]).lstrip("-")
    # -nkvo stands beside --no-kv-offload: a short name with n before what turns it on.
    positive = {name.lstrip("-") for name in names}
    for name in names:
        plain = name.lstrip("-")
        # --no-mmproj stands beside --mmproj-auto: a long name without no- is what it turns off.
        off = plain.startswith("no-") and any(re.match("--(?!no-)", one) for one in names)
        off = off or (plain.startswith("n") and plain[1:] in positive and not name.startswith("--"))
        paired = len(names) > 1 and any(other.lstrip("-").startswith("no-") for other in names)
        yield name, _make_option(dest, value, explained, "off" if off else "on" if paired or not value else "")


def _make_option(dest: str, value: str, explained: str, flag: str) -> EngineOption:
    if not value:
        return EngineOption(dest, 0, flag, (), True)
    counts = 2 if re.fullmatch(r"[A-Z]+ [A-Z]+", value) else 1
    listed = re.fullmatch(r"[\[{<]([a-z0-9_.|,-]+)[\]}>]", value)
    allowed = re.search(r"allowed values: ([a-z0-9_, ]+)<br", explained)
    choices: tuple[str, ...] = ()
    if listed and ".." not in listed[1] and not listed[1].startswith("dev"):
        choices = tuple(sorted(re.split(r"[|,]", listed[1])))
    elif allowed and value == "TYPE":
        choices = tuple(sorted(re.split(r", *", allowed[1])))
    default = re.search(r"default: (-?[0-9]+(?:\.[0-9]+)?)[,) ]", explained)
    kind = "text"
    if value in ("N", "SEED", "PORT", "INDEX") and default and "'" not in explained:
        kind = "float" if "." in default[1] else "int"
    return EngineOption(dest, counts, kind, choices, True)
