"""A secret of whatever bytes is in no output, no report, no file and no argument list, whatever becomes of the run."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote_from_bytes

import pytest

from tests.emulator.emulator_process import Crs812Process, stop_all
from tests.emulator.fork_server import ForkedProgram
from tests.emulator.restore_fixtures import Restorer
from tests.emulator.transactions import READER_PASSWORD

HEAD, TAIL = b"Xq7Zp2Lm9V", b"kR4tWs8Hd3"
SECRETS = {
    "not UTF-8": HEAD + b"\xe9" + TAIL,
    "empty": b"",
    "longer than any": (HEAD + TAIL) * 3500,
    "of several lines": HEAD + b"\n" + TAIL + b"\n\n" + HEAD,
}
SAID = {
    "not UTF-8": ("does not give UTF-8 text; that is not a password",),
    "empty": ("holds nothing; put the password there",),
    "longer than any": ("gives more than 65536 bytes; that is not a password",),
    "of several lines": ("invalid user name or password", "login as sparkrack-reader over REST refused"),
}
NEVER_SENT = ("plan", "status", "verify")
"""What is enough to see of a secret that is refused for its length."""
VARIABLES = ("CRS812_PASSWORD", READER_PASSWORD, "TEST_SNMP_A", "TEST_SNMP_E")
LIMIT = ("--limit", "crs812")
COMMANDS: dict[str, tuple[str, ...]] = {
    "plan": ("plan", *LIMIT, "--out", "{out}/plan"),
    "apply": ("apply", *LIMIT, "-y", "--json"),
    "drift": ("drift", *LIMIT, "--markdown", "--prom", "{out}/drift.prom"),
    "drift as JSON": ("drift", *LIMIT, "--json"),
    "verify": ("verify", *LIMIT, "--json", "--html", "{out}/report.html", "--junit", "{out}/verify.xml"),
    "status": ("status", *LIMIT, "--json"),
    "topology": ("topology", "--seen", *LIMIT),
    "accept": ("accept", "--limit", "switches", "--bundle", "{out}/bundle.tar.gz"),
    "bootstrap": (
        *("bootstrap", "switch", "--address", "127.0.0.1", "--api-port", "{port}", "--timeout", "5"),
        *("--password-env", "CRS812_PASSWORD", "--replace-fingerprint"),
    ),
    "password": ("switch", "password", "--new-file", "{out}/new"),
    "restore": ("switch", "restore", "--last", "--no-nodes", "--no-lock", "-y"),
}
PYINFRA = ("inventory.py", "deploy.py", "-y", "-vvv", "--debug", "--limit", "@routeros/crs812")


def pieces(secret: bytes) -> set[bytes]:
    """Six characters of it anywhere, as they are and as Python, a URL and base64 spell them."""
    text = secret[:64].decode(errors="surrogateescape")
    spelled = [secret[:64], repr(text).encode(), repr(secret[:64]).encode(), quote_from_bytes(secret[:64]).encode()]
    whole = {word[at : at + 6] for word in spelled for at in range(len(word) - 5)}
    for at in range(len(secret[:64]) - 5):
        # Six bytes are eight characters of base64 in one of three positions; its first and last share bits.
        whole |= {base64.b64encode(b"\0" * lead + secret[at : at + 6])[lead + 1 : lead + 7] for lead in range(3)}
    return whole


class Watch(threading.Thread):
    """Reads the arguments of all processes, again and again."""

    def __init__(self, canaries: set[bytes]) -> None:
        super().__init__(daemon=True)
        self.canaries, self.found, self.over = canaries, set[bytes](), threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.02):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    text = path.read_bytes()
                except OSError:
                    continue  # it has ended
                self.found |= {text for canary in self.canaries if canary in text}


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restorer]:
    """A switch as declared with every key, and a backup of it."""
    folder = tmp_path_factory.mktemp("secrets")
    with pytest.MonkeyPatch.context() as patch:
        for name in VARIABLES:
            patch.setenv(name, "")
        emulator = Crs812Process(folder / "switch", settle=0.05).start()
        (folder / "desk").mkdir()
        made = Restorer(
            folder / "desk", emulator, reader={"password": {"env": READER_PASSWORD}, "port": emulator.rest_port}
        )
        made.deploy()
        made.keep()
        yield made
        stop_all([emulator])


def run(workdir: Restorer, out: Path, program: str, *words: str, secrets: Mapping[str, bytes]) -> tuple[int, bytes]:
    """A command as a process of its own: its exit code, and all of its output."""
    environment: dict[str, str | bytes] = {**os.environ, **secrets, "RACK": str(workdir.folder / "rack.yaml")}
    environment |= {"XDG_STATE_HOME": str(workdir.folder / "state"), "PYINFRA_PROGRESS": "off", "COLUMNS": "200"}
    filled = [word.format(out=out, port=workdir.emulator.plain_port) for word in words]
    process = ForkedProgram(program, filled, env=environment)
    text, _ = process.communicate_bytes()
    assert process.returncode is not None
    return process.returncode, text


def files(*folders: Path) -> dict[Path, bytes]:
    """All files but those in which a switch keeps its secrets: of its saved state only the passwords of SNMP are left
    out.
    """
    found = [path for folder in folders for path in folder.rglob("*") if path.is_file() and path.name != "password"]
    kept = {path: path.read_bytes() for path in found}
    for path, data in kept.items():
        if path.name == "state.json":
            saved = json.loads(data)
            for row in saved["tables"]["/snmp/community"].values():
                del row["authentication-password"], row["encryption-password"]
            kept[path] = json.dumps(saved).encode()
    return kept


@pytest.mark.parametrize("kind", SECRETS)
def test_one_that_lets_no_one_in(workdir: Restorer, tmp_path: Path, kind: str) -> None:
    secret = SECRETS[kind]
    canaries = pieces(secret)
    watch = Watch(canaries)
    watch.start()
    printed = {}
    names = COMMANDS if kind in ("not UTF-8", "of several lines") else NEVER_SENT
    for name in names:
        words = COMMANDS[name]
        printed[name] = run(workdir, tmp_path, "sparkrack", *words, secrets=dict.fromkeys(VARIABLES, secret))
    printed["pyinfra"] = run(workdir, tmp_path, "pyinfra", *PYINFRA, secrets=dict.fromkeys(VARIABLES, secret))
    watch.over.set()
    watch.join()
    for name, (code, text) in printed.items():
        shown = text.decode(errors="backslashreplace")
        assert code == 1, f"{name}: {shown}"
        assert "Traceback" not in shown, f"{name}: {shown}"
        assert not [canary for canary in canaries if canary in text], f"{name}: {shown}"
        if name not in ("apply", "bootstrap"):  # they are stopped before, or say more
            assert any(reported in shown for reported in SAID[kind]), f"{name}: {shown}"
    assert not watch.found
    kept = files(tmp_path, workdir.folder, workdir.emulator.folder)
    assert {path.suffix for path in kept} >= {".xml", ".html", ".json"}
    assert not [(path.name, canary) for path, data in kept.items() for canary in canaries if canary in data]


@pytest.mark.parametrize("kind", SECRETS)
def test_one_that_a_switch_is_given(workdir: Restorer, tmp_path: Path, kind: str) -> None:
    secret = SECRETS[kind]
    canaries = pieces(secret)
    with workdir.operator.open() as session:
        for row in session.talk("/user/print", "=.proplist=.id", "?name=sparkrack-reader"):
            session.talk("/user/remove", f"=.id={row['.id']}")
    secrets = dict.fromkeys(VARIABLES, secret) | {"CRS812_PASSWORD": workdir.emulator.password.encode()}
    code, text = run(workdir, tmp_path, "pyinfra", *PYINFRA, secrets=secrets)
    shown = text.decode(errors="backslashreplace")
    assert not [canary for canary in canaries if canary in text], shown
    if kind == "of several lines":
        assert code == 0, shown
    else:
        assert code == 1, shown
        assert SAID[kind][0] in shown, shown
    assert "Traceback" not in shown
    kept = files(tmp_path, workdir.folder, workdir.emulator.folder)
    assert not [(path.name, canary) for path, data in kept.items() for canary in canaries if canary in data]
