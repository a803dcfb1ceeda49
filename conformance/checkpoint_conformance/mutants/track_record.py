"""Public faults of real projects of the same kind, and the mutant that each is in our terms.

Each was found in its project's own tracker and read there; the sentence is ours, and nothing else
of it is here. Where a mutant of the zoo was that fault already, that one stands for it; the others
are in ``recorded``. To write the page anew:

    python -m checkpoint_conformance.mutants.track_record > docs/track-record.md
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from checkpoint_conformance.mutants.zoo import ZOO

_HEAD: Final = """\
# Track record

Faults of the kind that the harness is there to find, as real projects had them in public:
idempotency layers, leases and fencing, lock libraries, job queues, durable workflows. Each is
re-created as a [mutant](mutants.md) in terms of this contract, and the harness must catch it by
the rules that are named. That a project is listed says that it dealt with a fault in the open.

The sentences are ours; nothing was taken over. Generated from
`conformance/checkpoint_conformance/mutants/track_record.py`; a test holds it to that.

"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """One public fault."""

    project: str
    """Owner and name at GitHub."""
    number: int
    what: str
    """What went wrong, in one sentence of ours."""
    mutant: str
    """The name of the one that is the same fault."""
    is_pull: bool = False
    """Whether the number is a pull request's: the fault is told where it was mended."""

    @property
    def url(self) -> str:
        """Where it is told."""
        kind = "pull" if self.is_pull else "issues"
        return f"https://github.com/{self.project}/{kind}/{self.number}"


