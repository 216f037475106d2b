"""Make a release, in two steps that docs/releasing.md explains. Each check fails closed: nothing is written then.

`prepare VERSION` writes the version and the section of the changelog. `tag VERSION --tests TEXT` compares all places
that have the version, and makes the annotated tag.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

TOP = Path(__file__).parent.parent
UNRELEASED = "## [Unreleased]\n"
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")


class ReleaseError(Exception):
    """A check failed; the text says which, and what to do."""


def git(*words: str) -> str:
    """Return the output of git. Raises ReleaseError."""
    done = subprocess.run(["git", *words], cwd=TOP, capture_output=True, text=True)
    if done.returncode:
        raise ReleaseError(f"git {words[0]}: {done.stderr.strip() or f'exit {done.returncode}'}")
    return done.stdout.strip()


def check_tree(version: str) -> None:
    """Raise ReleaseError unless the tree is clean and the version is new and valid."""
    if not VERSION.fullmatch(version):
        raise ReleaseError(f"{version} is not a version like 0.2.0")
    if changed := git("status", "--porcelain"):
        raise ReleaseError(f"the tree is not clean; commit or remove:\n{changed}")
    if git("tag", "--list", f"v{version}"):
        raise ReleaseError(f"the tag v{version} exists; choose another version")


def sections() -> dict[str, str]:
    """The sections of CHANGELOG.md by the word in brackets."""
    parts = re.split(r"^## \[([^\]]+)\].*\n", (TOP / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def project_version() -> str:
    """The version in pyproject.toml."""
    return str(tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"])


def installed_version() -> str:
    """The version that `sparkrack --version` prints. Raises ReleaseError."""
    done = subprocess.run([Path(sys.executable).with_name("sparkrack"), "--version"], capture_output=True, text=True)
    if done.returncode:
        raise ReleaseError(f"sparkrack --version: {done.stderr.strip()}")
    return done.stdout.split()[-1]


def check_upgrade_notes(version: str) -> None:
    """Raise ReleaseError unless docs/upgrading.md has a section about the version."""
    if not re.search(rf"^## (To )?{re.escape(version)}$", (TOP / "docs/upgrading.md").read_text(), re.MULTILINE):
        raise ReleaseError(f"docs/upgrading.md has no section `## {version}`; write one, also when nothing is to do")


def prepare(version: str) -> None:
    """Write the version to pyproject.toml, and make the section of CHANGELOG.md from [Unreleased]."""
    check_tree(version)
    check_upgrade_notes(version)
    found = sections()
    if not found.get("Unreleased", "").strip():
        raise ReleaseError("CHANGELOG.md: [Unreleased] is missing or empty; write what has changed")
    if version in found:
        raise ReleaseError(f"CHANGELOG.md: has a section [{version}] already")
    changelog, project = TOP / "CHANGELOG.md", TOP / "pyproject.toml"
    heading = f"{UNRELEASED}\n## [{version}] - {datetime.now(UTC):%Y-%m-%d}\n"
    text, count = re.subn(r'^version = ".*"$', f'version = "{version}"', project.read_text(), flags=re.MULTILINE)
    if count != 1:
        raise ReleaseError(f"pyproject.toml: has {count} lines like `version = ...`, not one")
    project.write_text(text)
    changelog.write_text(changelog.read_text().replace(UNRELEASED, heading, 1))
    print(f"Next: make setup test, commit, then scripts/release.py tag {version} --tests '...'")


def tag(version: str, tests: str) -> None:
    """Compare all places that have the version, and make the annotated tag with the section of CHANGELOG.md."""
    check_tree(version)
    check_upgrade_notes(version)
    if not tests.strip():
        raise ReleaseError("--tests is empty; name the tests that passed on this commit")
    found = sections()
    newest = next((name for name in found if name != "Unreleased"), "none")
    places = {"pyproject.toml": project_version(), "CHANGELOG.md": newest, "sparkrack --version": installed_version()}
    if wrong := [f"{place} has {value}" for place, value in places.items() if value != version]:
        raise ReleaseError(f"not {version}: {'; '.join(wrong)}; run prepare, then make setup, and commit")
    if found.get("Unreleased", "").strip():
        raise ReleaseError(f"CHANGELOG.md: [Unreleased] is not empty; move its entries to [{version}]")
    commit = git("rev-parse", "HEAD")
    # A line that begins with # would be a comment to git.
    message = f"sparkrack {version}\n\nTests that passed on {commit}: {tests.strip()}\n\n{found[version].strip()}\n"
    git("tag", "--annotate", "--cleanup=verbatim", "--message", message, f"v{version}")
    print(f"v{version} is at {commit}. Next: git push origin v{version}")


def main() -> None:
    """Run one of the two steps; exit 1 with the reason when a check fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    for name in ("prepare", "tag"):
        steps.add_parser(name).add_argument("version")
    steps.choices["tag"].add_argument("--tests", required=True, help="the tests that passed, such as 'make test'")
    given = parser.parse_args()
    try:
        if given.step == "prepare":
            prepare(given.version)
        else:
            tag(given.version, given.tests)
    except (ReleaseError, OSError) as fault:
        sys.exit(f"release: {fault}; nothing was written")


if __name__ == "__main__":
    main()
