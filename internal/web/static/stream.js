// The one stream of events of a browser, shared by its pages. It goes on after the last event that
// it has seen, so that nothing is lost when the connection drops.
'use strict';
const ports = new Set();
let last = '';
let state = 'connecting';
const tell = (what) => {
  if (what !== 'event') state = what;
  for (const port of ports) port.postMessage(what);
};
const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });

const follow = async () => {
  const headers = {Accept: 'text/event-stream'};
  if (last) headers['Last-Event-ID'] = last;
  const answer = await fetch('/api/v1/events', {headers, credentials: 'same-origin', cache: 'no-store'});
  if (!answer.ok) throw new Error(String(answer.status));
  tell('open');
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const blocks = (rest + value).split('\n\n');
    rest = blocks.pop();
    let seen = false;
    for (const block of blocks) {
      const id = /^id: (\d+)$/m.exec(block);
      if (id) {
        last = id[1];
        seen = true;
      }
    }
    if (seen) tell('event');
  }
};

const run = async () => {
  for (let wait = 1000; ; wait = Math.min(30000, wait * 2)) {
    try {
      await follow();
      wait = 500;
    } catch (e) {
      // said below, and tried again
    }
    tell('closed');
    await pause(wait);
  }
};

self.onconnect = (e) => {
  const port = e.ports[0];
  const first = ports.size === 0 && state === 'connecting';
  ports.add(port);
  port.postMessage(state);
  if (first) run();
};
