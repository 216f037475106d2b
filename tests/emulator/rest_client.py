"""A REST client for tests, over plain HTTP or pinned TLS, with a connection that is kept."""

from __future__ import annotations

from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.poolmanager import PoolManager

from tests.emulator.emulator_process import USER, Crs812Process


class _Pinned(HTTPAdapter):
    """Trusts one certificate, by its SHA-256, whatever name it has."""

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint
        super().__init__()

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **more: Any) -> None:
        pool: dict[str, Any] = {"num_pools": connections, "maxsize": maxsize, "block": block}
        more |= {"assert_fingerprint": self._fingerprint, "cert_reqs": "CERT_NONE", "assert_hostname": False}
        self.poolmanager = PoolManager(**pool, **more)


class Web:
    """A user's REST client of a switch."""

    def __init__(self, base: str, name: str, password: str) -> None:
        self.base = base
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.auth = (name, password)

    def ask(self, method: str, path: str, body: object = None, **parameters: str) -> requests.Response:
        """Send one request."""
        url = f"{self.base}/rest{path}"
        return self.session.request(method, url, json=body, params=parameters or None, timeout=60)

    def get(self, path: str, **parameters: str) -> Any:
        """GET an existing resource."""
        answer = self.ask("GET", path, **parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()


def plain(switch: Crs812Process, name: str = USER, password: str | None = None) -> Web:
    """REST over www."""
    return Web(f"http://127.0.0.1:{switch.www_port}", name, switch.password if password is None else password)


def secure(switch: Crs812Process, fingerprint: str, name: str = USER, password: str | None = None) -> Web:
    """REST over www-ssl, to a switch that shows that certificate."""
    web = Web(f"https://127.0.0.1:{switch.rest_port}", name, switch.password if password is None else password)
    web.session.mount("https://", _Pinned(fingerprint))
    web.session.verify = False
    return web
