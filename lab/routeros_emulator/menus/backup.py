"""/system/backup: the whole configuration in one file that only this kind of unit reads.

``load`` is left out: it reboots the unit. Which policies ``save`` needs is inferred.
"""

from __future__ import annotations

import json
import zlib

from lab.routeros_emulator.argument_types import Bool, Enum
from lab.routeros_emulator.errors import unknown_parameter
from lab.routeros_emulator.menu import EmulatedMenu
from lab.routeros_emulator.passwords import digest
from lab.routeros_emulator.request import Call, Reply

#: What backups of real units begin with, when they are not encrypted and when they are.
_PLAIN, _ENCRYPTED = b"\x88\xac\xa1\xb1", b"\xef\xa8\x91\x72"


def _save_backup(call: Call) -> Reply:
    """Write the file, under the unit's name and the time when no name is given.

    Nothing here reads a backup again, so "encrypted" ones differ by their first bytes only, and a digest stands for
    each password.
    """
    given = call.sentence.attributes
    for name in given:
        if name not in ("name", "password", "dont-encrypt", "encryption"):
            raise unknown_parameter(name)
    Enum(("aes-sha256", "rc4")).parse("encryption", given.get("encryption", "aes-sha256"))
    plain = Bool().parse("dont-encrypt", given.get("dont-encrypt", "no")) == "true" or not given.get("password")
    device = call.device
    (identity,) = device.store.rows("/system/identity")
    name = given.get("name") or f"{identity.values['name']}-{device.clock.now():%Y%m%d-%H%M}"
    dump = device.store.dump()
    for path, table in dump["tables"].items():
        for field in (item.name for item in device.menus[path].fields if item.sensitive):
            for row in table.values():
                row[field] = digest(row.get(field, ""))
    data = json.dumps(dump).encode()
    device.write_file(f"{name.removesuffix('.backup')}.backup", (_PLAIN if plain else _ENCRYPTED) + zlib.compress(data))
    device.tell("system,info", "Configuration backup saved")
    return Reply()


BACKUP = EmulatedMenu(
    "/system/backup",
    verbs=frozenset(),
    rows=lambda _device: (),
    actions={"save": _save_backup},
    needs={"save": frozenset({"ftp", "read", "policy", "sensitive"})},
)
