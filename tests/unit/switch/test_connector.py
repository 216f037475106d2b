"""A switch as a host of pyinfra: what it needs, how a sentence goes out, and what an error leaves behind."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import ConnectError, FactProcessError

from core.model.secrets import SecretRef
from core.routeros import connector, pyinfra_facts
from core.routeros.connector import RouterOSConnector
from core.routeros.errors import SentenceError, SessionError, SwitchError
from core.routeros.session import SessionConnection


@dataclass
class Session:
    """A session that gives one answer after another."""

    answers: list[list[dict[str, str]] | SwitchError]
    said: list[tuple[str, ...]] = field(default_factory=list)
    closed: bool = False

    def talk(self, *words: str) -> list[dict[str, str]]:
        self.said.append(words)
        answer = self.answers.pop(0)
        if isinstance(answer, SwitchError):
            self.closed = isinstance(answer, SessionError)
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


def connected(*answers: list[dict[str, str]] | SwitchError) -> tuple[RouterOSConnector, Session]:
    session = Session(list(answers))
    made = object.__new__(RouterOSConnector)
    made.line = SessionConnection(lambda: session, lambda _: None)  # type: ignore[arg-type, return-value]
    made.line.connect()
    made.host = SimpleNamespace(print_prefix="[crs812] ")  # type: ignore[assignment]
    return made, session


def run(made: RouterOSConnector, text: str, **printed: bool) -> tuple[bool, list[str], list[str]]:
    shown = {"print_output": False, "print_input": False} | printed
    fine, output = made.run_shell_command(StringCommand(text), **shown)
    return fine, output.stdout_lines, output.stderr_lines


def test_rows_are_one_line_of_json_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "echo", lambda *_, **__: pytest.fail("printed"))
    made, session = connected([{"name": "é\udcff"}, {"a": "1"}])
    assert run(made, "/x/print ?a=b") == (True, ['{"name": "é\\udcff"}', '{"a": "1"}'], [])
    assert session.said == [("/x/print", "?a=b")]


def test_what_is_sent_and_answered_is_printed_when_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[tuple[str, bool]] = []
    monkeypatch.setattr(connector, "echo", lambda text, err: printed.append((text, err)))
    made, _ = connected([{"a": "1"}], [])
    run(made, "/x/print", print_output=True)
    run(made, "/y/print", print_input=True)
    assert printed == [('[crs812] {"a": "1"}', True), ("[crs812] >>> /y/print", True)]


def test_a_sentence_that_is_refused_is_an_error_and_the_session_lives() -> None:
    made, session = connected(SentenceError("no such command"), [])
    assert run(made, "/x/print") == (False, [], ["/x/print: no such command"])
    assert run(made, "/x/print")[0]
    assert not session.closed


def test_words_that_are_not_a_sentence_are_not_sent() -> None:
    made, session = connected()
    fine, _, (reason,) = run(made, "print")
    assert not fine
    assert reason.startswith("print: ")
    assert session.said == []


def test_files_go_by_sentences() -> None:
    made, _ = connected()
    with pytest.raises(OSError, match=r"^files cannot be put on a switch through its API; use API sentences$"):
        made.put_file("x", "y")
    with pytest.raises(OSError, match=r"^files cannot be fetched from a switch as from a node; use /file/read$"):
        made.get_file("x", None)  # type: ignore[arg-type]


def test_a_switch_is_named_by_its_connector_and_needs_all_of_its_data() -> None:
    assert list(RouterOSConnector.make_names_data("crs812")) == [("@routeros/crs812", {}, ["@routeros"])]
    data = dict.fromkeys(RouterOSConnector.data_meta, "x") | {"routeros_user": None, "routeros_port": None}
    made = object.__new__(RouterOSConnector)
    made.data = data
    with pytest.raises(
        ConnectError,
        match=r"^host data routeros_port, routeros_user missing; is the switch in the inventory\?$",
    ):
        made.connect()


@pytest.mark.parametrize(("tls", "pinned"), [(False, None), ("ab" * 32, "ab" * 32)])
def test_a_connection_has_the_data_of_its_host(
    monkeypatch: pytest.MonkeyPatch, tls: object, pinned: str | None
) -> None:
    opened: list[tuple[Any, ...]] = []

    def session(*place: object, tls: object, user: str, password: Any) -> Session:
        opened.append((*place, tls, user, password.get_secret_value()))
        return Session([])

    monkeypatch.setattr(connector, "ApiSession", session)
    monkeypatch.setenv("SWITCH", "hunter2")
    made = object.__new__(RouterOSConnector)
    made.host = SimpleNamespace(log=lambda _: None)  # type: ignore[assignment]
    made.data = {
        "routeros_address": "10.77.0.2",
        "routeros_port": 8729,
        "routeros_user": "ops",
        "routeros_password": SecretRef(env="SWITCH"),
        "routeros_tls_sha256": tls,
    }
    made.connect()
    assert opened == [("10.77.0.2", 8729, pinned, "ops", "hunter2")]
    made.disconnect()
    monkeypatch.delenv("SWITCH")
    with pytest.raises(ConnectError, match=r"^environment variable SWITCH is not set; export it before the run$"):
        made.connect()


@pytest.mark.parametrize("line", ["[1]", "x" * 90, "7"])
def test_a_line_that_is_not_a_row_is_an_error(line: str) -> None:
    words = re.escape(f"not a row: {line[:80]!r}")
    with pytest.raises(SwitchError, match=f"^{words}$"):
        pyinfra_facts.rows(['{"a": "1"}', line])
    with pytest.raises(FactProcessError, match=f"^{words}$"):
        pyinfra_facts.Rows().process([line])
    assert pyinfra_facts.Rows().process(['{"a": "1"}']) == [{"a": "1"}]


@pytest.mark.parametrize(
    ("fields", "text"),
    [("", "/x/print"), ("name,mtu", "/x/print =.proplist=name,mtu"), ("a b", "/x/print '=.proplist=a b'")],
)
def test_a_fact_asks_for_all_fields_or_those_that_are_named(fields: str, text: str) -> None:
    assert pyinfra_facts.Rows().command("/x", fields).get_raw_value() == text


@pytest.mark.parametrize(
    ("fine", "lines", "errors", "found"),
    [
        (True, ['{"a": "1"}'], [], [{"a": "1"}]),
        (False, [], ["a", "b"], "a; b"),
        (False, [], [], "/x/print failed"),
    ],
)
def test_a_menu_that_cannot_be_read_is_unknown(fine: bool, lines: list[str], errors: list[str], found: object) -> None:
    output = SimpleNamespace(stdout_lines=lines, stderr_lines=errors)
    host: Any = SimpleNamespace(
        state=SimpleNamespace(print_fact_output=1, print_fact_input=2),
        run_shell_command=lambda command, print_output, print_input: (
            fine and (command.get_raw_value(), print_output, print_input) == ("/x/print '?a=b c'", 1, 2),
            output,
        ),
    )
    ask = pyinfra_facts.host_client(host)
    if isinstance(found, str):
        with pytest.raises(SwitchError, match=f"^{found}$"):
            ask(("/x/print", "?a=b c"))
    else:
        assert ask(("/x/print", "?a=b c")) == found


TAKE = ("/safe-mode/take",)
HELD = [{"enabled": "true", "current": "true"}]


@pytest.mark.parametrize(
    ("answers", "words", "closed"),
    [
        ([HELD, []], "; all changes since safe mode was taken are reverted", False),
        ([SessionError("x")], "; the connection broke: the switch reverts what was not released", True),
        (
            [[{"enabled": "maybe", "current": "true"}]],
            "; who holds safe mode is unknown, so whether later writes are reverted by it is, too",
            False,
        ),
        (
            [[{"enabled": "true", "current": "false"}]],
            "; another session has taken safe mode, so later writes are not reverted by it",
            False,
        ),
        (
            [[{"enabled": "false", "current": "false"}]],
            "; safe mode has ended by itself, so what was written under it is not reverted by it",
            False,
        ),
        (
            [HELD, SentenceError("no")],
            "; unroll failed (no), the connection was closed for the switch to take everything back",
            True,
        ),
    ],
)
def test_an_error_under_safe_mode_says_what_becomes_of_the_changes(
    answers: list[Any], words: str, closed: bool
) -> None:
    made, session = connected([], SentenceError("refused"), *answers)
    assert run(made, " ".join(TAKE))[0]
    fine, _, errors = run(made, "/x/set =a=b")
    assert (fine, errors) == (False, [f"/x/set: refused{words}"])
    assert session.closed == closed
    assert made.line.back_out() == ""


def test_a_session_that_is_gone_needs_no_question_about_safe_mode() -> None:
    made, session = connected([], SessionError("broke"))
    run(made, " ".join(TAKE))
    assert run(made, "/x/set =a=b")[2] == [
        "/x/set: broke; the connection is gone: the switch reverts what was not released"
    ]
    assert len(session.said) == 2
