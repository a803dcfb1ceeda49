-- The checkpoint machine in Murphi, written by hand from CONTRACT.md (sections 2, 3, 5 and 6),
-- not from the Python: two readings of one text, whose state spaces are then counted.
--
-- What there is in a world is said by the constants of a file in worlds/, put in front of this one:
--
--     cat worlds/tiny.m checkpoint.m | rumur --output tiny.c && cc -O3 -mcx16 tiny.c -lpthread -o tiny
--     ./tiny
--
-- rumur counts each distinct state once, the first included, and as a rule fired each enabled
-- rule of each state, also one that changes nothing. Every request is one rule, enabled in every
-- state; a refusal fires and leads back to where it was. So "states" and "rules fired" are the
-- explorer's "states" and "transitions".
--
-- Time is what is left until a deadline, in milliseconds: 0 at the deadline, -1 any time after.

type
  holder_t: 1 .. HOLDERS;
  asker_t: 0 .. HOLDERS; -- 0: a status without a holder
  configuration_t: 1 .. CONFIGURATIONS;
  generation_t: 1 .. GENERATIONS;
  key_t: 1 .. KEYS;
  fingerprint_t: 0 .. FINGERPRINTS; -- 0: none
  behind_t: 0 .. CLOCK_STEPS_BACK; -- 1: the clock reads less than when the record last changed
  left_t: -1 .. LONGEST_MS;
  elapsed_t: 1 .. LONGEST_MS + 1;
  offset_t: -1 .. 1;
  deadline_t: enum { claim_deadline, record_deadline };
  stage_t: enum { claimed, uncertain, caller_verified, failed, compensated };
  evidence_t: enum {
    no_evidence,
    provider_receipt,
    external_read,
    provider_rejection,
    external_absence,
    not_attempted,
    compensation_receipt,
    operator_attestation
  };
  observation_t: record
    applied: boolean;
    holder: holder_t;
    generation: generation_t;
    to_stage: stage_t;
    evidence: evidence_t;
    fingerprint: fingerprint_t;
  end;

var
  stored: boolean; -- it may have expired and still lie there
  stage: stage_t;
  generation: generation_t;
  holder: holder_t;
  configuration: configuration_t;
  claim_left: left_t;
  record_left: left_t;
  abandoned: boolean;
  evidence: evidence_t;
  fingerprinted: boolean;
  just_changed: boolean; -- at this very instant; false throughout where the clock never steps back
  observations: array [key_t] of observation_t;

-- The world's constants, by number ------------------------------------------------------------

function claim_ttl(c: configuration_t): left_t;
begin
  switch c
    case 1: return CLAIM_TTL_MS_1;
    case 2: return CLAIM_TTL_MS_2;
    case 3: return CLAIM_TTL_MS_3;
    else return CLAIM_TTL_MS_4;
  end;
end;

function state_ttl(c: configuration_t): left_t;
begin
  switch c
    case 1: return STATE_TTL_MS_1;
    case 2: return STATE_TTL_MS_2;
    case 3: return STATE_TTL_MS_3;
    else return STATE_TTL_MS_4;
  end;
end;

function retry_failed(c: configuration_t): boolean;
begin
  switch c
    case 1: return RETRY_FAILED_1 = 1;
    case 2: return RETRY_FAILED_2 = 1;
    case 3: return RETRY_FAILED_3 = 1;
    else return RETRY_FAILED_4 = 1;
  end;
end;

function is_sent(e: evidence_t): boolean;
begin
  switch e
    case no_evidence: return true;
    case provider_receipt: return SEND_PROVIDER_RECEIPT = 1;
    case external_read: return SEND_EXTERNAL_READ = 1;
    case provider_rejection: return SEND_PROVIDER_REJECTION = 1;
    case external_absence: return SEND_EXTERNAL_ABSENCE = 1;
    case not_attempted: return SEND_NOT_ATTEMPTED = 1;
    case compensation_receipt: return SEND_COMPENSATION_RECEIPT = 1;
    case operator_attestation: return SEND_OPERATOR_ATTESTATION = 1;
  end;
end;

-- Section 2 -----------------------------------------------------------------------------------

function exists_now(): boolean; -- WC-TIME-2
begin
  return stored & record_left > 0;
end;

function settled(): boolean;
begin
  return stage = caller_verified | stage = failed | stage = compensated;
end;

function claim_active(): boolean; -- WC-TIME-2
begin
  return !settled() & claim_left > 0;
end;

function lapsed(): boolean;
begin
  return !settled() & claim_left <= 0;
end;

function terminal(): boolean;
begin
  return settled() & !(stage = failed & retry_failed(configuration));
end;

-- The graph (WC-GRAPH-1, -2, -3): the seven moves and what each asks for -----------------------

function in_graph(from: stage_t; to_stage: stage_t; e: evidence_t): boolean;
begin
  if from = claimed & to_stage = uncertain then
    return e = no_evidence;
  elsif (from = claimed | from = uncertain) & to_stage = caller_verified then
    return e = provider_receipt | e = external_read | e = operator_attestation;
  elsif (from = claimed | from = uncertain) & to_stage = compensated then
    return e = compensation_receipt | e = operator_attestation;
  elsif from = claimed & to_stage = failed then
    return e = not_attempted | e = provider_rejection | e = external_absence
      | e = operator_attestation;
  elsif from = uncertain & to_stage = failed then
    return e = external_absence | e = operator_attestation;
  else
    return false;
  end;
end;

-- What the rows marked with a pen do -----------------------------------------------------------

procedure forget();
begin
  stored := false;
  clear stage;
  clear generation;
  clear holder;
  clear configuration;
  clear claim_left;
  clear record_left;
  clear abandoned;
  clear evidence;
  clear fingerprinted;
  clear just_changed;
  clear observations;
