"""How the journal of a node leaves it: the files of a sender, of a receiver, and of their certificates. Pure."""

from __future__ import annotations

from core.model import Node, Rack
from core.model.fields import mebibytes
from core.util.managed_file import ManagedFile
from roles.blackbox import stream_routes
from roles.blackbox.desired import settings_file
from roles.blackbox.options import BlackboxOptions
from roles.blackbox.receiver import Receiver

FOLDER = "/etc/sparkrack/blackbox"
KEY = f"{FOLDER}/node.key"
"""Made on the node; only root reads it. systemd hands copies to the two services as credentials."""
CERTIFICATE = f"{FOLDER}/node.pem"
AUTHORITY = f"{FOLDER}/ca.pem"

PACKAGE = "systemd-journal-remote"
UPLOAD = "systemd-journal-upload.service"
UPLOAD_SETTINGS = "/etc/systemd/journal-upload.conf.d/zz-sparkrack.conf"
UPLOAD_DROPIN = f"/etc/systemd/system/{UPLOAD}.d/zz-sparkrack.conf"
RECEIVE = "sparkrack-journal-receive.service"
PROGRAM = "/usr/local/lib/sparkrack/journal_receiver.py"
RECEIVED = "/var/log/journal/remote"
PACKAGE_SOCKET = "systemd-journal-remote.socket"
"""The package's own receiver: it listens at all addresses."""

SENDER_PATHS = (UPLOAD_SETTINGS, UPLOAD_DROPIN)
_RECEIVER = Receiver(
    PROGRAM,
    RECEIVE,
    "files/journal_receiver.py",
    "templates/sparkrack-journal-receive.service",
    stream_routes.JOURNAL_PORT,
    RECEIVED,
)
RECEIVER_PATHS = _RECEIVER.paths
PUBLIC_PATHS = (CERTIFICATE, AUTHORITY)
UNITS = (UPLOAD, RECEIVE, PACKAGE_SOCKET)
_CREDENTIALS = ("node.key", "node.pem", "ca.pem")


def encrypted(rack: Rack) -> bool:
    """Return whether the nodes need certificates."""
    return rack.options(BlackboxOptions).remote == "tls"


def receiver(rack: Rack, node: Node) -> Node | None:
    """Return the node to which the journal of a node goes; None if it stays."""
    return stream_routes.receiver(rack, node) if rack.options(BlackboxOptions).remote else None


def senders(rack: Rack, node: Node) -> list[Node]:
    """Return the nodes whose journals come to a node."""
    return stream_routes.senders(rack, node) if rack.options(BlackboxOptions).remote else []


# claim: blackbox.remote-journal
def upload_settings(rack: Rack, to: Node) -> dict[str, str]:
    """Return the settings of systemd-journal-upload by key."""
    place = f"{stream_routes.address(to)}:{stream_routes.JOURNAL_PORT}"
    if not encrypted(rack):
        return {"URL": f"http://{place}"}
    credentials = f"/run/credentials/{UPLOAD}"
    return {
        "URL": f"https://{place}",
        "ServerKeyFile": f"{credentials}/node.key",
        "ServerCertificateFile": f"{credentials}/node.pem",
        "TrustedCertificateFile": f"{credentials}/ca.pem",
    }


def sender_files(rack: Rack, to: Node) -> list[ManagedFile]:
    """Return the files of a node whose journal goes to another one.

    The package's unit stays failed after five attempts in 10 s; the receiver may be away for days.
    """
    settings = [f"{key}={value}" for key, value in upload_settings(rack, to).items()]
    unit = ["[Unit]", "StartLimitIntervalSec=0", "[Service]", "Restart=always", "RestartSec=10"]
    if encrypted(rack):
        unit += _load_credentials()
    return [settings_file(UPLOAD_SETTINGS, rack, "[Upload]", *settings), settings_file(UPLOAD_DROPIN, rack, *unit)]


def receiver_files(rack: Rack, node: Node) -> list[ManagedFile]:
    """Return the files of a node that receives journals."""
    tls = encrypted(rack)
    return _RECEIVER.files(
        rack,
        node,
        senders(rack, node),
        mebibytes(rack.options(BlackboxOptions).journal.keep),
        *([f"--tls=/run/credentials/{RECEIVE}"] if tls else []),
        credentials="".join(f"{line}\n" for line in _load_credentials()) if tls else "",
    )


def _load_credentials() -> list[str]:
    return [f"LoadCredential={name}:{FOLDER}/{name}" for name in _CREDENTIALS]
