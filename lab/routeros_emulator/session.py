"""One API connection: login, commands with and without tags, cancel, and injected faults."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import suppress

from lab.routeros_emulator.codec import ProtocolError, encode_sentence, read_sentence
from lab.routeros_emulator.connection import EmulatedConnection
from lab.routeros_emulator.dispatch import dispatch, is_write
from lab.routeros_emulator.errors import INTERRUPTED, TrapError
from lab.routeros_emulator.faults import InjectedFault
from lab.routeros_emulator.login import authenticate
from lab.routeros_emulator.request import Reply, RequestClient, Stream
from lab.routeros_emulator.sentence import Sentence, mask, parse

#: RouterOS answers a print that found nothing with ``!empty`` from this version on.
_EMPTY_SINCE = (7, 18)
PART_BYTES = 8192
"""An answer is sent in parts of at least so many bytes, each of whole sentences: clients that lose the words of a
sentence between two reads get small answers whole.
"""


class HangupError(Exception):
    """The connection must be closed now; the final answer was sent."""


class EmulatedSession(EmulatedConnection):
    """Reads sentences until the peer leaves. Commands without a tag run one after another, tagged ones side
    by side, and a stream (monitor) never blocks what follows."""

    async def run(self) -> None:
        """Serve the connection to its end; never raises for what a peer does."""
        self._running: dict[asyncio.Task[None], str | None] = {}
        self._rows = bytearray()
        end = "closed by the peer"
        try:
            while True:
                if words := await read_sentence(self._reader):
                    await self._accept_sentence(parse(words))
        except HangupError as reason:
            end = str(reason)
        except ProtocolError as error:
            end = f"protocol error: {error}"
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            await self._close_session(end)

    async def _accept_sentence(self, sentence: Sentence) -> None:
        if sentence.command == "/login":
            self._log_in(sentence)
        elif self._client is None:
            self._send_fatal("not logged in", sentence)
        elif sentence.command == "/quit":
            self._send_fatal("session terminated on request", sentence)
        elif sentence.command == "/cancel":
            self._cancel_commands(sentence)
        elif sentence.tag is None and not _may_stream(sentence):
            await self._execute_sentence(sentence, self._client)
        else:
            task = asyncio.create_task(self._execute_guarded(sentence, self._client))
            self._running[task] = sentence.tag
            task.add_done_callback(lambda done: self._running.pop(done, None))
        await self._writer.drain()

    def _log_in(self, sentence: Sentence) -> None:
        given = sentence.attributes
        if not given:
            # The first step of the login before 6.43: a challenge. Clients that ask for it may log in with name and
            # password next; an answer to it is refused, as RouterOS 7 does.
            self._send_done(sentence, "session", ret=secrets.token_hex(16))
            return
        try:
            user = authenticate(self._device, given.get("name", ""), given.get("password", ""))
        except TrapError as trap:
            self._send_trap(sentence, trap)
            return
        if self._client is not None:
            self._device.left(self._client)
        now = self._device.clock.stamp()
        self._client = RequestClient(
            self._number, user["name"], user["group"], self._peer, self._service, now, port=self._port
        )
        self._device.clients[self._number] = self._client
        self._device.tell("system,info,account", f"user {user['name']} logged in from {self._peer} via api")
        self._send_done(sentence, "session")

    def _cancel_commands(self, sentence: Sentence) -> None:
        wanted = sentence.attributes.get("tag")
        for task, tag in list(self._running.items()):
            if wanted is None or tag == wanted:
                task.cancel()
        self._send_done(sentence, "session")

    async def _execute_guarded(self, sentence: Sentence, client: RequestClient) -> None:
        try:
            await self._execute_sentence(sentence, client)
        except asyncio.CancelledError:
            self._send_trap(sentence, TrapError("interrupted", INTERRUPTED))
        except (HangupError, OSError):
            self._writer.transport.abort()
        except Exception:
            # A fault of the emulator itself: better a lost connection than a client that waits for ever.
            self._writer.transport.abort()
            raise

    async def _execute_sentence(self, sentence: Sentence, client: RequestClient) -> None:
        fault = self._faults.strike(sentence.command, write=is_write(sentence.verb))
        if fault is not None and await self._apply_fault(fault, sentence, client):
            return
        try:
            reply = dispatch(self._device, client, sentence)
            if isinstance(reply, Reply):
                for row in reply.rows:
                    self._send_row(sentence, row)
                if reply.listing and not reply.rows and self._device.version >= _EMPTY_SINCE:
                    self._send_reply("!empty", sentence)
                self._send_done(sentence, ret=reply.ret)
            else:
                await self._stream_rows(sentence, reply)
        except TrapError as trap:
            self._send_trap(sentence, trap)

    async def _stream_rows(self, sentence: Sentence, stream: Stream) -> None:
        async for row in stream:
            self._send_row(sentence, row)
            self._flush_rows()
            await self._writer.drain()
        self._send_done(sentence)

    async def _apply_fault(self, fault: InjectedFault, sentence: Sentence, client: RequestClient) -> bool:
        """Apply a fault; True when the command ends with it."""
        if await self._goes_on_after(fault):
            return False
        if fault.kind == "ignore":
            self._send_done(sentence, result="ignored by fault")
            return True
        if fault.takes_effect:
            await self._carry_out(sentence, client)
        if fault.kind == "trap":
            self._send_trap(sentence, TrapError(fault.message))
            return True
        self._record_sentence(sentence, f"fault: {fault.kind}")
        if fault.kind == "hang":
            await self._hang_forever(sentence)
        if fault.kind == "mute":
            return True
        if fault.kind == "garbage":
            self._writer.write(b"\xff\xfe\xfd garbage")
            return True
        if fault.kind == "fatal":
            self._writer.write(encode_sentence(["!fatal", fault.message]))
        raise HangupError(f"fault: {fault.kind}")

    async def _carry_out(self, sentence: Sentence, client: RequestClient) -> None:
        """Execute a command without an answer."""
        with suppress(TrapError):
            reply = dispatch(self._device, client, sentence)
            if not isinstance(reply, Reply) and not _may_stream(sentence):
                async for _send_row in reply:
                    pass

    async def _hang_forever(self, sentence: Sentence) -> None:
        """Never come back, as long as the peer waits. Commands without a tag wait for one another."""
        if sentence.tag is not None:
            await asyncio.get_running_loop().create_future()
        while await self._reader.read(65536):
            pass
        raise HangupError("fault: hang")

    def _send_row(self, sentence: Sentence, row: Mapping[str, str]) -> None:
        self._queue_reply("!re", sentence, *(f"={name}={value}" for name, value in row.items()))

    def _send_done(
        self, sentence: Sentence, kind: str | None = None, ret: str | None = None, result: str = "done"
    ) -> None:
        self._record_sentence(sentence, result, kind)
        self._send_reply("!done", sentence, *([f"=ret={ret}"] if ret is not None else []))

    def _send_trap(self, sentence: Sentence, trap: TrapError) -> None:
        self._record_sentence(sentence, f"trap: {trap.message}")
        category = [] if trap.category is None else [f"=category={trap.category}"]
        self._queue_reply("!trap", sentence, *category, f"=message={trap.message}")
        self._send_reply("!done", sentence)

    def _send_fatal(self, message: str, sentence: Sentence) -> None:
        self._record_sentence(sentence, f"fatal: {message}", "session")
        self._writer.write(encode_sentence(["!fatal", message]))
        raise HangupError(message)

    def _send_reply(self, reply: str, sentence: Sentence, *words: str) -> None:
        """Send a reply after the rows before it: a row in a TLS record of its own costs ten times its making."""
        self._queue_reply(reply, sentence, *words)
        self._flush_rows()

    def _queue_reply(self, reply: str, sentence: Sentence, *words: str) -> None:
        tag = [f".tag={sentence.tag}"] if sentence.tag is not None else []
        self._rows += encode_sentence([reply, *tag, *words])
        if len(self._rows) >= PART_BYTES:
            self._flush_rows()

    def _flush_rows(self) -> None:
        if not self._writer.is_closing():
            self._writer.write(bytes(self._rows))
        self._rows.clear()

    def _record_sentence(self, sentence: Sentence, result: str, kind: str | None = None) -> None:
        if kind is None:
            write = is_write(sentence.verb)
            kind = "session" if sentence.command == "/login" else "write" if write else "read"
        user = self._client.user if self._client else None
        facts = {"session": self._number, "user": user, "peer": self._peer, "service": self._service}
        menu = sentence.menu if sentence.menu in self._device.menus else "unknown"
        command = mask(sentence.command)
        self._journal.record(kind, menu, result, **facts, command=command, words=sentence.masked())

    async def _close_session(self, end: str) -> None:
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self._client is not None:
            self._device.left(self._client)
            self._device.tell("system,info,account", f"user {self._client.user} logged out from {self._peer} via api")
        facts = {"session": self._number, "user": self._client and self._client.user, "peer": self._peer}
        self._journal.record("session", "", end, **facts, service=self._service, command="", words=[])
        self._writer.close()


def _may_stream(sentence: Sentence) -> bool:
    return sentence.verb == "monitor" and "once" not in sentence.attributes