end;

procedure note_change();
begin
  just_changed := CLOCK_STEPS_BACK = 1;
end;

procedure start_generation(h: holder_t; s: stage_t); -- WC-TIME-3, WC-VIEW-4
begin
  stage := s;
  holder := h;
  abandoned := false;
  evidence := no_evidence;
  fingerprinted := false;
  if claim_ttl(configuration) < record_left then
    claim_left := claim_ttl(configuration);
  else
    claim_left := record_left;
  end;
  note_change();
end;

procedure claim(h: holder_t; c: configuration_t);
begin
  if !exists_now() then -- WC-CLAIM-1
    forget();
    stored := true;
    configuration := c;
    generation := 1;
    record_left := state_ttl(c);
    start_generation(h, claimed);
  elsif terminal() then -- WC-CLAIM-2
  elsif configuration != c then -- WC-CLAIM-3
  elsif claim_active() then -- WC-CLAIM-4, -5
  elsif generation = GENERATIONS then -- WC-CLAIM-6
  elsif stage = failed then -- WC-CLAIM-7
    generation := generation + 1;
    start_generation(h, claimed);
  else -- WC-CLAIM-8
    assert lapsed() "a claim that no earlier row decides finds a lapsed record";
    generation := generation + 1;
    start_generation(h, uncertain);
  end;
end;

procedure transition(h: holder_t; g: generation_t; s: stage_t; k: key_t; e: evidence_t; f: fingerprint_t);
begin
  if !exists_now() then -- WC-TRANS-1
  elsif observations[k].applied then -- WC-TRANS-2, -3
  elsif g != generation then -- WC-TRANS-4
  elsif terminal() then -- WC-TRANS-5
  elsif h != holder | !claim_active() then -- WC-TRANS-6
  elsif !in_graph(stage, s, e) then -- WC-TRANS-7
  else -- WC-TRANS-8
    stage := s;
    evidence := e;
    fingerprinted := f != 0;
    observations[k].applied := true;
    observations[k].holder := h;
    observations[k].generation := g;
    observations[k].to_stage := s;
    observations[k].evidence := e;
    observations[k].fingerprint := f;
    if settled() then
      claim_left := 0;
    end;
    note_change();
  end;
end;

procedure abandon(h: holder_t; g: generation_t);
begin
  if !exists_now() then -- WC-ABANDON-1
  elsif g != generation then -- WC-ABANDON-2
  elsif terminal() then -- WC-ABANDON-3
  elsif abandoned & h = holder then -- WC-ABANDON-4
  elsif h != holder | !claim_active() then -- WC-ABANDON-5
  else -- WC-ABANDON-6
    claim_left := 0;
    abandoned := true;
    note_change();
  end;
end;

-- Time ------------------------------------------------------------------------------------------

function left_until(d: deadline_t): left_t;
begin
  if d = claim_deadline then
    return claim_left;
  else
    return record_left;
  end;
end;

procedure advance(elapsed: elapsed_t);
begin
  if claim_left - elapsed > -1 then
    claim_left := claim_left - elapsed;
  else
    claim_left := -1;
  end;
  if record_left - elapsed > -1 then
    record_left := record_left - elapsed;
  else
    record_left := -1;
  end;
  just_changed := false;
end;

-- What can happen -------------------------------------------------------------------------------

startstate "nothing is remembered"
begin
  forget();
end;

ruleset b: behind_t do

  ruleset h: holder_t; c: configuration_t do
    rule "claim" b = 0 | just_changed ==>
    begin
      claim(h, c);
    end;
  end;

  ruleset h: holder_t; g: generation_t; s: stage_t; k: key_t; e: evidence_t; f: fingerprint_t do
    rule "transition"
      (b = 0 | just_changed) & s != claimed & is_sent(e) & (e != no_evidence | f = 0) ==>
    begin
      transition(h, g, s, k, e, f);
    end;
  end;

  ruleset h: holder_t; g: generation_t do
    rule "abandon" b = 0 | just_changed ==>
    begin
      abandon(h, g);
    end;
  end;

  ruleset h: asker_t do
    rule "status" b = 0 | just_changed ==> -- WC-STATUS-1, -2
    begin
    end;
  end;

end;

ruleset d: deadline_t; o: offset_t do
  rule "time moves to just before, at or just after a deadline"
    stored & left_until(d) >= 0 & left_until(d) + o > 0 ==>
  begin
    advance(left_until(d) + o);
  end;
end;

rule "an expired record is cleared away" stored & record_left <= 0 ==> -- WC-PRIV-3
begin
  forget();
end;

-- Checked on the way ------------------------------------------------------------------------------

invariant "a claim ends no later than its record (WC-TIME-3)"
  claim_left <= record_left;

invariant "settled and abandoned generations have no claim (WC-TRANS-8, WC-ABANDON-6)"
  (settled() | abandoned) -> claim_left <= 0;

invariant "a terminal stage was not left (WC-CLAIM-2)"
  forall k: key_t do
    (observations[k].applied & observations[k].generation < generation) ->
      (observations[k].to_stage = uncertain
        | (observations[k].to_stage = failed & retry_failed(configuration)))
  end;

invariant "nobody but the holder moved the current generation (WC-TRANS-6)"
  forall k: key_t do
    (observations[k].applied & observations[k].generation = generation) ->
      observations[k].holder = holder
  end;

cover "the last generation is settled (WC-LIMIT-1)"
  exists_now() & generation = GENERATIONS & settled();

liveness "everything is forgotten in the end (WC-PRIV-3)"
  !stored;
