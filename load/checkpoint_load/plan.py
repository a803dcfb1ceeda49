"""What a storm is to do, as the command, Locust's options and every worker read it."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from checkpoint_conformance.client import EXCHANGE_SECONDS_MAX, Address, UrlError
from checkpoint_conformance.run import Target
from checkpoint_load.limits import (
    CONTENDERS_MAX,
    CONTENDERS_MIN,
    DURATION_DEFAULT_SECONDS,
    DURATION_MAX_SECONDS,
    LOSE_MAX_PERCENT,
    ROUNDS_DEFAULT,
    ROUNDS_MAX,
)
from checkpoint_load.storms import STORMS, Storm

HEADERS_VARIABLE: Final = "WORKFLOW_CHECKPOINT_STORM_HEADERS"
"""The target's headers as a JSON object: arguments could be read by others on the machine."""
LIFELINE_VARIABLE: Final = "WORKFLOW_CHECKPOINT_STORM_LIFELINE"
"""Number of a descriptor whose end means that whoever started the storm is gone."""


class PlanError(ValueError):
    """The options are no plan; the message says which and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A run of storms."""

    url: str
    headers: Mapping[str, str]
    name: str
    version: str
    description: str
    """One line on it for people."""
    seconds_max: float
    """Of one answer."""
    storms: tuple[Storm, ...]
    contenders: int
    rounds: int | None
    """Of each storm; as many as there is time for if None."""
    duration_seconds: float | None
    """Of all storms together; until the rounds are done if None, but not for ever."""
    seed: int
    lose_percent: int
    folder: Path
    nemesis: tuple[str, ...] = ()
    """The kinds of faults that are made meanwhile, by the process that started this one."""
    durability: str = ""
    """What the target's store keeps through a crash; empty where nobody said."""

    @classmethod
    def of(cls, environment: Any) -> "Plan":
        """The plan in the host and the parsed options of Locust's environment.

        Raises:
            PlanError: an option is not as it should be.
        """
        options = environment.parsed_options
        url = str(environment.host or "").rstrip("/")
        try:
            Address.parse(url)
        except UrlError as error:
            raise PlanError(f"--host: {error}") from None
        names = [name for name in options.storms.replace(" ", "").split(",") if name]
        unknown = [name for name in names if name not in STORMS]
        if unknown:
            there_are = ", ".join(STORMS)
            raise PlanError(f"--storms: there is no {unknown[0]!r}; there are {there_are}")
        for name, least, most in (
            ("contenders", CONTENDERS_MIN, CONTENDERS_MAX),
            ("rounds", 0, ROUNDS_MAX),
            ("duration", 0, DURATION_MAX_SECONDS),
            ("lose", 0, LOSE_MAX_PERCENT),
        ):
            if not least <= float(getattr(options, name) or 0) <= most:
                raise PlanError(f"--{name}: from {least} to {most:g}")
        return cls(
            url=url,
            headers=dict(options.storm_headers),
            name=options.target_name,
            version=options.target_version,
            description=options.target_description,
            seconds_max=float(options.answer_timeout or EXCHANGE_SECONDS_MAX),
            storms=tuple(STORMS[name] for name in names) if names else tuple(STORMS.values()),
            contenders=int(options.contenders),
            rounds=int(options.rounds) if options.rounds else None,
            duration_seconds=float(options.duration) if options.duration else None,
            seed=int(options.seed),
            lose_percent=int(options.lose),
            folder=Path(options.report),
            nemesis=tuple(kind for kind in options.storm_nemesis.split(",") if kind),
            durability=options.storm_durability,
        )

    @property
    def target(self) -> Target:
        """What is stormed."""
        return Target(
            address=Address.parse(self.url),
            headers=self.headers,
            seconds_max=self.seconds_max,
            name=self.name,
            version=self.version,
        )

    @property
    def rounds_max(self) -> int:
        """Of each storm, at most."""
        if self.rounds is not None:
            return self.rounds
        return ROUNDS_MAX if self.duration_seconds is not None else ROUNDS_DEFAULT

    @property
    def time_max_seconds(self) -> float:
        """Of all storms together, at most."""
        return self.duration_seconds or DURATION_DEFAULT_SECONDS

    def deadlines(self) -> Iterator[tuple[Storm, float]]:
        """Each storm, as it begins, and when it must end, by the monotonic clock in seconds."""
        began = time.monotonic()
        for number, storm in enumerate(self.storms, start=1):
            share = number / len(self.storms) if self.duration_seconds else 1
            yield storm, began + share * self.time_max_seconds

    @property
    def asked(self) -> dict[str, str]:
        """The target, as histories and reports name it."""
        told = {"url": self.url, "name": self.name, "version": self.version}
        return {key: value for key, value in told.items() if value}

    @property
    def parameters(self) -> dict[str, Any]:
        """With what the storms are started, as histories and reports have it."""
        return {
            "storms": [storm.name for storm in self.storms],
            "contenders": self.contenders,
            "rounds": self.rounds_max if self.duration_seconds is None else self.rounds,
            "duration_seconds": self.duration_seconds,
            "seed": self.seed,
            "lose_percent": self.lose_percent,
            **self.faults,
        }

    @property
    def faults(self) -> dict[str, Any]:
        """What the parameters say of faults; nothing where none are made."""
        if not self.nemesis:
            return {}
        return {"nemesis": list(self.nemesis), "durability": self.durability}
