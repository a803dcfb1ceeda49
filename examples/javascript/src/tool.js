/** Section 11: the tool over HTTP. */

import { decide } from './decisions.js';
import { readBody } from './http.js';
import { plainProblem, problem } from './problems.js';
import { digested, parseRequest } from './requests.js';
import { StoreUnavailable } from './store.js';

const BODY_BYTES_MAX = 8192;
/** WC-ERR-5 allows five seconds, which include this process's own work. */
const STEP_MS_MAX = 4000;
const HEALTH_MS_MAX = 2000;

/**
 * The tool's routes.
 *
 * @param {{ store: import('./store.js').Store, switches: import('./controls.js').Switches, key: string }} parts
 */
export function toolRoutes({ store, switches, key }) {
  async function checkpoint(request) {
    if (!isPlainJson(request.headers)) return problem('INVALID_INPUT', {}, 415);
    const bytes = await readBody(request, BODY_BYTES_MAX);
    if (!bytes) return problem('INVALID_INPUT', {}, 413);
    const body = parseRequest(bytes);
    if (!body) return problem('INVALID_INPUT');
    if (!switches.admit()) return problem('RATE_LIMITED');
    if (switches.paused && body.action === 'claim') return problem('TOOL_PAUSED'); // WC-ERR-7
    if (!switches.storeAvailable) return problem('DEPENDENCY_UNAVAILABLE');
    const { workflow, request: asked } = digested(body, key);
    const signal = AbortSignal.timeout(STEP_MS_MAX);
    const decision = await available(store.step(workflow, (record, now) => decide(record, asked, now), signal));
    if (!decision) return problem('DEPENDENCY_UNAVAILABLE');
    if (decision.code) return problem(decision.code, decision.members);
    return { status: 200, body: { ...decision.members, workflow_hash: `hmac-sha256:${workflow}` } };
  }

  async function health() {
    const answers = switches.storeAvailable && await available(store.now(AbortSignal.timeout(HEALTH_MS_MAX)));
    return answers ? { status: 200, body: { status: 'ok' } } : plainProblem(503, 'The store does not answer');
  }

  return { '/v1/tools/workflow-checkpoint': { POST: checkpoint }, '/healthz': { GET: health } };
}

/** Section 8: the media type's parameters are ignored, and no content coding is used. */
function isPlainJson({ 'content-type': type = '', 'content-encoding': coding = 'identity' }) {
  return type.split(';', 1)[0].trim().toLowerCase() === 'application/json' && coding.trim().toLowerCase() === 'identity';
}

/** What the store gives, or null where it gives nothing. */
async function available(promise) {
  try {
    return await promise;
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error;
    console.error(`the store is not available: ${error.message}`);
    return null;
  }
}
