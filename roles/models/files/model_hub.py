"""The hub: the list of a revision, and its files over https, by ranges, with the token of the operator."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import IO, Any

from model_folder import (
    DeclaredFile,
    FetchError,
    FetchProgress,
    ModelFolder,
    PartFile,
    explain_error,
    has_declared_bytes,
)

ATTEMPTS = 6
"""Attempts without any progress between them before the hub counts as failed."""
PAUSE = 1.0
"""Seconds before the second attempt; doubled before each further one."""
SECONDS = 60
"""Seconds without a byte after which a connection to the hub is closed."""
MAX_SMALL = 100 << 20
"""Bytes of the largest file that the hub keeps without LFS, hence without a sha256 in its list."""
MAX_LIST = 64 << 20
CONFIGURATIONS = ("config.json", "hf_quant_config.json", "generation_config.json")
MAX_CONFIGURATION = 1 << 20
INDEX = re.compile(r"(?:[^/]+/)*[^/]+\.(safetensors|bin)\.index\.json")
"""An index of weights: it names their files."""


class HubSource:
    """A hub with the files of a commit under one address."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._url, self._token = str(job["url"]), job["token"]

    def stop(self) -> None:
        """Nothing: a connection ends by itself."""

    def batches(self, files: list[DeclaredFile]) -> list[list[DeclaredFile]]:
        """Return the files, each alone."""
        return [[file] for file in files]

    def copy(
        self,
        wanted: list[tuple[DeclaredFile, PartFile]],
        arrived: Callable[[DeclaredFile, PartFile], None],
        *,
        recorded: bool,  # noqa: ARG002 - of a node
    ) -> None:
        """Append the rest of files to their parts. arrived: gets each that is complete. Raises FetchError."""
        for file, part in wanted:
            self.append_rest(file, part)
            arrived(file, part)

    def append_rest(self, file: DeclaredFile, part: PartFile) -> None:
        """Append the rest of a file to its part, by ranges, with some patience. Raises FetchError."""
        failed = 0
        while (start := part.size) < file.size:
            try:
                self._fetch_range(file, part)
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, urllib.error.HTTPError) and error.code not in (408, 429) and error.code < 500:
                    raise FetchError(_explain_http_error(error, file.path)) from None
                failed = 1 if part.size > start else failed + 1
                if failed >= ATTEMPTS:
                    raise FetchError(
                        f"{file.path}: the hub does not give it: {_explain_connection_error(error)}"
                    ) from None
                if part.progress.stopped.wait(PAUSE * 2 ** (failed - 1)):
                    raise FetchError("stopped") from None

    def _fetch_range(self, file: DeclaredFile, part: PartFile) -> None:
        url, start = self._url + urllib.parse.quote(file.path), part.size
        with _open_url(url, self._token, {"Range": f"bytes={start}-"} if start else {}) as answer:
            if start and answer.status == 206:
                given = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
                if given is None or int(given[1]) != start:
                    raise FetchError(f"{file.path}: the hub gives other bytes than the ones that it was asked for")
            elif start:
                part.restart()
            part.receive(answer, file.size - part.size)
        if part.size < file.size:
            raise OSError("the connection ended early")


class Revision:
    """A revision of a model on the hub. Files without a sha256 in its list are fetched to the parts."""

    def __init__(self, job: dict[str, Any]) -> None:
        """Ask the hub for its list. Raises FetchError."""
        endpoint, name, self.token = str(job["endpoint"]).rstrip("/"), str(job["name"]), job["token"]
        revision = urllib.parse.quote(str(job["revision"]), safe="")
        found = _request_file_list(f"{endpoint}/api/models/{name}/revision/{revision}?blobs=true", self.token, name)
        self.commit = str(found["sha"])
        self.entries: dict[str, dict[str, Any]] = {entry["rfilename"]: entry for entry in found["siblings"]}
        for path in self.entries:
            DeclaredFile(path, 0, "0" * 64)
        if len(self.entries) < len(found["siblings"]):
            raise FetchError(f"{name}: the hub lists a path twice")
        self.folder = ModelFolder(job["folder"])
        self.base = f"{endpoint}/{name}/resolve/{self.commit}/"

    def file(self, path: str) -> DeclaredFile:
        """A file of it with its sha256. Raises FetchError."""
        entry = self.entries.get(path)
        if entry is None:
            raise FetchError(f"{path!r} is not in the list of the hub")
        if large := entry.get("lfs"):
            return DeclaredFile(path, int(large["size"]), str(large["sha256"]))
        return _fetch_small_file(self.folder, self.base, self.token, path, int(entry["size"]), str(entry["blobId"]))

    def index(self, path: str) -> list[str] | None:
        """The names in an index of weights, None for another file. Raises FetchError."""
        file = self.file(path)
        if file.size > MAX_SMALL:
            return None
        part = self.folder.part(path, file.sha256)
        if (
            self.entries[path].get("lfs")
            and not has_declared_bytes(self.folder.place(file), file)
            and not has_declared_bytes(part, file)
        ):
            part.unlink(missing_ok=True)
            coming = PartFile(part, path, FetchProgress(file.size))
            HubSource({"url": self.base, "token": self.token}).append_rest(file, coming)
            if coming.sha256 != file.sha256:
                part.unlink()
                raise FetchError(f"{path}: the hub gives other bytes than its list says")
        try:
            names = json.loads(self.folder.read_content(file))["weight_map"].values()
            return sorted({str(name) for name in names})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


