// The official TypeScript client, driven by lines: `node typescript_client.mjs URL`.
//
// It connects, lists the tools first (from then on it validates what calls of them give), and says
// in one line what it was told. Then each line of its input is the arguments of a call, and each
// line of its output what the call gave: `{result}`, or `{thrown}` where the client refused it.

import { createInterface } from 'node:readline';

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

const client = new Client({ name: 'tests', version: '1' });
const transport = new StreamableHTTPClientTransport(new URL(process.argv[2]));
await client.connect(transport);
const { tools } = await client.listTools();
say({
  tools,
  server: client.getServerVersion(),
  instructions: client.getInstructions(),
  revision: transport.protocolVersion,
});

for await (const line of createInterface({ input: process.stdin })) {
  try {
    const result = await client.callTool({ name: tools[0].name, arguments: JSON.parse(line) });
    say({ result });
  } catch (error) {
    say({ thrown: String(error) });
  }
}
await client.close();
