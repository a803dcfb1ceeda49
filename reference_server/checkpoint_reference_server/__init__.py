"""The reference implementation: the contract over HTTP, on the Lua scripts."""
