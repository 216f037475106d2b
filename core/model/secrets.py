"""A secret by reference: where to find it, never what it is."""

from __future__ import annotations

import os
import select
import stat
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, SecretStr, StrictStr, model_validator

from core.model.fields import Environment, FilePath, NotEmpty, invalid
from core.util.scrub import declare

_LONGEST = 64 * 1024
_SECONDS = 60
_FORMS = "name where it is kept: {env: VARIABLE}, {file: path} or {command: [program, argument]}"


class SecretError(Exception):
    """A secret could not be fetched. The message names the reference, never the value."""


class SecretRef(BaseModel):
    """Where a secret is kept: exactly one of an environment variable, a file, or a command that prints it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    env: Annotated[Environment | None, NotEmpty] = None
    file: Annotated[FilePath | None, NotEmpty] = None
    command: Annotated[tuple[StrictStr, ...] | None, NotEmpty] = None

    @model_validator(mode="before")
    @classmethod
    def _one_reference(cls, value: object) -> object:
        if isinstance(value, cls):
            return value
        if not isinstance(value, dict):
            raise invalid("a password does not belong in this file", _FORMS)
        if len(value) != 1 or next(iter(value)) not in cls.model_fields:
            raise invalid("is not one reference to a password", _FORMS)
        if value.get("command") == []:
            raise invalid("names no program", _FORMS)
        return value

    def __str__(self) -> str:
        if self.env is not None:
            return f"environment variable {self.env}"
        if self.file is not None:
            return f"file {self.file}"
        return f"command {(self.command or ('',))[0]}"

    def to_json(self) -> str:
        """Return the reference, which pyinfra shows as host data."""
        return str(self)

    def resolve(self) -> SecretStr:
        """Fetch the secret now, without its last line break. Raises SecretError when it cannot be had."""
        if self.env is not None:
            raw = os.environb.get(self.env.encode())
            if raw is None:
                raise SecretError(f"{self} is not set; export it before the run")
            text = _decode_password(raw, str(self))
        elif self.file is not None:
            text = _decode_password(_read_private(self.file, str(self)), str(self))
        else:
            text = _decode_password(_command_output(self.command or (), str(self)), str(self))
        text = text.removesuffix("\n").removesuffix("\r")
        if not text:
            raise SecretError(f"{self} holds nothing; put the password there")
        declare(text)
        return SecretStr(text)


# Below, no SecretError is raised while handling an error that carries the secret's bytes.


def _decode_password(raw: bytes, reference: str) -> str:
    if len(raw) > _LONGEST:
        raise SecretError(f"{reference} gives more than {_LONGEST} bytes; that is not a password")
    with suppress(UnicodeDecodeError):
        return raw.decode()
    raise SecretError(f"{reference} does not give UTF-8 text; that is not a password")


def _read_private(path: Path, reference: str) -> bytes:
    """The file's bytes, checked on the opened file so that it cannot be swapped in between."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise SecretError(f"{reference} is not a file; check the path")
            if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise SecretError(f"{reference} is open to others; run chmod 600 on it")
            return os.read(handle, _LONGEST + 1)
        finally:
            os.close(handle)
    except OSError as error:
        raise SecretError(f"{reference} cannot be read: {error.strerror}; check the path") from None


def _command_output(command: tuple[str, ...], reference: str) -> bytes:
    """Return the output of `command`; its error output is dropped because it may quote the secret."""
    quiet = subprocess.DEVNULL
    try:
        process = subprocess.Popen(command, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a usable command line"
        raise SecretError(f"{reference} cannot be started: {reason}; check its name") from None
    with process:
        try:
            raw, code = _read_output(process, process.stdout.fileno() if process.stdout else -1)
        finally:
            process.kill()
    if len(raw) > _LONGEST or code == 0:
        return raw
    fault = f"did not end within {_SECONDS} s" if code is None else f"ended with {code}"
    raise SecretError(f"{reference} {fault}; run it by hand to see why")


def _read_output(process: subprocess.Popen[bytes], pipe: int) -> tuple[bytes, int | None]:
    """Return the output of a process, at most one byte more than a secret has, and its exit status; None if it has not
    ended in time, or if its output was too long to wait for its end.
    """
    until, raw = time.monotonic() + _SECONDS, b""
    while (left := until - time.monotonic()) > 0 and len(raw) <= _LONGEST:
        if not select.select([pipe], [], [], left)[0]:
            break
        part = os.read(pipe, _LONGEST + 1 - len(raw))
        if not part:
            with suppress(subprocess.TimeoutExpired):
                return raw, process.wait(max(until - time.monotonic(), 0))
            break
        raw += part
    return raw, None
