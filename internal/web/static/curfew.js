// What pages gain from a script: times in the reader's clock, the key / for the search, and data
// that renews itself. Every page is complete without it.
(() => {
  'use strict';
  const main = () => document.getElementById('main');
  const live = document.getElementById('live');

  const local = (root) => {
    for (const t of root.querySelectorAll('time[datetime]')) {
      const at = new Date(t.dateTime);
      if (t.dataset.local || Number.isNaN(at.getTime()) || !t.textContent.includes('UTC')) continue;
      t.dataset.local = 'yes';
      t.title = t.textContent;
      const second = t.closest('.log') ? {second: '2-digit'} : {};
      t.textContent = at.toLocaleString(undefined, {month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', ...second});
    }
  };

  const ends = new WeakMap();
  const bind = (root) => {
    local(root);
    // A log shows its newest line until someone scrolls up in it.
    for (const log of root.querySelectorAll('.log')) {
      if (!ends.has(log)) {
        ends.set(log, true);
        log.addEventListener('scroll', () => {
          ends.set(log, log.scrollTop + log.clientHeight > log.scrollHeight - 40);
        });
      }
      if (ends.get(log)) log.scrollTop = log.scrollHeight;
    }
    for (const range of root.querySelectorAll('input[type=range][data-choices]')) {
      if (range.dataset.bound) continue;
      range.dataset.bound = 'yes';
      const show = () => {
        for (const row of document.querySelectorAll('[data-choice]')) {
          row.hidden = row.dataset.choice !== range.value;
        }
        const chosen = document.querySelector(`[data-choice="${range.value}"]`);
        range.setAttribute('aria-valuetext', chosen ? chosen.dataset.name : range.value);
      };
      range.addEventListener('input', show);
      show();
    }
  };

  // A page is renewed only while no one writes in it or reads an open form.
  const busy = () => {
    const at = document.activeElement;
    return document.hidden || (at && at.closest('main') && at.matches('input, textarea, select')) ||
      document.querySelector('main details.open-form[open], main details.menu[open]');
  };
  let due = null;
  let last = Date.now();
  let wanted = false;
  const refresh = () => {
    due = null;
    if (busy() || !window.htmx) {
      wanted = true;
      return;
    }
    wanted = false;
    last = Date.now();
    htmx.trigger(main(), 'renew');
  };
  const soon = () => {
    if (due === null) due = setTimeout(refresh, Math.max(400, 2000 - (Date.now() - last)));
  };
  // What changes without an entry of the audit log, such as the age of data, is renewed too.
  setInterval(() => {
    if (wanted || Date.now() - last > 15000) soon();
  }, 3000);
  // What a job prints makes no event.
  setInterval(() => {
    if (document.hidden || !window.htmx) return;
    for (const part of document.querySelectorAll('[data-poll]')) htmx.trigger(part, 'poll');
  }, 2000);
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && Date.now() - last > 5000) soon();
  });
  document.addEventListener('htmx:after:swap', () => bind(document));

  const say = (text) => {
    if (live) live.textContent = text;
  };
  // One stream for all pages of a browser: a server of HTTP/1.1 gives a browser six connections.
  if (window.SharedWorker && document.body.dataset.worker) {
    const worker = new SharedWorker(document.body.dataset.worker, 'curfew events');
    worker.port.onmessage = (e) => {
      if (e.data === 'event') soon();
      if (e.data === 'connecting') say('Connecting');
      if (e.data === 'open') say('Live');
      if (e.data === 'closed') say('Connection lost; trying again');
    };
    worker.port.start();
  } else if (document.body.dataset.worker) {
    say('Renewed every 15 seconds');
  }

  document.addEventListener('keydown', (e) => {
    const search = document.querySelector('.search input');
    if (e.key === '/' && search && !e.ctrlKey && !e.metaKey && !e.altKey &&
      !e.target.closest('input, textarea, select')) {
      e.preventDefault();
      search.focus();
    }
    if (e.key === 'Escape') {
      for (const d of document.querySelectorAll('details.menu[open], details.open-form[open]')) {
        d.open = false;
        d.querySelector('summary').focus();
      }
    }
  });
  document.addEventListener('click', (e) => {
    for (const d of document.querySelectorAll('details.menu[open], details.open-form[open]')) {
      if (!d.contains(e.target)) d.open = false;
    }
    const copy = e.target.closest('[data-copy]');
    if (copy) {
      navigator.clipboard.writeText(document.getElementById(copy.dataset.copy).textContent).then(() => {
        copy.textContent = 'Copied';
      });
    }
  });
  document.addEventListener('submit', (e) => {
    const button = e.target.querySelector('button[type=submit]');
    if (e.target.method === 'post' && button) setTimeout(() => { button.disabled = true; }, 0);
  });
  bind(document);
})();
