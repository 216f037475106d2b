"""Names of the images of a rack file on a node. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ImageName:
    """An image of rack.yaml. `name`: as it is written there; `repository` and `tag`: as docker lists it on a node;
    `digest`: when rack.yaml pins it by one."""

    name: str
    repository: str
    tag: str
    digest: str | None

    @property
    def local(self) -> str:
        """Name of the image on every node."""
        return f"{self.repository}:{self.tag}"

    def outside(self, digest: str | None) -> str:
        """Reference for the registry: the digest if it is known, else the tag."""
        digest = digest or self.digest
        return f"{self.repository}@{digest}" if digest else self.local


def image_name(name: str) -> ImageName:
    """An image by its name in rack.yaml. Docker leaves out its own registry, and `library/` there."""
    rest, _, digest = name.partition("@")
    path, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:
        path, tag = rest, ""
    domain, slash, inner = path.partition("/")
    if not slash or not (set(".:") & set(domain) or domain == "localhost"):
        domain, inner = "", path
    if domain in ("", "docker.io", "index.docker.io"):
        repository = inner.removeprefix("library/")
    else:
        repository = f"{domain}/{inner}"
    # Without a name docker would list it as dangling, and `docker image prune` would take it.
    return ImageName(name, repository, tag or digest.removeprefix("sha256:")[:12], digest or None)
