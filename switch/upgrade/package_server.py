"""An HTTP server on the operator's machine from which a switch downloads packages, for as long as that takes.

RouterOS's API has no upload. A download needs no further service of the switch, no password and nothing to restore
afterwards. Packages are public and signed; what arrived is compared with the file over the API.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from core.routeros.errors import CheckError


class PackageServer:
    """Serves `files` at the address of this machine from which it reaches `peer` (host, port), in the block.

    listen: TCP port; 0 lets the system choose. Raises CheckError when the port cannot be had.
    """

    def __init__(self, files: Mapping[str, Path], peer: tuple[str, int], listen: int) -> None:
        token = secrets.token_urlsafe(16)
        self._paths = {f"/{token}/{name}": path for name, path in files.items()}
        self._urls = {name: f"/{token}/{name}" for name in files}
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect(peer)  # sends nothing: it only chooses our address
                own = probe.getsockname()[0]
            self._server = ThreadingHTTPServer((own, listen), partial(_Handler, self._paths))
        except OSError as fault:
            raise CheckError(
                f"no port for the switch's download could be opened: {fault}; pass --listen PORT"
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    @property
    def place(self) -> str:
        """Address and port, as text."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def url(self, name: str) -> str:
        """Return where a file is."""
        return f"http://{self.place}{self._urls[name]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, paths: Mapping[str, Path], *arguments: Any) -> None:
        self._paths = paths
        super().__init__(*arguments)

    def do_GET(self) -> None:
        path = self._paths.get(self.path)
        if path is None:
            self.send_error(404)
            return
        # A switch that restarts, or gives up, closes the connection.
        with suppress(OSError), path.open("rb") as file:
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(path.stat().st_size))
            self.end_headers()
            shutil.copyfileobj(file, self.wfile)

    def log_message(self, *_arguments: Any) -> None:
        """Log nothing: the path is for the switch only."""
