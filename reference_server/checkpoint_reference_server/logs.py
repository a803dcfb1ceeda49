"""Structured logs without identifiers: one JSON object a line on standard error.

Nothing of a request's arguments is ever logged (WC-PRIV-1). That is also why an internal
fault is logged by the kind of its exception and the places it passed, never by its message:
``KeyError: 'w_…'`` would be a leak.
"""

import logging
import sys
import traceback
from pathlib import Path
from typing import Any, Final

import structlog

_QUOTING: Final = ("mcp", "opentelemetry", "urllib3", "prometheus_client")
"""Libraries whose messages are made before they are logged, with whatever they quote."""


def configure(level: str) -> None:
    """Send this process's logs, ours and the HTTP layer's, to standard error."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # The HTTP layer, the MCP SDK and the telemetry speak through the standard library, and their
    # messages may quote a request; only that something happened is passed on.
    handler = _Forward()
    for name in ("uvicorn", "uvicorn.error", "asyncio", *_QUOTING):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.WARNING)
        logger.propagate = False


class _Forward(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        # `msg` is the library's own template; its arguments are left out. Some have them in the
        # template.
        place = f"{record.filename}:{record.lineno}"
        quotes = record.name.partition(".")[0] in _QUOTING
        template = place if quotes else str(record.msg)
        log_fault(record.name, error, event=template.partition("\n")[0])


def log_notice(where: str, event: str) -> None:
    """Log what an operator wants to know and nobody did wrong; the words are all our own."""
    structlog.get_logger().info(event, where=where)


def log_fault(where: str, error: BaseException | None, *, event: str = "internal fault") -> None:
    """Log a fault by its kind and place."""
    details: dict[str, Any] = {"where": where}
    if error is not None:
        details["error"] = type(error).__name__
        details["at"] = [
            f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
            for frame in traceback.extract_tb(error.__traceback__)
        ]
    structlog.get_logger().error(event, **details)
