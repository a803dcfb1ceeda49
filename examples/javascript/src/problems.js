/** Section 8: the errors, as problem objects of RFC 9457. Nothing of a request goes into one. */

const RETRY_AFTER_SECONDS = 1;

/** Code → [HTTP status, title, what to do next]. */
const ERRORS = {
  INVALID_INPUT: [400, 'The request is not one of the contract', 'Correct the request; nothing was changed.'],
  CHECKPOINT_NOT_FOUND: [404, 'Nothing is remembered of this workflow', 'Claim it first; that nothing is remembered proves nothing.'],
  CHECKPOINT_NOT_HELD: [409, 'The caller does not hold an active claim', 'Do not act; ask for the status, and claim once the claim has lapsed.'],
  CHECKPOINT_TERMINAL: [409, 'The workflow is settled for good', 'Do not act; further work needs a workflow identity of its own.'],
  STALE_GENERATION: [409, 'Another generation is the current one', 'Stop; this generation has been superseded.'],
  INVALID_TRANSITION: [409, 'The stage does not move like that, or not with this evidence', 'Correct the stage or the evidence, and send it under the same key.'],
  OBSERVATION_CONFLICT: [409, 'The observation key was used for another observation', 'Use a fresh observation key for each outcome observed.'],
  CONFIGURATION_CONFLICT: [409, 'The record was made with another configuration', 'Claim with the configuration that is given here.'],
  CHECKPOINT_LIMIT_REACHED: [409, 'The record has had all of its generations', 'Let the record expire, and look at the external system before anything else.'],
  TOOL_PAUSED: [503, 'The tool is paused', 'Send the same request again later.'],
  RATE_LIMITED: [429, 'Too many requests', 'Send the same request again later.'],
  DEPENDENCY_UNAVAILABLE: [503, 'The store did not answer', 'Send the same request again; it may or may not have been applied.'],
};
const RETRYABLE = ['TOOL_PAUSED', 'RATE_LIMITED', 'DEPENDENCY_UNAVAILABLE'];

/**
 * An error of the contract (WC-ERR-1, WC-ERR-3).
 *
 * @param {string} code
 * @param {object} [members]  what the record says (WC-ERR-2)
 * @param {number} [status]  where the code has several
 */
export function problem(code, members = {}, status = ERRORS[code][0]) {
  const [, title, recovery] = ERRORS[code];
  const retry = RETRYABLE.includes(code);
  const after = retry ? { retry_after_seconds: RETRY_AFTER_SECONDS } : {};
  return {
    status,
    headers: retry ? { 'retry-after': String(RETRY_AFTER_SECONDS) } : {},
    body: { type: 'about:blank', title, status, detail: `${title}.`, code, retry, charged: false, recovery, ...members, ...after },
  };
}

/** An answer outside the contract's table, which has no `code` (WC-ERR-9). */
export function plainProblem(status, title, headers = {}) {
  return { status, headers, body: { type: 'about:blank', title, status } };
}
