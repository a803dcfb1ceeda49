"""The Lua texts, as package data: one file an action, and the parts that they share."""
