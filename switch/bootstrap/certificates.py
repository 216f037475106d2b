"""Choice of the certificate of a switch for its API, and whether one has to be created first. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from core.routeros.errors import UnreadableError
from core.routeros.menus import SERVICE, Row, Sentence
from core.routeros.reading import SwitchReading
from switch.bootstrap.menus import CERTIFICATE, CERTIFICATE_NAME, PLACEHOLDER
from switch.flags import read_flag

_STRONG = {"2048", "4096", "8192", "prime256v1", "secp384r1", "secp521r1"}
"""Sizes of keys that RouterOS makes and that are held safe; an elliptic curve goes by its name."""

SIZE = "2048"
DAYS = 3650


@dataclass(frozen=True)
class Choice:
    """The certificate by its name. `fingerprint` is "" for one that is to be made; `template` is the .id of
    what an earlier run left to be signed, "" for none."""

    name: str
    fingerprint: str = ""
    template: str = ""


def choose(reading: SwitchReading, pinned: str) -> Choice:
    """Choose the pinned one if the switch has it, else the one that api-ssl presents now, else one we created, else a
    new one.

    The pinned one was approved when it was pinned. Any other is only chosen when it is fit: with its private key,
    strong, meant for servers, neither expired nor revoked. Raises UnreadableError.
    """
    rows = {key[0]: row for key, row in reading.by_key(CERTIFICATE).items()}
    fit = {name: fingerprint(row) for name, row in rows.items() if _is_fit(row)}
    shown = reading.by_key(SERVICE).get(("api-ssl",), {}).get("certificate", "none")
    for name, row in rows.items():
        if fingerprint(row) == pinned and read_flag(CERTIFICATE, row, "private-key"):
            return Choice(name, pinned)
    for name in (shown, *_candidate_names(len(rows))):
        if name in fit:
            return Choice(name, fit[name])
    for name in _candidate_names(len(rows) + 1):
        if name not in rows:
            return Choice(name)
        if not fingerprint(rows[name]) and _is_strong(rows[name]):
            return Choice(name, template=rows[name][".id"])
    raise UnreadableError(f"{CERTIFICATE.path} leaves no name free")


def fingerprint(row: Row) -> str:
    """SHA-256 of a certificate (DER) as 64 hex digits by the switch's own word; "" for one not signed yet."""
    found = row.get("fingerprint", "").replace(":", "").lower()
    return found if re.fullmatch(r"[0-9a-f]{64}", found) and found != PLACEHOLDER else ""


def template(name: str, common_name: str, address: str) -> Sentence:
    """Return the sentence that creates a template: a key of 2048 bits, ten years, for servers only.

    It is RSA, which every RouterOS service accepts. Ten years, because only the pinned fingerprint authenticates it and
    a new one has to be pinned by hand.
    """
    return (
        f"{CERTIFICATE.path}/add",
        f"=name={name}",
        f"=common-name={common_name}",
        f"=subject-alt-name=IP:{address}",
        f"=key-size={SIZE}",
        "=digest-algorithm=sha256",
        f"=days-valid={DAYS}",
        "=key-usage=digital-signature,key-encipherment,tls-server",
    )


def sign(name: str) -> Sentence:
    """The sentence that makes key and certificate of a template; without a CA it is self-signed (reported
    for RouterOS 7 over REST; the argument's name: command tree)."""
    return (f"{CERTIFICATE.path}/sign", f"=number={name}")


def _candidate_names(most: int) -> Iterator[str]:
    for number in count(1):
        if number > most:
            return
        yield CERTIFICATE_NAME if number == 1 else f"{CERTIFICATE_NAME}-{number}"


def _is_fit(row: Row) -> bool:
    flags = (
        read_flag(CERTIFICATE, row, "private-key"),
        not read_flag(CERTIFICATE, row, "expired"),
        not read_flag(CERTIFICATE, row, "revoked"),
    )
    return bool(fingerprint(row)) and all(flags) and _is_strong(row)


def _is_strong(row: Row) -> bool:
    return row.get("key-size") in _STRONG and "tls-server" in row.get("key-usage", "").split(",")
