"""State of a node, as one script reads and prints it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from core.model.errors import printable_line, truncate
from core.probes import protocol
from core.ssh.host_keys import HostKey, HostKeyError
from roles.preflight.desired import LOGIN
from sparkrack.node_login.errors import BootstrapError, last_line

SUDOERS = "/etc/sudoers.d/zz-sparkrack"
"""Read last, so that it counts; sudo leaves out names with a dot in them."""
CLOUD_FOLDER = "/etc/cloud/cloud.cfg.d"
CLOUD = f"{CLOUD_FOLDER}/zz-sparkrack-hostname.cfg"
HOSTS = "/etc/hosts"
GROUPS = ("sudo", "docker")
STAGED = "/etc/ssh/.sparkrack-new"
"""Folder of new host keys until the operator's machine has pinned them."""
TOOLS = ("useradd", "usermod", "runuser", "visudo", "sshd", "ssh-keygen", "hostnamectl", "systemctl", "base64", "sync")
_ENVIRONMENT = "umask 022; export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BEGIN = f"set -eu; {_ENVIRONMENT}\n"
"""First lines of every script that changes a node."""
# The complaint of sshd is the reason when its configuration is invalid.
_HOST_KEYS = (
    "settings=$(sshd -T 2>&1) || { printf '%s\\n' \"$settings\" | tail -n 1; exit 1; }; "
    "printf '%s\\n' \"$settings\" | sed -n 's/^hostkey //p' | while read -r path; do "
    '[ ! -e "$path" ] || printf \'%s %s\\n\' "$path" "$(ssh-keygen -y -P \'\' -f "$path")"; done'
)

_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_MACHINE_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class FileStat:
    """A file or folder, a symbolic link not followed. `kind`: as `stat` words it. `mode`: its permission bits."""

    kind: str
    owner: int
    mode: int

    @property
    def link(self) -> bool:
        return self.kind == "symbolic link"


@dataclass(frozen=True)
class LocalAccount:
    """The login user as the node has it."""

    number: int
    home: str
    shell: str
    groups: frozenset[str]


@dataclass(frozen=True)
class NodeState:
    """A node. `things`: home, .ssh, authorized_keys and the drop-in of sudo, as far as they are there. `keys`: its
    host keys by the file of the private half. None for a file that is not there."""

    account: LocalAccount | None
    groups: frozenset[str]
    things: Mapping[str, FileStat]
    authorized: bytes
    sudoers: bytes | None
    name: str
    static_name: str
    hosts: bytes
    cloud: bool
    cloud_text: bytes | None
    keys: Mapping[str, HostKey]
    machine_id: str

    @property
    def login(self) -> str:
        """The user whom an earlier bootstrap let use sudo; empty when there was none."""
        found = re.match(rf"{re.escape(LOGIN)} ([^ \n]+)", (self.sudoers or b"").decode(errors="replace"))
        return printable_line(found[1]) if found else ""


def look(user: str) -> str:
    """Return the script that reads the state. `user`: a name of rack.yaml, safe as a word."""
    return f"{_ENVIRONMENT}\n{protocol.script(_list_questions(user))}"


def _list_questions(user: str) -> dict[str, str]:
    account = f"line=$(getent passwd {user}) || [ $? -eq 2 ]"  # 2: there is no such user
    home = f'{account}; [ "$line" ] || exit 0; home=$(printf \'%s\' "$line" | cut -d: -f6); '
    keys = '"$home/.ssh/authorized_keys"'
    questions = {
        "missing": f'for t in {" ".join(TOOLS)}; do command -v "$t" >/dev/null || printf \'%s \' "$t"; done',
        "groups": f'for g in {" ".join(GROUPS)}; do ! getent group "$g" >/dev/null || printf \'%s \' "$g"; done',
        "account": f"{account}; printf '%s' \"$line\"",
        "member": f"{home}id -nG {user}",
        "thing-home": home + _stat_command('"$home"'),
        "thing-folder": home + _stat_command('"$home/.ssh"'),
        "thing-authorized": home + _stat_command(keys),
        # A symbolic link is not followed: it may lead to a file of another user.
        "authorized": f'{home}[ -L "$home/.ssh" ] || [ -L {keys} ] || {_text_command(keys)}',
        "thing-sudoers": _stat_command(SUDOERS),
        "sudoers": _text_command(SUDOERS),
        "name": "cat /proc/sys/kernel/hostname",
        "static": _text_command("/etc/hostname"),
        "hosts": _text_command(HOSTS),
        "machine-id": _text_command("/etc/machine-id"),
        "cloud": _text_command(CLOUD),
        "clouds": f"[ ! -d {CLOUD_FOLDER} ] || echo yes",
        "keys": _HOST_KEYS,
    }
    return {name: f"set -eu; {text}" for name, text in questions.items()}


