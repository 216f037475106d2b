"""The guard: ends all containers when too little memory is available, whoever took it. Its script and its unit. Pure.

No limit of the kernel counts what CUDA takes on a GB10; MemAvailable falls with it all the same.
"""

from __future__ import annotations

from roles.memory.live import CGROUPS, GUARD, Group, Live, amount
from roles.memory.owned import SCRIPTS, UNITS, Owned, notice
from roles.memory.protect import GUARD_KEEPS
from sparkrack.fleet import SLICE, Rack, mebibytes

SCRIPT = f"{SCRIPTS}/memory-guard"
UNIT = f"{UNITS}/{GUARD}"
SAMPLE = "0.25"
"""Seconds between two looks. Sites that run such a guard look every 100 to 250 ms (reported: spark-ds41f)."""
AGAIN = 5
"""Seconds until it may end containers again although memory did not come back."""
_UNIT = """\
{notice}
[Unit]
Description=End all containers when too little memory is available
Before=docker.service containerd.service
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={script} {floor}
Restart=always
RestartSec=1
OOMScoreAdjust=-1000
MemoryMin={keeps}M
Nice=-10

[Install]
WantedBy=multi-user.target
"""
# bash, not sh: it can sleep, read and write without starting another program, which fails when memory is short.
_SCRIPT = """\
#!/bin/bash
{notice}
# memory-guard FLOOR: ends every container in {slice} when less than FLOOR KiB of memory are available.
set -u
floor=$1
back=$((floor + floor / 4)) # with so much it is armed again at once, with less but enough after {again} seconds
slice={cgroups}/{slice}
exec {{clock}}<> <(:) # a pipe that nobody writes to: waiting for it is a sleep without a program

look() {{ # sets available; it is in the third line
    local text
    read -r -d '' -n 200 text < /proc/meminfo
    [[ $text =~ MemAvailable:\\ +([0-9]+)\\ kB ]] && available=${{BASH_REMATCH[1]}}
}}

say() {{ # LEVEL TEXT: to the kernel's log, which outlives a journal that was not written in time, and to the journal
    echo "<$1>sparkrack-memory-guard: $2" > /dev/kmsg
    echo "<$1>$2"
}} 2> /dev/null

inhabited() {{
    local key value
    while read -r key value; do
        if [[ $key == populated ]]; then [[ $value == 1 ]]; return; fi
    done < "$slice/cgroup.events"
    return 1
}} 2> /dev/null

end_containers() {{
    local low="$available KiB of memory are available, less than the floor of $floor KiB"
    if [[ ! -e $slice/cgroup.kill ]]; then
        told="$low: there is no {slice} to end anything in"
    elif ! inhabited; then
        told="$low: no container runs in {slice}, so nothing was ended"
    elif echo 1 > "$slice/cgroup.kill"; then
        told="$low: ended every container in {slice}"
    else
        told="$low: ending the containers in {slice} FAILED"
    fi
}} 2> /dev/null

armed=yes fired=0 said=
echo "armed: ends every container in {slice} when less than $floor KiB of memory are available"
while look; do
    if ((available < floor)); then
        if [[ $armed ]] || ((SECONDS - fired >= {again})); then
            end_containers
            # The same that ended nothing is told once for each time that memory runs short.
            if [[ $told == *ended\\ every* || -z $said ]]; then say 2 "$told"; fi
            armed= fired=$SECONDS said=yes
        fi
    elif [[ ! $armed ]] && ((available >= back || SECONDS - fired >= {again})); then
        say 5 "armed again: $available KiB of memory are available"
        armed=yes said=
    fi
    read -r -t {sample} -u "$clock" _ || :
done
echo "<2>/proc/meminfo does not tell what is available"
exit 1
"""


def script(rack: Rack) -> Owned:
    """The watcher."""
    text = _SCRIPT.format(notice=notice(rack.rack), slice=SLICE, cgroups=CGROUPS, again=AGAIN, sample=SAMPLE)
    return Owned(SCRIPT, text.encode(), "755")


def unit(rack: Rack) -> Owned:
    """What starts it before any container, and again whenever it ends."""
    text = _UNIT.format(notice=notice(rack.rack), script=SCRIPT, floor=floor_kb(rack), keeps=GUARD_KEEPS)
    return Owned(UNIT, text.encode())


def files(rack: Rack) -> list[Owned]:
    """Both, the script first: the unit names it. None where rack.yaml wants no guard."""
    return [script(rack), unit(rack)] if rack.memory.floor else []


def floor_kb(rack: Rack) -> int:
    """The floor in KiB; 0 for none."""
    return mebibytes(rack.memory.floor) * 1024 if rack.memory.floor else 0


def command_line(rack: Rack) -> str:
    """What the running guard shows: whatever its files say, this is what it does."""
    return f"/bin/bash {SCRIPT} {floor_kb(rack)}"


def obstacle(rack: Rack, live: Live, total_kb: int, available_kb: int) -> str | None:
    """Why no guard may be started here now, or None. All figures in KiB."""
    floor, free = floor_kb(rack), rack.memory.min_free_kbytes
    if floor >= total_kb - free:
        # What is kept free for the kernel never counts as available.
        return (
            f"memory.floor: {floor} KiB, beside {free} KiB of memory.min_free_kbytes, is never available in "
            f"this node's {total_kb} KiB: every container would be ended as it starts"
        )
    if available_kb < floor and live.group(SLICE).values.get("populated") == "1":
        return (
            f"memory.floor: only {available_kb} KiB are available now, less than {floor} KiB: the guard would end "
            f"every container in {SLICE} as soon as it is armed; end them, or lower the floor, and run again"
        )
    return None


def restart(rack: Rack, now: Group, pending: bool, stale: bool) -> str | None:
    """Why the guard is started or restarted, or None."""
    wanted = command_line(rack)
    if not now.runs:
        return f"start {GUARD}: it does not run"
    if now.runs != wanted:
        floor = now.runs.removeprefix(f"/bin/bash {SCRIPT} ")
        shown = amount(int(floor) * 1024) if floor.isascii() and floor.isdigit() else repr(now.runs)
        return f"restart {GUARD}: memory.floor {shown} -> {rack.memory.floor}"
    if stale:
        return f"restart {GUARD}: its files change"
    if pending:
        return f"restart {GUARD}: an earlier run changed its files and did not come to that"
    if now.score("memory-guard") != -1000:
        return f"restart {GUARD}: its OOM score is {now.score('memory-guard')}, wanted -1000"
    return None
