"""Values of a rack file that follow from where it stands and who uses it, unless they are written.

Each raises the error of its key when nothing follows. They depend on a machine and a user: preflight refuses a
node that was set up under another name or another user.
"""

from __future__ import annotations

import os
import pwd
import re
import unicodedata
from pathlib import Path
from typing import Any, Final

from pydantic import BeforeValidator, ValidationInfo

from core.model.fields import UserName, invalid, unfit

KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
"""The private keys below ~/.ssh that are tried, in this order."""
KNOWN_HOSTS = "known_hosts"
PYINFRA_FOLDER = "group_data"
"""A folder that belongs to pyinfra and whose name says nothing of a rack."""
_NOT_WRITTEN: Final = object()


def not_written() -> Any:
    """Stand for a key that is not in the file, until its validator puts the default there."""
    return _NOT_WRITTEN


def folder_name(folder: Path) -> str:
    """The name of a rack by the folder of its file, without accents and with `-` for what no name holds; empty when
    nothing is left."""
    folder = folder.resolve()
    name = folder.parent.name if folder.name == PYINFRA_FOLDER else folder.name
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("-._")[:63]


def local_user() -> str:
    """The user who runs this program, as ssh takes him; empty for one without a name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def is_login(user: str) -> bool:
    """Return whether a user of this machine can be that of the nodes without being written."""
    return bool(user) and user != "root" and not unfit(UserName, user)


def first_key() -> str:
    """The first of `KEYS` that exists, as rack.yaml writes it; the first of all when none does."""
    folder = Path(os.path.expanduser("~/.ssh"))  # noqa: PTH111 - a user without a home is an error of the path itself
    found = next((name for name in KEYS if (folder / name).is_file()), KEYS[0])
    return f"~/.ssh/{found}"


def _rack_name(value: object, info: ValidationInfo) -> object:
    if value is not _NOT_WRITTEN:
        return value
    folder = Path((info.context or {}).get("folder", Path.cwd()))
    if not (name := folder_name(folder)):
        raise invalid(
            f"is not written, and the folder {folder} gives no name", "write rack: and a name, like rack: desk"
        )
    return name


def _login_user(value: object) -> object:
    if value is not _NOT_WRITTEN:
        return value
    user, right = local_user(), "write the user of the nodes, like access: {user: ops}"
    if user == "root":
        raise invalid("is not written, and you are root here", right)
    if not is_login(user):
        raise invalid(f"is not written, and {user or 'a user without a name'} cannot be a user of the nodes", right)
    return user


def _login_key(value: object) -> object:
    return first_key() if value is _NOT_WRITTEN else value


def _known_hosts(value: object) -> object:
    return KNOWN_HOSTS if value is _NOT_WRITTEN else value


RackName = BeforeValidator(_rack_name)
LoginUser = BeforeValidator(_login_user)
LoginKey = BeforeValidator(_login_key)
KnownHosts = BeforeValidator(_known_hosts)
