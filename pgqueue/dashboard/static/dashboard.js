// Makes pages live: asks for the changing part again while the page is in front of a person, and shows times as ages.
// Pages work without it. It writes no HTML but the server's own.
"use strict";
(() => {
  document.documentElement.classList.add("scripted");
  const main = document.getElementById("main");
  const part = document.getElementById("part");
  const button = document.getElementById("live");
  const word = document.getElementById("live-word");
  const every = Number(main && main.dataset.every) * 1000;
  const KEY = "pgqueue-live";
  let etag = null;
  let timer = null;
  let wanted = true;
  try { wanted = localStorage.getItem(KEY) !== "off"; } catch { /* storage is refused: live */ }

  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  function age(seconds) {
    const size = Math.abs(seconds);
    if (size < 1) return "now";
    for (const [unit, length] of units) {
      if (size >= length * (unit === "s" ? 1 : 2) || unit === "s") {
        const said = `${Math.floor(size / length)} ${unit}`;
        return seconds >= 0 ? `${said} ago` : `in ${said}`;
      }
    }
  }
  function showTimes() {
    const now = Date.now();
    for (const one of document.querySelectorAll("time[datetime]")) {
      const at = new Date(one.dateTime);
      const said = age((now - at) / 1000);
      if (one.textContent !== said) one.textContent = said;
      if (!one.title) one.title = `${at.toLocaleString()} (${one.dateTime})`;
    }
  }

  function opened() { return new Set([...part.querySelectorAll("details[open][id]")].map((one) => one.id)); }
  function mayReplace() {
    const selection = getSelection();
    const selecting = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
    const active = document.activeElement;
    const typing = part.contains(active) && /^(INPUT|SELECT|TEXTAREA)$/.test(active.tagName);
    return !selecting && !typing;
  }
  function replace(html) {
    const open = opened();
    const active = document.activeElement;
    const inside = part.contains(active) ? { id: active.id, href: active.getAttribute("href"), index: [...part.querySelectorAll("a,button,summary,[tabindex]")].indexOf(active) } : null;
    const scrolled = [...part.querySelectorAll("pre,.table")].map((one) => [one.scrollLeft, one.scrollTop]);
    part.innerHTML = html;
    for (const id of open) { const one = document.getElementById(id); if (one) one.open = true; }
    [...part.querySelectorAll("pre,.table")].forEach((one, index) => { if (scrolled[index]) [one.scrollLeft, one.scrollTop] = scrolled[index]; });
    if (inside) {
      const again = (inside.id && document.getElementById(inside.id))
        || (inside.href && [...part.querySelectorAll("a")].find((one) => one.getAttribute("href") === inside.href))
        || part.querySelectorAll("a,button,summary,[tabindex]")[inside.index];
      if (again) again.focus({ preventScroll: true });
    }
    showTimes();
  }

  function show(state) {
    if (!button) return;
    button.setAttribute("aria-pressed", String(wanted));
    word.textContent = state || (wanted ? "Live" : "Paused");
  }
  async function look() {
    timer = null;
    if (!wanted || document.hidden) return;
    try {
      const headers = { "X-Pgqueue-Live": "1" };
      if (etag) headers["If-None-Match"] = etag;
      const answer = await fetch(location.href, { headers, cache: "no-store", credentials: "same-origin", redirect: "error" });
      if (answer.status === 200 && mayReplace()) {
        replace(await answer.text());
        etag = answer.headers.get("ETag");
        show();
      } else if (answer.status === 401 || answer.status === 403) {
        wanted = false;
        show("Logged out");
        return;
      } else if (answer.status === 304 || answer.status === 200) {
        show();
      } else {
        show("No answer");
      }
    } catch {
      show("No answer");
    }
    plan();
  }
  function plan() {
    clearTimeout(timer);
    timer = wanted && !document.hidden ? setTimeout(look, every) : null;
  }

  showTimes();
  setInterval(() => { if (!document.hidden) showTimes(); }, 1000);
  if (part && every > 0 && button) {
    button.hidden = false;
    show();
    button.addEventListener("click", () => {
      wanted = !wanted;
      try { localStorage.setItem(KEY, wanted ? "on" : "off"); } catch { /* as above */ }
      show();
      if (wanted) look(); else clearTimeout(timer);
    });
    document.addEventListener("visibilitychange", () => { if (document.hidden) clearTimeout(timer); else look(); });
    plan();
  }
})();
