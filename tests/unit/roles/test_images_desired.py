"""What the names in rack.yaml mean, what docker's list says, what the rack agrees on."""

from __future__ import annotations

import pytest

from core.model.image_lock import Pin
from core.model.image_names import ImageName, image_name
from roles.images.desired import (
    MARGIN,
    ImageGoal,
    LocalImages,
    free_space,
    images,
    local_images,
    need,
    other_store,
    settle,
)
from tests.unit.model.racks import SWITCH, loaded

A, B, C, D = (f"sha256:{digit * 64}" for digit in "abcd")
X = image_name("scitrera/x:1")
PINNED = image_name(f"scitrera/x@{D}")


def row(identity: str = A, name: str = "scitrera/x", tag: str = "1", digest: str = "<none>", size: str = "1GB") -> str:
    return f"{identity} {name} {tag} {digest} {size}\n"


@pytest.mark.parametrize(
    ("name", "local", "outside"),
    [
        ("scitrera/x:1", "scitrera/x:1", "scitrera/x:1"),
        ("ubuntu:24.04", "ubuntu:24.04", "ubuntu:24.04"),
        ("library/ubuntu:24.04", "ubuntu:24.04", "ubuntu:24.04"),
        ("docker.io/scitrera/x:1", "scitrera/x:1", "scitrera/x:1"),
        ("docker.io/library/ubuntu:1", "ubuntu:1", "ubuntu:1"),
        ("index.docker.io/ubuntu:1", "ubuntu:1", "ubuntu:1"),
        ("nvcr.io/nvidia/vllm:26.05-py3", "nvcr.io/nvidia/vllm:26.05-py3", "nvcr.io/nvidia/vllm:26.05-py3"),
        ("localhost/x:1", "localhost/x:1", "localhost/x:1"),
        ("10.77.0.1:5000/x:1", "10.77.0.1:5000/x:1", "10.77.0.1:5000/x:1"),
        (f"10.77.0.1:5000/x@{D}", f"10.77.0.1:5000/x:{'d' * 12}", f"10.77.0.1:5000/x@{D}"),
        (f"scitrera/x:1@{D}", "scitrera/x:1", f"scitrera/x@{D}"),
        (f"scitrera/x@{D}", f"scitrera/x:{'d' * 12}", f"scitrera/x@{D}"),
    ],
)
def test_names(name: str, local: str, outside: str) -> None:
    assert (image_name(name).local, image_name(name).outside(None)) == (local, outside)


def test_with_a_digest_it_is_asked_for_by_that() -> None:
    assert X.outside(D) == f"scitrera/x@{D}"


def test_the_images_of_a_rack() -> None:
    assert [one.local for one in images(loaded(SWITCH + "images: [x:1, docker.io/y:1]\n"))] == ["x:1", "y:1"]


def test_a_listing() -> None:
    held = local_images(
        row() + row(digest=D) + row(B, "<none>", "<none>", size="9.84GB") + row(C, "x", "<none>", D, "0B")
    )
    named = held.named(X)
    assert named
    assert (named.id, named.digest, named.size) == (A, D, 10**9)
    assert [held.of(identity) is not None for identity in (A, B, C, D)] == [True, True, True, False]
    assert held.rows[2].size == 9_840_000_000
    assert local_images("") == LocalImages(())


@pytest.mark.parametrize(
    "listing",
    [
        "\n",
        "garbage",
        row("sha256:short"),
        row(tag="a b"),
        row(digest="latest"),
        row(size="big"),
        row(size="1 GB"),
        row(size="-1GB"),
        row() + "Cannot connect to the Docker daemon",
        row(name=""),
    ],
)
def test_a_listing_that_is_none(listing: str) -> None:
    with pytest.raises(ValueError, match="images-stock: unexpected probe output"):
        local_images(listing)


def test_an_engine_that_does_not_answer() -> None:
    with pytest.raises(ValueError, match="docker does not run"):
        local_images("no engine\n")
    with pytest.raises(ValueError, match=r"docker does not answer: .* exit 124"):
        local_images(row() + "no answer, exit 124\n")


