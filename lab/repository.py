"""Serves a folder of packages over HTTP, silently: `python -m lab.repository ADDRESS PORT FOLDER`."""

from __future__ import annotations

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer


class Quiet(SimpleHTTPRequestHandler):
    """Keeps connections open, as apt likes it, and no log, which would grow as long as the lab runs."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def server(address: str, port: int, folder: str) -> ThreadingHTTPServer:
    """A server of this folder that listens."""
    return ThreadingHTTPServer((address, port), partial(Quiet, directory=folder))


if __name__ == "__main__":
    server(sys.argv[1], int(sys.argv[2]), sys.argv[3]).serve_forever()
