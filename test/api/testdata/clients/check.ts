// Reads everything that the API lists with a generated client, and holds it against the answer.
import { deepStrictEqual } from "node:assert";

import { client } from "./generated/client.gen.js";
import * as sdk from "./generated/sdk.gen.js";
import type { AccountsV1, FreezeV1, Problem } from "./generated/types.gen.js";

const url = process.env["API_URL"]!;
const token = process.env["API_TOKEN"]!;
const wanted: Record<string, { path?: { id: string }; query?: Record<string, unknown> }> =
  JSON.parse(process.env["API_ARGUMENTS"]!);
let raw = "";
client.setConfig({
  baseUrl: url,
  auth: () => token,
  fetch: async (...request) => {
    const answer = await fetch(...request);
    raw = await answer.clone().text();
    return answer;
  },
});

const read: string[] = [];
const wrong: string[] = [];

// By their types: a document, the answer to a change and a refusal.
const accounts: AccountsV1 | undefined = (await sdk.listAccounts()).data;
if (!accounts?.accounts.every((account) => account.id !== "")) wrong.push(`the accounts are ${JSON.stringify(accounts)}`);
const frozen: FreezeV1 | undefined = (await sdk.freeze({ body: { reason: "an incident" } })).data;
if (frozen?.frozen !== true) wrong.push(`after a freeze: ${JSON.stringify(frozen)}`);
const lifted: FreezeV1 | undefined = (await sdk.unfreeze({ body: { reason: "it is over" } })).data;
if (lifted?.frozen !== false) wrong.push(`after its end: ${JSON.stringify(lifted)}`);
const gone: Problem | undefined = (await sdk.listKeeps({ query: { cursor: "Zm9v" } })).error;
if (gone?.code !== "cursor_gone" || gone?.status !== 410) wrong.push(`of a cursor that is gone: ${JSON.stringify(gone)}`);

type Read = (options: { path?: { id: string }; query?: Record<string, unknown> }) =>
  Promise<{ data?: unknown; error?: unknown; response: Response }>;
for (const [name, options] of Object.entries(wanted)) {
  const operation = (sdk as unknown as Record<string, Read>)[name];
  if (operation === undefined) {
    wrong.push(`the client has no ${name}`);
    continue;
  }
  const answer = await operation(options);
  if (answer.data === undefined) {
    wrong.push(`${name}: ${answer.response.status} ${JSON.stringify(answer.error)}`);
    continue;
  }
  read.push(name);
  try {
    deepStrictEqual(answer.data, JSON.parse(raw));
  } catch (difference) {
    wrong.push(`${name}: ${difference}`);
  }
}
console.log(JSON.stringify({ read, wrong }));
process.exitCode = wrong.length > 0 ? 1 : 0;
