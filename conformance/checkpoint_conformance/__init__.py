"""The conformance harness: what any implementation is checked with, through a URL."""
