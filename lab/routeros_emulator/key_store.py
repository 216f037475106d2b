"""The unit's certificates and private keys: separate files beside the saved state, for its owner only."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from lab.routeros_emulator.certificate_authority import Identity, read_identity


class KeyStoreError(Exception):
    """A kept certificate or its key cannot be read; the text names the file."""


class KeyStore:
    """Identities by the id of their row in /certificate.

    Each is one file, mode 0600, in a folder, mode 0700. What was put in is there at once and stays: no
    safe mode and no undo takes it back.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: dict[int, Identity] = {}

    def load(self) -> None:
        """Read what an earlier run left. Raises KeyStoreError."""
        for path in sorted(self._folder.glob("*.pem")):
            try:
                self._kept[int(path.stem, 16)] = read_identity(path.read_bytes())
            except (OSError, ValueError) as error:
                raise KeyStoreError(f"{path}: not a certificate with its key ({error}); start with --factory") from None

    def get(self, number: int) -> Identity | None:
        """The identity of a row, None for a template or an imported certificate without key."""
        return self._kept.get(number)

    def put(self, number: int, identity: Identity) -> None:
        """Keep an identity. Raises OSError."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._path_of_key(number)
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(identity.pem())
        self._kept[number] = identity

    def drop(self, number: int) -> None:
        """Forget an identity and its key."""
        if self._kept.pop(number, None) is not None:
            self._path_of_key(number).unlink(missing_ok=True)

    def snapshot(self) -> dict[int, Identity]:
        """Return the current content, to ``restore`` later."""
        return dict(self._kept)

    def restore(self, kept: dict[int, Identity]) -> None:
        """Keep exactly what a snapshot holds."""
        for number in self._kept.keys() - kept.keys():
            self.drop(number)
        for number, identity in kept.items():
            if self._kept.get(number) is not identity:
                self.put(number, identity)

    def clear(self) -> None:
        """Forget everything, files of an earlier run included."""
        self._kept.clear()
        for path in self._folder.glob("*.pem"):
            path.unlink()

    def context(self, number: int, *, only_1_2: bool) -> ssl.SSLContext:
        """A server's TLS with that identity; KeyError when there is none."""
        if number not in self._kept:
            raise KeyError(number)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if only_1_2:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._path_of_key(number))
        return context

    def _path_of_key(self, number: int) -> Path:
        return self._folder / f"{number:X}.pem"
