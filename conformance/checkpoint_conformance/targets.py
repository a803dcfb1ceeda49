"""Targets as data: ``target.yaml``, with errors that point at the line.

    url: http://127.0.0.1:${port}
    start:
      command: [node, server.js]
      environment: {PORT: "${port}"}

``target.schema.json`` says what there may be, ``docs/targets.md`` how it is used. What a file says,
flags can say the same, and a flag wins.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from checkpoint_conformance.client import EXCHANGE_SECONDS_MAX, Address, UrlError
from checkpoint_conformance.faults import (
    Command,
    Durability,
    FaultAccess,
    Faults,
    ServerFaults,
    StoreFaults,
)
from checkpoint_conformance.rules import RuleClass, rules
from checkpoint_conformance.run import ExpectedFailure, Target
from checkpoint_model.vocabulary import MCP_PATH

if TYPE_CHECKING:
    import jsonschema_rs
    import yaml

READY_SECONDS_MAX: Final = 30.0
STOP_SECONDS_MAX: Final = 10.0
PORTS: Final = ("port", "controls_port", "store_port", "store_listen_port")
"""The placeholders for ports; the third is where a server looks for its store."""
FOLDER: Final = "folder"
"""The placeholder for an empty folder that lasts as long as what was started."""
_PLACEHOLDER: Final = re.compile(r"\$\{([^}]*)\}")


class TargetError(Exception):
    """The description of a target is wrong; the message says where and how."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """How to start an implementation."""

    command: tuple[str, ...]
    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    ready: str | None = None
    """URL that answers once requests are taken; /healthz below the root if None."""
    ready_seconds: float = READY_SECONDS_MAX
    stop_seconds: float = STOP_SECONDS_MAX


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """A target as it is described, its placeholders not yet filled in."""

    url: str
    name: str = ""
    version: str = ""
    homepage: str = ""
    controls: str | None = None
    store: str | None = None
    logs: tuple[Path, ...] = ()
    """Files that the implementation logs to."""
    mcp: str | None = None
    """URL of its MCP endpoint; `/mcp` below the root if the class is claimed and this is None."""
    classes: frozenset[RuleClass] | None = None
    """What it claims; core, and controls and MCP where a URL of them is given, if None."""
    also_claimed: frozenset[RuleClass] = frozenset()
    """What it claims besides."""
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = EXCHANGE_SECONDS_MAX
    start: Start | None = None
    expected_failures: tuple[ExpectedFailure, ...] = ()
    durability: Durability | None = None
    faults: Faults | None = None

    @property
    def placeholders(self) -> frozenset[str]:
        """Those that the description uses, but for the environment's variables."""
        said = [self.url, self.controls or "", self.mcp or "", self.store or ""]
        if self.start is not None:
            said += [*self.start.command, *self.start.environment.values()]
        if self.store_command is not None:
            said += self.store_command
        return frozenset(
            name for name in (*PORTS, FOLDER) if any(f"${{{name}}}" in s for s in said)
        )

    @property
    def ports(self) -> tuple[str, ...]:
        """The placeholders for ports that the description uses."""
        return tuple(name for name in PORTS if name in self.placeholders)

    @property
    def store_command(self) -> Command | None:
        """What runs the store, where that is ours to start."""
        if self.faults is None or self.faults.store is None:
            return None
        return self.faults.store.command

    def filled_in(self, values: Mapping[str, int | str]) -> "Description":
        """The same with ports, folder and environment put in.

        Raises:
            TargetError: a placeholder that there is not, or a variable that is not set.
        """

        def fill(text: str) -> str:
            return _PLACEHOLDER.sub(lambda match: _value(match[1], values), text)

        def filled(command: Command | None) -> Command | None:
            return None if command is None else tuple(map(fill, command))

        faults = self.faults
        if faults is not None and faults.store is not None:
            clock = faults.store.clock_file
            store = replace(
                faults.store,
                command=filled(faults.store.command),
                clock_file=None if clock is None else Path(fill(str(clock))),
            )
            faults = replace(faults, store=store)
        start = self.start
        if start is not None:
            start = replace(
                start,
                command=tuple(map(fill, start.command)),
                environment={name: fill(value) for name, value in start.environment.items()},
                ready=None if start.ready is None else fill(start.ready),
            )
        return replace(
            self,
            url=fill(self.url),
            controls=None if self.controls is None else fill(self.controls),
            store=None if self.store is None else fill(self.store),
            mcp=None if self.mcp is None else fill(self.mcp),
            headers={name: fill(value) for name, value in self.headers.items()},
            start=start,
            faults=faults,
        )

    def target(self, fault_access: FaultAccess | None = None) -> Target:
        """The target, once everything is filled in.

        Args:
            fault_access: how faults are made of it, where they can be.

        Raises:
            TargetError: an address is none.
        """
        try:
            controls = None if self.controls is None else Address.parse(self.controls)
            address = Address.parse(self.url)
            mcp = None if self.mcp is None else Address.parse(self.mcp)
        except UrlError as error:
            raise TargetError(str(error)) from None
        classes = self.classes
        if classes is None:
            given = {RuleClass.CONTROLS: controls, RuleClass.MCP: mcp}
            classes = frozenset({RuleClass.CORE, *(kind for kind, at in given.items() if at)})
        classes |= self.also_claimed
        if RuleClass.MCP not in classes:
            mcp = None
        elif mcp is None:
            mcp = Address.parse(address.url + MCP_PATH)
        if RuleClass.CONTROLS in classes and controls is None:
            raise TargetError(
                "the class controls is claimed, but they have no URL (`controls`, --controls)"
            )
        return Target(
            address=address,
            controls=controls,
            mcp=mcp,
            store_url=self.store,
            headers=self.headers,
            seconds_max=self.timeout_seconds,
            name=self.name,
            version=self.version,
            homepage=self.homepage,
            classes=classes,
            expected_failures=self.expected_failures,
            fault_access=fault_access,
        )


