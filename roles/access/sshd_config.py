"""Login settings of sshd: our drop-in, and other files that would override it. Pure."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from core.model import Rack
from core.util.event import Event, value_change
from core.util.managed_file import ManagedFile, header

MAIN = "/etc/ssh/sshd_config"
FOLDER = "/etc/ssh/sshd_config.d"
DROPIN = f"{FOLDER}/00-sparkrack.conf"
"""The first value wins in sshd, so the name is early."""
AT_BOOT = "/etc/tmpfiles.d/sparkrack-access.conf"
"""tmpfiles entry that exists while the drop-in is pending: a reboot restores the old one before sshd starts."""
UNIT = "ssh.service"
SETTINGS = {
    "PasswordAuthentication": "no",
    "KbdInteractiveAuthentication": "no",
    "PermitRootLogin": "no",
    "PubkeyAuthentication": "yes",
    "MaxStartups": "30:30:100",
    "LoginGraceTime": "30",
}
"""MaxStartups: eight nodes that log in to one at once are more than the 10 that sshd takes by default (sshd_config(5));
LoginGraceTime: those who never finish hold such a place for 30 s, not for 120."""
OLD_NAMES = {"challengeresponseauthentication": "kbdinteractiveauthentication"}


@dataclass(frozen=True)
class SshdLine:
    """A line of sshd's files that is about us: where it is, its keyword in small letters, its value, and whether it
    stands behind a Match of its file."""

    path: str
    number: str
    keyword: str
    value: str
    conditional: bool

    @property
    def removal(self) -> str:
        """The edit that removes the line, as text of a refusal."""
        return f"remove line {self.number} (sudoedit {self.path}), then: sudo sshd -t && sudo systemctl reload ssh"

    def __str__(self) -> str:
        return f"{self.path}:{self.number} says {self.keyword} {self.value[:60]}"


def dropin(rack: Rack) -> ManagedFile | None:
    """Our file, or None where rack.yaml leaves sshd alone."""
    if not rack.access.hardening:
        return None
    lines = [header(rack.rack), *(f"{key} {value}" for key, value in SETTINGS.items()), ""]
    return ManagedFile(DROPIN, "\n".join(lines).encode(), validate=_test_with_new_file())


def lines(listing: str) -> list[SshdLine]:
    """Parse the lines that the probe found in sshd's files, `path:number:line` each. Raises ValueError for any other
    line.
    """
    found: list[SshdLine] = []
    behind: set[str] = set()
    for entry in listing.splitlines():
        path, number, text = [*entry.split(":", 2), "", ""][:3]
        words = re.fullmatch(r"\s*([A-Za-z]+)(?:\s*=\s*|\s+|$)(.*?)\s*", text)
        if not words or not number.isdigit():
            raise ValueError(f"access-sshd-lines: unexpected probe output {entry[:80]!r}")
        keyword = words[1].lower()
        value = words[2].partition(" #")[0].strip().strip('"')
        if keyword == "match":
            behind.add(path)
        found.append(SshdLine(path, number, OLD_NAMES.get(keyword, keyword), value, path in behind))
    return found


def dropin_blockers(rack: Rack, listing: str) -> list[str]:
    """Return why our drop-in would not be effective: it is not included, another setting is read before it, or a Match
    overrides it for some users or addresses.
    """
    if not rack.access.hardening:
        return []
    reported = []
    found = lines(listing)
    included = False
    for line in found:
        if line.path == MAIN and line.keyword == "include" and not line.conditional:
            included = included or _covers_folder(line.value)
        elif line.keyword in _wanted_settings() and line.value.lower() != _wanted_settings()[line.keyword]:
            early = not included if line.path == MAIN else line.path < DROPIN
            if line.conditional:
                reported.append(f"{line} behind a Match, for some users or addresses; {line.removal}")
            elif early:
                reported.append(f"{line} and is read before {DROPIN}; {line.removal}")
    if not included:
        reported.append(
            f"{MAIN} does not include {FOLDER}/*.conf, so that no drop-in is read; put the line back at its top "
            f"(sudoedit {MAIN}): Include {FOLDER}/*.conf"
        )
    return reported


def _covers_folder(value: str) -> bool:
    return bool({f"{FOLDER}/*.conf", "sshd_config.d/*.conf", f"{FOLDER}/*"} & set(value.replace('"', "").split()))


def _wanted_settings() -> dict[str, str]:
    return {key.lower(): value for key, value in SETTINGS.items()}


def effective_problems(rack: Rack, shown: str) -> list[Event]:
    """Return differences between the effective settings, from `sshd -T`, and the declared ones."""
    if not rack.access.hardening:
        return []
    reported = dict(line.partition(" ")[::2] for line in shown.splitlines())
    return [
        value_change(key, reported.get(key, "nothing")[:60], value)
        for key, value in _wanted_settings().items()
        if reported.get(key) != value
    ]


def looks_elsewhere(shown: str, home: str) -> str | None:
    """Return where sshd reads authorized keys, if not from ~/.ssh/authorized_keys; None when it does."""
    reported = dict(line.partition(" ")[::2] for line in shown.splitlines()).get("authorizedkeysfile", "")
    usual = {".ssh/authorized_keys", "%h/.ssh/authorized_keys", f"{home}/.ssh/authorized_keys"}
    return None if usual & set(reported.split()) else reported or "nothing"


def _test_with_new_file() -> str:
    """Shell text that succeeds when sshd takes its whole configuration with "$new" read first."""
    # sshd wants absolute names, and the first value wins: so the candidate comes before every existing setting.
    tried = "/run/sparkrack/sshd_config.tried"
    return (
        f"{{ printf 'Include %s\\n' \"$new\"; cat {MAIN}; }} > {tried}; "
        f"sshd -t -f {tried} || {{ rm -f {tried}; exit 1; }}; rm -f {tried}"
    )


def reload() -> str:
    """Shell text that makes new logins follow the files. With ssh.socket (Ubuntu) sshd may not run, and then reads them
    when it is started."""
    # claim: access.sshd-socket
    return f"systemctl try-reload-or-restart {UNIT}"


def revert(before: bytes | None) -> str:
    """The script that brings the old drop-in back, or none."""
    if before is None:
        back = f"rm -f {DROPIN}"
    else:
        new = f"{FOLDER}/.sparkrack.revert"
        back = f"echo {_encode_base64(before)} | base64 -d > {new}; chmod 644 {new}; mv -fT {new} {DROPIN}"
    return f"{back}\n{reload()}\nrm -f {AT_BOOT}"


def at_boot(before: bytes | None) -> ManagedFile:
    """The same for a reboot in the middle, as systemd-tmpfiles does it; it is early enough for sshd."""
    line = f"r! {DROPIN}\n" if before is None else f"f+~! {DROPIN} 0644 root root - {_encode_base64(before)}\n"
    return ManagedFile(AT_BOOT, line.encode())


def _encode_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def proof(rack: Rack, address: str) -> str:
    """Return a script that succeeds when sshd behaves as declared, and else prints its behaviour.

    It checks the files, and asks the running sshd which methods it accepts from a client without a key.
    """
    if not rack.access.hardening:
        return "true"
    text = "\n".join(f"{key} {value}" for key, value in _wanted_settings().items())
    return (
        f"sshd -T | grep -xF '{text}' | sort -u | wc -l | grep -qxF {len(SETTINGS)} || "
        f"{{ echo 'sshd -T does not show what {DROPIN} says'; exit 1; }}\n"
        f"said=$(ssh {OFFER_NOTHING} -p {rack.access.port} {rack.access.user}@{address} true 2>&1 || true)\n"
        "case \"$said\" in *'Permission denied (publickey).'*) ;; "
        "*) printf 'sshd does not refuse a login without a key: %s\\n' \"$said\"; exit 1;; esac"
    )


OFFER_NOTHING = (
    "-F /dev/null -o BatchMode=yes -o ConnectTimeout=10 -o PreferredAuthentications=none -o LogLevel=ERROR "
    "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
)
"""Options of an ssh that only asks which methods are accepted, and offers no key: the host key does not matter for
that.
"""
