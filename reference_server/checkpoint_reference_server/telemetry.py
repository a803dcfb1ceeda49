"""Metrics and traces for OpenTelemetry, sent by OTLP over HTTP as the standard variables say.

Off unless the environment asks for it: with an endpoint (``OTEL_EXPORTER_OTLP_ENDPOINT``, or the
one for traces or metrics) or with ``OTEL_TRACES_EXPORTER`` or ``OTEL_METRICS_EXPORTER`` set to
``otlp``. Every other variable means what the SDK says of it: headers, intervals, samplers.

A span is made when its request has ended, from what was measured: nothing is carried along
meanwhile. It continues the caller's trace by the identifiers in ``traceparent``; ``tracestate``
and ``baggage``, in which a caller may write anything, are not read.
"""

import importlib.util
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from checkpoint_reference_server.measures import FAULT, LATENCY_SECONDS, Measured

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

SERVICE_NAME: Final = "workflow-checkpoint"
FLUSH_SECONDS_MAX: Final = 5.0
"""How long the end of the server waits for what was not sent yet."""
_SCOPE: Final = "checkpoint_reference_server"
_PREFIX: Final = "workflow_checkpoint"
_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_NS: Final = 1_000_000_000


class TelemetryError(Exception):
    """What the environment asks for cannot be done; the message says why."""


def wanted_signals(environment: Mapping[str, str]) -> frozenset[str]:
    """Which of ``TRACES`` and ``METRICS`` the environment asks for.

    Raises:
        TelemetryError: by another protocol or exporter than this server has.
    """
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return frozenset()
    wanted = set()
    for signal in ("TRACES", "METRICS"):
        name = f"OTEL_{signal}_EXPORTER"
        exporter = environment.get(name, "")
        if exporter not in ("", "otlp", "none"):
            raise TelemetryError(f"{name}={exporter}: otlp and none are what there is")
        own_endpoint = environment.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
        asked = exporter == "otlp" or own_endpoint or environment.get(_ENDPOINT)
        if not asked or exporter == "none":
            continue
        for variable in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
            if environment.get(variable, "http/protobuf") != "http/protobuf":
                raise TelemetryError(f"{variable}: http/protobuf is what there is")
        wanted.add(signal)
    return frozenset(wanted)


def is_installed() -> bool:
    """Whether the extra is."""
    return importlib.util.find_spec("opentelemetry") is not None and (
        importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    )


class TelemetrySink:
    """Makes spans and counts.

    Args:
        tracers: where spans go; None to make none.
        meters: where counts go; None to make none.
    """

    def __init__(self, tracers: "TracerProvider | None", meters: "MeterProvider | None") -> None:
        from opentelemetry.metrics import NoOpMeterProvider
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._providers = [provider for provider in (tracers, meters) if provider is not None]
        self._tracer = None if tracers is None else tracers.get_tracer(_SCOPE)
        self._propagator = TraceContextTextMapPropagator()
        meter = (meters or NoOpMeterProvider()).get_meter(_SCOPE)
        buckets = list(LATENCY_SECONDS)
        self._answers = meter.create_counter(f"{_PREFIX}.answers")
        self._seconds = meter.create_histogram(
            f"{_PREFIX}.answer.duration", "s", explicit_bucket_boundaries_advisory=buckets
        )
        self._store_seconds = meter.create_histogram(
            f"{_PREFIX}.store.duration", "s", explicit_bucket_boundaries_advisory=buckets
        )
        self._store_errors = meter.create_counter(f"{_PREFIX}.store.errors")
        self._lapsed = meter.create_counter(f"{_PREFIX}.claims.lapsed")
        self._in_flight = meter.create_up_down_counter(f"{_PREFIX}.requests.in_flight")
        self._refusals = meter.create_counter(f"{_PREFIX}.refusals")
        self._cuts = meter.create_counter(f"{_PREFIX}.connections.cut")

    def began(self) -> None:
        """A request is in flight."""
        self._in_flight.add(1)

    def ended(self, measured: Measured) -> None:
        """It is no more."""
        self._in_flight.add(-1)
        action = measured.action
        of_whom = {"binding": measured.binding, "action": action}
        decided = {**of_whom, "outcome": measured.outcome, "rule": measured.rule}
        self._answers.add(1, decided)
        self._seconds.record(measured.seconds, of_whom)
        if measured.store_error is not None:
            self._store_errors.add(1, {"kind": measured.store_error})
        elif measured.store_seconds is not None:
            self._store_seconds.record(measured.store_seconds, {"action": action})
        if measured.outcome == "recovered":
            self._lapsed.add(1)
        if self._tracer is not None:
            self._trace(measured, decided)

    def refused(self, reason: str) -> None:
        """Somebody was not let in."""
        self._refusals.add(1, {"reason": reason})

    def cut(self, reason: str) -> None:
        """A connection was ended."""
        self._cuts.add(1, {"reason": reason})

    def close(self) -> None:
        """Send what was not sent yet, but do not wait for a collector that is away."""
        for provider in self._providers:
            flushing = threading.Thread(target=provider.shutdown, daemon=True)
            flushing.start()
            flushing.join(FLUSH_SECONDS_MAX / len(self._providers))

    def _trace(self, measured: Measured, decided: Mapping[str, str]) -> None:
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

        assert self._tracer is not None
        # Of the caller's headers this one alone, and of it what is a trace's or a span's number.
        carrier = {} if measured.traceparent is None else {"traceparent": measured.traceparent}
        span = self._tracer.start_span(
            f"workflow_checkpoint {measured.action}",
            context=self._propagator.extract(carrier),
            kind=SpanKind.SERVER,
            attributes={
                **{f"{_PREFIX}.{name}": value for name, value in decided.items()},
                "http.response.status_code": measured.http_status,
            },
            start_time=measured.ended_ns - int(measured.seconds * _NS),
        )
        if measured.store_seconds is not None:
            step = self._tracer.start_span(
                "store step",
                context=set_span_in_context(span),
                kind=SpanKind.CLIENT,
                # What comes after it is no work to speak of.
                start_time=measured.ended_ns - int(measured.store_seconds * _NS),
            )
            if measured.store_error is not None:
                step.set_attribute("error.type", measured.store_error)
                step.set_status(StatusCode.ERROR)
            step.end(measured.ended_ns)
        if measured.outcome == FAULT:
            span.set_status(StatusCode.ERROR)
        span.end(measured.ended_ns)


def make_sink(environment: Mapping[str, str]) -> TelemetrySink | None:
    """The sink that the environment asks for, if it does.

    Raises:
        TelemetryError: see :func:`wanted_signals`.
    """
    signals = wanted_signals(environment)
    if not signals:
        return None
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # Each process counts for itself, so each is an instance of its own.
    facts: dict[str, str] = {"service.instance.id": str(uuid4())}
    named = environment.get("OTEL_SERVICE_NAME") or (
        "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    )
    if not named:
        facts["service.name"] = SERVICE_NAME
    resource = Resource.create({**facts})
    tracers = meters = None
    if "TRACES" in signals:
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    if "METRICS" in signals:
        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    return TelemetrySink(tracers, meters)
