// Keeps a page up to date: the server says that something changed, the page is asked for again, and what differs is put in its place.
"use strict";
(() => {
  const main = document.querySelector("main");
  const place = main.dataset.live;
  const badge = document.getElementById("live");
  // The same said again would be read out again.
  const say = (text) => { if (badge.textContent !== text) badge.textContent = text; };

  const match = (a, b) => a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
  // Changes only what differs: the focus, a selection, a scrolled list and an open part stay.
  const patch = (old, next) => {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
      return;
    }
    if (old.hasAttribute("data-keep")) return;
    const keeps = (name) => name === "open" && old.nodeName === "DETAILS";
    for (const { name } of [...old.attributes]) if (!next.hasAttribute(name) && !keeps(name)) old.removeAttribute(name);
    for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value && !keeps(name)) old.setAttribute(name, value);
    let at = old.firstChild;
    for (const child of [...next.childNodes]) {
      const known = child.id && [...old.children].find((e) => e.id === child.id);
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

  let asking = false, again = false;
  const renew = async () => {
    if (asking) { again = true; return; }
    asking = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(String(answer.status));
      patch(main, new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main"));
      say("live");
    } catch { say("not live"); }
    asking = false;
    if (again) { again = false; renew(); }
  };
  if (!place) return;
  const source = new EventSource(place);
  source.addEventListener("change", renew);
  source.onerror = () => say("not live");
  // What the server does not report, such as a share of the time, gets on too.
  const look = () => { if (!document.hidden) renew(); };
  setInterval(look, 20_000);
  document.addEventListener("visibilitychange", look);
})();
