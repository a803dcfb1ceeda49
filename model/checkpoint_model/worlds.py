"""The worlds that are explored, from one that takes no time to one that takes minutes.

Each is as small as what it is for allows; together they reach every goal of ``SOMETIMES``.
States and transitions of each are pinned in the tests: a changed count is a changed machine.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from checkpoint_model.exploration import Configuration, World
from checkpoint_model.vocabulary import CONTRACT_LIMITS, EvidenceType, Limits

_RETRYING: Final = Configuration(claim_ttl_seconds=1, state_ttl_seconds=2, retry_failed=True)
_ONCE: Final = Configuration(claim_ttl_seconds=1, state_ttl_seconds=2, retry_failed=False)
_LONGER: Final = Configuration(claim_ttl_seconds=1, state_ttl_seconds=3, retry_failed=True)
_LONG_CLAIM: Final = Configuration(claim_ttl_seconds=2, state_ttl_seconds=3, retry_failed=True)
_LONGER_ONCE: Final = Configuration(claim_ttl_seconds=1, state_ttl_seconds=3, retry_failed=False)
_LONG_CLAIM_ONCE: Final = Configuration(
    claim_ttl_seconds=2, state_ttl_seconds=3, retry_failed=False
)
_ABSENCE: Final = EvidenceType.EXTERNAL_ABSENCE
_RECEIPT: Final = EvidenceType.PROVIDER_RECEIPT
_TWO: Final = ("ann", "bob")
_THREE: Final = ("ann", "bob", "cy")

_OTHER_EVIDENCE: Final = (
    "stage compensated",
    "move * compensated *",
    "move * caller_verified external_read",
    "move * caller_verified operator_attestation",
    "move * failed not_attempted",
    "move * failed provider_rejection",
    "move * failed operator_attestation",
)
_RECEIPTS: Final = ("stage caller_verified", "move * caller_verified provider_receipt")
_ENDS: Final = (
    "row WC-CLAIM-2",
    "row WC-TRANS-5",
    "row WC-ABANDON-3",
    "error CHECKPOINT_TERMINAL",
    "replay in a terminal record",
)
_OTHER_LIFETIMES: Final = ("conflict over claim_ttl_seconds", "conflict over state_ttl_seconds")
_CONFLICTS: Final = ("row WC-CLAIM-3", "error CONFIGURATION_CONFLICT", "conflict over *")
_STEADY: Final = ("clock behind the last change",)
_FEW_KEYS: Final = ("all observations used",)
_ONE_SETTING: Final = (*_OTHER_EVIDENCE, *_RECEIPTS, *_ENDS, *_CONFLICTS)

WORLDS: Final[Mapping[str, World]] = MappingProxyType(
    {
        world.name: world
        for world in (
            World(
                name="tiny",
                sentence="The least in which a claim lapses and is taken over.",
                holders=_TWO,
                configurations=(_RETRYING,),
                observation_keys=("one",),
                evidence=(_ABSENCE,),
                out_of_reach=(*_ONE_SETTING, *_STEADY, *_FEW_KEYS),
            ),
            World(
                name="last",
                sentence="One generation only, so the first is the last, and every end is an end.",
                holders=_TWO,
                configurations=(_RETRYING, _ONCE),
                observation_keys=("one", "two"),
                evidence=(_ABSENCE,),
                limits=Limits(generations=1, observations=2),
                out_of_reach=(
                    *_OTHER_EVIDENCE,
                    *_RECEIPTS,
                    *_OTHER_LIFETIMES,
                    *_STEADY,
                    "row WC-CLAIM-[78]",
                    "row WC-TRANS-4",
                    "row WC-ABANDON-2",
                    "error STALE_GENERATION",
                    "take-over *",
                    "own lapse recovered",
                    "retry by another holder",
                    "claim cut by the record's end",
                    "* after take-over",
                    "former holder refused",
                ),
            ),
            World(
                name="clock",
                sentence="The clock may read less than when the record last changed.",
                holders=_TWO,
                configurations=(_RETRYING,),
                observation_keys=("one",),
                evidence=(_ABSENCE,),
                clock_steps_back=True,
                out_of_reach=(*_ONE_SETTING, *_FEW_KEYS),
            ),
            World(
                name="fingerprints",
                sentence="Evidence with two fingerprints and with none.",
                holders=_TWO,
                configurations=(_RETRYING,),
                observation_keys=("one",),
                evidence=(_ABSENCE,),
                fingerprints=("sha256:" + "a" * 64, "sha256:" + "b" * 64),
                out_of_reach=(*_ONE_SETTING, *_STEADY, *_FEW_KEYS),
            ),
            World(
                name="configurations",
                sentence="Configurations that differ in one member only, whichever it is.",
                holders=_TWO,
                configurations=(_LONGER, _RETRYING, _LONG_CLAIM, _LONGER_ONCE),
                observation_keys=("one",),
                evidence=(_ABSENCE,),
                out_of_reach=(
                    *_OTHER_EVIDENCE,
                    *_RECEIPTS,
                    *_STEADY,
                    *_FEW_KEYS,
                    "row WC-TRANS-5",
                ),
            ),
            World(
                name="cells",
                sentence="Every move with every evidence, and every row but one.",
                holders=_TWO,
                configurations=(_RETRYING, _ONCE),
                observation_keys=("one",),
                evidence=tuple(EvidenceType),
                # A terminal record has used its only key, so no request gets as far as the row.
                out_of_reach=("row WC-TRANS-5", *_OTHER_LIFETIMES, *_STEADY, *_FEW_KEYS),
            ),
            World(
                name="pair",
                sentence="Two of everything, with an end that is for good.",
                holders=_TWO,
                configurations=(_RETRYING, _ONCE),
                observation_keys=("one", "two"),
                evidence=(_ABSENCE, _RECEIPT),
                out_of_reach=(*_OTHER_EVIDENCE, *_OTHER_LIFETIMES, *_STEADY, *_FEW_KEYS),
            ),
            World(
                name="differential",
                sentence="Every row, move, evidence and deadline, in the fewest states.",
                holders=_TWO,
                configurations=(_RETRYING, _ONCE),
                observation_keys=("one", "two", "three"),
                evidence=tuple(EvidenceType),
                remembered_generations=1,
                out_of_reach=(
                    *_OTHER_LIFETIMES,
                    *_STEADY,
                    "replay after take-over",
                    "conflict after take-over",
                ),
            ),
            World(
                name="everything",
                sentence="Every row, and every move with every evidence, in one.",
                holders=_TWO,
                configurations=(_RETRYING, _ONCE),
                observation_keys=("one", "two"),
                evidence=tuple(EvidenceType),
                out_of_reach=(*_OTHER_LIFETIMES, *_STEADY, *_FEW_KEYS),
            ),
            World(
                name="observations",
                sentence="As many keys as two generations can use.",
                holders=_TWO,
                configurations=(_RETRYING,),
                observation_keys=("one", "two", "three", "four"),
                evidence=(_ABSENCE,),
                out_of_reach=(*_ONE_SETTING, *_STEADY),
            ),
            World(
                name="three",
                sentence="Three holders, three generations, a record that outlives two claims.",
                holders=_THREE,
                configurations=(_LONGER,),
                observation_keys=("one", "two"),
                evidence=(_ABSENCE,),
                limits=Limits(generations=3, observations=6),
                out_of_reach=(*_ONE_SETTING, *_STEADY, *_FEW_KEYS),
            ),
            World(
                name="large",
                sentence="Four keys over three generations.",
                holders=_TWO,
                configurations=(_LONGER,),
                observation_keys=("one", "two", "three", "four"),
                evidence=(_ABSENCE,),
                limits=Limits(generations=3, observations=6),
                takes_minutes=True,
                out_of_reach=(*_ONE_SETTING, *_STEADY, *_FEW_KEYS),
            ),
            World(
                name="contract-limits",
                sentence="The contract's own sixteen generations and thirty-two observations.",
                holders=_TWO,
                configurations=(_LONG_CLAIM, _LONG_CLAIM_ONCE),
                observation_keys=("one", "two", "three"),
                evidence=(_ABSENCE,),
                limits=CONTRACT_LIMITS,
                # The millisecond before and after is the smaller worlds' business: here sixteen
                # generations would add up to as many milliseconds in every combination.
                instants_ms=(0,),
                remembered_generations=1,
                out_of_reach=(
                    *_OTHER_EVIDENCE,
                    *_RECEIPTS,
                    *_OTHER_LIFETIMES,
                    *_STEADY,
                    "held in the last millisecond",
                    "record there in its last millisecond",
                    "replay after take-over",
                    "conflict after take-over",
                ),
            ),
        )
    }
)
"""By name, from small to large."""
