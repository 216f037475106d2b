"""The files that `sparkrack accept` writes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from core.model import Rack
from core.util.atomic_file import write_atomic
from core.util.command_error import CommandError
from sparkrack.accept.bundle import BundleError, Recording, bundle_files, write_bundle
from sparkrack.accept.model import AcceptReport
from sparkrack.accept.report_html import page
from sparkrack.engine.run_log import versions

PAGE, DOCUMENT = "accept.html", "accept.json"


def make_places(folder: Path | None, bundle: Path | None) -> None:
    """Make the folder; raise CommandError when it cannot be made, or the bundle exists."""
    if folder:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            raise CommandError(f"{folder}: {fault.strerror}; choose another folder") from None
    if bundle and bundle.exists():
        raise CommandError(f"{bundle}: exists already; name a new file")


def write_report(folder: Path, report: AcceptReport) -> None:
    """Write the page and the document, readable by their owner only. Raises CommandError."""
    try:
        write_atomic(folder / PAGE, page(report))
        write_atomic(folder / DOCUMENT, report.to_json() + "\n")
    except OSError as fault:
        raise CommandError(f"{folder}: {fault.strerror}") from None


def write_answers(path: Path, rack: Rack, report: AcceptReport, recording: Recording) -> None:
    """Write the bundle. Raises CommandError."""
    try:
        files = bundle_files(rack, report, recording)
        write_bundle(path, files, datetime.now(UTC).replace(microsecond=0), versions())
    except (BundleError, ValueError) as fault:
        raise CommandError(f"{path}: {fault}") from None
    except OSError as fault:
        raise CommandError(f"{path}: {fault.strerror}") from None
