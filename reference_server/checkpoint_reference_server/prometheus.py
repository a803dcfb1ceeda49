"""Metrics for Prometheus, on a listener of their own.

The process that started serves them, also for its workers, who write what they count into files
in a folder that is theirs alone; so a scrape sees all of them, whichever it meets. The files are
the library's way (its "multiprocess mode"), chosen by an environment variable when the library
is imported: that is why this module is imported late.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from checkpoint_reference_server.measures import LATENCY_SECONDS, Measured

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
_PREFIX: Final = "workflow_checkpoint"


class PrometheusSink:
    """Counts in the library's values.

    Args:
        registry: where the metrics are to be found; the library's own if there is none.
    """

    def __init__(self, registry: "CollectorRegistry | None" = None) -> None:
        from prometheus_client import REGISTRY, Counter, Gauge, Histogram

        registry = registry or REGISTRY
        self._answers = Counter(
            f"{_PREFIX}_answers_total",
            "Answers, by what was decided or the code of the error.",
            ("binding", "action", "outcome", "rule"),
            registry=registry,
        )
        self._seconds = Histogram(
            f"{_PREFIX}_answer_seconds",
            "From the first thing done for a request to the last.",
            ("binding", "action"),
            buckets=LATENCY_SECONDS,
            registry=registry,
        )
        self._store_seconds = Histogram(
            f"{_PREFIX}_store_seconds",
            "The round trip of the atomic step.",
            ("action",),
            buckets=LATENCY_SECONDS,
            registry=registry,
        )
        self._store_errors = Counter(
            f"{_PREFIX}_store_errors_total",
            "Requests that met DEPENDENCY_UNAVAILABLE, by kind.",
            ("kind",),
            registry=registry,
        )
        self._lapsed = Counter(
            f"{_PREFIX}_claims_lapsed_total",
            "Claims that lapsed, as seen when another took over (WC-CLAIM-8).",
            registry=registry,
        )
        self._in_flight = Gauge(
            f"{_PREFIX}_requests_in_flight",
            "Requests that are being answered.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._refusals = Counter(
            f"{_PREFIX}_refusals_total",
            "Requests that were not let in, by reason.",
            ("reason",),
            registry=registry,
        )
        self._cuts = Counter(
            f"{_PREFIX}_connections_cut_total",
            "Connections that were ended for breaking a bound, by reason.",
            ("reason",),
            registry=registry,
        )

    def began(self) -> None:
        """A request is in flight."""
        self._in_flight.inc()

    def ended(self, measured: Measured) -> None:
        """It is no more."""
        self._in_flight.dec()
        action = measured.action
        self._answers.labels(measured.binding, action, measured.outcome, measured.rule).inc()
        self._seconds.labels(measured.binding, action).observe(measured.seconds)
        if measured.store_error is not None:
            self._store_errors.labels(measured.store_error).inc()
        elif measured.store_seconds is not None:
            self._store_seconds.labels(action).observe(measured.store_seconds)
        if measured.outcome == "recovered":
            self._lapsed.inc()

    def refused(self, reason: str) -> None:
        """Somebody was not let in."""
        self._refusals.labels(reason).inc()

    def cut(self, reason: str) -> None:
        """A connection was ended."""
        self._cuts.labels(reason).inc()

    def close(self) -> None:
        """Nothing: the process that started shows the counts for as long as it lives."""


@contextmanager
def metrics_served(host: str, port: int) -> Iterator[int]:
    """Serve the metrics of this process and those that it starts; the port.

    Raises:
        OSError: nobody can listen there.
    """
    with tempfile.TemporaryDirectory(prefix="workflow-checkpoint-metrics-") as folder:
        os.environ[FOLDER_VARIABLE] = folder  # read by the library when it is imported
        try:
            from prometheus_client import CollectorRegistry, start_http_server
            from prometheus_client.multiprocess import MultiProcessCollector

            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # not annotated there
            server, thread = start_http_server(port, host, registry)
            try:
                yield int(server.server_port)
            finally:
                server.shutdown()
                server.server_close()
                thread.join()
        finally:
            del os.environ[FOLDER_VARIABLE]


def forget_process(pid: int) -> None:
    """What a process that ended had in flight is in flight no more."""
    if FOLDER_VARIABLE in os.environ:
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(pid)  # type: ignore[no-untyped-call]  # not annotated there
