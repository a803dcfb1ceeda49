"""The formats in which the record is published, each as the text of one document."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from checkpoint_model.vocabulary import (
    ARD_PATH,
    LLMS_PATH,
    MANIFEST_PATH,
    OPENAPI_PATH,
)
from checkpoint_reference_server.registry.ard import make_ard_manifest
from checkpoint_reference_server.registry.deployment import Deployment
from checkpoint_reference_server.registry.llms import make_llms_txt
from checkpoint_reference_server.registry.manifest import make_manifest
from checkpoint_reference_server.registry.mcp_tool import make_mcp_tool
from checkpoint_reference_server.registry.openapi import make_openapi
from checkpoint_reference_server.registry.record import RECORD, RegistryRecord

Maker = Callable[[RegistryRecord, Deployment], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """One kind of document: where it is served, what it is named as a file, how it is made."""

    file_name: str
    path: str | None
    """``None`` for the MCP tool, which ``tools/list`` serves."""
    make: Maker
    """Makes JSON, or text where the file's name does not end in ``.json``."""

    @property
    def media_type(self) -> str:
        """What it is served as."""
        if self.file_name.endswith(".json"):
            return "application/json"
        return "text/plain; charset=utf-8"

    def text(self, deployment: Deployment, record: RegistryRecord = RECORD) -> str:
        """The whole document, ending with a newline."""
        made = self.make(record, deployment)
        if isinstance(made, str):
            return made
        return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        "manifest": Format(file_name="manifest.json", path=MANIFEST_PATH, make=make_manifest),
        "openapi": Format(file_name="openapi.json", path=OPENAPI_PATH, make=make_openapi),
        "llms": Format(file_name="llms.txt", path=LLMS_PATH, make=make_llms_txt),
        "ard": Format(file_name="ard.json", path=ARD_PATH, make=make_ard_manifest),
        "mcp": Format(
            file_name="mcp-tool.json", path=None, make=lambda record, _: make_mcp_tool(record)
        ),
    }
)
"""Every format, by the name that ``workflow-checkpoint registry emit`` knows it by."""
