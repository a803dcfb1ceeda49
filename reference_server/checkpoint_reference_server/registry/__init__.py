"""One registry record and the descriptions that are generated from it (section 13)."""

from checkpoint_reference_server.registry.deployment import Deployment, listening_url
from checkpoint_reference_server.registry.formats import FORMATS, Format
from checkpoint_reference_server.registry.mcp_tool import make_mcp_tool
from checkpoint_reference_server.registry.record import RECORD, RegistryRecord

__all__ = [
    "FORMATS",
    "RECORD",
    "Deployment",
    "Format",
    "RegistryRecord",
    "listening_url",
    "make_mcp_tool",
]
