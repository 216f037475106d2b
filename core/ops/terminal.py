"""Plain pyinfra on a terminal: filter the output of hosts, and prevent password prompts."""

from __future__ import annotations

import logging
import re
from typing import Any

from pyinfra import logger
from pyinfra.api import output
from pyinfra.api.command import StringCommand
from pyinfra.connectors import ssh
from pyinfra.connectors import util as connecting

from core.model.errors import printable

PASSWORDLESS = "sudo asks for a password; `sparkrack bootstrap nodes NAME` sets passwordless sudo for access.user"
_IN_ARGUMENTS = (
    "a password of sudo would stand in the arguments of a process on the node; leave --same-sudo-password away: "
    "`sparkrack bootstrap nodes NAME` sets passwordless sudo for access.user"
)

# What click.style writes for pyinfra: bold, a colour, the end of both. A machine that sends these only colours a line.
_STYLE = re.compile(r"(\x1b\[(?:0|1|3[1-7]|9[1-7])m|\n)")
# The contents of files, as the probe reads them: whole words of base64. Text never begins with its "/", paths do.
_CONTENT = re.compile(
    r"(?<![^\s'\"])(?!/)(?![0-9a-f]+(?![^\s'\"]))(?:[A-Za-z0-9+/]{4}){6,}"
    r"(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?(?![^\s'\"])"
)


def guard() -> None:
    """Prevent that pyinfra in this process asks for a sudo password, sends one, or prints a control sequence from a
    host.

    pyinfra would put the password into the argument list of a process on the node, and accepts the claim of any host
    that sudo needs one. Runs once for a process; further calls have no effect.
    """
    if connecting.getpass is _no_prompt:  # type: ignore[attr-defined]
        return
    connecting.getpass = _no_prompt  # type: ignore[attr-defined]
    make, echo = ssh.make_unix_command_for_host, output._echo  # type: ignore[attr-defined]

    def make_without_password(*words: Any, **arguments: Any) -> StringCommand:
        if arguments.get("_sudo_password"):
            raise PermissionError(_IN_ARGUMENTS)
        return make(*words, **arguments)

    def echo_cleaned(message: Any = None, **options: Any) -> None:
        echo(cleaned(message) if isinstance(message, str) else message, **options)

    ssh.make_unix_command_for_host = make_without_password  # type: ignore[attr-defined]
    output.set_echo(echo_cleaned)
    logger.addFilter(_clean_record)
    # paramiko logs a server's words raw, with a traceback; pyinfra itself reports why a host was not reached.
    handlers = logging.getLogger().handlers
    for handler in handlers:
        handler.addFilter(_clean_record)
    if not handlers:
        logging.getLogger("paramiko").setLevel(logging.CRITICAL)


def cleaned(text: str) -> str:
    """A line as pyinfra prints it: its own styling and line breaks stay, the contents of files are only counted."""
    counted = _CONTENT.sub(lambda found: f"({len(found[0])} characters of base64)", text)
    return "".join(part if number % 2 else printable(part) for number, part in enumerate(_STYLE.split(counted)))


def _clean_record(record: logging.LogRecord) -> bool:
    if isinstance(record.msg, str):
        record.msg, record.args = cleaned(record.getMessage()), ()
    return True


def _no_prompt(prompt: str = "", stream: Any = None) -> str:  # noqa: ARG001 - as getpass has them
    raise PermissionError(PASSWORDLESS)