def test_room() -> None:
    assert free_space("5 /var/lib/docker\n7 /a b\n") == {"/var/lib/docker": 5, "/a b": 7}


@pytest.mark.parametrize("listing", ["", " /var/lib/docker\n", "12\n", "12 var\n", "-1 /x\n", "x /x\n"])
def test_room_that_is_unknown(listing: str) -> None:
    with pytest.raises(ValueError, match=r"images-room: (no|unexpected) probe output"):
        free_space(listing)


def test_the_lock_file_has_the_last_word() -> None:
    held = {"n1": local_images(row(B)), "n2": local_images(row(A, "other", "<none>")), "n3": local_images("")}
    assert settle(X, Pin(D, A), held) == ImageGoal(X, Pin(D, A), False, frozenset({"n2"}), 10**9)
    assert settle(X, Pin(D, C), held) == ImageGoal(X, Pin(D, C))


def test_nodes_that_agree_need_no_registry() -> None:
    held = {"n1": local_images(""), "n2": local_images(row(A)), "n3": local_images(row(A, digest=D, size="2GB"))}
    assert settle(X, None, held) == ImageGoal(X, Pin(D, A), True, frozenset({"n2", "n3"}), 2 * 10**9)
    assert settle(X, None, {"n2": local_images(row(A))}).pin == Pin(None, A)
    assert settle(X, None, {"n1": local_images("")}) == ImageGoal(X, None)


def test_nodes_that_do_not_agree() -> None:
    held = {"n1": local_images(row(B)), "n2": local_images(row(A)), "n3": local_images(row(B))}
    with pytest.raises(ValueError, match=r"x:1 is not the same everywhere: n2 has a{12}; n1, n3 has b{12}; remove"):
        settle(X, None, held)


@pytest.mark.parametrize("image", [X, PINNED])
def test_one_image_in_two_kinds_of_store_is_not_reported_as_two_images(image: ImageName) -> None:
    """As delivered: one vendor's docker keeps images by itself, another's in containerd's store."""
    held = {"msi1": local_images(row(D, digest=D)), "pgx1": local_images(row(A, digest=D))}
    with pytest.raises(ValueError, match="is one image under two IDs") as refused:
        settle(image, None, held)
    assert "msi1 keeps it in containerd's store; pgx1 keeps it in docker's own store; " in str(refused.value)
    assert "remove" not in str(refused.value)


@pytest.mark.parametrize("other", [row(B, digest=C), row(B, digest=D), row(B)])
def test_two_images_are_reported_as_two_images(other: str) -> None:
    """Another digest, the same digest with another configuration in the same kind of store, or no digest."""
    with pytest.raises(ValueError, match="is not the same everywhere"):
        settle(X, None, {"n1": local_images(row(A, digest=D)), "n2": local_images(other)})


def test_a_tag_says_nothing_of_an_image_that_is_pinned_by_digest() -> None:
    tagged = local_images(row(B, tag="d" * 12))
    assert settle(PINNED, None, {"n1": tagged}).pin is None
    assert settle(PINNED, None, {"n1": tagged, "n2": local_images(row(A, tag="<none>", digest=D))}).pin == Pin(D, A)


def test_another_kind_of_store() -> None:
    goal = ImageGoal(X, Pin(D, A))
    reported = other_store(goal, local_images(row(D, digest=D)))
    assert reported
    assert "keeps images in containerd's store, the ID was recorded with docker's own" in reported
    assert "docker's own store" in (other_store(ImageGoal(X, Pin(D, D)), local_images(row(A, digest=D))) or "")
    for fine in (row(A, digest=D), row(B), row(B, digest=C), ""):
        assert other_store(goal, local_images(fine)) is None


def test_need() -> None:
    known, large, unknown = ImageGoal(X, None, size=10), ImageGoal(X, None, size=100), ImageGoal(X, None)
    assert need([], 7) == 0
    assert need([known], 7) == 30 + MARGIN
    assert need([known, large], 7) == 310 + MARGIN
    assert need([unknown], 7) == 7
    assert need([unknown, known], 2 * MARGIN) == 2 * MARGIN
