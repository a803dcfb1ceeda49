"""What a test module does where a tool that it needs is not on this machine."""

import os
from typing import NoReturn

import pytest

REQUIRE_TOOLS = "WORKFLOW_CHECKPOINT_REQUIRE_TOOLS"
"""Set in an environment in which every tool has to be there."""


def not_run(what: str, tool: str, remedy: str) -> NoReturn:
    """Skip the calling module and say that it was not run; fail where tools are required.

    Raises:
        RuntimeError: the environment requires every tool.
    """
    _skip(what, tool, remedy, module=True)


def not_run_here(what: str, tool: str, remedy: str) -> NoReturn:
    """The same, for the calling test alone."""
    _skip(what, tool, remedy, module=False)


def _skip(what: str, tool: str, remedy: str, *, module: bool) -> NoReturn:
    if os.environ.get(REQUIRE_TOOLS):
        raise RuntimeError(f"{what}: {tool} is missing and {REQUIRE_TOOLS} is set; {remedy}")
    pytest.skip(f"not run: {what}, because {tool} is missing ({remedy})", allow_module_level=module)
