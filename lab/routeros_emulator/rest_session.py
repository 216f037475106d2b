"""One HTTP connection to www or www-ssl: request after request, each on its own, with its own credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus

from lab.routeros_emulator.connection import EmulatedConnection
from lab.routeros_emulator.dispatch import dispatch, is_write
from lab.routeros_emulator.errors import MISSING_ITEM, TrapError
from lab.routeros_emulator.faults import InjectedFault
from lab.routeros_emulator.login import authenticate
from lab.routeros_emulator.menu import spell_id
from lab.routeros_emulator.request import Reply, RequestClient
from lab.routeros_emulator.rest import RestError, RestPlan, look, plan
from lab.routeros_emulator.rest_http import BadRequestError, HttpRequest, problem, read_request, response
from lab.routeros_emulator.sentence import Sentence, mask

#: A command that takes longer is given up (MikroTik manual, 'REST API').
COMMAND_SECONDS = 60.0


class RestSession(EmulatedConnection):
    """Serves one connection to its end; never raises for what a peer does."""

    async def run(self) -> None:
        """Answer requests until either side has enough."""
        try:
            while request := await read_request(self._reader):
                if not await self._answer_request(request):
                    break
        except BadRequestError as error:
            with suppress(OSError):
                self._writer.write(response(error.status, problem(error.status, str(error)), keep=False))
                await self._writer.drain()
        except OSError:
            pass
        finally:
            if self._client is not None:
                self._device.left(self._client)
            self._writer.close()

    async def _answer_request(self, request: HttpRequest) -> bool:
        """Answer one request; False when the connection is over with it."""
        sentence = None
        try:
            client = self._log_in(request)
            wanted = plan(self._device, request)
            sentence = wanted.sentence
            fault = self._faults.strike(sentence.command, write=is_write(sentence.verb))
            over = fault is not None and await self._apply_fault(fault, wanted, client)
            content: object = [] if over else await self._execute_plan(wanted, client)
            status, result = wanted.status, "ignored by fault" if over else "done"
        except TrapError as trap:
            # A row that is not there has a status of its own and no detail; reported from 7.23.7.
            missing = trap.category == MISSING_ITEM and trap.message.startswith("no such item")
            status = HTTPStatus.NOT_FOUND if missing else HTTPStatus.BAD_REQUEST
            content, result = problem(status, None if missing else trap.message), f"trap: {trap.message}"
        except RestError as error:
            status, content = error.status, problem(error.status, error.detail)
            result = f"{error.status.value} {error}"
        except ConnectionAbortedError as end:
            self._record_request(request, sentence, str(end))
            self._writer.transport.abort()
            return False
        self._record_request(request, sentence, result)
        # An answer to HEAD has a body here, as on the unit, which no client expects on a kept connection.
        keep = request.keep and request.method != "HEAD"
        self._writer.write(response(status, content, keep=keep))
        await self._writer.drain()
        return keep

    def _log_in(self, request: HttpRequest) -> RequestClient:
        if not request.path or request.path[0] != "rest":
            raise RestError(HTTPStatus.NOT_FOUND)
        if request.credentials is None:
            raise RestError(HTTPStatus.UNAUTHORIZED)
        try:
            user = authenticate(self._device, *request.credentials, "rest-api")
        except TrapError:
            raise RestError(HTTPStatus.UNAUTHORIZED) from None
        known = self._client
        if known is None or (known.user, known.group) != (user["name"], user["group"]):
            if known is not None:
                self._device.left(known)
            now = self._device.clock.stamp()
            known = RequestClient(
                self._number, user["name"], user["group"], self._peer, self._service, now, port=self._port
            )
            self._client = self._device.clients[self._number] = known
            self._device.tell("system,info,account", f"user {known.user} logged in from {self._peer} via rest-api")
        return known

    async def _execute_plan(self, wanted: RestPlan, client: RequestClient) -> object:
        sentence = wanted.sentence
        reply = dispatch(self._device, client, sentence)
        if isinstance(reply, Reply):
            rows: list[Mapping[str, str]] = list(reply.rows)
        else:
            rows = []
            try:
                async with asyncio.timeout(COMMAND_SECONDS):
                    async for row in reply:
                        rows.append(row)
            except TimeoutError:
                raise RestError(HTTPStatus.BAD_REQUEST, "Session closed") from None
            reply = Reply(rows=rows)
        if sentence.verb in ("add", "set") and wanted.single:
            return self._read_changed_row(wanted, client, reply.ret or sentence.attributes[".id"])
        if wanted.single:
            if not rows:
                raise RestError(HTTPStatus.NOT_FOUND)
            return dict(rows[0])
        return {"ret": reply.ret} if reply.ret is not None else [dict(row) for row in rows]

    def _read_changed_row(self, wanted: RestPlan, client: RequestClient, number: str) -> object:
        """The row that PUT made or PATCH changed, as it is now."""
        menu = self._device.menus[wanted.sentence.menu]
        row = self._device.store.find(menu.path, number)
        shown = dispatch(self._device, client, look(menu, spell_id(row.id) if row else number))
        return dict(shown.rows[0]) if isinstance(shown, Reply) and shown.rows else {}

    async def _apply_fault(self, fault: InjectedFault, wanted: RestPlan, client: RequestClient) -> bool:
        """Apply a fault; True when the command ends with it, and is answered as if it were done."""
        if await self._goes_on_after(fault):
            return False
        if fault.kind == "ignore":
            return True
        if fault.takes_effect:
            with suppress(TrapError, RestError):
                await self._execute_plan(wanted, client)
        if fault.kind == "trap":
            raise TrapError(fault.message)
        if fault.kind in ("mute", "hang"):
            while await self._reader.read(65536):
                pass
        if fault.kind == "garbage":
            self._writer.write(b"\xff\xfe\xfd garbage")
        raise ConnectionAbortedError(f"fault: {fault.kind}")

    def _record_request(self, request: HttpRequest, sentence: Sentence | None, result: str) -> None:
        path = "/" + "/".join(request.path[1:])
        menu = next((p for p in (path, path.rpartition("/")[0]) if p in self._device.menus), "unknown")
        facts = {"session": self._number, "user": self._client and self._client.user, "peer": self._peer}
        kind = "write" if sentence and is_write(sentence.verb) else "read"
        command, words = mask(f"{request.method} {path}"), sentence.masked() if sentence else []
        self._journal.record(kind, menu, result, **facts, service=self._service, command=command, words=words)
