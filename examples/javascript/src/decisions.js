/**
 * Sections 6 and 7 of the contract: what a request does to a record, and what its caller is told.
 *
 * Pure: no store, no clock, no key. A request comes in with its identifiers digested already, so
 * that nothing raw can reach a record or an answer from here (WC-PRIV-1, WC-PRIV-2).
 *
 * @typedef {'claimed' | 'uncertain' | 'caller_verified' | 'failed' | 'compensated'} Stage
 *
 * @typedef {object} Checkpoint  All that is stored for one workflow. Times are in milliseconds.
 * @property {Stage} stage
 * @property {number} generation
 * @property {string} holder  digest
 * @property {number} claimEnds
 * @property {boolean} abandoned
 * @property {number} stateEnds
 * @property {number} changed  time of the last change
 * @property {number} claimTtl  in seconds, as is stateTtl
 * @property {number} stateTtl
 * @property {boolean} retryFailed
 * @property {string | null} evidence  type of the last transition in this generation
 * @property {boolean} fingerprint  whether that transition carried one
 * @property {Record<string, string>} observations  digest of the key → digest of the body
 *
 * @typedef {object} Request  A valid request.
 * @property {'claim' | 'transition' | 'status' | 'abandon'} action
 * @property {string} [holder]  digest, as are observationKey and body
 * @property {string} [observationKey]
 * @property {string} [body]
 * @property {number} [generation]
 * @property {Stage} [toStage]
 * @property {string} [evidence]
 * @property {boolean} [fingerprint]
 * @property {number} [claimTtl]
 * @property {number} [stateTtl]
 * @property {boolean} [retryFailed]
 *
 * @typedef {object} Decision
 * @property {Checkpoint} [change]  the record to be stored; absent where nothing changes
 * @property {string} [code]  of section 8; absent for a success
 * @property {object} members  of the result, or those of the problem that come from the record
 */

const GENERATIONS_MAX = 16;
const SAFETY_MARGIN_SECONDS = 15;
const SETTLED = ['caller_verified', 'failed', 'compensated'];

const SEEN = ['provider_receipt', 'external_read', 'operator_attestation'];
const UNDONE = ['compensation_receipt', 'operator_attestation'];
/** Every move there is (WC-GRAPH-1), with the evidence that it may have; `null` is none. */
const MOVES = {
  claimed: {
    uncertain: [null],
    caller_verified: SEEN,
    failed: ['not_attempted', 'provider_rejection', 'external_absence', 'operator_attestation'],
    compensated: UNDONE,
  },
  uncertain: {
    caller_verified: SEEN,
    // No rejection: it may be that of a later attempt than the one that went through (WC-GRAPH-3).
    failed: ['external_absence', 'operator_attestation'],
    compensated: UNDONE,
  },
};

const isSettled = (record) => SETTLED.includes(record.stage);
const isTerminal = (record) => isSettled(record) && !(record.stage === 'failed' && record.retryFailed);
const isActive = (record, now) => !isSettled(record) && !record.abandoned && now < record.claimEnds;
const isLapsed = (record, now) => !isSettled(record) && !isActive(record, now);

/**
 * Decide one request.
 *
 * @param {Checkpoint | null} stored
 * @param {Request} request
 * @param {number} clock  in milliseconds
 * @returns {Decision}
 */
export function decide(stored, request, clock) {
  const now = Math.max(clock, stored?.changed ?? clock); // WC-TIME-4
  const record = stored && now < stored.stateEnds ? stored : null; // WC-TIME-2
  return ACTIONS[request.action](record, request, now);
}

const ACTIONS = { claim, transition, status, abandon };

function claim(record, request, now) {
  if (!record) return grant(request, now, 'claimed', 1, now + request.stateTtl * 1000, {}); // WC-CLAIM-1
  if (isTerminal(record)) return refuse('CHECKPOINT_TERMINAL', record, now); // WC-CLAIM-2
  if (['claimTtl', 'stateTtl', 'retryFailed'].some((name) => request[name] !== record[name])) {
    return refuse('CONFIGURATION_CONFLICT', record, now); // WC-CLAIM-3
  }
  if (isActive(record, now)) {
    return record.holder === request.holder
      ? succeed(request, record, now, { reused: true }) // WC-CLAIM-4
      : refuse('CHECKPOINT_NOT_HELD', record, now); // WC-CLAIM-5
  }
  if (record.generation === GENERATIONS_MAX) {
    return refuse('CHECKPOINT_LIMIT_REACHED', record, now); // WC-CLAIM-6
  }
  // What is left is a failure to be retried (WC-CLAIM-7) or a lapse, which proves nothing (WC-CLAIM-8).
  const stage = record.stage === 'failed' ? 'claimed' : 'uncertain';
  return grant(request, now, stage, record.generation + 1, record.stateEnds, record.observations);
}

