------------------------ MODULE WorkflowCheckpoint ------------------------
(* The Workflow Checkpoint contract, version 1.1.0, sections 2, 5 and 6,   *)
(* for people who think in TLA+.                                           *)
(*                                                                         *)
(* THIS MODULE HAS NOT BEEN MODEL-CHECKED. Neither TLC nor Apalache nor    *)
(* TLAPS nor SANY has ever read it; a parser accepts its syntax, and that  *)
(* is all. Its properties below are stated, not verified.                  *)
(* What to trust instead:                                                  *)
(*   - the contract, `model/CONTRACT.md`, which alone is normative;        *)
(*   - `model/checkpoint_model/machine.py`, the model that everything else *)
(*     is judged by, and its tests;                                        *)
(*   - `model/proofs/`, the same machine proved by z3 by induction, and    *)
(*     held equal to the model.                                            *)
(* Tests hold this text to the model in what they can read of it: the      *)
(* graph with its evidence, the limits, and of every decision row its id,  *)
(* its place, its outcome and whether it changes the record.               *)
(*                                                                         *)
(* One workflow identity, so one record. Times are whole milliseconds,     *)
(* lifetimes whole seconds.                                                *)

EXTENDS Integers, FiniteSets

CONSTANTS
    Holders,            \* the workers that may ask
    ObservationKeys,    \* more of them than ObservationsMax
    Fingerprints,       \* of evidence; their values mean nothing here
    None                \* no record, evidence, fingerprint or caller: equal to nothing else

---------------------------------------------------------------------------
(* Words and numbers                                                       *)

GenerationsMax     == 16    \* WC-LIMIT-1
ObservationsMax    == 32    \* WC-LIMIT-2
ClaimTtlSecondsMin == 1     \* section 3
ClaimTtlSecondsMax == 900
StateTtlSecondsMin == 1
StateTtlSecondsMax == 3600

Stages == {"claimed", "uncertain", "caller_verified", "failed", "compensated"}

EvidenceTypes == {"provider_receipt", "external_read", "provider_rejection",
                  "external_absence", "not_attempted", "compensation_receipt",
                  "operator_attestation"}

(* WC-GRAPH-1: these seven moves are all. WC-GRAPH-2: an empty set asks    *)
(* for no evidence. WC-GRAPH-3: less is believed from `uncertain`.         *)
Moves == {
    [from |-> "claimed",   to |-> "uncertain",       evidence |-> {}],
    [from |-> "claimed",   to |-> "caller_verified", evidence |->
        {"provider_receipt", "external_read", "operator_attestation"}],
    [from |-> "claimed",   to |-> "failed",          evidence |->
        {"not_attempted", "provider_rejection", "external_absence",
         "operator_attestation"}],
    [from |-> "claimed",   to |-> "compensated",     evidence |->
        {"compensation_receipt", "operator_attestation"}],
    [from |-> "uncertain", to |-> "caller_verified", evidence |->
        {"provider_receipt", "external_read", "operator_attestation"}],
    [from |-> "uncertain", to |-> "failed",          evidence |->
        {"external_absence", "operator_attestation"}],
    [from |-> "uncertain", to |-> "compensated",     evidence |->
        {"compensation_receipt", "operator_attestation"}]
}

