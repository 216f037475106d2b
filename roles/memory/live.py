"""What kernel and systemd hold of the role's groups right now: the question, and how its answer is read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from roles.memory.owned import MARKS, UNIT_FOLDERS, UNITS
from sparkrack.fleet import SLICE

CGROUPS = "/sys/fs/cgroup"
SYSTEM = "system.slice"
GUARD = "sparkrack-memory-guard.service"
PROTECTED = ("ssh.service", "systemd-networkd.service", "NetworkManager.service", "systemd-logind.service")
WANTS = {SLICE: "slices.target.wants", GUARD: "multi-user.target.wants"}
"""What starts each of our units at boot."""

# One shell for all of it, and next to no other program: it runs in every run on every node.
_QUESTION = r"""c=CGROUPS; [ ! -e $c/cgroup.controllers ] || echo unified
for g in GROUPS; do [ -d $c/$g ] || continue; n=${g##*/}; echo "$n there"
case $g in SLICE) q="memory.max memory.swap.max memory.current"
while read -r k v; do [ "$k" != populated ] || echo "$n populated $v"; done < $c/$g/cgroup.events || exit 9;;
*) q=memory.min;; esac
for k in $q; do [ ! -e $c/$g/$k ] || { read -r v < $c/$g/$k && echo "$n $k $v"; } || exit 9; done
case $g in */*) while read -r p; do
name=; parent=
{ while read -r k v _; do case $k in Name:) name=$v;; PPid:) parent=$v; break;; esac; done < /proc/$p/status &&
read -r a < /proc/$p/oom_score_adj; } 2>/dev/null || continue
[ "$parent" = 1 ] || continue
echo "$n process $p $a $name"
[ "$n" != GUARD ] || echo "$n runs $(tr '\0' ' ' < /proc/$p/cmdline)"
done < $c/$g/cgroup.procs || exit 9;; esac; done
for w in WANTED; do [ ! -L "$w" ] || echo "${w##*/} enabled"; done
for d in DROPINS; do [ ! -e "$d" ] && [ ! -L "$d" ] || { n=${d%.d/*}; echo "${n##*/} dropin $d"; }; done
for m in MARKS/memory-*.pending; do [ ! -e "$m" ] || echo "${m##*/} pending"; done"""


def question() -> str:
    """The shell text."""
    groups = [SLICE, SYSTEM, *(f"{SYSTEM}/{unit}" for unit in (*PROTECTED, GUARD))]
    words = {
        "CGROUPS": CGROUPS,
        "GROUPS": " ".join(groups),
        "GUARD": GUARD,
        "SLICE": SLICE,
        "WANTED": " ".join(f"{UNITS}/{target}/{unit}" for unit, target in WANTS.items()),
        "DROPINS": " ".join(f"{folder}/{unit}.d/*.conf" for folder in UNIT_FOLDERS for unit in WANTS),
        "MARKS": MARKS,
    }
    text = _QUESTION
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text


@dataclass(frozen=True)
class Process:
    """A process that systemd itself started."""

    pid: int
    name: str
    score: int


@dataclass
class Group:
    """What is known of a unit: the values of its control group by file name, None where there is no group."""

    there: bool = False
    values: dict[str, str] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    runs: str = ""
    enabled: bool = False
    dropins: list[str] = field(default_factory=list)

    def bytes(self, key: str) -> int | None:
        """A limit or a figure; None for no limit, or where this kernel has no such file."""
        value = self.values.get(key, "max")
        return None if value == "max" else int(value)

    def score(self, name: str) -> int | None:
        """How the kernel's killer is told to treat the unit's main process; None when it does not run."""
        return next((process.score for process in self.processes if process.name == name), None)


@dataclass(frozen=True)
class Live:
    """The whole answer."""

    unified: bool
    groups: Mapping[str, Group]
    pending: frozenset[str]

    def group(self, unit: str) -> Group:
        """What is known of a unit; an empty one when nothing is."""
        return self.groups.get(unit, Group())

    def unread(self, mark: str) -> list[str]:
        """In words, that systemd has yet to read what an earlier run changed; nothing when it has."""
        left = f"memory-{mark}" in self.pending
        return ["systemd reads its unit files: an earlier run changed them and did not come to that"] if left else []


def live(answer: str) -> Live:
    """Read the answer. Raises ValueError when a line is anything else than what the question prints."""
    groups: dict[str, Group] = {}
    pending, unified = set(), False
    for line in answer.splitlines():
        if line == "unified":
            unified = True
        elif line.endswith(" pending"):
            pending.add(line.removesuffix(" pending").removesuffix(".pending"))
        else:
            unit, _, said = line.partition(" ")
            if unit not in (SLICE, SYSTEM, GUARD, *PROTECTED) or not _take(groups.setdefault(unit, Group()), said):
                raise ValueError(f"memory-live: cannot be told from {line[:80]!r}")
    return Live(unified, groups, frozenset(pending))


def _take(group: Group, said: str) -> bool:
    match said.split(" ", 3):
        case ["there"]:
            group.there = True
        case ["enabled"]:
            group.enabled = True
        case ["dropin", *_]:
            group.dropins.append(said.partition(" ")[2])
        case ["runs", *_]:
            group.runs = said.partition(" ")[2].strip()
        case ["process", pid, score, name] if pid.isdigit() and score.removeprefix("-").isdigit():
            group.processes.append(Process(int(pid), name, int(score)))
        case ["populated" | "memory.max" | "memory.swap.max" | "memory.min" | "memory.current" as key, value] if (
            value == "max" or (value.isascii() and value.isdigit())
        ):
            group.values[key] = value
        case _:
            return False
    return True


def amount(size: int | None) -> str:
    """Bytes as rack.yaml would write them, where that is exact."""
    if size is None:
        return "no limit"
    for unit, step in (("G", 1024**3), ("M", 1024**2), ("K", 1024)):
        if size and size % step == 0:
            return f"{size // step}{unit}"
    return f"{size} bytes" if size else "0"
