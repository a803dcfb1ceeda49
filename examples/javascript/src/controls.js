/** Section 14: the test controls, on a listener of their own that only this machine can reach. */

import { timestamp } from './decisions.js';
import { readBody } from './http.js';
import { plainProblem } from './problems.js';

const BODY_BYTES_MAX = 8192;
const STORE_MS_MAX = 4000;
/** Beyond it a deadline would have no timestamp of RFC 3339. */
const CLOCK_MS_MAX = Date.UTC(9999, 0);

/** The time that decisions go by: the store's, shifted, or one at which it stands. */
export class Clock {
  #shift = 0;
  #frozenAt = null;

  /** Whether it is the store's own. */
  get isStores() {
    return this.#frozenAt === null && this.#shift === 0;
  }

  /** @param {number} storeNow  in milliseconds, as is what is returned */
  at(storeNow) {
    return this.#frozenAt ?? storeNow + this.#shift;
  }

  /** @returns {number | null}  what it shows then; null where it cannot show that, and is left as it was */
  set({ advance_ms: by = 0, freeze = this.#frozenAt !== null }, storeNow) {
    const now = this.at(storeNow) + by;
    if (now < 0 || now > CLOCK_MS_MAX) return null;
    this.#frozenAt = freeze ? now : null;
    this.#shift = now - storeNow;
    return now;
  }

  reset() {
    this.#frozenAt = null;
    this.#shift = 0;
  }
}

/** What an operator, or a test, may switch. */
export class Switches {
  paused = false;
  storeAvailable = true;
  /** @type {number | null} */
  remaining = null;

  /** Whether one more request is admitted. */
  admit() {
    if (this.remaining === null) return true;
    return this.remaining > 0 && this.remaining-- > 0;
  }
}

const isBoolean = (value) => typeof value === 'boolean';
const isInteger = (value) => Number.isSafeInteger(value);

/**
 * The controls' routes.
 *
 * @param {{ store: import('./store.js').Store, switches: Switches, clock: Clock }} parts
 */
export function controlRoutes({ store, switches, clock }) {
  const signal = () => AbortSignal.timeout(STORE_MS_MAX);

  async function moved(move) {
    const wasStores = clock.isStores;
    move();
    if (clock.isStores !== wasStores) await store.refit(signal());
  }

  const controls = {
    // WC-CTL-1
    '/clock': [{ advance_ms: isInteger, freeze: isBoolean }, async (body) => {
      const storeNow = await store.now(signal());
      let now;
      await moved(() => { now = clock.set(body, storeNow); });
      return now === null ? null : { now: timestamp(now) };
    }],
    // WC-CTL-2
    '/pause': [{ paused: isBoolean }, ({ paused }) => Object.assign(switches, { paused }) && {}],
    // WC-CTL-3
    '/rate-limit': [
      { remaining: (value) => value === null || isInteger(value) && value >= 0 },
      ({ remaining }) => Object.assign(switches, { remaining }) && {},
    ],
    // WC-CTL-4
    '/dependency': [
      { available: isBoolean },
      ({ available }) => Object.assign(switches, { storeAvailable: available }) && {},
    ],
    // WC-CTL-5
    '/reset': [{}, async () => {
      Object.assign(switches, new Switches());
      await moved(() => clock.reset());
      return {};
    }],
  };

  const handler = (path) => async (request) => {
    const [members, act] = controls[path];
    const body = parsed(await readBody(request, BODY_BYTES_MAX));
    const allOptional = path === '/clock';
    const fits = body
      && Object.entries(body).every(([name, value]) => Object.hasOwn(members, name) && members[name](value))
      && (allOptional || Object.keys(members).every((name) => Object.hasOwn(body, name)));
    const answer = fits ? await act(body) : null;
    return answer ? { status: 200, body: answer } : plainProblem(400, 'Not the members of this control');
  };
  return Object.fromEntries(Object.keys(controls).map((path) => [path, { POST: handler(path) }]));
}

function parsed(bytes) {
  try {
    const value = JSON.parse(bytes);
    return value !== null && typeof value === 'object' && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}
