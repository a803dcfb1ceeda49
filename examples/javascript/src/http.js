/** What both listeners share: read a bounded body, answer with JSON, never say what went wrong inside. */

import { createServer } from 'node:http';

import { plainProblem } from './problems.js';

/** @typedef {{ status: number, body: object, headers?: Record<string, string> }} Answer */

const KEEP_ALIVE_MS = 75_000;

/**
 * Listen, and answer each request with what its route returns.
 *
 * @param {Record<string, Record<string, (request: import('node:http').IncomingMessage) => Promise<Answer>>>} routes
 *   path → method → handler
 * @param {number} port  0 for any that is free
 * @param {string} host
 * @returns {Promise<import('node:http').Server>}
 */
export async function listen(routes, port, host) {
  const server = createServer({ keepAliveTimeout: KEEP_ALIVE_MS }, async (request, response) => {
    const answer = await route(routes, request).catch((error) => {
      if (request.errored) return null; // the client went away in the middle of its request
      console.error(`internal fault: ${error.stack}`);
      return plainProblem(500, 'Internal fault');
    });
    if (!answer) return;
    const body = JSON.stringify(answer.body);
    const kind = answer.status < 400 ? 'application/json' : 'application/problem+json';
    response.writeHead(answer.status, {
      'content-type': kind,
      'content-length': Buffer.byteLength(body),
      'cache-control': 'no-store', // WC-HTTP-1
      ...answer.headers,
    });
    response.end(body);
    request.resume(); // what was not read of the body
  });
  await new Promise((resolve, reject) => server.once('error', reject).listen(port, host, resolve));
  return server;
}

async function route(routes, request) {
  const methods = Object.hasOwn(routes, pathOf(request)) ? routes[pathOf(request)] : null;
  if (!methods) return plainProblem(404, 'No such path');
  const handler = Object.hasOwn(methods, request.method) ? methods[request.method] : null;
  // WC-HTTP-2
  return handler ? handler(request) : plainProblem(405, 'No such method', { allow: Object.keys(methods).join(', ') });
}

const pathOf = (request) => request.url.split('?', 1)[0];

/**
 * Read a body.
 *
 * @param {import('node:http').IncomingMessage} request
 * @param {number} bytesMax
 * @returns {Promise<Buffer | null>}  null where it is longer
 */
export function readBody(request, bytesMax) {
  return new Promise((resolve, reject) => {
    const chunks = [];
    let size = 0;
    request.on('data', (chunk) => {
      size += chunk.length;
      if (size <= bytesMax) chunks.push(chunk);
      else resolve(null);
    });
    request.on('end', () => resolve(Buffer.concat(chunks)));
    request.on('error', reject);
  });
}
