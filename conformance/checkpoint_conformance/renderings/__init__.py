"""Every format of the report, each rendered from ``report.json`` and nothing else.

A report holds what a target answered, and a target may be hostile: each renderer escapes for its
own format, and shows long texts cut.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from checkpoint_conformance.renderings import (
    annotations,
    badge,
    html,
    junit,
    markdown,
    sarif,
    terminal,
)
from checkpoint_conformance.renderings.facts import Report
from checkpoint_conformance.report import write_files


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """One format: what makes it, and its file in a report's folder."""

    render: Callable[[Report], str]
    file_name: str = ""
    """Empty where none is written."""


FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        "html": Format(render=html.render, file_name="report.html"),
        "junit": Format(render=junit.render, file_name="junit.xml"),
        "markdown": Format(render=markdown.render, file_name="summary.md"),
        "annotations": Format(render=annotations.render, file_name="annotations.txt"),
        "sarif": Format(render=sarif.render, file_name="report.sarif"),
        "badge": Format(render=badge.render, file_name="badge.json"),
        "terminal": Format(render=terminal.render),
    }
)
"""Every format by its name."""


def write_all(folder: Path, report: Report) -> list[str]:
    """Write every format that has a file into the report's folder; the files' names.

    Raises:
        FolderError: the folder cannot be written.
    """
    files = {made.file_name: made.render(report) for made in FORMATS.values() if made.file_name}
    write_files(folder, files)
    return list(files)


__all__ = ["FORMATS", "Format", "write_all"]
