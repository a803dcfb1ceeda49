"""Where each description is served (section 13), and the MCP binding (section 12)."""

from typing import Final

from checkpoint_model.vocabulary import TOOL_PATH

MCP_PATH: Final = "/mcp"
MANIFEST_PATH: Final = f"{TOOL_PATH}/manifest.json"
OPENAPI_PATH: Final = "/openapi.json"
LLMS_PATH: Final = "/llms.txt"
ARD_PATH: Final = "/.well-known/ard.json"