def list_revision(job: dict[str, Any]) -> None:
    """Print the commit of a revision, the paths of its files, and the names in its indexes. Raises FetchError."""
    found = Revision(job)
    indexes = {path: found.index(path) for path in found.entries if INDEX.fullmatch(path)}
    print(json.dumps({"revision": found.commit, "paths": list(found.entries), "indexes": indexes}))


def resolve(job: dict[str, Any]) -> None:
    """Print the commit of a revision, the files at `paths`, and their configurations. Raises FetchError."""
    found = Revision(job)
    rows: list[list[Any]] = []
    texts: dict[str, str] = {}
    for path in map(str, job["paths"]):
        file = found.file(path)
        rows.append([file.path, file.size, file.sha256])
        if path in CONFIGURATIONS and not found.entries[path].get("lfs") and file.size <= MAX_CONFIGURATION:
            texts[path] = found.folder.read_content(file).decode(errors="replace")
    print(json.dumps({"revision": found.commit, "files": rows, "configurations": texts}))


def _request_file_list(url: str, token: str | None, name: str) -> dict[str, Any]:
    for attempt in range(ATTEMPTS):
        try:
            with _open_url(url, token, {}) as answer:
                text = answer.read(MAX_LIST + 1)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code not in (408, 429) and error.code < 500:
                raise FetchError(_explain_http_error(error, name)) from None
            if attempt == ATTEMPTS - 1:
                raise FetchError(f"{name}: the hub does not answer: {_explain_connection_error(error)}") from None
            time.sleep(PAUSE * 2**attempt)
        else:
            break
    try:
        found = json.loads(text)
        entries = found["siblings"]
        sound = (
            bool(entries)
            and re.fullmatch("[0-9a-f]{40}", found["sha"])
            and all(isinstance(entry["rfilename"], str) and isinstance(entry["size"], int) for entry in entries)
            and all(entry.get("lfs") or re.fullmatch("[0-9a-f]{40}", entry["blobId"]) for entry in entries)
            and all(
                isinstance(entry["lfs"]["size"], int) and isinstance(entry["lfs"]["sha256"], str)
                for entry in entries
                if entry.get("lfs")
            )
        )
    except (ValueError, KeyError, TypeError):
        sound = False
    if not sound:
        raise FetchError(f"{name}: the hub's list of files cannot be used")
    return dict(found)


def _fetch_small_file(
    folder: ModelFolder, base: str, token: str | None, path: str, size: int, blob: str
) -> DeclaredFile:
    """A file of which the hub gives the hash of git alone: it is fetched, and its sha256 taken from its bytes."""
    if size > MAX_SMALL:
        raise FetchError(f"{path}: the hub gives no sha256 for this file of {size // 10**6} MB")
    unknown = DeclaredFile(path, size, "0" * 64)
    for place in (folder.place(unknown), *folder.parts.glob(f"{folder.part(path, '').name}*")):
        if place.is_file() and not place.is_symlink() and place.stat().st_size == size:
            content = place.read_bytes()
            if _git_blob_hash(content) == blob:
                return DeclaredFile(path, size, hashlib.sha256(content).hexdigest())
    part = folder.part(path, "git")
    part.unlink(missing_ok=True)
    HubSource({"url": base, "token": token}).append_rest(unknown, PartFile(part, path, FetchProgress(size)))
    content = part.read_bytes()
    if _git_blob_hash(content) != blob:
        part.unlink()
        raise FetchError(f"{path}: the hub gives other bytes than its list says")
    file = DeclaredFile(path, size, hashlib.sha256(content).hexdigest())
    part.replace(folder.part(path, file.sha256))
    return file


def _git_blob_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to another host without the token, and never from https to http."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """The request for the new address."""
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if new.scheme != "https" and old.scheme == "https":
            raise FetchError("the hub redirects to an address without TLS")
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is not None and (new.scheme, new.netloc) == (old.scheme, old.netloc):
            for key, value in req.unredirected_hdrs.items():
                if key == "Authorization":
                    made.add_unredirected_header(key, value)
        return made


def _open_url(url: str, token: str | None, headers: dict[str, str]) -> http.client.HTTPResponse:
    if urllib.parse.urlsplit(url).scheme not in ("https", "http"):
        raise FetchError("the address of the hub is neither https nor http")
    request = urllib.request.Request(url, headers={"User-Agent": "sparkrack", **headers})  # noqa: S310
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    answer: http.client.HTTPResponse = urllib.request.build_opener(_Redirects).open(request, timeout=SECONDS)
    return answer


def _explain_connection_error(error: Exception) -> str:
    return explain_error(error.reason if isinstance(error, urllib.error.URLError) else error)


def _explain_http_error(error: urllib.error.HTTPError, what: str) -> str:
    known = {
        401: "it needs a token, or the token is not valid",
        403: "the token has no access to it",
        404: "is not there",
    }
    return f"{what}: the hub answers {error.code}: {known.get(error.code, error.reason)}"
