# Harness and reference server in one image:
#
#   docker build --tag workflow-checkpoint .
#   docker run --rm workflow-checkpoint check
#   docker run --rm --network host workflow-checkpoint check --url http://127.0.0.1:8080
#   docker run --rm --publish 8080:8080 workflow-checkpoint serve --dev-key

FROM python:3.12.8-slim-bookworm AS build
WORKDIR /source
COPY . .
RUN python -m venv /opt/workflow-checkpoint \
    && /opt/workflow-checkpoint/bin/pip install --no-cache-dir --disable-pip-version-check \
        '.[server,embedded,mcp,metrics,otel]'

FROM python:3.12.8-slim-bookworm
LABEL org.opencontainers.image.title="workflow-checkpoint" \
      org.opencontainers.image.description="Conformance harness and reference server of the Workflow Checkpoint contract" \
      org.opencontainers.image.licenses="Apache-2.0"
# Reports are written below the working directory: mount a folder there to keep them.
RUN useradd --system --uid 10001 --create-home --home-dir /work checkpoint
COPY --from=build /opt/workflow-checkpoint /opt/workflow-checkpoint
# From outside the container, loopback could not be reached. The key is given when it runs, by
# WORKFLOW_CHECKPOINT_HMAC_KEY or a file that is mounted; the image holds none.
ENV PATH=/opt/workflow-checkpoint/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    WORKFLOW_CHECKPOINT_HOST=0.0.0.0 \
    WORKFLOW_CHECKPOINT_PORT=8080
USER 10001
WORKDIR /work
EXPOSE 8080
# For `serve`, by the port of the environment variable; a `check` ends before it matters.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-I", "-c", "import http.client, os, sys; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['WORKFLOW_CHECKPOINT_PORT']), timeout=2); c.request('GET', '/healthz'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["workflow-checkpoint"]
CMD ["--help"]
