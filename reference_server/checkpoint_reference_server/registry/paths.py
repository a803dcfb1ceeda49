"""Where each description is served (section 13)."""

from typing import Final

from checkpoint_model.vocabulary import TOOL_PATH

MANIFEST_PATH: Final = f"{TOOL_PATH}/manifest.json"
OPENAPI_PATH: Final = "/openapi.json"
LLMS_PATH: Final = "/llms.txt"
ARD_PATH: Final = "/.well-known/ard.json"
