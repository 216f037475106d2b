"""What an autopsy asks of hosts: shell text by name. Nothing is changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address
from shlex import quote

from roles.blackbox.boot_evidence import BOOTS, FOLDER
from roles.blackbox.journal_stream import RECEIVED
from roles.blackbox.recorder import PROGRAM as RECORDER

LINES = 600
"""Lines of a journal."""
SAMPLES = 2400
"""Samples of a ring: 20 minutes of two a second."""
CLOCK, BOOT, BEGAN, EVIDENCE, EARLIER, JOURNAL, RING = (
    *("clock", "boot", "began", "evidence", "earlier", "journal", "ring"),
)
HANGS = "hangs"
HANG_BYTES = 400000
"""Bytes of what the units of a node have left about their latest hang, a line for each unit."""
REMOTE, CONSOLE, PEER_RING, PEER_TIME, PEER_ENDS = "remote", "console", "peer-ring", "peer-time", "peer-ends"
ECHOES = "echoes"
ABSENT = 7
"""Exit status of a question about something that is not there."""
_ID = "$(tr -d - < /proc/sys/kernel/random/boot_id)"

NODE: Mapping[str, str] = {
    CLOCK: "date +%s.%N",
    BOOT: "tr -d - < /proc/sys/kernel/random/boot_id",
    BEGAN: "cat /proc/uptime",
    EVIDENCE: f'f="{BOOTS}/{_ID}/evidence.json"; [ -e "$f" ] || exit {ABSENT}; cat "$f"',
    EARLIER: f"cd {BOOTS} 2>/dev/null || exit {ABSENT}; grep -m1 '\"began\": [0-9]' */evidence.json || true",
    # Only without the evidence: a node that boots has enough to do.
    JOURNAL: f'[ ! -e "{BOOTS}/{_ID}/evidence.json" ] || exit {ABSENT}; '
    f"journalctl --boot=-1 --output=json --lines={LINES} --quiet --no-pager",
    RING: f"[ -e {FOLDER}/ring ] && [ -e {RECORDER} ] || exit {ABSENT}; "
    f"/usr/bin/python3 -I {RECORDER} dump {FOLDER}/ring | tail -n {SAMPLES}",
    HANGS: f'set -- /var/lib/sparkrack/serve/*.hang.json; [ -e "$1" ] || exit {ABSENT}; '
    f'cat "$@" | head -c {HANG_BYTES}',
}
"""What the node itself is asked."""


def remote_journal(node: str) -> str:
    """Return shell text that runs journalctl with the options that follow it, on what was received from a node.

    By the names of the files, which the receiver gives: _HOSTNAME of an entry is what its sender says of itself.
    """
    files = f"{RECEIVED}/remote-{node}.journal {RECEIVED}/remote-{node}@*.journal*"
    return (
        f'set --; for f in {files}; do [ ! -e "$f" ] || set -- "$@" "--file=$f"; done; '
        f'[ $# -gt 0 ] || exit {ABSENT}; journalctl "$@"'
    )


def of_receiver(node: str, boot: str | None) -> Mapping[str, str]:
    """Return what the node that receives the records of `node` is asked. `boot`: the boot that ended, where known."""
    ring, console = f"{FOLDER}/peers/{node}.ring", f"{FOLDER}/netconsole/{node}.log"
    match = f"_BOOT_ID={boot} " if boot else ""
    return {
        CLOCK: "date +%s.%N",
        REMOTE: f"{remote_journal(node)} {match}--output=json --lines={LINES} --quiet --no-pager",
        CONSOLE: f"[ -e {quote(console)} ] || exit {ABSENT}; tail -n {LINES} {quote(console)}",
        PEER_RING: f"[ -e {quote(ring)} ] && [ -e {RECORDER} ] || exit {ABSENT}; "
        f"/usr/bin/python3 -I {RECORDER} dump {quote(ring)} | tail -n {SAMPLES}",
        PEER_ENDS: f"f={quote(ring.removesuffix('ring') + 'ends')}; [ -e $f ] || exit {ABSENT}; cat $f",
        PEER_TIME: f"[ -e {quote(ring)} ] || exit {ABSENT}; stat -c %.Y {quote(ring)}",
    }


def echoes(pairs: Iterable[tuple[str, IPv4Address]]) -> str:
    """Return shell text that sends pings from interfaces to addresses, all at once.

    It prints a line for each: the address, and how ping ended (0: an answer, 1: none, another: it was not sent).
    """
    lines = [
        f"{{ ping -q -n -c 3 -i 0.3 -W 1 -I {quote(device)} {address} > /dev/null 2>&1; echo {address} $?; }} &"
        for device, address in pairs
    ]
    return "\n".join((*lines, "wait"))


FILES: Mapping[str, str] = {
    "boots.txt": f"ls -l {BOOTS} {FOLDER}/peers {FOLDER}/netconsole 2>&1",
    "evidence.json": NODE[EVIDENCE],
    "journal-before.txt": "journalctl --boot=-1 --no-pager -o short-iso-precise -n 3000",
    "journal-kernel.txt": "journalctl --boot=0 --dmesg --no-pager -o short-iso-precise -n 3000",
    "pstore.txt": "find /var/lib/systemd/pstore -name dmesg.txt -print -exec tail -c 262144 {} ';'",
    "bert.txt": f'f="{BOOTS}/{_ID}/bert.bin"; [ -e "$f" ] || exit {ABSENT}; od -A x -t x4z -v "$f"',
    "ring.txt": NODE[RING],
    "hangs.jsonl": NODE[HANGS],
    "nvidia-bug-report.log": "command -v nvidia-bug-report.sh > /dev/null || exit 7; "
    'd=$(mktemp -d) && cd "$d" && timeout 240 nvidia-bug-report.sh --output-file r.log > /dev/null 2>&1; '
    '[ ! -e r.log.gz ] || gunzip -f r.log.gz; tail -c 4194304 r.log; e=$?; rm -r "$d"; exit $e',
}
"""What `--collect` asks of the node besides, by the name of the file that gets the output."""
BUNDLE_SECONDS = 300
"""Seconds for one of these: NVIDIA's bug report takes minutes."""
