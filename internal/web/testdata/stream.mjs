// Runs static/stream.js as a shared worker: three pages, a stream that drops, and one that goes on.
import {readFileSync} from 'node:fs';
import vm from 'node:vm';

const requests = [];
const pages = [[], [], []];
let finish;
const done = new Promise((end) => { finish = end; });
const encoded = (text) => new TextEncoder().encode(text);

const answer = (chunks) => ({ok: true, body: new ReadableStream({
  start(controller) {
    for (const chunk of chunks) controller.enqueue(encoded(chunk));
    controller.close();
  },
})});

const context = vm.createContext({
  self: {}, TextDecoderStream, Set, Promise, Math, Error, String,
  setTimeout: (f) => setTimeout(f, 0), // a virtual clock
  fetch: async (url, {headers}) => {
    requests.push(headers['Last-Event-ID'] ?? '');
    switch (requests.length) {
      case 1: return answer(['id: 7\ndata: a\n\nid: 8\nda', 'ta: b\n\n']); // and drops
      case 2: return {ok: false, status: 503};
      case 3: return answer(['id: 9\ndata: c\n\n']);
      default: finish(); return new Promise(() => {});
    }
  },
});
vm.runInContext(readFileSync(new URL('../static/stream.js', import.meta.url), 'utf8'), context);
for (const told of pages) context.self.onconnect({ports: [{postMessage: (what) => told.push(what)}]});
await done;
process.stdout.write(JSON.stringify({requests, pages}));
