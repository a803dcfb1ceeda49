"""Faults of the harness itself, and which tests of ours must fail for each.

A conformance harness is worth what it catches, and so are its own tests: each fault here is one
place of the judging code changed so that it lets something through, or blames what is right. It is
played by ``changed_packages.py`` on a copy of the package; a test that stays green shows that
nothing holds the harness to what it is for.

What decides requests (``checkpoint_model.machine``) and what must hold of every decision
(``invariants``) have seeded faults of their own, as have the search for an order and the symbolic
machine: see ``SEEDED_ELSEWHERE``. They are not repeated here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from changed_packages import Played

PAGE: Final = "docs/harness-mutants.md"
_CHECK: Final = "conformance/checkpoint_conformance"
_TESTS: Final = "conformance/tests"
_LINEARIZABILITY: Final = "model/checkpoint_model/linearizability.py"


@dataclass(frozen=True, kw_only=True, slots=True)
class HarnessMutant:
    """One place of the harness, changed."""

    name: str
    """By which it is called: lower-case words with hyphens."""
    wrong: str
    """What is then wrong with the harness, in one sentence."""
    matters: str
    """What would go unseen, or be blamed unjustly."""
    file: str
    """In the repository."""
    old: str
    new: str
    tests: tuple[str, ...]
    """Node ids of pytest, every one of which must fail."""
    slow: bool = False
    """Whether its tests take more than a third of a second: CI leaves it to the nox session."""


def _of(module: str, test_file: str, *, slow: bool = False) -> "_Made":
    return _Made(f"{_CHECK}/{module}", f"{_TESTS}/{test_file}", slow)


@dataclass(frozen=True)
class _Made:
    """Mutants of one file, killed by the tests of one file."""

    file: str
    test_file: str
    slow: bool = False

    def __call__(
        self, name: str, wrong: str, matters: str, old: str, new: str, *tests: str
    ) -> HarnessMutant:
        return HarnessMutant(
            name=name,
            wrong=wrong,
            matters=matters,
            file=self.file,
            old=old,
            new=new,
            tests=tuple(f"{self.test_file}::{test}" for test in tests),
            slow=self.slow,
        )


_oracle = _of("oracle.py", "test_oracle.py")
_ORACLE: Final = (
    _oracle(
        "any-refusal-is-right",
        "Takes any refusal where a refusal is due.",
        "A server that answers every refusal with one code would pass.",
        "else isinstance(came, Problem) and came.code is outcome",
        "else isinstance(came, Problem)",
        "test_what_is_wrong_is_named[another-refusal]",
    ),
    _oracle(
        "results-are-their-stage-alone",
        "Compares stage and generation of a result, and nothing else.",
        "Wrong deadlines, flags and times left would pass.",
        "yield from self._members(decided, expected, got, expected.keys())",
        "yield from self._members(decided, expected, got, _DECISION)",
        "test_what_is_wrong_is_named[rounded-up]",
        "test_what_is_wrong_is_named[renewed]",
    ),
    _oracle(
        "more-members-are-welcome",
        "Takes a result with members that the contract does not have.",
        "WC-VIEW-1 would be half a rule.",
        "        if unknown:\n",
        "        if False:\n",
        "test_what_is_wrong_is_named[a-member-more]",
    ),
    _oracle(
        "true-is-one",
        "Compares values without their JSON types.",
        "Clients that are strict about types would be the first to find out.",
        "if isinstance(due, bool) or isinstance(came, bool):",
        "if False:",
        "test_what_is_wrong_is_named[true-for-1]",
    ),
    _oracle(
        "refusals-tell-what-they-like",
        "Compares only the time of a refusal.",
        "A refusal could show another record than there is.",
        'compared = {"observed_at", "stage", "generation", "claim_expires_at", "configuration"}',
        'compared = {"observed_at"}',
        "test_what_is_wrong_is_named[no-stage]",
        "test_what_is_wrong_is_named[no-configuration]",
    ),
    _oracle(
        "times-are-believed",
        "Does not hold `observed_at` against the clock.",
        "With an invented time every deadline can be made to fit (decision D4).",
        "wrong = self.clock.judge(observed_ms, exchange.called_ns, exchange.returned_ns)",
        "wrong = None",
        "test_what_is_wrong_is_named[invented]",
    ),
    _oracle(
        "time-may-go-back",
        "Does not see a time before the record's last change.",
        "WC-TIME-4 would be nobody's rule.",
        "if self.record is not None and observed_ms < self.record.changed_at_ms:",
        "if False:",
        "test_what_is_wrong_is_named[backwards]",
    ),
    _oracle(
        "hashes-may-change",
        "Does not remember the hash of its workflow.",
        "Two answers could be about two records.",
        'if self.workflow_hash not in (None, got.get("workflow_hash")):',
        "if False:",
        "test_what_is_wrong_is_named[another]",
    ),
    _oracle(
        "deadlines-have-no-rule",
        "Does not ask whether an answer would be right a millisecond away.",
        "An off-by-one at a deadline would be told as a wrong decision row.",
        "for shift_ms in (-1, 1):",
        "for shift_ms in ():",
        "test_what_is_wrong_is_named[a-millisecond-too-long]",
        "test_what_is_wrong_is_named[a-millisecond-too-short]",
    ),
    _oracle(
        "refusals-without-a-time-pass",
        "Takes a refusal without `observed_at` where section 6 decides.",
        "A server that calls everything INVALID_INPUT would be judged by nothing.",
        "            return None, [_undecided(came)]\n",
        "            return None, []\n",
        "test_what_is_wrong_is_named[refused-for-no-reason]",
        "test_what_is_wrong_is_named[no-time]",
    ),
    _oracle(
        "unknown-is-applied",
        "Takes a request whose answer was lost for applied.",
        "A right server would be blamed for what it never did (decision D8).",
        "            return Judgement(step=None, faults=(), hits=())\n",
        "            self.record = step(self.record, request, 0).record\n"
        "            return Judgement(step=None, faults=(), hits=())\n",
        "test_what_is_unknown_is_no_fault[lost0]",
        "test_what_is_unknown_is_no_fault[lost1]",
    ),
    _oracle(
        "everything-is-a-repetition",
        "Counts WC-IDEM-1 for whatever comes after a step that changed nothing.",
        "A floor would be reached without one request sent twice.",
        "if self._previous is None or self._previous[0] != request:",
        "if self._previous is None:",
        "test_what_a_step_exercised_is_counted_and_nothing_else",
    ),
    _oracle(
        "every-moment-is-a-deadline",
        "Counts WC-TIME-2 for each step on a record, however far from its deadlines.",
        "The floor of the deadlines would be reached without one of them tried.",
        "if any(abs(now_ms - deadline_ms) <= near_ms for deadline_ms in deadlines):",
        "if deadlines:",
        "test_what_a_step_exercised_is_counted_and_nothing_else",
    ),
    _oracle(
        "broken-rows-count",
        "Counts a row as exercised although its answer was wrong.",
        "A rule would be told as passed and failed at once.",
        "return Judgement(step=decided, faults=tuple(faults), hits=())",
        "return Judgement(step=decided, faults=tuple(faults), hits=(decided.rule,))",
        "test_what_is_wrong_is_named[not-found]",
    ),
)

_answers = _of("answers.py", "test_reading.py")
_answers_by_oracle = _of("answers.py", "test_oracle.py")
_ANSWERS: Final = (
    _answers_by_oracle(
        "answers-may-be-cached",
        "Does not look at Cache-Control.",
        "A cache in between would answer for the store.",
        'if "no-store" not in directives:',
        "if False:",
        "test_what_is_wrong_with_the_headers_is_named[headers0-WC-HTTP-1]",
    ),
    _answers_by_oracle(
        "any-media-type-will-do",
        "Does not look at the answer's media type.",
        "Clients choose by it between a result and a problem.",
        "if got != media_type:",
        "if not got:",
        "test_what_is_wrong_with_the_headers_is_named[headers1-WC-HTTP-1]",
    ),
    _answers(
        "retry-after-is-not-compared",
        "Takes any Retry-After header, whatever the problem object says.",
        "Proxies and clients go by the header, not by the body.",
        'if answer.header("retry-after") != str(seconds):',
        'if answer.header("retry-after") is None:',
        "test_a_refusal_is_held_to_the_table_and_to_its_header[429-changed1-4-rules1]",
    ),
    _answers(
        "any-status-that-says-itself",
        "Takes any HTTP status that the problem object repeats.",
        "The table of section 8 would hold nobody.",
        "elif http_status not in statuses or as_integer(said) != http_status:",
        "elif as_integer(said) != http_status:",
        "test_a_refusal_is_held_to_the_table_and_to_its_header[503-changed4-3-rules4]",
    ),
    _answers_by_oracle(
        "errors-may-be-charged",
        "Does not look at `charged`.",
        "A refusal that costs would pass.",
        'for member, expected in (("retry", row.retry), ("charged", False)):',
        'for member, expected in (("retry", row.retry),):',
        "test_what_is_wrong_is_named[charged]",
    ),
    _answers(
        "any-encoding-is-json",
        "Lets the JSON library guess the encoding, and takes NaN.",
        "What a strict client cannot read would pass (RFC 8259).",
        '_DECODER.decode(body.decode("utf-8"))',
        "json.loads(body)",
        "test_what_is_not_one_json_object_in_utf_8_is_none[utf-16]",
        "test_what_is_not_one_json_object_in_utf_8_is_none[nan]",
    ),
    _answers(
        "gateways-answer-for-the-server",
        "Takes a 5xx without a code for an answer of the server's.",
        "A gateway's hiccup would be a broken rule, and no lost answer.",
        "    if answer.status >= 500:\n",
        "    if answer.status >= 600:\n",
        "test_a_fault_of_the_server_s_own_tells_nothing",
    ),
    _answers(
        "mcp-texts-are-not-read",
        "Does not read the text of a tool result.",
        "Hosts that show models the text would show them something else (WC-MCP-2).",
        "if not any(_json_of(text) == members for text in texts):",
        "if not texts:",
        "test_a_tool_result_is_held_to_its_own_text_and_kind[result1-rules1]",
        "test_a_tool_result_is_held_to_its_own_text_and_kind[result5-rules5]",
    ),
    _answers(
        "is-error-is-not-looked-at",
        "Takes a problem object that does not say that it is an error.",
        "A host would take a refusal for a success (WC-MCP-3).",
        'if (result.get("isError", False) is True) is not is_error:',
        "if False:",
        "test_a_tool_result_is_held_to_its_own_text_and_kind[result3-rules3]",
        "test_a_tool_result_is_held_to_its_own_text_and_kind[result4-rules4]",
    ),
    _of("mcp_client.py", "test_reading.py")(
        "any-message-is-the-answer",
        "Takes a JSON-RPC message of any id for the answer.",
        "An answer to another call would be judged as this one's.",
        'if message.get("id") == request_id or (message.get("id") is None and "error" in message):',
        'if "id" in message:',
        "test_what_is_no_tool_result_is_named[another-call-s]",
    ),
)

_clock = _of("clock.py", "test_clock.py")
_CLOCK: Final = (
    _clock(
        "late-times-are-believed",
        "Believes a time after the end of its call.",
        "A server whose clock runs ahead between two answers would pass.",
        "if least_ms > self._most_ms + tolerance_ms:",
        "if False:",
        "test_an_invented_time_is_not",
    ),
    _clock(
        "the-window-follows-a-fast-clock",
        "Lets the latest answer alone say how late a time may be.",
        "A clock that runs 4 % fast drags the bound along, and is never caught.",
        "self._most_ms = min(self._most_ms, most_ms)",
        "self._most_ms = most_ms",
        "test_a_clock_that_runs_at_another_speed_is_not_believed[1.04]",
    ),
    _clock(
        "frozen-clocks-may-run-on",
        "Believes a time after that at which the clock was frozen.",
        "A server that goes by another clock than the controls' would pass.",
        "if observed_ms == self.now_ms:",
        "if observed_ms >= self.now_ms:",
        "test_a_frozen_clock_is_known_exactly",
    ),
)

_verdict = _of("verdict.py", "test_verdict.py")
_STALE: Final = "test_an_expectation_that_no_longer_holds_fails"
_VERDICT: Final = (
    _verdict(
        "one-hit-is-a-floor",
        "Passes a rule with a single hit, whatever its floor.",
        "A green run could be a lucky one.",
        "if hits >= rule.floor:",
        "if hits:",
        "test_one_hit_less_than_the_floor_is_incomplete[WC-CONC-2]",
    ),
    _verdict(
        "rules-pass-without-a-hit",
        "Passes a rule that nothing exercised.",
        "An empty run would be a pass (decision D5).",
        "if hits >= rule.floor:",
        "if hits >= 0:",
        "test_an_empty_run_is_incomplete",
    ),
    _verdict(
        "mended-expectations-stay",
        "Does not mind an expected failure that did not fail.",
        "A list of known failures would only grow (decision D10).",
        "if status.status is Status.PASSED:",
        "if False:",
        f"{_STALE}[False-day0-WC-CLAIM-4 is expected to fail, and passed]",
    ),
    _verdict(
        "expectations-never-expire",
        "Does not look at the day until which a failure is expected.",
        "What was to be mended by then would stay broken in silence.",
        "if entry.expires is not None and day > entry.expires:",
        "if False:",
        f"{_STALE}[True-day1-the expected failure of WC-CLAIM-4 was to be mended by]",
    ),
    _verdict(
        "expectations-expire-a-day-early",
        "Lets an expectation expire on its last day.",
        "A run would go red a day before it was said to.",
        "day > entry.expires",
        "day >= entry.expires",
        "test_an_expected_failure_passes_and_is_counted",
    ),
    _verdict(
        "one-expectation-excuses-all",
        "Excuses every fault that names an expected rule, in whatever place.",
        "A new fault would hide behind a known one.",
        "entry = expected.get(failure.rule)",
        "entry = next((expected[r] for r in failure.fault.rules if r in expected), None)",
        "test_another_failure_is_not_excused_by_it",
    ),
    _verdict(
        "incomplete-is-a-pass",
        "Says PASS where there are gaps.",
        "Whatever could not be tested would be green.",
        "elif gaps:",
        "elif False:",
        "test_an_interrupted_run_is_incomplete",
    ),
    _verdict(
        "interruptions-are-forgotten",
        "Does not say that the run was interrupted.",
        "Ctrl-C after the floors would be a pass.",
        "    if interrupted:\n        gaps",
        "    if False:\n        gaps",
        "test_an_interrupted_run_is_incomplete",
    ),
    _verdict(
        "what-was-left-out-is-forgotten",
        "Does not say which parts were left out.",
        "A check that gave up would be as good as one that passed.",
        "gaps = list(tally.incomplete)",
        "gaps: list[str] = []",
        "test_what_was_left_out_makes_a_run_incomplete",
    ),
    _verdict(
        "lost-answers-do-not-matter",
        "Does not count the answers that were lost.",
        "A target that answers every other request would pass.",
        "if tally.lost > LOST_SHARE_MAX * max(tally.requests, 1):",
        "if False:",
        "test_lost_answers_make_a_run_incomplete",
    ),
    _verdict(
        "require-all-requires-nothing",
        "Does not mind what needs more access under --require-all.",
        "The strictest run would be as lax as any.",
        "        if beyond:\n",
        "        if False:\n",
        "test_what_needs_more_access_is_counted_and_not_a_gap",
    ),
    _verdict(
        "could-not-run-hides-a-failure",
        "Tells a rule that failed before its first hit as one that could not run.",
        "The rule that is broken outright would not be named as broken.",
        "    if failed:\n        return status(Status.FAILED)",
        "    if failed and hits:\n        return status(Status.FAILED)",
        "test_a_rule_that_failed_at_once_is_failed",
    ),
    _verdict(
        "gaps-are-blamed-on-failures",
        "Tells every rule that was exercised too little as one that could not run.",
        "A run that tried nothing would have no gap.",
        "    if broken or excused:\n",
        "    if True:\n",
        "test_an_empty_run_is_incomplete",
    ),
    _verdict(
        "mcp-hides-behind-http",
        "Asks over HTTP alone whether a rule is broken.",
        "A fault behind the other door would be told as a pass there.",
        "            rule.id in broken[b].failed,\n",
        "            rule.id in broken[Binding.HTTP].failed,\n",
        "test_each_binding_has_a_status_of_its_own_and_the_worst_is_the_rule_s",
    ),
    _verdict(
        "a-fail-exits-with-0",
        "Ends a failed run with exit status 0.",
        "No CI would ever be red.",
        "Verdict.FAIL: 1,",
        "Verdict.FAIL: 0,",
        "test_exit_codes_are_the_design_s",
    ),
    _of("checking.py", "test_check_command.py", slow=True)(
        "every-check-exits-with-0",
        "Ends `check` with exit status 0, whatever the verdict.",
        "No CI would ever be red.",
        "    return EXIT_CODES[outcome.judged.verdict], found",
        "    return 0, found",
        "test_a_target_that_goes_away_makes_the_run_incomplete",
    ),
)

_tally = _of("tally.py", "test_verdict.py")
_TALLY: Final = (
    _tally(
        "hits-count-twice",
        "Counts each hit twice.",
        "Half of every floor would do.",
        "self.hits.update(rules)",
        "self.hits.update((*rules, *rules))",
        "test_each_binding_has_a_status_of_its_own_and_the_worst_is_the_rule_s",
    ),
    _tally(
        "a-hit-counts-for-both-doors",
        "Counts a hit over one binding for the other as well.",
        "MCP would pass by what was seen over HTTP.",
        "self.hits_over[self.binding].update(rules)",
        "[over.update(rules) for over in self.hits_over.values()]",
        "test_one_hit_less_than_the_floor_is_incomplete[WC-CLAIM-1]",
    ),
    _tally(
        "the-longest-failure-is-kept",
        "Keeps the longest sequence that breaks a rule.",
        "A failure that nobody can read is a failure that nobody mends.",
        "failure.size < known.size",
        "failure.size > known.size",
        "test_the_shortest_failure_of_a_rule_is_kept",
    ),
    _tally(
        "one-failure-for-both-doors",
        "Keeps one failure of a rule for both bindings.",
        "Mending the one that is shown would leave the other.",
        'return self.rule if self.binding is Binding.HTTP else f"{self.rule}.{self.binding}"',
        "return self.rule",
        "test_the_same_rule_broken_over_both_bindings_is_told_twice",
    ),
)

_held = _of("conversations.py", "test_fixed_sequences.py", slow=True)
_CONVERSATIONS: Final = (
    _held(
        "a-lost-answer-is-passed-over",
        "Takes a sequence whose answer was lost for one that came to its end.",
        "What its other requests would have shown would not be looked at.",
        "            lost.append(error.failure)\n            continue\n",
        "            return\n",
        "test_a_lost_answer_begins_that_one_anew_alone",
        "test_one_that_always_loses_its_answers_is_left_out",
    ),
    _held(
        "a-fault-ends-them-all",
        "Stops at the first fault of any sequence.",
        "What is wrong in one place would hide what is wrong in all others.",
        "            self._send_what_may()\n",
        "            if self._run.tally.failures:\n                return\n"
        "            self._send_what_may()\n",
        "test_a_fault_in_one_ends_that_one_alone",
    ),
    _held(
        "waits-are-forgotten",
        "Does not note in a sequence that the clock moved.",
        "A failure at a deadline could neither be shown nor repeated.",
        "        for session in sessions:\n",
        "        for session in ():\n",
        "test_a_sequence_remembers_its_own_waits_and_can_be_repeated_alone",
    ),
    _held(
        "sent-before-it-is-due",
        "Sends everything at once, whatever the clock shows.",
        "No deadline would be reached, and every lapse go unjudged.",
        "        if self.begun_ms + at_ms <= self._clock.now_ms:",
        "        if self.begun_ms + at_ms >= 0:",
        "test_the_clock_moves_once_for_all",
    ),
    _held(
        "all-at-once-where-the-rate-is-limited",
        "Goes on with many at once after a refusal for the rate.",
        "Requests would use up each other's admission, and be given up.",
        "            self._patient = True",
        "            self._patient = False",
        "test_where_the_rate_is_limited_one_is_sent_after_the_other",
    ),
    _held(
        "a-target-that-is-gone-is-asked-on",
        "Sends what is still to be sent after nothing was answered for some time.",
        "A run against a target that is gone would wait for every single answer.",
        "                expect_somebody(self._run.tally)\n",
        "",
        "test_who_is_gone_is_not_asked_on",
    ),
)
_session = _of("session.py", "test_session.py")
_LEAK: Final = "test_an_identifier_is_found_wherever_an_answer_repeats_it"
_LOST: Final = "test_what_may_have_been_applied_is_lost"
_FORM: Final = "test_a_wrong_form_is_reported_and_the_decision_judged_all_the_same"
_SESSION: Final = (
    _session(
        "headers-may-leak",
        "Looks for identifiers in bodies alone.",
        "A header that repeats a holder would pass (WC-PRIV-1).",
        'for place, said in (("body", body), ("headers", headers)):',
        'for place, said in (("body", body),):',
        f"{_LEAK}[holder-headers]",
    ),
    _session(
        "the-end-of-a-body-may-leak",
        "Looks at the first 8 KiB of a body alone.",
        "An error page that echoes the request at its end would pass.",
        "        body = exchange.answer.body\n        headers",
        "        body = exchange.answer.body[:8192]\n        headers",
        f"{_LEAK}[holder-body]",
    ),
    _session(
        "observation-keys-may-leak",
        "Looks out for the first three kinds of identifiers alone.",
        "Observation keys and fingerprints in answers would pass.",
        "        for member in IDENTIFIERS:\n            value",
        "        for member in IDENTIFIERS[:3]:\n            value",
        f"{_LEAK}[observation_key-body]",
        f"{_LEAK}[evidence_fingerprint-body]",
    ),
    _session(
        "forms-are-not-reported",
        "Does not report what is wrong with an answer's form.",
        "Media types, headers, statuses and the table of errors would be nobody's.",
        "            form += came.faults\n",
        "            pass\n",
        f"{_FORM}[_cacheable-WC-HTTP-1]",
    ),
    _session(
        "broken-forms-count",
        "Counts a rule of form although the answer breaks it.",
        "A rule would be told as passed and failed at once.",
        "self._tally.hit(*(_form_rules(came, exchange.binding) - broken))",
        "self._tally.hit(*_form_rules(came, exchange.binding))",
        f"{_FORM}[_cacheable-WC-HTTP-1]",
    ),
    _session(
        "broken-members-count",
        "Counts what a decision exercised although the answer's form breaks it.",
        "The same, for the hash and the members of errors.",
        "self._tally.hit(*(rule for rule in judgement.hits if rule not in broken))",
        "self._tally.hit(*judgement.hits)",
        f"{_FORM}[_in_capitals-WC-ID-1]",
    ),
    _session(
        "lost-answers-are-not-counted",
        "Does not count an answer that was lost.",
        "Silence would be as good as an answer (decision D8).",
        "        self._tally.lose(why, self._named(exchange))\n        if answered:",
        "        if answered:",
        f"{_LOST}[hangs_up]",
        f"{_LOST}[fails]",
    ),
    _session(
        "a-lost-store-is-a-refusal",
        "Takes DEPENDENCY_UNAVAILABLE for a decision.",
        "A right server whose store hiccups would be blamed.",
        "                self._lose(str(code), exchange)\n",
        "                pass\n",
        f"{_LOST}[has_no_store]",
    ),
    _session(
        "a-dead-target-is-asked-for-ever",
        "Does not give up a target that answers no more.",
        "A run against nobody would last for hours.",
        "    if tally.silence.requests >= LOST_IN_A_ROW_MAX:",
        "    if False:",
        "test_a_target_that_answers_no_more_is_gone",
    ),
    _session(
        "wrong-decisions-are-passed-over",
        "Goes on after a wrong decision as if it were right.",
        "Nothing that the oracle finds would ever be told.",
        "        if judgement.faults:\n            self.fail(",
        "        if False:\n            self.fail(",
        "test_a_wrong_decision_ends_the_sequence_with_all_that_led_to_it",
    ),
)

_shortening = _of("shortening.py", "test_shortening.py")
_replaying = _of("replaying.py", "test_looking.py", slow=True)
_doctor = _of("doctor.py", "test_looking.py", slow=True)
_report = _of("report.py", "test_report.py", slow=True)
_reproduction = _of("reproduction.py", "test_report.py", slow=True)
_SHORTEST: Final = "test_a_shorter_sequence_shows_the_same_rule_broken"
_REPLAYED: Final = "test_a_replay_without_controls_says_what_came_of_it"
_DOCTOR: Final = "test_the_doctor_mends_nothing_by_looking_away"
_SCRIPT: Final = "test_a_script_sends_the_whole_sequence_on_a_workflow_of_its_own"
_SHOWING: Final = (
    _shortening(
        "any-rule-is-as-good-when-shortened",
        "Keeps a shorter sequence that breaks another rule.",
        "The report would show another fault than the one that was found.",
        "return error.failure if error.failure.rule == rule else None",
        "return error.failure",
        _SHORTEST,
    ),
    _shortening(
        "what-does-not-fail-is-kept",
        "Keeps a shorter sequence that breaks nothing.",
        "Nobody could show the fault again.",
        "            if shorter is not None and shorter.moves is not None:\n",
        "            if shorter is None:\n"
        "                from dataclasses import replace\n"
        "                sent = failure.sequence[: len(part)]\n"
        "                shorter = replace(failure, moves=part, sequence=sent)\n"
        "            if shorter.moves is not None:\n",
        _SHORTEST,
    ),
    _shortening(
        "nothing-is-shortened",
        "Leaves each failure as long as it was found.",
        "A fault of three requests would be shown in eighty.",
        "    size = max(len(moves) // 2, 1)\n    while",
        "    return\n    while",
        _SHORTEST,
    ),
    _reproduction(
        "scripts-use-the-used-key",
        "Writes the workflow key of the run into the script.",
        "Sent again it would meet the record that is there, and show something else.",
        "    if key is None:\n        return shlex",
        "    if True:\n        return shlex",
        _SCRIPT,
    ),
    _reproduction(
        "scripts-leave-out-the-first-request",
        "Leaves the first request out of the script.",
        "Without the claim nothing of the fault would show.",
        "        lines.append(_command(sent, key))\n",
        "        lines.append(_command(sent, key)) if number > 1 else None\n",
        _SCRIPT,
    ),
    _report(
        "scripts-of-earlier-runs-stay",
        "Leaves the scripts of an earlier run in the folder.",
        "They would tell of failures that are none now.",
        "    _remove_scripts(folder, besides=files)\n",
        "",
        "test_the_scripts_of_an_earlier_run_are_removed",
    ),
    _replaying(
        "a-replay-never-fails",
        "Says that a replay passed although a rule was broken.",
        "A fix would be believed that is none.",
        "    if run.tally.failures:\n        verdict",
        "    if False:\n        verdict",
        f"{_REPLAYED}[wrong]",
    ),
    _replaying(
        "a-replay-of-lost-answers-passes",
        "Says that a replay passed although its answers were lost.",
        "Not reproduced is not the same as not asked.",
        "    elif run.tally.incomplete:\n",
        "    elif False:\n",
        f"{_REPLAYED}[silent]",
    ),
    _doctor(
        "the-doctor-says-fine",
        "Says that the target can be checked, whatever was found.",
        "What is judged then would mislead.",
        "ready = all(finding.fine is not False for finding in findings)",
        "ready = True",
        _DOCTOR,
    ),
    _doctor(
        "the-doctor-trusts-controls",
        "Does not look whether the tool goes by the clock of the controls.",
        "Another server's controls would be taken for this one's.",
        "    if observed != clock.now_ms:",
        "    if False:",
        _DOCTOR,
    ),
)

_store = _of("checks/store.py", "test_store_judged.py", slow=True)
_logs = _of("logs.py", "test_logs.py")
_STORED: Final = "test_what_lies_in_the_store_is_judged"
_PRIVACY: Final = (
    _store(
        "keys-may-live-for-ever",
        "Does not see a key without an expiry.",
        "Records would stay in the store for good (WC-PRIV-3).",
        "if left_ms < 0 or late:",
        "if late:",
        f"{_STORED}[for_ever-]",
    ),
    _store(
        "keys-may-outlive-their-record",
        "Does not compare a key's expiry with the record's.",
        "Keys that expire an hour late would pass.",
        "late = ends_ms > record.state_expires_at_ms + _READING_MS",
        "late = False",
        f"{_STORED}[a_second_longer-]",
    ),
    _store(
        "base64-is-no-digest",
        "Takes the words between the slashes of a digest in base64 for a name.",
        "No key of such a record would be known as its own, and its expiry would be free.",
        'return _VARIABLE.sub(b"*", _IN_BASE64.sub(b"*", key))',
        'return _VARIABLE.sub(b"*", key)',
        f"{_STORED}[too_long_in_base64-]",
    ),
    _store(
        "names-of-keys-are-not-looked-at",
        "Looks for identifiers in what lies under a key, not in its name.",
        "The most usual place of all would be free: the key of the workflow in the name.",
        'stored = b"\\0".join((key, *content))',
        'stored = b"\\0".join(content)',
        f"{_STORED}[key_of_the_workflow-]",
    ),
    _store(
        "fields-are-not-looked-at",
        "Looks for identifiers in the values of hashes, not in the names of fields.",
        "A hash by holder would pass.",
        "            yield from _byte_strings(pair)\n",
        "            yield from _byte_strings(pair[1])\n",
        f"{_STORED}[holder_in_a_name-]",
    ),
    _store(
        "only-the-beginning-is-looked-at",
        "Looks at the first 64 bytes of a value alone.",
        "Anything behind a header would pass.",
        "            yield value\n    elif",
        "            yield value[:64]\n    elif",
        f"{_STORED}[in_capital_digits-]",
    ),
    _logs(
        "capitals-are-not-found-in-logs",
        "Does not find an identifier that was logged in capitals.",
        "One call of upper() would hide it.",
        "% (_DIGITS_MIN, text.encode()), re.IGNORECASE\n",
        "% (_DIGITS_MIN, text.encode())\n",
        "test_each_identifier_is_found_with_its_line_and_member",
    ),
    _logs(
        "edges-are-not-found-in-logs",
        "Forgets the end of one piece of a log before it reads the next.",
        "An identifier on the edge of two pieces would not be found.",
        "before = text[-_OVERLAP:]",
        'before = b""',
        "test_a_log_is_read_in_pieces_and_only_once",
    ),
    _logs(
        "only-the-beginning-of-a-log-is-read",
        "Reads one piece of a log alone.",
        "What is logged after the first mebibyte would be free.",
        "            while piece := log.read(PIECE_BYTES):",
        "            if piece := log.read(PIECE_BYTES):",
        "test_a_log_is_read_in_pieces_and_only_once",
    ),
    _of("checks/logs.py", "test_logs.py")(
        "logs-that-cannot-be-read-are-clean",
        "Does not say that a log could not be read.",
        "A wrong path in the target's file would be a clean log.",
        '        run.tally.leave_out(f"the log {path} could not be read: {why}")',
        "        del why",
        "test_clean_logs_are_said_to_be",
    ),
)

_judging = _of("judging.py", "test_judging.py")
_JUDGING: Final = (
    _judging(
        "an-empty-history-passes",
        "Passes a history in which nothing was decided.",
        "A storm that reached nobody would be green.",
        "        if not counts.decided:\n            gaps",
        "        if False:\n            gaps",
        "test_an_empty_history_is_no_pass",
    ),
    _judging(
        "undecided-is-sound",
        "Takes a workflow that could not be decided for linearizable.",
        "Unknown would be a pass.",
        "                    self._undecided[identity] = None\n"
        '                    self._verdicts["unknown"] += 1',
        '                    sound = True\n                    self._verdicts["linearizable"] += 1',
        "test_a_budget_that_is_spent_is_a_failure",
    ),
    _judging(
        "what-has-no-order-is-counted-alone",
        "Counts a workflow without an order, and blames nobody.",
        "No storm would ever fail.",
        "                else:\n                    self._broken[identity] = None\n",
        "                else:\n",
        "test_a_store_that_writes_after_a_look_fails",
    ),
    _judging(
        "gaps-hide-failures",
        "Says INCOMPLETE of a storm that is broken and says too little besides.",
        "A server that loses answers could break whatever it likes.",
        "        if failures:  # what could not be decided is one, too",
        "        if failures and not gaps:",
        "test_what_is_broken_fails_whatever_else_was_missing",
    ),
    _judging(
        "the-best-storm-speaks-for-all",
        "Says of a history the best of its verdicts.",
        "One passing storm would hide a broken one.",
        "for verdict in (Verdict.FAIL, Verdict.INCOMPLETE):",
        "for verdict in (Verdict.PASS, Verdict.FAIL, Verdict.INCOMPLETE):",
        "test_storms_of_one_folder_have_verdicts_of_their_own",
    ),
    _judging(
        "cut-off-histories-pass",
        "Does not mind that a history has no last line.",
        "What is missing might be what fails.",
        "        if self._cut_off:\n",
        "        if False:\n",
        "test_a_history_that_was_cut_off_is_incomplete",
    ),
    _judging(
        "repeated-calls-pass",
        "Does not mind that a call went over the wire twice.",
        "Nobody knows when the first was applied, so any order could be right.",
        "        if counts.repeated:\n",
        "        if False:\n",
        "test_repeated_calls_make_a_history_worthless",
    ),
    _judging(
        "silence-passes",
        "Does not mind how many answers were lost.",
        "A target that answers every other request would pass.",
        "        if unwanted > LOST_SHARE_MAX * max(counts.calls, 1):",
        "        if False:",
        "test_answers_lost_against_the_will_make_it_incomplete",
    ),
    _judging(
        "answers-that-do-not-tell-are-answers",
        "Does not count answers that do not tell whether the request was applied.",
        "A store that is away for a tenth of the storm would pass.",
        "unwanted = counts.lost - counts.dropped + counts.untold",
        "unwanted = counts.lost - counts.dropped",
        "test_answers_that_do_not_tell_make_it_incomplete",
    ),
    _judging(
        "turned-away-is-served",
        "Does not mind that most requests were refused before they were decided.",
        "A rate limit would make any server conform.",
        "        if counts.unchanged > counts.calls / 2:",
        "        if False:",
        "test_a_target_that_turns_most_away_says_too_little",
    ),
    _judging(
        "single-file-is-a-storm",
        "Does not mind that no two requests were in flight at once.",
        "A race that nobody ran would be won by everybody.",
        "        if counts.decided and typical < CONTENDERS_MIN and not self._faults:",
        "        if False:",
        "test_too_little_contention_is_incomplete",
    ),
    _judging(
        "broken-rounds-count",
        "Counts rounds in which a workflow was broken.",
        "A rule would be told as passed and failed at once.",
        "self._judged_rounds = {number for number, sound in sound_rounds.items() if sound}",
        "self._judged_rounds = set(sound_rounds)",
        "test_many_broken_workflows_are_counted_and_some_are_shown",
    ),
    _judging(
        "broken-clocks-count",
        "Counts WC-TIME-1 although two times contradict one another.",
        "A rule would be told as passed and failed at once.",
        "self._counts.decided if held_against and clock_held else 0",
        "self._counts.decided",
        "test_a_time_outside_the_call_breaks_wc_time_1[200-fail]",
    ),
    _judging(
        "one-moved-clock-excuses-all",
        "Excuses every workflow once the target's clock was moved at all.",
        "One nemesis would blind the judge for the whole storm.",
        "                elif self._clock_was_moved_during(workflow):",
        "                elif self._steps:",
        "test_what_a_moved_clock_leaves_open_is_not_held_against_the_target",
    ),
    _judging(
        "offsets-are-not-looked-at",
        "Does not ask whether one offset explains every time.",
        "Times outside their calls would pass, each workflow for itself being in order.",
        "faults = [self._offset_failure(fault) for fault in self._offset_faults()]",
        "faults: list[dict[str, Any]] = []",
        "test_a_time_outside_the_call_breaks_wc_time_1[-200-fail]",
    ),
    _judging(
        "workflows-may-share-a-hash",
        "Does not see that two workflows have one hash.",
        "Records that are mixed up would pass (WC-ID-3).",
        "                if other != identity:\n",
        "                if False:\n",
        "test_a_hash_of_two_workflows_is_found",
    ),
    _judging(
        "answers-without-a-time-are-left-out",
        "Leaves out an answer that does not say when.",
        "What cannot be placed would be explained by not placing it.",
        "            workflow.fault = workflow.fault or str(error)\n",
        "",
        "test_an_answer_without_a_time_fails",
    ),
)

_CASE: Final = "test_a_case_has_its_verdict"


def _search(name: str, wrong: str, matters: str, old: str, new: str, *tests: str) -> HarnessMutant:
    made = _Made(_LINEARIZABILITY, "model/tests/test_linearizability.py")
    return made(name, wrong, matters, old, new, *tests)


_SEARCH: Final = (
    _search(
        "the-search-ignores-real-time",
        "Lets the search place an operation before one that had returned before its call.",
        "A stale read is explained by putting it where it cannot have been.",
        "while at < len(called) and seen[called[at]].called_ns <= bound_ns:",
        "while at < len(called):",
        f"{_CASE}[intervals that do not touch]",
    ),
    _search(
        "the-walk-ignores-real-time",
        "Lets the walk do the same among operations of one millisecond.",
        "Most histories take the walk alone.",
        "if one.called_ns <= returns[one.clock]:",
        "if True:",
        f"{_CASE}[intervals that do not touch]",
    ),
    _search(
        "times-out-of-order-are-not-seen",
        "Does not look whether times contradict the order of calls.",
        "A clock that steps back between two reads would not be remarked.",
        "    out_of_order = _out_of_order(seen, in_time)\n",
        "    out_of_order = 0\n",
        "test_observers_out_of_time_are_remarked",
    ),
    _search(
        "one-step-explains-two-answers",
        "Takes one change for the explanation of every equal request of its millisecond.",
        "Two winners in one millisecond would pass.",
        "                    left.remove(changer[0])\n",
        "                    asked = seen[changer[0]].request\n"
        "                    left = [i for i in left if seen[i].request != asked]\n",
        f"{_CASE}[two acquired by one request sent twice]",
    ),
    _search(
        "dead-ends-are-dead-for-every-record",
        "Remembers of a dead end what was placed, and not the record.",
        "A right history would be called wrong: the other order to the same place is not tried.",
        "            key: Hashable = (self._sum, self._standing())\n",
        "            key: Hashable = (self._sum, None)\n",
        f"{_CASE}[lost twice, and the record's end seen as a claim's]",
    ),
    _search(
        "lives-that-went-are-alike",
        "Remembers of a record that is gone that it is, and not when it went.",
        "A right history would be called wrong: another order left room for what comes next.",
        "        return record.state_expires_at_ms\n",
        "        return -1\n",
        f"{_CASE}[two lives that went, and only one order of them in time]",
    ),
    _search(
        "a-spent-budget-is-an-order",
        "Says that there is an order when the budget is spent.",
        "Whoever makes histories long enough would pass.",
        "        return Unknown(steps=search.steps, why=why), search",
        "        return Linearizable(order=tuple(search.trail)), search",
        "test_a_spent_budget_is_unknown",
    ),
    _search(
        "seconds-left-are-not-compared",
        "Does not compare the seconds that are left with the answer's own deadlines.",
        "WC-TIME-6 would not hold in a storm.",
        "if left != follows or type(left[0]) is not int or type(left[1]) is not int:",
        "if False:",
        "test_every_member_of_a_result_is_compared[claim_ttl_seconds_remaining]",
    ),
    _search(
        "clocks-may-be-seconds-off",
        "Allows five seconds between two clocks instead of fifty milliseconds.",
        "A cached or invented time would lie within every call.",
        "OFFSET_TOLERANCE_MS: Final = 50.0",
        "OFFSET_TOLERANCE_MS: Final = 5000.0",
        "test_a_time_outside_its_call_contradicts_another[80]",
    ),
)

_TOLD: Final = (
    _of("history.py", "test_history.py")(
        "lost-calls-are-closed",
        "Stores a lost call as one that had returned when it was given up.",
        "What a frozen store applies when it thaws would be called wrong.",
        "returned_ns=None if lost else exchange.returned_ns,",
        "returned_ns=exchange.returned_ns,",
        "test_a_lost_exchange_stays_open",
    ),
    _of("history.py", "test_history.py")(
        "a-writer-that-fails-says-it-ended",
        "Writes the last line also after an error.",
        "A history with a part missing would look whole.",
        "        if error is None:\n            self.close()\n        else:\n"
        "            self._file.close()",
        "        self.close()",
        "test_a_writer_that_fails_does_not_say_that_it_ended",
    ),
    _of("contention.py", "test_judging.py")(
        "one-after-the-other-is-at-once",
        "Counts requests that followed one another as in flight at once.",
        "A storm in single file would be a storm.",
        "while over < number and ends[over] <= begin:",
        "while False:",
        "test_too_little_contention_is_incomplete",
    ),
    _of("renderings/junit.py", "test_renderings.py", slow=True)(
        "junit-passes-what-failed",
        "Lists a failed rule as one that passed.",
        "A CI that reads JUnit would be green.",
        "    if case.status is Status.FAILED:\n",
        "    if case.status is Status.FAILED and case.hits < 0:\n",
        "test_junit_is_valid_and_has_every_rule[failing]",
    ),
    _of("renderings/junit.py", "test_renderings.py", slow=True)(
        "junit-passes-what-is-incomplete",
        "Lists nothing red for an incomplete run.",
        "A CI that reads JUnit would be green.",
        'if report["verdict"] in (Verdict.INCOMPLETE, Verdict.ERROR):',
        'if report["verdict"] == Verdict.ERROR:',
        "test_junit_is_valid_and_has_every_rule[incomplete]",
    ),
    _of("renderings/sarif.py", "test_renderings.py", slow=True)(
        "sarif-leaves-one-out",
        "Leaves the first failure out of the results.",
        "Whoever looks at findings alone would see none.",
        '"results": [_result(report, failure, ids) for failure in report["failures"]],',
        '"results": [_result(report, failure, ids) for failure in report["failures"][1:]],',
        "test_sarif_is_valid[failing]",
    ),
    _of("renderings/sarif.py", "test_renderings.py", slow=True)(
        "sarif-suppresses-everything",
        "Marks every finding as one that is expected.",
        "Whoever shows findings hides the suppressed.",
        "        if is_expected(report, failure):\n",
        "        if True:\n",
        "test_sarif_is_valid[failing]",
    ),
    _of("renderings/annotations.py", "test_renderings.py", slow=True)(
        "broken-rules-are-notices",
        "Marks a broken rule as a notice, not as an error.",
        "A job's page would show it among the small print.",
        'yield _command("error", f"{rule} is broken", message)',
        'yield _command("notice", f"{rule} is broken", message)',
        "test_annotations_are_commands_of_ours_alone[failing]",
    ),
    _of("renderings/badge.py", "test_renderings.py", slow=True)(
        "incomplete-badges-say-pass",
        "Says pass on the badge of an incomplete run.",
        "A README would promise what nobody has seen.",
        'Verdict.INCOMPLETE: f"incomplete, {of}",',
        'Verdict.INCOMPLETE: f"pass, {of}",',
        "test_the_badge_is_what_shields_io_reads[incomplete-incomplete, 0 of 92 rules-yellow]",
    ),
    _of("renderings/templates/summary.md.j2", "test_renderings.py", slow=True)(
        "summaries-say-holds",
        "Says in the summary of a job that a broken rule holds.",
        "What most people read would be wrong.",
        "is broken{{",
        "holds{{",
        "test_markdown_has_verdict_failures_and_sections",
    ),
)


def _load(module: str, test_file: str) -> _Made:
    return _Made(f"load/checkpoint_load/{module}", f"load/tests/{test_file}", slow=True)


_LOAD: Final = (
    _load("figures.py", "test_figures.py")(
        "no-storm-is-a-storm",
        "Does not mind that less than half of the contenders were in flight at once.",
        "A storm that queued up would be told as one.",
        "if median(self.shares) < IN_FLIGHT_SHARE_MIN:",
        "if False:",
        "test_less_than_half_in_flight_at_once_is_no_storm",
    ),
    _load("concluding.py", "test_concluding.py")(
        "too-little-is-enough",
        "Says PASS of a storm whose figures say that it was too little.",
        "Three rounds of five would do.",
        "        if incomplete and verdict is Verdict.PASS:\n",
        "        if False:\n",
        "test_the_whole_is_as_bad_as_the_worst_of_its_storms",
    ),
    _load("concluding.py", "test_concluding.py")(
        "the-best-of-the-storms",
        "Says of several storms the best of their verdicts.",
        "One passing storm would hide a broken one.",
        "for verdict in (Verdict.FAIL, Verdict.INCOMPLETE, Verdict.PASS):",
        "for verdict in (Verdict.PASS, Verdict.INCOMPLETE, Verdict.FAIL):",
        "test_the_whole_is_as_bad_as_the_worst_of_its_storms",
    ),
    _load("concluding.py", "test_concluding.py")(
        "faults-of-the-harness-are-verdicts",
        "Says a verdict although the harness itself failed.",
        "A crash of ours would be the target's failure, or its pass.",
        "verdict = Verdict.ERROR if faults else _worst",
        "verdict = _worst",
        "test_a_fault_of_the_harness_is_no_verdict",
    ),
)


def _zoo(name: str) -> str:
    """The test that a wrong server is killed by its rules, which starts a right one first."""
    return f"test_a_mutant_is_killed_by_its_rules[{name}]"


_descriptions = _of("checks/descriptions.py", "test_mutants.py", slow=True)
_WHOLE: Final = (
    _descriptions(
        "a-manifest-is-its-own-measure",
        "Compares the manifest's graph with itself.",
        "Whatever a deployment publishes would be what it must.",
        'looking.same("the manifest\'s graph", _graph(), _graph_of(manifest["graph"]))',
        'looking.same("the graph", _graph_of(manifest["graph"]), _graph_of(manifest["graph"]))',
        _zoo("a-move-of-the-manifest"),
    ),
    _descriptions(
        "versions-are-their-own-measure",
        "Compares every published version with itself.",
        "Descriptions of three versions would agree (WC-REG-2).",
        "        looking.same(what, CONTRACT_VERSION, version)",
        "        looking.same(what, version, version)",
        _zoo("the-version-of-the-manifest"),
        _zoo("the-version-over-mcp"),
    ),
    _of("acceptance.py", "test_mutants.py", slow=True)(
        "schemas-accept-what-they-accept",
        "Does not hold what a schema decides against the contract's.",
        "A published schema that takes anything would pass (WC-MCP-6, WC-REG-1).",
        "        if validator.is_valid(probe.value) is not probe.accepted:",
        "        if False:",
        _zoo("a-limit-of-the-mcp-tool"),
        _zoo("an-input-schema-that-takes-anything"),
    ),
    _of("checks/races.py", "test_mutants.py", slow=True)(
        "two-may-win",
        "Does not count the winners of a race.",
        "Two holders of one generation would be told as a wrong row, if at all.",
        "    if len(winners) > 1 or (not winners and decided == len(came)):",
        "    if not winners and decided == len(came):",
        _zoo("two-winners"),
    ),
    _of("checks/storm.py", "test_mutants.py", slow=True)(
        "the-short-storm-is-not-judged",
        "Counts the short storm of `check`, and leaves out what was broken in it.",
        "What only shows under load would never show.",
        "        run.tally.fail(failure_of(run, judged, failure))\n",
        "        pass\n",
        _zoo("abandons-in-two-steps"),
    ),
    _of("session.py", "test_mutants.py", slow=True)(
        "any-health-is-good",
        "Does not look at the status of `/healthz`.",
        "WC-HTTP-3 would be a rule that nobody can break.",
        "        if answer.status != status:",
        "        if False:",
        _zoo("never-healthy"),
    ),
    _of("checks/controls.py", "test_checks.py", slow=True)(
        "a-moment-is-a-control-s",
        "Takes whatever a request may meet for what the control brought about.",
        "A store that is away for a moment would be WC-CTL-2.",
        "expecting={code, ErrorCode.TOOL_PAUSED})",
        "expecting=_PROVOKED)",
        "test_no_control_is_blamed_for_a_moment_of_the_target[away-5]",
    ),
    _of("checks/controls.py", "test_mutants.py", slow=True)(
        "a-reset-need-not-reset-the-clock",
        "Does not look at the clock after a reset.",
        "A target that stays an hour ahead would be a hit of WC-CTL-5.",
        "        reset_ms - began_ms,\n",
        "        0,\n",
        _zoo("reset-leaves-the-clock-ahead"),
    ),
    _of("run.py", "test_checks.py", slow=True)(
        "a-lost-body-is-forgotten",
        "Says nothing of a malformed body that was never answered.",
        "A server that hangs up on what is nested too deep would pass.",
        "            self.leave_sequence_out()\n        else:\n",
        "            pass\n        else:\n",
        "test_a_body_that_is_never_answered_is_left_out",
    ),
    _of("checks/inputs.py", "test_checks.py", slow=True)(
        "a-fault-is-a-refusal",
        "Takes a 5xx to a malformed body for a moment, however often it comes.",
        "A server that fails for a body instead of refusing it would pass.",
        "        if not error.answered:\n",
        "        if True:\n",
        "test_a_body_that_makes_the_server_fail_each_time_is_told[3]",
    ),
)

_lanes = _of("lanes.py", "test_lanes.py")
_added = _of("tally.py", "test_lanes.py")
_LANES: Final = (
    _added(
        "lanes-forget-failures",
        "Adds up what lanes counted, but for the failures.",
        "A broken target would pass with two lanes and fail with one.",
        "for failure in part.failures.values():",
        "for failure in ():",
        "test_no_failure_is_forgotten_and_of_two_the_first_is_kept",
    ),
    _added(
        "lanes-forget-what-was-left-out",
        "Does not take over why a check did not do all that it should.",
        "What could not be tested would be green with two lanes.",
        "for why in part.incomplete:",
        "for why in ():",
        "test_everything_that_was_counted_is_counted_once",
    ),
    _added(
        "lanes-lose-no-answers",
        "Does not take over how many answers were lost.",
        "A target that answers every other request would pass with two lanes.",
        "self.lost += part.lost",
        "self.lost += 0",
        "test_everything_that_was_counted_is_counted_once",
    ),
    _added(
        "one-fault-is-told-as-two",
        "Tells what only many answers show although single ones are wrong.",
        "WC-CONC-1 would be blamed as well: no order explains what is decided wrongly.",
        "if failure.of_many and broken_before:",
        "if False:",
        "test_what_only_many_show_is_told_where_nothing_else_is_broken",
    ),
    _lanes(
        "storms-are-told-of-broken-targets",
        "Counts a short storm although something before it is broken.",
        "One fault would be told as two, and a seed would find more with lanes than without.",
        "if task.only_unbroken and whole.failures:",
        "if False:",
        "test_what_says_nothing_of_what_is_broken_says_nothing[True]",
    ),
    _lanes(
        "frozen-clocks-are-shared",
        "Lets checks that use controls be beside others.",
        "A clock that stands still for one would be a broken clock for the other: a false alarm.",
        "if check.alone or check.needs_controls else",
        "if check.alone else",
        "test_where_a_check_may_be_done[walk-alone]",
        "test_where_a_check_may_be_done[stateful-alone]",
    ),
    _lanes(
        "alone-is-beside-who-shares",
        "Begins what must be alone where somebody is already.",
        "Whoever is there would see the clock stop, or a hundred connections.",
        "return idle[0] if idle else None",
        "return 0",
        "test_what_must_be_alone_is[whole-2-1]",
        "test_what_must_be_alone_is[whole-3-2]",
    ),
    _lanes(
        "who-shares-is-beside-who-is-alone",
        "Begins what may be shared where somebody must be alone.",
        "It would be judged by a clock that another lane is moving.",
        "if tasks and all(other.place is Place.SHARED for other in tasks)",
        "if tasks",
        "test_what_must_be_alone_is[whole-2-1]",
        "test_what_must_be_alone_is[whole-3-2]",
    ),
    _lanes(
        "faults-of-the-target-itself-overlap",
        "Makes faults beside other checks although the target itself is what is harmed.",
        "Every check meanwhile would lose its answers, or blame the target for them.",
        "target.fault_access is not None and target.fault_access.apart:",
        "target.fault_access is not None:",
        "test_faults_of_what_others_use_are_made_alone",
    ),
    _lanes(
        "lanes-that-die-saw-nothing",
        "Takes a lane that ended by itself for one that has nothing to tell.",
        "A crash of the harness would be a pass of fewer checks.",
        '            raise LaneError(\n                f"a process',
        '            return\n            raise LaneError(\n                f"a process',
        "test_a_lane_that_dies_is_a_fault_of_the_harness",
    ),
)

HARNESS_MUTANTS: Final[Mapping[str, HarnessMutant]] = MappingProxyType(
    {
        mutant.name: mutant
        for mutant in (
            *_ORACLE,
            *_ANSWERS,
            *_CLOCK,
            *_VERDICT,
            *_TALLY,
            *_LANES,
            *_SESSION,
            *_CONVERSATIONS,
            *_SHOWING,
            *_PRIVACY,
            *_JUDGING,
            *_SEARCH,
            *_TOLD,
            *_LOAD,
            *_WHOLE,
        )
    }
)

SEEDED_ELSEWHERE: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "model/tests/wrong_steps.py": (
            "the machine with one row or deadline wrong, each caught by an invariant",
            "model/tests/test_invariants.py",
        ),
        "model/proofs/faults.py": (
            "the symbolic machine with one row wrong, each refuted by z3",
            "model/tests/test_induction.py",
        ),
        "model/tests/test_linearizability.py": (
            (
                "the checker of histories with one fault (refusals unchecked, lost answers taken "
                "for applied or for not applied, half-open intervals, the server's state taken "
                "over, nothing to judge passing and more), each caught by a case named for it"
            ),
            "model/tests/test_linearizability.py",
        ),
        "conformance/checkpoint_conformance/mutants": (
            "wrong servers, each caught by the rules that must be named: docs/mutants.md",
            "conformance/tests/test_mutants.py",
        ),
    }
)
"""Where faults are seeded that are not repeated here, what they are, and the tests of them."""

_HEAD: Final = """\
# Mutants of the harness