function transition(record, request, now) {
  if (!record) return refuse('CHECKPOINT_NOT_FOUND', null, now); // WC-TRANS-1
  const applied = record.observations[request.observationKey];
  if (applied !== undefined) {
    return applied === request.body
      ? succeed(request, record, now, { observation_replayed: true }) // WC-TRANS-2
      : refuse('OBSERVATION_CONFLICT', record, now); // WC-TRANS-3
  }
  if (request.generation !== record.generation) return refuse('STALE_GENERATION', record, now); // WC-TRANS-4
  if (isTerminal(record)) return refuse('CHECKPOINT_TERMINAL', record, now); // WC-TRANS-5
  if (record.holder !== request.holder || !isActive(record, now)) {
    return refuse('CHECKPOINT_NOT_HELD', record, now); // WC-TRANS-6
  }
  const evidence = request.evidence ?? null;
  if (!MOVES[record.stage][request.toStage]?.includes(evidence)) {
    return refuse('INVALID_TRANSITION', record, now); // WC-TRANS-7
  }
  return change(request, now, { transitioned: true }, { // WC-TRANS-8
    ...record,
    stage: request.toStage,
    evidence,
    fingerprint: request.fingerprint,
    observations: { ...record.observations, [request.observationKey]: request.body },
  });
}

function abandon(record, request, now) {
  if (!record) return refuse('CHECKPOINT_NOT_FOUND', null, now); // WC-ABANDON-1
  if (request.generation !== record.generation) return refuse('STALE_GENERATION', record, now); // WC-ABANDON-2
  if (isTerminal(record)) return refuse('CHECKPOINT_TERMINAL', record, now); // WC-ABANDON-3
  const isHolder = record.holder === request.holder;
  if (isHolder && record.abandoned) return succeed(request, record, now, { abandoned: true }); // WC-ABANDON-4
  if (!isHolder || !isActive(record, now)) return refuse('CHECKPOINT_NOT_HELD', record, now); // WC-ABANDON-5
  return change(request, now, { abandoned: true }, { ...record, abandoned: true }); // WC-ABANDON-6
}

function status(record, request, now) {
  if (!record) return refuse('CHECKPOINT_NOT_FOUND', null, now); // WC-STATUS-1
  return succeed(request, record, now, {}); // WC-STATUS-2
}

/** A new generation. Its deadline never outlives the record's, which never moves (WC-TIME-3). */
function grant(request, now, stage, generation, stateEnds, observations) {
  return change(request, now, { acquired: true, recovered: stage === 'uncertain' }, {
    stage,
    generation,
    holder: request.holder,
    claimEnds: Math.min(now + request.claimTtl * 1000, stateEnds),
    abandoned: false,
    stateEnds,
    changed: now,
    claimTtl: request.claimTtl,
    stateTtl: request.stateTtl,
    retryFailed: request.retryFailed,
    evidence: null, // WC-VIEW-4
    fingerprint: false,
    observations,
  });
}

function change(request, now, flags, record) {
  const changed = { ...record, changed: now };
  return { change: changed, ...succeed(request, changed, now, flags) };
}

/** Section 7: every member, in the contract's order (WC-VIEW-1, WC-VIEW-3). */
function succeed(request, record, now, flags) {
  const active = isActive(record, now);
  const lapsed = isLapsed(record, now);
  const held = active && record.holder === request.holder;
  const again = lapsed || record.stage === 'failed' && record.retryFailed;
  return {
    members: {
      action: request.action,
      observed_at: timestamp(now),
      stage: record.stage,
      generation: record.generation,
      acquired: false,
      recovered: false,
      reused: false,
      recovery_required: record.stage === 'uncertain' || lapsed || flags.reused === true,
      transitioned: false,
      observation_replayed: false,
      abandoned: false,
      ...flags,
      claim_active: active,
      held_by_caller: held,
      claim_expires_at: active ? timestamp(record.claimEnds) : null,
      state_expires_at: timestamp(record.stateEnds),
      claim_ttl_seconds_remaining: active ? wholeSeconds(record.claimEnds - now) : 0,
      state_ttl_seconds_remaining: wholeSeconds(record.stateEnds - now),
      evidence_type: record.evidence,
      evidence_fingerprint_present: record.fingerprint,
      retry_failed_allowed: record.retryFailed,
      // WC-VIEW-2
      allowed_next_actions: held
        ? ['transition', 'status', 'abandon']
        : again && record.generation < GENERATIONS_MAX ? ['claim', 'status'] : ['status'],
      minimum_action_safety_margin_seconds: SAFETY_MARGIN_SECONDS,
      external_proof: false,
    },
  };
}

/** What the record has to say about a refusal (WC-ERR-2, WC-ERR-8). */
function refuse(code, record, now) {
  const members = { observed_at: timestamp(now) };
  if (record) Object.assign(members, { stage: record.stage, generation: record.generation });
  if (record && isActive(record, now)) members.claim_expires_at = timestamp(record.claimEnds);
  if (code === 'CONFIGURATION_CONFLICT') {
    members.configuration = {
      claim_ttl_seconds: record.claimTtl,
      state_ttl_seconds: record.stateTtl,
      retry_failed: record.retryFailed,
    };
  }
  return { code, members };
}

const wholeSeconds = (milliseconds) => Math.floor(milliseconds / 1000); // WC-TIME-6

/** WC-TIME-5. @param {number} milliseconds */
export const timestamp = (milliseconds) => new Date(milliseconds).toISOString();
