"""``workflow-checkpoint doctor``: what a target is, before anything about it is judged."""

import itertools
import json
import math
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

from checkpoint_conformance.answers import Problem, Result, json_object, read
from checkpoint_conformance.checks.store import StoreAddressError, open_store
from checkpoint_conformance.checks.walk import Cast
from checkpoint_conformance.client import JSON_HEADERS, HttpAnswer
from checkpoint_conformance.controls import ControlError, Controls
from checkpoint_conformance.faults import Kind
from checkpoint_conformance.launch import LaunchError
from checkpoint_conformance.mcp_client import ProtocolError
from checkpoint_conformance.preflight import UnreachableError, preflight
from checkpoint_conformance.processes import running
from checkpoint_conformance.run import Target
from checkpoint_conformance.session import LostError, fresh_identity
from checkpoint_conformance.tally import Tally
from checkpoint_conformance.targets import Description, TargetError
from checkpoint_conformance.terminal import Output
from checkpoint_conformance.verdict import EXIT_UNREACHABLE
from checkpoint_model import CONTRACT_VERSION, Status, format_request, parse_timestamp
from checkpoint_model.vocabulary import HEALTH_PATH, MANIFEST_PATH, MCP_TOOL, TOOL_PATH

SAMPLES: Final = 40
"""How many answers the clock and the latency are read from."""
COARSE_MS: Final = 100
"""A clock all of whose times are so far apart, or a multiple of it, does not tell milliseconds."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    fine: bool | None
    """None where there is nothing to say for or against."""
    what: str
    told: str


def examine(description: Description) -> int:
    """Look at a target and print what is found; 0 when it can be checked, else 2."""
    console = Output()
    findings: list[Finding] = []
    try:
        with ExitStack() as stack:
            target = stack.enter_context(running(description))
            for look in (_reached, _version, _clock, _health, _mcp, _controls, _store, _faults):
                findings.append(look(target))
                _show(console, findings[-1])
                if findings[0].fine is False:
                    break
    except (TargetError, LaunchError) as error:
        findings.append(Finding(False, "start", str(error)))
        _show(console, findings[-1])
    ready = all(finding.fine is not False for finding in findings)
    console.print(
        "\nIt can be checked." if ready else "\nMend that first: what is judged now would mislead.",
        highlight=False,
    )
    return 0 if ready else EXIT_UNREACHABLE


def _show(console: Console, finding: Finding) -> None:
    mark = {True: "[green]✓[/]", False: "[bold red]✗[/]", None: "[dim]·[/]"}[finding.fine]
    console.print(f"{mark} {finding.what:<10}", escape(finding.told), highlight=False)


def _reached(target: Target) -> Finding:
    try:
        preflight(replace(target, controls=None, mcp=None, store_url=None))
    except UnreachableError as error:
        return Finding(False, "tool", str(error))
    milliseconds = sorted(length / 1e6 for length, _ in _samples(target))
    if not milliseconds:
        return Finding(False, "tool", "it answered once and then no more")
    median = milliseconds[len(milliseconds) // 2]
    told = f"{target.address.url}{TOOL_PATH} answers, in {median:.1f} ms in the median"
    return Finding(True, "tool", told)


def _version(target: Target) -> Finding:
    with target.client() as client:
        answer = client.exchange("GET", MANIFEST_PATH).answer
    members = json_object(answer.body) if isinstance(answer, HttpAnswer) else None
    if not isinstance(answer, HttpAnswer) or answer.status != 200 or members is None:
        told = f"it publishes no manifest; it is checked against contract {CONTRACT_VERSION}"
        return Finding(None, "contract", told)
    version = members.get("version")
    if version == CONTRACT_VERSION:
        return Finding(True, "contract", f"version {version}, by its manifest")
    told = f"its manifest says version {version!r}; it is checked against {CONTRACT_VERSION}"
    return Finding(None, "contract", told)


def _clock(target: Target) -> Finding:
    observed = [(at, parse) for at, parse in _samples(target) if parse is not None]
    if not observed:
        return Finding(False, "clock", "no answer has an `observed_at` that can be read")
    now_ms = time.time() * 1000
    offset_ms = observed[-1][1] - now_ms
    distinct = sorted({time_ms for _, time_ms in observed})
    steps = [after - before for before, after in itertools.pairwise(distinct)]
    # Not the least of them: over a slow way two answers are that far apart by any clock.
    unit_ms = math.gcd(*steps)
    step = f", in steps of {unit_ms} ms or finer" if steps else ", and stood still meanwhile"
    told = f"{offset_ms / 1000:+.1f} s from this machine's{step}"
    if unit_ms >= COARSE_MS:
        return Finding(False, "clock", told + ": WC-TIME-1 asks for whole milliseconds")
    return Finding(True, "clock", told)


def _samples(target: Target) -> list[tuple[int, int | None]]:
    """Of several answers: how long each took, in ns, and its time in ms where it has one."""
    body = json.dumps(format_request(fresh_identity(), Status())).encode()
    samples: list[tuple[int, int | None]] = []
    with target.client() as client:
        for _ in range(SAMPLES):
            exchange = client.exchange("POST", TOOL_PATH, body, JSON_HEADERS)
            came = read(exchange)
            if not isinstance(came, Result | Problem):
                break
            try:
                observed_ms: int | None = parse_timestamp(came.members.get("observed_at"))
            except ValueError:
                observed_ms = None
            samples.append((exchange.returned_ns - exchange.called_ns, observed_ms))
    return samples


def _health(target: Target) -> Finding:
    with target.client() as client:
        answer = client.exchange("GET", HEALTH_PATH).answer
    if isinstance(answer, HttpAnswer) and answer.status == 200:
        return Finding(True, "health", f"{HEALTH_PATH} says 200: its store answers")
    got = answer.status if isinstance(answer, HttpAnswer) else answer.reason
    return Finding(None, "health", f"{HEALTH_PATH} says {got}, not 200 (WC-HTTP-3)")


def _mcp(target: Target) -> Finding:
    if target.mcp is None:
        return Finding(None, "MCP", "no endpoint given: that binding is not tested")
    endpoint = target.endpoint()
    try:
        met = endpoint.meet()
        names = [tool.get("name") for tool in endpoint.list_tools()]
    except ProtocolError as error:
        return Finding(False, "MCP", f"{target.mcp.url}: {error}")
    session = "with a session" if met.session_id else "without sessions"
    told = f"revision {met.revision}, {session}; tools {', '.join(map(str, names)) or 'none'}"
    return Finding(names == [MCP_TOOL], "MCP", told)


def _controls(target: Target) -> Finding:
    if target.controls is None:
        told = "none given: deadlines are tested in real time, and some rules not at all"
        return Finding(None, "controls", told)
    with target.controls_client() as client:
        controls = Controls(client, Tally())
        try:
            controls.reset()
            clock, _ = controls.freeze()
            controls.advance(clock, 60_000)
            observed = _observed_once(target)
            controls.reset()
        except (ControlError, LostError) as error:
            got = error.failure.fault.got if isinstance(error, ControlError) else str(error)
            return Finding(False, "controls", f"{target.controls.url}: {got}")
    if observed != clock.now_ms:
        told = "they froze a clock, but the tool does not go by it: are they this server's own?"
        return Finding(False, "controls", told)
    return Finding(True, "controls", "they freeze and move the clock that the tool goes by")


def _observed_once(target: Target) -> int | None:
    samples = _samples(target)
    return samples[-1][1] if samples else None


def _store(target: Target) -> Finding:
    if target.store_url is None:
        return Finding(None, "store", "none given: what is stored is not looked at")
    try:
        with open_store(target.store_url) as store, target.client() as client:
            before = set(_keys(store))
            identity, cast = fresh_identity(), Cast()
            claim = json.dumps(format_request(identity, cast.claim(cast.ann))).encode()
            client.exchange("POST", TOOL_PATH, claim, JSON_HEADERS)
            new = set(_keys(store)) - before
            info: dict[str, Any] = store.info("server")
    except StoreAddressError as error:
        return Finding(False, "store", str(error))
    version = info.get("valkey_version") or info.get("redis_version")
    name = "Valkey" if "valkey_version" in info else "Redis"
    if not new:
        told = f"{name} {version}: no key appeared with a claim; is it the one behind the server?"
        return Finding(False, "store", told)
    return Finding(True, "store", f"{name} {version}, and a claim leaves something in it")


def _faults(target: Target) -> Finding:
    access = target.fault_access
    if access is None:
        return Finding(None, "faults", "none described: what happens then is not looked at")
    told = f"{len(access.kinds)} of {len(Kind)} kinds can be made"
    lacking = dict.fromkeys(access.missing.values())
    if lacking:
        told += f"; others need {'; or '.join(lacking)}"
    return Finding(True if access.kinds else None, "faults", told)


def _keys(store: Any) -> list[bytes]:
    return list(store.scan_iter(count=1000))