Who watches the judge? Each row is one place of the harness changed so that it lets something
through that it is there to catch, or blames what is right, and the tests of ours that fail then.
Every test that is named must fail, by an assertion of its own: a copy that cannot be loaded, or an
error on the way, kills nobody.

Written by `nox -s harness_mutants` from `conformance/tests/harness_mutants.py`; a test holds it to
that. Each change is made in a copy of its package, never in the working tree. Those whose tests
take longer, because they start a server, a store or a renderer, are played by that session alone,
all others in CI as well.

"""


def page(played: "Iterable[Played]") -> str:
    """The page of the documentation."""
    outcomes = list(played)
    killed = sum(one.fate == "killed" for one in outcomes)
    seconds = sum(one.seconds for one in outcomes)
    figures = f"{len(outcomes)} mutants, {killed} killed, {seconds:.0f} s of a processor."
    return _HEAD + figures + "\n\n" + "\n".join(table()) + "\n\n" + "\n".join(elsewhere()) + "\n"


def table() -> list[str]:
    """What the page says of each mutant."""
    return [
        "| mutant | what is wrong | what would follow | tests that fail |",
        "|---|---|---|---|",
        *(
            f"| `{mutant.name}` | {mutant.wrong} | {mutant.matters} | {_named(mutant.tests)} |"
            for mutant in HARNESS_MUTANTS.values()
        ),
    ]


def elsewhere() -> list[str]:
    """What the page says of faults that are seeded elsewhere."""
    return [
        "## Seeded elsewhere",
        "",
        "What these files have is not repeated above:",
        "",
        "| faults | what they are | tests |",
        "|---|---|---|",
        *(f"| `{path}` | {what} | `{tests}` |" for path, (what, tests) in SEEDED_ELSEWHERE.items()),
    ]


def _named(tests: Sequence[str]) -> str:
    by_file: dict[str, list[str]] = {}
    for test in tests:
        file, _, name = test.partition("::")
        by_file.setdefault(file.rpartition("/")[2], []).append(f"`{name}`")
    return "; ".join(f"{file}: {', '.join(names)}" for file, names in by_file.items())
