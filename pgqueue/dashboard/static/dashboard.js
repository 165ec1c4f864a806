// Makes pages live: asks for the changing part again while the page is in front of a person, and shows times as ages.
// Every two seconds it asks
// whether the database answers. Pages work without it. It writes no HTML but the server's own.
"use strict";
(() => {
  document.documentElement.classList.add("scripted");
  const main = document.getElementById("main");
  const part = document.getElementById("part");
  const button = document.getElementById("live");
  const word = document.getElementById("live-word");
  const away = document.getElementById("away");
  const read = document.querySelector("#read time");
  const every = Number(main && main.dataset.every) * 1000;
  const LONGEST = 3000; // ms for an answer; then the page says that there is none
  const ALIVE = 2000; // ms between two questions whether the database answers
  const KEY = "pgqueue-live";
  let etag = null;
  let timer = null;
  let pulse = null;
  let readAt = new Date();
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
  function timeOfDay(at) {
    const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString()} ${time}`;
  }
  function showTimes() {
    const now = Date.now();
    for (const one of document.querySelectorAll("time[datetime]")) {
      const at = new Date(one.dateTime);
      const seconds = (now - at) / 1000;
      const said = "clock" in one.dataset ? timeOfDay(at) : "for" in one.dataset ? age(Math.max(1, seconds)).replace(" ago", "") : age(seconds);
      if (one.textContent !== said) one.textContent = said;
      if (!one.title) one.title = `${at.toLocaleString()} (${one.dateTime})`;
    }
  }

  function opened() { return new Set([...part.querySelectorAll("details[open][id]")].map((one) => one.id)); }
  function mayReplace() {
    const selection = getSelection();
    const selecting = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
    const active = document.activeElement;
    const typing = part.contains(active) && /^(INPUT|SELECT|TEXTAREA)$/.test(active.tagName) && active.type !== "checkbox";
    return !selecting && !typing;
  }
  // What a list of jobs said of itself goes back, so that its rows are shown again in their places, and new ones are counted.
  function shownList() {
    const one = part.querySelector("[data-list]");
    return one ? { "X-Pgqueue-List": one.dataset.list } : {};
  }
  function boxes() { return [...part.querySelectorAll("tbody input[type=checkbox]")]; }
  function showAll() {
    const all = document.getElementById("pick-all");
    if (!all) return;
    const checked = boxes().filter((one) => one.checked).length;
    all.checked = checked > 0 && checked === boxes().length;
    all.indeterminate = checked > 0 && !all.checked;
  }
  function replace(html) {
    const open = opened();
    const picked = new Set(boxes().filter((one) => one.checked).map((one) => one.id));
    const active = document.activeElement;
    const inside = part.contains(active) ? { id: active.id, href: active.getAttribute("href"), index: [...part.querySelectorAll("a,button,summary,input,[tabindex]")].indexOf(active) } : null;
    const scrolled = [...part.querySelectorAll("pre,.table")].map((one) => [one.scrollLeft, one.scrollTop]);
    part.innerHTML = html;
    for (const id of picked) { const one = document.getElementById(id); if (one) one.checked = true; }
    showAll();
    for (const id of open) { const one = document.getElementById(id); if (one) one.open = true; }
    [...part.querySelectorAll("pre,.table")].forEach((one, index) => { if (scrolled[index]) [one.scrollLeft, one.scrollTop] = scrolled[index]; });
    if (inside) {
      const again = (inside.id && document.getElementById(inside.id))
        || (inside.href && [...part.querySelectorAll("a")].find((one) => one.getAttribute("href") === inside.href))
        || part.querySelectorAll("a,button,summary,input,[tabindex]")[inside.index];
      if (again) again.focus({ preventScroll: true });
    }
    showTimes();
  }

  function clock(at) { return at.toTimeString().slice(0, 8); }
  function shown() {
    readAt = new Date();
    if (read) { read.dateTime = readAt.toISOString(); read.title = ""; showTimes(); }
    if (away) away.hidden = true;
  }
  function say(who) {
    if (!away) return;
    const said = `${who} does not answer; figures of ${clock(readAt)}.`;
    if (away.textContent !== said) away.textContent = said;
    away.hidden = false;
    show("No answer");
  }
  const ask = (address, headers = {}) => fetch(address, { headers, cache: "no-store", credentials: "same-origin", redirect: "error", signal: AbortSignal.timeout(LONGEST) });
  const DATABASE = "The database";
  const missing = (error) => (error.name === "TimeoutError" ? DATABASE : "The dashboard");
  function count(counts) {
    for (const one of document.querySelectorAll("[data-count]")) {
      const said = counts[one.dataset.count];
      if (said === undefined) continue;
      one.textContent = said;
      one.hidden = !said;
    }
  }
  async function beat() {
    pulse = null;
    if (!wanted || document.hidden) return;
    try {
      const answer = await ask(main.dataset.alive);
      if (answer.ok) {
        count((await answer.json()).counts);
        if (away && !away.hidden) { away.hidden = true; look(); }
      } else if (answer.status >= 500) {
        say(DATABASE);
      }
    } catch (error) {
      say(missing(error));
    }
    if (wanted && !document.hidden && !pulse) pulse = setTimeout(beat, ALIVE);
  }

  function show(state) {
    if (!button) return;
    button.setAttribute("aria-pressed", String(wanted));
    word.textContent = state || (wanted ? "Live" : "Paused");
  }
  async function look() {
    clearTimeout(timer);
    timer = null;
    if (!wanted || document.hidden) return;
    try {
      const headers = { "X-Pgqueue-Live": "1", ...shownList() };
      if (etag) headers["If-None-Match"] = etag;
      const answer = await ask(location.href, headers);
      if (answer.status === 200 && mayReplace()) {
        replace(await answer.text());
        etag = answer.headers.get("ETag");
        shown();
        show();
      } else if (answer.status === 401 || answer.status === 403) {
        wanted = false;
        show("Logged out");
        return;
      } else if (answer.status === 304) {
        shown();
        show();
      } else if (answer.status === 200 || answer.status === 400) {
        show();
      } else {
        say(DATABASE);
      }
    } catch (error) {
      say(missing(error));
    }
    plan();
  }
  function stop() {
    clearTimeout(timer);
    clearTimeout(pulse);
    pulse = null;
  }
  function plan() {
    clearTimeout(timer);
    timer = wanted && !document.hidden ? setTimeout(look, every) : null;
    if (wanted && !document.hidden && !pulse) pulse = setTimeout(beat, ALIVE);
  }

  if (part) {
    part.addEventListener("change", (event) => {
      if (event.target.id === "pick-all") for (const one of boxes()) one.checked = event.target.checked;
      showAll();
    });
    showAll();
  }
  showTimes();
  setInterval(() => { if (!document.hidden) showTimes(); }, 1000);
  if (part && every > 0 && button) {
    button.hidden = false;
    document.getElementById("read").hidden = false;
    shown();
    show();
    button.addEventListener("click", () => {
      wanted = !wanted;
      try { localStorage.setItem(KEY, wanted ? "on" : "off"); } catch { /* as above */ }
      show();
      if (wanted) look(); else stop();
    });
    document.addEventListener("visibilitychange", () => { if (document.hidden) stop(); else look(); });
    plan();
  }
})();
