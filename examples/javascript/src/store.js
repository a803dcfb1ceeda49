/**
 * One record, one atomic step, in Valkey.
 *
 * A step is an optimistic transaction: WATCH the record, read it and the store's clock, decide
 * here, and EXEC. Valkey carries the EXEC out only if nobody touched the record since the WATCH;
 * otherwise the step begins anew, with a new reading of the clock. So the time that a decision
 * was made at is one at which the record was as it was read (WC-TIME-1, WC-CONC-1). That holds for
 * a decision that changes nothing too, which is why it ends with an EXEC like any other.
 *
 * How often can a step lose? Once for each change that others make. But a record changes at most
 * three times in a generation (claim, `uncertain`, settle or abandon) and has 16 generations, so
 * a hundred contenders get through without locks, queues or random pauses.
 *
 * A WATCH belongs to a connection. Each step has one to itself, from a pool; a connection that
 * failed is never used again nor reconnected, so no EXEC can go out where its WATCH was lost.
 */

import { Redis } from 'iovalkey';

const CONNECTIONS_MAX = 16;
/** 48 changes, those of a record that follows one that expired, and the two expiries. */
const ATTEMPTS_MAX = 100;
const PREFIX = 'checkpoint-example:';
const LIFE_MAX_MS = 3600 * 1000;

/** The store did not answer in time, or cannot take the write. Whether it did is not known. */
export class StoreUnavailable extends Error {}

export class Store {
  #url;
  #clock;
  #idle = [];
  #free = CONNECTIONS_MAX;
  #waiting = new Set();

  /**
   * @param {string} url  `redis://…`, `rediss://…` or `unix:///path`
   * @param {import('./controls.js').Clock} clock
   */
  constructor(url, clock) {
    this.#url = url;
    this.#clock = clock;
  }

  /**
   * Take one atomic step.
   *
   * @param {string} workflow  digest of the workflow identity
   * @param {(record: import('./decisions.js').Checkpoint | null, now: number) =>
   *   import('./decisions.js').Decision} decide
   * @param {AbortSignal} signal  when it aborts, the step is given up
   * @throws {StoreUnavailable}
   */
  async step(workflow, decide, signal) {
    const key = PREFIX + workflow;
    return this.#connected(signal, async (connection) => {
      for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        const [, text, time] = await Promise.all([connection.watch(key), connection.get(key), connection.time()]);
        const storeNow = milliseconds(time);
        const decision = decide(text && JSON.parse(text), this.#clock.at(storeNow));
        const transaction = connection.multi().exists(key);
        if (decision.change) {
          const { stateEnds } = decision.change;
          transaction.set(key, JSON.stringify(decision.change), 'PXAT', this.#expiry(stateEnds, storeNow));
        }
        // An EXEC whose answer is lost throws, and so ends the step: it may have been applied,
        // and must not be sent again from here (WC-ERR-5).
        const replies = await transaction.exec();
        if (replies) return checked(replies) && decision;
      }
      throw new Error('the record would not stand still');
    });
  }

  /** The store's time in milliseconds. @param {AbortSignal} signal */
  async now(signal) {
    return this.#connected(signal, async (connection) => milliseconds(await connection.time()));
  }

  /** What the store does when it is full. @param {AbortSignal} signal */
  async evictionPolicy(signal) {
    return this.#connected(signal, async (connection) => {
      const info = await connection.info('memory');
      return /^maxmemory_policy:(\S+)/m.exec(info)?.[1];
    });
  }

  /**
   * Give every record the native expiry of the clock that runs now (WC-CTL-6).
   *
   * Only the test controls call this, when the clock begins or ends to be the store's own.
   *
   * @param {AbortSignal} signal
   */
  async refit(signal) {
    await this.#connected(signal, async (connection) => {
      const storeNow = milliseconds(await connection.time());
      for await (const keys of connection.scanStream({ match: `${PREFIX}*`, count: 1000 })) {
        if (keys.length === 0) continue;
        const texts = await connection.mget(keys);
        const pipeline = connection.pipeline();
        texts.forEach((text, i) => text && pipeline.pexpireat(keys[i], this.#expiry(JSON.parse(text).stateEnds, storeNow)));
        checked(await pipeline.exec());
      }
    });
  }

  /** End every connection. */
  close() {
    this.#idle.splice(0).forEach((connection) => connection.disconnect());
  }

  /** WC-PRIV-3, and WC-CTL-6 under a clock that stands still or is shifted. */
  #expiry(stateEnds, storeNow) {
    const latest = storeNow + LIFE_MAX_MS;
    return this.#clock.isStores ? Math.min(stateEnds, latest) : latest;
  }

  /** Lend a connection. @template T @param {(connection: Redis) => Promise<T>} work @returns {Promise<T>} */
  async #connected(signal, work) {
    await this.#turn(signal);
    let connection;
    const giveUp = () => connection.disconnect(); // which fails whatever waits for an answer
    try {
      do connection = this.#idle.pop() ?? this.#open();
      while (connection.status === 'end');
      signal.addEventListener('abort', giveUp);
      if (signal.aborted) throw new Error('no connection was free in time');
      if (connection.status === 'wait') await connection.connect();
      const result = await work(connection);
      this.#idle.push(connection);
      return result;
    } catch (error) {
      connection.disconnect();
      if (error instanceof TypeError || error instanceof RangeError) throw error; // our own fault
      // The message alone: an error of the client carries the command that failed.
      throw new StoreUnavailable(error.message);
    } finally {
      signal.removeEventListener('abort', giveUp);
      const [next] = this.#waiting;
      if (next) next();
      else this.#free++;
    }
  }

  /** Wait for one's turn with a connection; who came first is first. */
  #turn(signal) {
    if (this.#free > 0) return void this.#free--;
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#waiting.delete(enter);
        reject(new StoreUnavailable('no connection was free in time'));
      };
      const enter = () => {
        this.#waiting.delete(enter);
        signal.removeEventListener('abort', leave);
        resolve();
      };
      this.#waiting.add(enter);
      signal.addEventListener('abort', leave);
    });
  }

  #open() {
    const address = this.#url.startsWith('unix:') ? new URL(this.#url).pathname : this.#url;
    const connection = new Redis(address, {
      lazyConnect: true,
      enableOfflineQueue: false,
      enableReadyCheck: false,
      retryStrategy: () => null,
      disconnectTimeout: 100,
    });
    connection.on('error', () => {}); // each is thrown where the connection is used
    return connection;
  }
}

const milliseconds = ([seconds, microseconds]) => Number(seconds) * 1000 + Math.floor(Number(microseconds) / 1000);

function checked(replies) {
  for (const [error] of replies) if (error) throw error;
  return true;
}
