/**
 * Section 3: what is a request and what is none; and section 4: what it looks like afterwards.
 *
 * Nothing raw leaves this file. What comes out has keyed digests in place of identifiers.
 */

import { createHmac } from 'node:crypto';
import { readFileSync } from 'node:fs';

import { Ajv2020 } from 'ajv/dist/2020.js';

const schema = JSON.parse(readFileSync(new URL('../request.schema.json', import.meta.url), 'utf8'));
const matchesSchema = new Ajv2020().compile(schema);
// A BOM is kept by the decoder, so that the parser refuses it (WC-IN-4).
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * Read a body.
 *
 * @param {Uint8Array} bytes
 * @returns {Record<string, any> | null}  null where it is refused (WC-IN-1)
 */
export function parseRequest(bytes) {
  let text, body;
  try {
    text = utf8.decode(bytes);
    body = JSON.parse(text);
  } catch {
    return null;
  }
  if (!matchesSchema(body) || !keepsItsIntegers(text)) return null;
  if (body.action === 'claim' && body.claim_ttl_seconds >= body.state_ttl_seconds) return null; // WC-IN-5
  return body;
}

/**
 * Whether each number in a text of JSON is a whole one as it was written (WC-IN-2).
 *
 * 1.00000000000000000001 is none, and JavaScript reads it as 1 all the same.
 */
function keepsItsIntegers(text) {
  const numbers = text.replace(/"(?:[^"\\]|\\.)*"/g, '').matchAll(/-?(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?/gi);
  return [...numbers].every(([, whole, fraction = '', exponent = '0']) => {
    const digits = whole + fraction;
    const zeros = /0*$/.exec(digits)[0].length;
    return zeros === digits.length || Number(exponent) + zeros >= fraction.length;
  });
}

/**
 * Replace what identifies by digests (WC-ID-1 … WC-ID-4).
 *
 * A digest is over a JSON array that begins with its domain. The array keeps its members apart
 * whatever they hold, and all but the first kind have the workflow's own digest inside.
 *
 * @param {Record<string, any>} body  a valid request
 * @param {string} key
 * @returns {{ workflow: string, request: import('./decisions.js').Request }}
 */
export function digested(body, key) {
  const digest = (...parts) => createHmac('sha256', key).update(JSON.stringify(parts)).digest('hex');
  const workflow = digest('workflow', body.namespace, body.workflow_key);
  const within = (domain, ...parts) => digest(domain, workflow, ...parts);
  const request = { action: body.action };
  if (body.holder !== undefined) request.holder = within('holder', body.holder);
  if (body.action === 'claim') {
    request.claimTtl = body.claim_ttl_seconds;
    request.stateTtl = body.state_ttl_seconds;
    request.retryFailed = body.retry_failed;
  } else if (body.action !== 'status') {
    request.generation = body.generation;
  }
  if (body.action === 'transition') {
    const { holder, generation, to_stage, evidence_type, evidence_fingerprint } = body;
    request.observationKey = within('observation', body.observation_key);
    // An absent member becomes null here, which no member that is there can be.
    request.body = within('body', holder, generation, to_stage, evidence_type, evidence_fingerprint);
    request.toStage = to_stage;
    request.evidence = evidence_type;
    request.fingerprint = evidence_fingerprint !== undefined;
  }
  return { workflow, request };
}