Settled == {stage \in Stages : \A move \in Moves : move.from # stage}

Permitted(from, to, evidence) ==
    \E move \in Moves :
        /\ move.from = from
        /\ move.to = to
        /\ IF move.evidence = {} THEN evidence = None
                                 ELSE evidence \in move.evidence

Earlier(a, b) == IF a <= b THEN a ELSE b
Later(a, b)   == IF a >= b THEN a ELSE b

---------------------------------------------------------------------------
(* Requests (section 3). Others are refused and change nothing (WC-IN-6).  *)

Generations == 1 .. GenerationsMax

ClaimRequests ==
    {request \in [holder : Holders,
                  claim_ttl_seconds : ClaimTtlSecondsMin .. ClaimTtlSecondsMax,
                  state_ttl_seconds : StateTtlSecondsMin .. StateTtlSecondsMax,
                  retry_failed : BOOLEAN] :
        request.claim_ttl_seconds < request.state_ttl_seconds}  \* WC-IN-5

TransitionRequests ==
    {request \in [holder : Holders,
                  generation : Generations,
                  to_stage : Stages \ {"claimed"},
                  observation_key : ObservationKeys,
                  evidence_type : EvidenceTypes \union {None},
                  evidence_fingerprint : Fingerprints \union {None}] :
        request.evidence_type = None => request.evidence_fingerprint = None}

AbandonRequests == [holder : Holders, generation : Generations]

StatusRequests == [holder : Holders \union {None}]

(* The transition body: an absent member is part of it as absent.          *)
Body(request) ==
    [holder               |-> request.holder,
     generation           |-> request.generation,
     to_stage             |-> request.to_stage,
     evidence_type        |-> request.evidence_type,
     evidence_fingerprint |-> request.evidence_fingerprint]

---------------------------------------------------------------------------
(* The state                                                               *)

VARIABLES
    clock,      \* what the store's clock reads; it may be set back
    record,     \* what is remembered, or None
    answer      \* to the last request: rule, outcome, caller, observed_at

vars == <<clock, record, answer>>

(* WC-TIME-4: never earlier than the record's last change.                 *)
Now == IF record = None THEN clock ELSE Later(clock, record.changed_at)

(* WC-TIME-2: at the deadline itself it is gone. Nothing sweeps a record   *)
(* when it expires: from then on it is as if it were not there.            *)
Exists == record # None /\ Now < record.state_expires_at

ClaimActive(r, t) == r.stage \notin Settled /\ t < r.claim_expires_at
Lapsed(r, t)      == r.stage \notin Settled /\ ~ClaimActive(r, t)
MayBeRetried(r)   == r.stage = "failed" /\ r.retry_failed
Terminal(r)       == r.stage \in Settled /\ ~MayBeRetried(r)
HeldBy(r, caller, t) == caller = r.holder /\ ClaimActive(r, t)

Applied(r, key) == key \in DOMAIN r.observations

(* Every decision is one of these two. Now is of the state before.         *)
Decide(rule, outcome, caller) ==
    /\ answer' = [rule |-> rule, outcome |-> outcome, caller |-> caller,
                  observed_at |-> Now]
    /\ UNCHANGED clock

Keep(rule, outcome, caller) ==            \* a row that changes nothing
    Decide(rule, outcome, caller) /\ UNCHANGED record

Change(rule, outcome, caller, after) ==   \* a row marked with a pen
    Decide(rule, outcome, caller) /\ record' = after

---------------------------------------------------------------------------
(* What the rows marked with a pen make                                    *)

(* WC-TIME-3: the record's deadline is fixed here, and never moves.        *)
NewRecord(request) ==
    LET state_expires_at == Now + 1000 * request.state_ttl_seconds IN
    [stage                        |-> "claimed",
     generation                   |-> 1,
     holder                       |-> request.holder,
     claim_expires_at             |-> Earlier(Now + 1000 * request.claim_ttl_seconds,
                                              state_expires_at),
     state_expires_at             |-> state_expires_at,
     changed_at                   |-> Now,
     claim_ttl_seconds            |-> request.claim_ttl_seconds,
     state_ttl_seconds            |-> request.state_ttl_seconds,
     retry_failed                 |-> request.retry_failed,
     abandoned                    |-> FALSE,
     evidence_type                |-> None,
     evidence_fingerprint_present |-> FALSE,
     observations                 |-> [key \in {} |-> None]]

(* WC-TIME-3 for the claim's deadline, WC-VIEW-4 for the evidence.         *)
NextGeneration(request, stage) ==
    [record EXCEPT
        !.stage                        = stage,
        !.generation                   = @ + 1,
        !.holder                       = request.holder,
        !.claim_expires_at             = Earlier(Now + 1000 * record.claim_ttl_seconds,
                                                 record.state_expires_at),
        !.changed_at                   = Now,
        !.abandoned                    = FALSE,
        !.evidence_type                = None,
        !.evidence_fingerprint_present = FALSE]

(* When settled the claim ends.                                            *)
Moved(request) ==
    [record EXCEPT
        !.stage                        = request.to_stage,
        !.claim_expires_at             = IF request.to_stage \in Settled THEN Now ELSE @,
        !.changed_at                   = Now,
        !.evidence_type                = request.evidence_type,
        !.evidence_fingerprint_present = request.evidence_fingerprint # None,
        !.observations                 =
            [key \in DOMAIN @ \union {request.observation_key} |->
                IF key = request.observation_key THEN Body(request) ELSE @[key]]]

(* An early lapse: it says nothing about the outcome.                      *)
Abandoned ==
    [record EXCEPT
        !.claim_expires_at = Now,
        !.changed_at       = Now,
        !.abandoned        = TRUE]

---------------------------------------------------------------------------
(* Decisions (section 6). The first row that applies decides.              *)

Claim(request) ==
    LET caller == request.holder IN
    IF ~Exists
    THEN Change("WC-CLAIM-1", "ACQUIRED", caller, NewRecord(request))
    ELSE IF Terminal(record)
    THEN Keep("WC-CLAIM-2", "CHECKPOINT_TERMINAL", caller)
    ELSE IF \/ request.claim_ttl_seconds # record.claim_ttl_seconds
            \/ request.state_ttl_seconds # record.state_ttl_seconds
            \/ request.retry_failed # record.retry_failed
    THEN Keep("WC-CLAIM-3", "CONFIGURATION_CONFLICT", caller)
    ELSE IF ClaimActive(record, Now) /\ caller = record.holder
    THEN Keep("WC-CLAIM-4", "REUSED", caller)
    ELSE IF ClaimActive(record, Now)
    THEN Keep("WC-CLAIM-5", "CHECKPOINT_NOT_HELD", caller)
    ELSE IF record.generation = GenerationsMax
    THEN Keep("WC-CLAIM-6", "CHECKPOINT_LIMIT_REACHED", caller)
    ELSE IF record.stage = "failed"       \* so retry_failed is TRUE
    THEN Change("WC-CLAIM-7", "ACQUIRED", caller, NextGeneration(request, "claimed"))
    ELSE                                  \* lapsed, which proves nothing either way
         Change("WC-CLAIM-8", "RECOVERED", caller, NextGeneration(request, "uncertain"))

Transition(request) ==
    LET caller == request.holder
        key    == request.observation_key
    IN
    IF ~Exists
    THEN Keep("WC-TRANS-1", "CHECKPOINT_NOT_FOUND", caller)
    ELSE IF Applied(record, key) /\ record.observations[key] = Body(request)
    THEN Keep("WC-TRANS-2", "OBSERVATION_REPLAYED", caller)
    ELSE IF Applied(record, key)
    THEN Keep("WC-TRANS-3", "OBSERVATION_CONFLICT", caller)
    ELSE IF request.generation # record.generation
    THEN Keep("WC-TRANS-4", "STALE_GENERATION", caller)
    ELSE IF Terminal(record)
    THEN Keep("WC-TRANS-5", "CHECKPOINT_TERMINAL", caller)
    ELSE IF caller # record.holder \/ ~ClaimActive(record, Now)
    THEN Keep("WC-TRANS-6", "CHECKPOINT_NOT_HELD", caller)
    ELSE IF ~Permitted(record.stage, request.to_stage, request.evidence_type)
    THEN Keep("WC-TRANS-7", "INVALID_TRANSITION", caller)
    ELSE Change("WC-TRANS-8", "TRANSITIONED", caller, Moved(request))

Abandon(request) ==
    LET caller == request.holder IN
    IF ~Exists
    THEN Keep("WC-ABANDON-1", "CHECKPOINT_NOT_FOUND", caller)
    ELSE IF request.generation # record.generation
    THEN Keep("WC-ABANDON-2", "STALE_GENERATION", caller)
    ELSE IF Terminal(record)
    THEN Keep("WC-ABANDON-3", "CHECKPOINT_TERMINAL", caller)
    ELSE IF record.abandoned /\ caller = record.holder
    THEN Keep("WC-ABANDON-4", "ABANDONED", caller)
    ELSE IF caller # record.holder \/ ~ClaimActive(record, Now)
    THEN Keep("WC-ABANDON-5", "CHECKPOINT_NOT_HELD", caller)
    ELSE Change("WC-ABANDON-6", "ABANDONED", caller, Abandoned)

Status(request) ==
    IF ~Exists
    THEN Keep("WC-STATUS-1", "CHECKPOINT_NOT_FOUND", request.holder)
    ELSE Keep("WC-STATUS-2", "REPORTED", request.holder)

---------------------------------------------------------------------------
(* The environment                                                         *)

(* Time passes, or the clock is set back (WC-TIME-4). A deadline needs no  *)
(* action of its own: Exists and ClaimActive look at the time.             *)
TimePasses ==
    /\ clock' \in Nat
    /\ UNCHANGED <<record, answer>>

(* WC-PRIV-3: what has expired is cleared away, at some time or other. No  *)
(* answer tells whether it was, but that a clock set back cannot bring     *)
(* back what is cleared (WC-TIME-4 leaves that unspecified).               *)
ClearAway ==
    /\ record # None
    /\ ~Exists
    /\ record' = None
    /\ UNCHANGED <<clock, answer>>

Init ==
    /\ clock \in Nat
    /\ record = None
    /\ answer = [rule |-> None, outcome |-> None, caller |-> None, observed_at |-> clock]

Next ==
    \/ \E request \in ClaimRequests : Claim(request)
    \/ \E request \in TransitionRequests : Transition(request)
    \/ \E request \in AbandonRequests : Abandon(request)
    \/ \E request \in StatusRequests : Status(request)
    \/ TimePasses
    \/ ClearAway

Spec == Init /\ [][Next]_vars

---------------------------------------------------------------------------
(* What a result says beyond the record (section 7), of a record r, a      *)
(* caller and the step's time t                                            *)

RecoveryRequired(r, outcome, t) ==
    \/ r.stage = "uncertain"
    \/ Lapsed(r, t)
    \/ outcome = "REUSED"   \* the server cannot know whether it already acted

(* WC-VIEW-2                                                               *)
AllowedNextActions(r, caller, t) ==
    IF HeldBy(r, caller, t)
    THEN <<"transition", "status", "abandon">>
    ELSE IF (Lapsed(r, t) \/ MayBeRetried(r)) /\ r.generation < GenerationsMax
    THEN <<"claim", "status">>
    ELSE <<"status">>

---------------------------------------------------------------------------
(* Properties of states, as z3 proves them of the relation in              *)
(* `model/proofs/`; here they are stated only                              *)

Always(Holds(_)) == record # None => Holds(record)

ClaimEndsWithinTheRecord ==                                 \* WC-TIME-3
    Always(LAMBDA r : r.claim_expires_at <= r.state_expires_at)

GenerationsAreBounded ==                                    \* WC-LIMIT-1
    Always(LAMBDA r : r.generation \in Generations)

ObservationsAreBounded ==                                   \* WC-LIMIT-2
    Always(LAMBDA r : /\ Cardinality(DOMAIN r.observations) <= 2 * r.generation
                      /\ Cardinality(DOMAIN r.observations) <= ObservationsMax)

SettledMeansThatTheClaimEnded ==                            \* WC-TRANS-8
    Always(LAMBDA r : r.stage \in Settled => r.claim_expires_at = r.changed_at)

AbandonedMeansLapsed ==                                     \* WC-ABANDON-4
    Always(LAMBDA r : r.abandoned => Lapsed(r, r.changed_at))

(* Properties of steps                                                     *)

(* Within a record: there was one at the step's time, and there is one.    *)
Within == Exists /\ record' # None

DeadlineAndConfigurationNeverMove ==                        \* WC-TIME-3, WC-CLAIM-1
    [][Within =>
        /\ record'.state_expires_at  = record.state_expires_at
        /\ record'.claim_ttl_seconds = record.claim_ttl_seconds
        /\ record'.state_ttl_seconds = record.state_ttl_seconds
        /\ record'.retry_failed      = record.retry_failed]_vars

GenerationGrowsByOneAndOnlyByAnAcquiredClaim ==             \* WC-CLAIM-7, WC-CLAIM-8
    [][(Within /\ record'.generation # record.generation) =>
        /\ record'.generation = record.generation + 1
        /\ answer'.outcome \in {"ACQUIRED", "RECOVERED"}]_vars

NothingRenewsAClaim ==                                      \* WC-TIME-3
    [][(Within /\ record'.generation = record.generation) =>
        record'.claim_expires_at <= record.claim_expires_at]_vars

OnlyTheEntitledChangeARecord ==                 \* WC-CLAIM-5, WC-TRANS-6, WC-ABANDON-5
    [][(Within /\ record' # record) =>
        \/ HeldBy(record, answer'.caller, Now)
        \/ /\ Lapsed(record, Now) \/ MayBeRetried(record)
           /\ answer'.outcome \in {"ACQUIRED", "RECOVERED"}]_vars

TerminalIsFinal ==                              \* WC-CLAIM-2, WC-TRANS-5, WC-ABANDON-3
    [][(Within /\ Terminal(record)) => UNCHANGED record]_vars

NoObservationIsForgotten ==                                 \* WC-TRANS-2
    [][Within => \A key \in DOMAIN record.observations :
        /\ Applied(record', key)
        /\ record'.observations[key] = record.observations[key]]_vars

TimeNeverRunsBack ==                                        \* WC-TIME-4
    [][Within => record'.changed_at >= record.changed_at]_vars
=============================================================================
