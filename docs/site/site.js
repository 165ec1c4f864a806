/* Names and roles that the theme's own markup lacks for who reads pages with a screen reader or a keyboard. */
"use strict";

function mend() {
  document.querySelectorAll(".md-search[role=dialog]").forEach((one) => one.setAttribute("aria-label", "Search"));
  document.querySelectorAll(".md-code__nav").forEach((one, place) => one.setAttribute("aria-label", `Block ${place + 1}`));
  document.querySelectorAll("th:empty").forEach((one) => one.replaceWith(document.createElement("td")));
  document.querySelectorAll(".md-typeset__scrollwrap").forEach((one) => { one.tabIndex = 0; });
}

mend();
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