def _stat_command(path: str) -> str:
    return f"if [ -e {path} ] || [ -L {path} ]; then stat -c '%F|%u|%a' {path}; fi"


def _text_command(path: str) -> str:
    return f"if [ -f {path} ]; then head -c 1000000 {path}; fi"


def parse_node_state(output: bytes) -> NodeState:
    """Parse the state of a node. Raises BootstrapError for invalid output."""
    answers = _parse_answers(output.decode("ascii", "replace"))
    name, static = (answers[key].decode(errors="replace").strip() for key in ("name", "static"))
    number = answers["machine-id"].decode(errors="replace").strip().removeprefix("uninitialized")
    if not _HOST_NAME.fullmatch(name):
        raise BootstrapError(f"its host name cannot be parsed: {truncate(name)}")
    if number and not _MACHINE_ID.fullmatch(number):
        raise BootstrapError(f"its machine-id cannot be parsed: {truncate(number)}")
    things = {key.removeprefix("thing-"): value for key, value in answers.items() if key.startswith("thing-") and value}
    return NodeState(
        account=_parse_account(answers),
        groups=_answer_words(answers, "groups"),
        things={key: _parse_stat(value) for key, value in things.items()},
        authorized=answers["authorized"],
        sudoers=answers["sudoers"] or None,
        name=name,
        static_name=static,
        hosts=answers["hosts"],
        cloud=bool(answers["clouds"]),
        cloud_text=answers["cloud"] or None,
        keys=host_keys(answers["keys"]),
        machine_id=number,
    )


def _parse_answers(output: str) -> dict[str, bytes]:
    """Return the output of each question; empty for a file that does not exist. Raises BootstrapError."""
    questions = _list_questions("user")
    try:
        answers = protocol.parse(output, questions)
    except protocol.InvalidAnswerError as fault:
        raise BootstrapError(f"what it says of itself cannot be used: {fault}") from None
    for name, why in answers.unknown.items():
        if why == protocol.NO_ANSWER:
            raise BootstrapError(f"it does not report its {name}")
        raise BootstrapError(f"what it says of itself cannot be read: {name}: {why}")
    # First: without one of these tools other questions fail.
    if missing := answers.commands["missing"].text.split():
        raise BootstrapError(f"lacks {', '.join(sorted(missing))}; is it DGX OS or Ubuntu 24.04?")
    for name, answer in answers.commands.items():
        if answer.code:
            why = last_line(answer.output) or f"it ends with {answer.code}"
            raise BootstrapError(f"its {name} cannot be read: {why}")
    return {name: answer.output for name, answer in answers.commands.items()}


def host_keys(output: bytes) -> dict[str, HostKey]:
    """Host keys by their file, from lines of path, kind and key. Raises BootstrapError."""
    found = {}
    for line in output.decode(errors="replace").splitlines():
        path, _, key = line.partition(" ")
        if not re.fullmatch(r"/[A-Za-z0-9._/-]+", path):
            raise BootstrapError(f"a host key has a strange path: {truncate(path)}")
        try:
            found[path] = HostKey.parse(key)
        except HostKeyError as fault:
            raise BootstrapError(f"{path}: {fault}") from None
    if not found:
        raise BootstrapError("it shows no host key of its own")
    return found


def _answer_words(answers: Mapping[str, bytes], name: str) -> frozenset[str]:
    return frozenset(answers[name].decode(errors="replace").split())


def _parse_account(answers: Mapping[str, bytes]) -> LocalAccount | None:
    if not answers["account"]:
        return None
    fields = answers["account"].decode(errors="replace").split(":")
    if len(fields) != 7 or not fields[2].isdigit() or not fields[5].startswith("/"):
        raise BootstrapError(f"its user cannot be parsed: {truncate(answers['account'].decode(errors='replace'))}")
    return LocalAccount(int(fields[2]), fields[5], fields[6], _answer_words(answers, "member"))


def _parse_stat(value: bytes) -> FileStat:
    kind, owner, mode = [*value.decode(errors="replace").strip().split("|"), "", ""][:3]
    if not owner.isdigit() or not re.fullmatch(r"[0-7]{1,4}", mode):
        raise BootstrapError(f"a file status cannot be parsed: {truncate(value.decode(errors='replace'))}")
    return FileStat(kind, int(owner), int(mode, 8))
