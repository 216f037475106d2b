"""/file. Arguments: schema of RouterOS 7.23; ``read`` exists from 7.13 on, and ``contents`` gives no more than
60 KiB (both published). Types and times are printed as published prints of 7.x units show them."""

from __future__ import annotations

from collections.abc import Iterator

from lab.routeros_emulator import clock
from lab.routeros_emulator.argument_types import Enum, Integer
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import TrapError, failure, missing, no_such_item, unknown_parameter
from lab.routeros_emulator.menu import READ, EmulatedMenu, Values, spell_id
from lab.routeros_emulator.request import Call, Reply

_SHOWN_LIMIT = 60 * 1024
_CHUNK_LIMIT = 32768
_TYPES = {"rsc": "script", "backup": "backup", "npk": "package"}
#: Writing files needs ``ftp``; MikroTik's manual gives that policy the right to write and erase files.
_NEEDS = dict.fromkeys(("add", "set", "remove"), frozenset({"ftp"}))


def _type_of_file(name: str) -> str:
    if name.endswith("/"):
        return "directory"
    suffix = name.rpartition(".")[2] if "." in name else ""
    return _TYPES.get(suffix, f".{suffix} file" if suffix else "file")


def _list_rows(device: EmulatedDevice) -> Iterator[Values]:
    for name in device.files.names():
        kind = _type_of_file(name)
        row = {".id": spell_id(device.files.number(name)), "name": name.rstrip("/"), "type": kind}
        if kind != "directory":
            data = device.files.read(name)
            row["size"] = str(len(data))
            if len(data) <= _SHOWN_LIMIT and kind != "backup":
                row["contents"] = data.decode("utf-8", "surrogateescape")
        moment = device.files.modified(name).astimezone(device.clock.zone)
        yield row | {"last-modified": clock.spell(moment)}


def _find_file(device: EmulatedDevice, wanted: str) -> str:
    """The file that a name or an id means."""
    for name in device.files.names():
        if wanted in (name, name.rstrip("/"), spell_id(device.files.number(name))):
            return name
    raise no_such_item()


def _check_arguments(call: Call, *allowed: str) -> Values:
    given = call.sentence.attributes
    for name in given:
        if name not in allowed:
            raise unknown_parameter(name)
    return given


def _encode_text(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _add_file(call: Call) -> Reply:
    given = _check_arguments(call, "name", "contents", "type")
    name = given.get("name")
    if not name:
        raise missing("name")
    kind = Enum(("file", "directory")).parse("type", given.get("type", "file"))
    if any(name == known.rstrip("/") for known in call.device.files.names()):
        raise failure("already have file with such name")
    call.device.files.write(f"{name}/" if kind == "directory" else name, _encode_text(given.get("contents", "")))
    return Reply(ret=spell_id(call.device.files.number(f"{name}/" if kind == "directory" else name)))


def _set_file(call: Call) -> Reply:
    given = _check_arguments(call, "numbers", ".id", "contents", "name")
    for wanted in _wanted_names(given):
        name = _find_file(call.device, wanted)
        if name.endswith("/"):
            raise failure("is a directory")
        data = _encode_text(given["contents"]) if "contents" in given else call.device.files.read(name)
        if given.get("name", name) != name:
            call.device.files.remove(name)
        call.device.files.write(given.get("name", name), data)
    return Reply()


def _remove_files(call: Call) -> Reply:
    given = _check_arguments(call, "numbers", ".id")
    for name in [_find_file(call.device, wanted) for wanted in _wanted_names(given)]:
        call.device.files.remove(name)
    return Reply()


def _wanted_names(given: Values) -> list[str]:
    numbers = given.get("numbers") or given.get(".id")
    if not numbers:
        raise missing(".id")
    return [name for name in numbers.split(",") if name]


def _read_piece(call: Call) -> Reply:
    """Give a piece of a file. Past its end the piece is empty (inferred)."""
    given = _check_arguments(call, "file", "chunk-size", "offset", "as-value")
    if not given.get("file"):
        raise missing("file")
    size = int(Integer(1, _CHUNK_LIMIT).parse("chunk-size", given.get("chunk-size", str(_CHUNK_LIMIT))))
    offset = int(Integer().parse("offset", given.get("offset", "0")))
    name = _find_file(call.device, given["file"])
    if name.endswith("/"):
        raise TrapError("failure: is a directory")
    piece = call.device.files.read(name)[offset : offset + size]
    return Reply(rows=[{"data": piece.decode("utf-8", "surrogateescape")}])


FILE = EmulatedMenu(
    "/file",
    verbs=READ,
    named_by="name",
    rows=_list_rows,
    actions={"add": _add_file, "set": _set_file, "remove": _remove_files, "read": _read_piece},
    needs=_NEEDS,
)