TRACK_RECORD: Final = (
    Recorded(
        project="etcd-io/etcd",
        number=11456,
        what="A lock that was waited for was told as held although its lease had run out in the "
        "meantime.",
        mutant="holds-what-lapsed",
    ),
    Recorded(
        project="apache/curator",
        number=1121,
        what="After a new session a client took the lock node of its old one, about to be removed, "
        "for its own, so two held the lock.",
        mutant="goes-on-after-a-lapse",
    ),
    Recorded(
        project="leandromoreira/redlock-rb",
        number=36,
        what="A lock that had expired could be extended as if it had been held all along.",
        mutant="goes-on-after-a-lapse",
    ),
    Recorded(
        project="mike-marcacci/node-redlock",
        number=296,
        what="The lifetime was counted from the first attempt, so a lock that was waited for could "
        "be over when it was granted.",
        mutant="waiting-counts-against-the-claim",
    ),
    Recorded(
        project="redis/redis-py",
        number=4279,
        what="Renewing a lock that has no time limit reported success and deleted it.",
        mutant="reuse-drops-the-record",
    ),
    Recorded(
        project="ionelmc/python-redis-lock",
        number=25,
        what="A release by somebody who did not hold the lock passed for one that worked.",
        mutant="abandoned-for-anybody",
    ),
    Recorded(
        project="twentyhq/twenty",
        number=25661,
        what="A holder whose time was over released the lock of whoever had it by then.",
        mutant="anybody-abandons",
    ),
    Recorded(
        project="apache/superset",
        number=43462,
        is_pull=True,
        what="The lock's value was a constant and its release unconditional, so a late holder "
        "freed another's lock.",
        mutant="anybody-abandons",
    ),
    Recorded(
        project="redisson/redisson",
        number=7272,
        what="The renewal of a lock could be scheduled after its release, and kept alive a lock "
        "that nobody held.",
        mutant="abandon-keeps-the-claim",
    ),
    Recorded(
        project="redisson/redisson",
        number=100,
        is_pull=True,
        what="Locks had no expiry, so those of a client that died stayed for ever.",
        mutant="never-expires-natively",
    ),
    Recorded(
        project="johanhaleby/occurrent",
        number=659,
        what="A lease was written by one node's clock and judged by another's, so a node that ran "
        "ahead took over a healthy one.",
        mutant="judges-by-a-clock-ahead",
    ),
    Recorded(
        project="kubernetes/kubernetes",
        number=114872,
        is_pull=True,
        what="A candidate waited for its own configured lease duration, not for the one that the "
        "leader's record names.",
        mutant="claim-ttl-is-not-compared",
    ),
    Recorded(
        project="OptimalBits/bull",
        number=308,
        what="A token for each queue, not for each attempt, could not tell a slow worker from the "
        "one that had taken over, and a job was completed twice.",
        mutant="ignores-the-generation",
    ),
    Recorded(
        project="OptimalBits/bull",
        number=1416,
        what="A worker that had lost its job wrote its failure over the job that another was "
        "running by then.",
        mutant="takes-earlier-generations",
    ),
    Recorded(
        project="zoolutions/sidekiq-unique-jobs",
        number=560,
        what="Locks of some jobs outlived the job, and new ones were turned away for hours.",
        mutant="settled-claims-live-on",
    ),
    Recorded(
        project="cameronmaske/celery-once",
        number=37,
        is_pull=True,
        what="A retry met the lock that the task itself held, and was refused.",
        mutant="a-holder-is-a-stranger-to-itself",
    ),
    Recorded(
        project="yuzd/Hangfire.HttpJob",
        number=4,
        what="Jobs that had nothing to do with one another shared one lock.",
        mutant="one-lock-for-all",
    ),
    Recorded(
        project="dbos-inc/dbos-transact-py",
        number=544,
        what="Starts of one workflow id at the same time all ran the workflow; only later ones "
        "found its result.",
        mutant="claims-in-two-steps",
    ),
    Recorded(
        project="dbos-inc/dbos-transact-java",
        number=491,
        what="Recovery at start-up took over a workflow that was running already, and ran it a "
        "second time.",
        mutant="takes-over-a-held-claim",
    ),
    Recorded(
        project="dbos-inc/dbos-transact-java",
        number=467,
        is_pull=True,
        what="An outcome was written whatever the status was, over one that was final.",
        mutant="terminal-moves",
    ),
    Recorded(
        project="aws-powertools/powertools-lambda-python",
        number=4759,
        what="No milliseconds left read as no limit given, so the record in progress got no "
        "deadline and blocked every retry.",
        mutant="no-time-left-is-no-deadline",
    ),
    Recorded(
        project="aws-powertools/powertools-lambda-python",
        number=3821,
        what="A record was put into the cache before it was checked, and stayed there when the "
        "check failed.",
        mutant="refused-transitions-record-their-key",
    ),
    Recorded(
        project="aws-powertools/powertools-lambda-typescript",
        number=2058,
        what="A shortcut to the stored record left out the comparison of payloads, and another "
        "request got its result.",
        mutant="replays-any-body",
    ),
    Recorded(
        project="aws-powertools/powertools-lambda-java",
        number=2260,
        what="The same shortcut in another language: a changed payload under a used key was not "
        "refused.",
        mutant="replays-any-body",
    ),
    Recorded(
        project="aws-powertools/powertools-lambda-typescript",
        number=5705,
        what="Completing a record dropped the hash of its payload, so the very same request was "
        "refused as another.",
        mutant="never-replays",
    ),
    Recorded(
        project="jcagarcia/grape-idempotency",
        number=10,
        what="The key was stored with the answer, so a repeat that came before the answer ran "
        "everything again.",
        mutant="transitions-in-two-steps",
    ),
    Recorded(
        project="mastodon/mastodon",
        number=37879,
        is_pull=True,
        what="Of two requests under one key the second was processed too when the first had not "
        "finished.",
        mutant="two-movers",
    ),
    Recorded(
        project="KanishJebaMathewM/Truxify",
        number=2869,
        what="A refusal was kept under the key, and the corrected request was answered with it.",
        mutant="refused-transitions-record-their-key",
    ),
    Recorded(
        project="kortix-ai/suna",
        number=5267,
        is_pull=True,
        what="Keys were unique across accounts, and one tenant got what another had made under "
        "the same key.",
        mutant="takes-no-account-of-namespaces",
    ),
)


def page() -> str:
    """The page of the documentation."""
    return _HEAD + "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    projects = {one.project for one in TRACK_RECORD}
    mutants = {one.mutant for one in TRACK_RECORD}
    yield (
        f"{len(TRACK_RECORD)} faults of {len(projects)} projects, re-created by {len(mutants)} "
        "mutants, each of which is killed."
    )
    yield ""
    yield "| project | where | what went wrong | mutant | caught by |"
    yield "|---|---|---|---|---|"
    for one in TRACK_RECORD:
        caught = ", ".join(ZOO[one.mutant].rules)
        where = f"[#{one.number}]({one.url})"
        yield f"| {one.project} | {where} | {one.what} | `{one.mutant}` | {caught} |"


if __name__ == "__main__":
    sys.stdout.write(page())
