// Follows a run: the server says that something changed, the page is asked for again, and its main part is put in place of the old one.
"use strict";
(() => {
  const main = document.querySelector("main");
  const place = main.dataset.live;
  if (!place) return;
  const says = document.getElementById("live");
  let asking = false, again = false, waits = false;
  // The same said again would be read out again.
  const say = (text) => { if (says.textContent !== text) says.textContent = text; };
  // Nobody's writing, and nothing that is marked to be copied, is taken from under their hands.
  const busy = () => {
    const marked = getSelection();
    return document.activeElement.matches("main input") || (!marked.isCollapsed && main.contains(marked.anchorNode));
  };
  // Things a keyboard stands on, by what they are.
  const stops = () => [...main.querySelectorAll("a, summary, button, .wide")];
  const same = (e) => (e.href || "") + (e.ariaLabel || e.textContent);
  const renew = async () => {
    if (busy()) {
      if (!waits) { waits = true; setTimeout(() => { waits = false; renew(); }, 1000); }
      return;
    }
    if (asking) { again = true; return; }
    asking = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(String(answer.status));
      const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
      if (busy()) again = true;
      else {
        const open = new Map([...main.querySelectorAll("details")].map((d) => [d.id, d.open]));
        const on = main.contains(document.activeElement) && same(document.activeElement);
        main.replaceChildren(...next.childNodes);
        for (const d of main.querySelectorAll("details")) if (open.has(d.id)) d.open = open.get(d.id);
        if (on) stops().find((e) => same(e) === on)?.focus({ preventScroll: true });
      }
      say("live");
    } catch { say("not live"); }
    asking = false;
    if (again) { again = false; renew(); }
  };
  const source = new EventSource(place);
  source.addEventListener("change", renew);
  source.onopen = () => say("live");
  source.onerror = () => say("not live");
  // Ages get on while nothing happens: one that stood still would tell of a run that hangs that it moves.
  const look = () => { if (!document.hidden) renew(); };
  setInterval(look, 20_000);
  document.addEventListener("visibilitychange", look);
})();
