"""A node as files, a stand-in for its nvidia-smi, certificates of a rack, and the recorder run on them."""

from __future__ import annotations

import datetime
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.unit.ops.shells import write

PROGRAM = Path(__file__).parents[3] / "roles/blackbox/files/recorder.py"
_before = sys.dont_write_bytecode
sys.dont_write_bytecode = True
sys.path.append(str(PROGRAM.parent))
import recorder  # noqa: E402

sys.path.remove(str(PROGRAM.parent))
sys.dont_write_bytecode = _before

LIMIT = 60.0
"""Seconds for anything that a busy machine may do late."""
BOOT = "0123456789abcdef0123456789abcdef"
LINE = "2177, 57.31, 61, 13, 42, P0, 0x0000000000000024"
LIVING = f"""
while True:
    print("{LINE}", flush=True)
    time.sleep(period)
"""

__all__ = ["PROGRAM", "recorder"]


def node(root: Path) -> Path:
    """The files of a node that the recorder reads."""
    write(root, "/proc/meminfo", "MemTotal:       125829120 kB\nMemFree:  1 kB\nMemAvailable:   104857600 kB\n")
    write(
        root, "/proc/pressure/memory", "some avg10=1.50 avg60=0.10 avg300=0 total=1\nfull avg10=0.25 avg60=0 total=0\n"
    )
    write(root, "/proc/loadavg", "0.50 0.40 0.30 1/234 5678\n")
    write(root, "/proc/sys/kernel/random/boot_id", "01234567-89ab-cdef-0123-456789abcdef\n")
    write(root, "/dev/kmsg")
    for number, (kind, value) in enumerate((("acpitz", 61000), ("acpitz", 62500), ("wifi", 40000))):
        write(root, f"/sys/class/thermal/thermal_zone{number}/type", f"{kind}\n")
        write(root, f"/sys/class/thermal/thermal_zone{number}/temp", f"{value}\n")
    for name, carrier in (("enp1s0f0np0", "1"), ("enP7s7", "0"), ("veth12", "1"), ("lo", "1")):
        write(root, f"/sys/class/net/{name}/carrier", f"{carrier}\n")
        if name.startswith("enp"):
            (root / f"sys/class/net/{name}/device").mkdir()
    return root


def standin(folder: Path, body: str = LIVING) -> Path:
    """A stand-in for nvidia-smi. `body`: Python; `period` is what -lms says, in seconds, and `query` the fields."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(
        f"#!{sys.executable} -IS\nimport os, sys, time\n"
        "period = int(sys.argv[sys.argv.index('-lms') + 1]) / 1000\n"
        "query = next(word[12:] for word in sys.argv if word.startswith('--query-gpu='))\n"
        f"{body}"
    )
    program.chmod(0o755)
    return program


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    """The first true value of a condition."""
    end = time.monotonic() + LIMIT
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not happen within {LIMIT:g} s"
        time.sleep(0.05)
    return found


@contextmanager
def program(*arguments: object, errors: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """The recorder as a process, which is killed at the end. `errors`: the file of what it logs."""
    with (errors or Path(os.devnull)).open("ab") as file:
        started = subprocess.Popen([sys.executable, "-B", PROGRAM, *map(str, arguments)], stderr=file)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


@contextmanager
def recording(folder: Path, *arguments: object, body: str = LIVING) -> Iterator[subprocess.Popen[bytes]]:
    """A recorder of the node in the folder `root`, 4 samples a second."""
    smi = standin(folder / "bin", body)
    given = ("record", "--root", folder / "root", "--ring", folder / "ring", "--node", "spark1", "--rate", 4)
    with program(*given, "--nvidia-smi", smi, *arguments, errors=folder / "log") as started:
        yield started


def dumped(ring: Path) -> list[dict[str, Any]]:
    """The records that `dump` prints; none while there is no ring."""
    if not ring.exists():
        return []
    done = subprocess.run(
        [sys.executable, "-B", PROGRAM, "dump", ring], capture_output=True, text=True, timeout=LIMIT, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def sampled(ring: Path, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """The first newest record of which a condition holds."""

    def last() -> dict[str, Any] | None:
        found = recorder.read_ring(ring)[0] if ring.exists() else []
        newest = recorder.shown(found[-1]) if found else None
        return newest if newest is not None and condition(newest) else None

    found: dict[str, Any] = until(last, "a sample of that kind")
    return found


class Authority:
    """The authority of a rack, and certificates of its nodes, as files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rack")])
        self.file = folder / "ca.pem"
        self.file.write_bytes(self._sign_certificate(self._subject, self._key, is_authority=True))

    def _sign_certificate(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)

    def node(self, *names: str) -> tuple[Path, Path, Path]:
        """The arguments of --tls of a node whose certificate has these common names."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
        files = (self.folder / f"{'+'.join(names)}.pem", self.folder / f"{'+'.join(names)}.key")
        files[0].write_bytes(self._sign_certificate(subject, key, is_authority=False))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        files[1].chmod(0o600)
        return self.file, *files


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
