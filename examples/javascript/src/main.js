/** Start the server: read the environment, look at the store, listen, stop when told to. */

import { Clock, Switches, controlRoutes } from './controls.js';
import { listen } from './http.js';
import { Store } from './store.js';
import { toolRoutes } from './tool.js';

const KEY_BYTES_MIN = 32;
const START_MS_MAX = 5000;

function refuseToStart(why) {
  console.error(why);
  process.exit(1);
}

const { HOST = '127.0.0.1', PORT = '8080', CONTROLS_PORT, VALKEY_URL = 'redis://127.0.0.1:6379/0', HMAC_KEY = '' } = process.env;
// WC-ID-5
if (Buffer.byteLength(HMAC_KEY) < KEY_BYTES_MIN) refuseToStart(`HMAC_KEY must have at least ${KEY_BYTES_MIN} bytes.`);

const clock = new Clock();
const switches = new Switches();
const store = new Store(VALKEY_URL, clock);
const policy = await store.evictionPolicy(AbortSignal.timeout(START_MS_MAX)).catch((error) => {
  refuseToStart(`The store at VALKEY_URL cannot be used: ${error.message}`);
});
// WC-PRIV-4
if (policy !== 'noeviction') refuseToStart(`The store's maxmemory-policy is ${policy}; it must be noeviction.`);

const servers = [await listen(toolRoutes({ store, switches, key: HMAC_KEY }), Number(PORT), HOST)];
console.log(`The tool listens on http://${HOST}:${servers[0].address().port}`);
if (CONTROLS_PORT !== undefined) {
  servers.push(await listen(controlRoutes({ store, switches, clock }), Number(CONTROLS_PORT), '127.0.0.1'));
  console.log(`The test controls listen on http://127.0.0.1:${servers[1].address().port}`);
}

for (const name of ['SIGINT', 'SIGTERM']) {
  process.once(name, async () => {
    await Promise.all(servers.map((server) => new Promise((closed) => {
      server.close(closed);
      server.closeIdleConnections();
    })));
    store.close();
  });
}
