"""The atomic Valkey scripts, written by hand from the contract, and their loader."""
