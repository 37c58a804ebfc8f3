// Keeps a page up to date: the server says that something changed, the page is asked for again, and what differs is put in its place.
"use strict";
(() => {
  const main = document.querySelector("main");
  const place = main.dataset.live;
  const badge = document.getElementById("live");
  // The same said again would be read out again.
  const say = (text) => { if (badge.textContent !== text) badge.textContent = text; };

  const two = (a, big, b, small) => (b ? `${a}${big} ${b}${small}` : `${a}${big}`);
  const span = (ms) => {
    const s = Math.floor(ms / 1000), m = Math.floor(s / 60), h = Math.floor(m / 60);
    if (s < 60) return `${s} s`;
    if (m < 60) return two(m, "m", s % 60, "s");
    if (h < 24) return two(h, "h", m % 60, "m");
    return two(Math.floor(h / 24), "d", h % 24, "h");
  };
  window.duration = span;
  // Times in the browser's zone, UTC on hover.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const local = (root) => {
    for (const t of root.querySelectorAll("time")) {
      const at = new Date(t.dateTime);
      t.title = at.toISOString().replace("T", " ").replace(".000Z", " UTC");
      t.textContent = at.toLocaleString("sv-SE");
    }
    for (const z of root.querySelectorAll("#zone")) z.textContent = zone === "UTC" ? "Times are UTC." : `Times are those of ${zone}; hover over one to see it in UTC.`;
  };
  // Ages go on while nothing happens: one that stood still would hide a hang.
  const began = new WeakMap();
  const tick = () => {
    for (const e of main.querySelectorAll("[data-age]")) {
      const known = began.get(e);
      const from = known && known.age === e.dataset.age ? known : { age: e.dataset.age, at: performance.now() };
      began.set(e, from);
      const text = span(Number(from.age) + performance.now() - from.at);
      if (e.textContent !== text) e.textContent = text;
    }
  };

  const match = (a, b) => a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
  // Changes only what differs: the focus, a selection, a scrolled list and an open part stay.
  const patch = (old, next) => {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
      return;
    }
    if (old.hasAttribute("data-keep") || old.nodeName === "NOSCRIPT") return;
    const keeps = (name) => name === "open" && old.nodeName === "DETAILS";
    for (const { name } of [...old.attributes]) if (!next.hasAttribute(name) && !keeps(name)) old.removeAttribute(name);
    for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value && !keeps(name)) old.setAttribute(name, value);
    const named = new Map([...old.children].filter((e) => e.id).map((e) => [e.id, e]));
    let at = old.firstChild;
    for (const child of [...next.childNodes]) {
      const known = child.id && named.get(child.id);
      const same = known || (at && match(at, child) ? at : null);
      if (!same) old.insertBefore(child, at);
      else {
        if (same === at) at = at.nextSibling;
        else old.insertBefore(same, at);
        patch(same, child);
      }
    }
    while (at) { const rest = at.nextSibling; at.remove(); at = rest; }
  };

  // The end of an output stays in sight until a reader goes back in it.
  const log = document.getElementById("log");
  const switched = document.getElementById("follow");
  const follow = () => { if (switched?.checked) log.scrollTop = log.scrollHeight; };
  if (switched) {
    switched.onchange = follow;
    log.addEventListener("scroll", () => { switched.checked = log.scrollTop + log.clientHeight > log.scrollHeight - 8; });
    follow();
  }

  let asking = false, again = false;
  const renew = async () => {
    if (asking) { again = true; return; }
    asking = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = page.querySelector("main");
      local(next);
      patch(main, next);
      document.title = page.title;
      tick();
      follow();
      document.dispatchEvent(new Event("renewed"));
      say("live");
    } catch { say("not live"); }
    asking = false;
    if (again) { again = false; renew(); }
  };
  local(main);
  tick();
  setInterval(tick, 1000);
  if (!place) return;
  const source = new EventSource(place);
  source.addEventListener("change", renew);
  source.onerror = () => say("not live");
  // What the server does not report, such as a share of the time, gets on too.
  const look = () => { if (!document.hidden) renew(); };
  setInterval(look, 20_000);
  document.addEventListener("visibilitychange", look);
})();
