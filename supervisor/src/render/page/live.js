// Follows a run: the server says that something changed, the page is asked for again, and its main part is put in place of the old one.
"use strict";
(() => {
  const main = document.querySelector("main");
  const place = main.dataset.live;
  if (!place) return;
  const says = document.getElementById("live");
  let asking = false, again = false;
  const renew = async () => {
    // Nobody's writing is taken from under their hands.
    if (document.activeElement.matches("main input")) { setTimeout(renew, 1000); return; }
    if (asking) { again = true; return; }
    asking = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(String(answer.status));
      const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
      const open = new Set([...main.querySelectorAll("details[open]")].map((d) => d.id));
      main.replaceChildren(...next.childNodes);
      for (const d of main.querySelectorAll("details")) if (open.has(d.id)) d.open = true;
      says.textContent = "live";
    } catch { says.textContent = "not live"; }
    asking = false;
    if (again) { again = false; renew(); }
  };
  const source = new EventSource(place);
  source.addEventListener("change", renew);
  source.onopen = () => { says.textContent = "live"; };
  source.onerror = () => { says.textContent = "not live"; };
})();