def load_description(path: Path) -> Description:
    """Read a ``target.yaml``.

    Raises:
        TargetError: it cannot be read, or is not what the schema says; with file and line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TargetError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TargetError(f"{path}: not UTF-8") from None
    return parse_description(text, path)


def parse_description(text: str, path: Path) -> Description:
    """Read the text of a ``target.yaml``; raises as :func:`load_description` does."""
    import yaml

    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise TargetError(f"{path}: the file is empty; it needs at least `url`")
        data = _plain(loader, node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise TargetError(f"{where}: {error.problem or error.context}") from None
    finally:
        loader.dispose()
    faults = [f"{path}:{line}: {what}" for line, what in sorted(_faults(node, data))]
    if faults:
        raise TargetError("\n".join(faults))
    return _description(data, path)


def _plain(loader: "yaml.SafeLoader", node: "yaml.Node") -> Any:
    """The data of a node, dates left as the text that they are in JSON."""
    data = loader.construct_document(node)

    def as_json(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(key): as_json(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [as_json(entry) for entry in value]
        if isinstance(value, datetime | date):
            return value.isoformat()
        return value

    return as_json(data)


def _faults(node: "yaml.Node", data: object) -> Iterator[tuple[int, str]]:
    for error in _validator().iter_errors(data):
        path = list(error.instance_path)
        yield _line(node, path), _explain(error, path)
    if not isinstance(data, dict):
        return
    for number, expected in enumerate(data.get("expected_failures") or ()):
        rule = expected.get("rule") if isinstance(expected, dict) else None
        if isinstance(rule, str) and rule not in rules():
            path = ["expected_failures", number, "rule"]
            yield _line(node, path), f"the contract has no rule {rule}"
    for path, fault in _contradictions(data):
        yield _line(node, path), f"`{'.'.join(map(str, path))}`: {fault}"


def _contradictions(data: Mapping[str, Any]) -> Iterator[tuple[list[str | int], str]]:
    """What is wrong of faults beside their form, which the schema says."""
    faults = data.get("faults")
    if not isinstance(faults, dict):
        return
    store = faults.get("store")
    if isinstance(store, dict):
        path: list[str | int] = ["faults", "store"]
        if "store" not in data:
            yield path, "it needs `store`, the URL where the store answers"
        if "durability" not in data:
            yield path, "it needs `durability`: what survives a crash of the store"
        if "command" in store and "start" not in data:
            yield [*path, "command"], "it needs `start`: a server that runs has a store already"
        if ("freeze" in store) is not ("thaw" in store):
            yield path, "`freeze` and `thaw` go together"
    if faults.get("servers", 1) != 1 and "start" not in data:
        yield ["faults", "servers"], "it needs `start`: only what is started here can be several"
    if "server" in faults and "start" in data:
        yield ["faults", "server"], "with `start` the server that was started is killed"


@cache
def _validator() -> "jsonschema_rs.Draft202012Validator":
    import jsonschema_rs

    text = resources.files(__package__).joinpath("target.schema.json").read_text(encoding="utf-8")
    return jsonschema_rs.Draft202012Validator(json.loads(text))


def _explain(error: "jsonschema_rs.ValidationError", path: list[str | int]) -> str:
    where = ".".join(map(str, path))
    return f"`{where}`: {error.message}" if where else error.message


def _line(node: "yaml.Node", path: list[str | int]) -> int:
    """The line, from 1, of what a path of keys and indices leads to, as far as it leads."""
    import yaml

    line = node.start_mark.line
    for step in path:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == str(step):
                    line, node = key.start_mark.line, value
                    break
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            node = node.value[step]
            line = node.start_mark.line
    return line + 1


def _description(data: Mapping[str, Any], path: Path) -> Description:
    start = None
    if "start" in data:
        given = data["start"]
        start = Start(
            command=tuple(given["command"]),
            directory=(path.parent / given.get("directory", ".")).resolve(),
            environment=given.get("environment", {}),
            ready=given.get("ready"),
            ready_seconds=given.get("ready_seconds", READY_SECONDS_MAX),
            stop_seconds=given.get("stop_seconds", STOP_SECONDS_MAX),
        )
    classes = data.get("classes")
    durability = data.get("durability")
    return Description(
        durability=None if durability is None else Durability(durability),
        faults=_faults_described(data["faults"], path) if "faults" in data else None,
        url=data["url"],
        name=data.get("name", ""),
        version=data.get("version", ""),
        homepage=data.get("homepage", ""),
        controls=data.get("controls"),
        store=data.get("store"),
        logs=tuple((path.parent / name).resolve() for name in data.get("logs", ())),
        mcp=data.get("mcp"),
        classes=None if classes is None else frozenset(map(RuleClass, classes)),
        headers={name.lower(): value for name, value in data.get("headers", {}).items()},
        timeout_seconds=data.get("timeout_seconds", EXCHANGE_SECONDS_MAX),
        start=start,
        expected_failures=tuple(
            expected_failure(
                entry["rule"], entry["reason"], entry.get("issue", ""), entry.get("expires")
            )
            for entry in data.get("expected_failures", ())
        ),
    )


def _faults_described(data: Mapping[str, Any], path: Path) -> Faults:
    def command(given: Mapping[str, Any], name: str) -> Command | None:
        return tuple(given[name]) if name in given else None

    def file(given: Mapping[str, Any], name: str) -> Path | None:
        if name not in given:
            return None
        # One in ${folder} is nowhere yet.
        told = Path(given[name])
        return told if "${" in given[name] else (path.parent / told).resolve()

    server, store = data.get("server"), data.get("store")
    return Faults(
        servers=data.get("servers", 1),
        server=None
        if server is None
        else ServerFaults(kill=tuple(server["kill"]), start=tuple(server["start"])),
        store=None
        if store is None
        else StoreFaults(
            command=command(store, "command"),
            pid_file=file(store, "pid_file"),
            kill=command(store, "kill"),
            start=command(store, "start"),
            freeze=command(store, "freeze"),
            thaw=command(store, "thaw"),
            may_be_spoiled=store.get("may_be_spoiled", False),
            clock_file=file(store, "clock_file"),
        ),
    )


def expected_failure(
    rule: str, reason: str, issue: str = "", expires: str | None = None
) -> ExpectedFailure:
    """One expected failure.

    Raises:
        TargetError: the contract has no such rule, or the day is none.
    """
    if rule not in rules():
        raise TargetError(f"the contract has no rule {rule}")
    try:
        day = None if expires is None else date.fromisoformat(expires)
    except ValueError:
        raise TargetError(f"{expires} is no day") from None
    return ExpectedFailure(rule=rule, reason=reason, issue=issue, expires=day)


def _value(name: str, values: Mapping[str, int | str]) -> str:
    kind, colon, variable = name.partition(":")
    if kind == "env" and colon:
        value = os.environ.get(variable)
        if value is None:
            raise TargetError(f"${{{name}}}: the environment variable {variable} is not set")
        return value
    if name in values:
        return str(values[name])
    raise TargetError(
        f"${{{name}}} is no placeholder; there are ${{env:NAME}} and, with `start`, "
        "${port} and ${controls_port}; with `faults.store.command` also ${store_listen_port}, "
        "${store_port} and ${folder}"
    )
