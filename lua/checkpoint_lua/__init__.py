"""The atomic Valkey scripts, written by hand from the contract, and their loader."""

from checkpoint_lua.loader import (
    ACTIONS,
    KEY_PREFIX,
    Checkpoints,
    Reply,
    Script,
    StoredRecord,
    record_key,
    scripts,
)

__all__ = [
    "ACTIONS",
    "KEY_PREFIX",
    "Checkpoints",
    "Reply",
    "Script",
    "StoredRecord",
    "record_key",
    "scripts",
]
