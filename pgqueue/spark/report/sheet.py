"""The page's style sheet: follows the reader's light or dark mode; black on white on paper."""

SHEET = """
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1d2329; --faint: #8a939c; --soft: #f2f4f6; --edge: #d5dade;
  --link: #0b5cad; --warning: #b3261e; --good: #1e6b3a; --line1: #1f6fb4; --line2: #b8560f; --line3: #2e7d4f;
  --line4: #7a4fb5; --line5: #a03a6a; --line6: #5d6670; }
@media (prefers-color-scheme: dark) { :root { --ground: #14181c; --ink: #e4e8ec; --faint: #7d8791; --soft: #1d2329;
  --edge: #39424b; --link: #7db8f5; --warning: #ff8a80; --good: #7fd3a0; --line1: #6cb2f0; --line2: #f0a35e;
  --line3: #6fcf97; --line4: #b998f0; --line5: #f08ab8; --line6: #a7b0b9; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.25rem 3rem; max-width: 68rem; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .4rem; }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 0 0 .6rem; }
p { margin: .5rem 0; max-width: 54rem; overflow-wrap: anywhere; }
a { color: var(--link); }
.skip { position: absolute; left: -999rem; }
.skip:focus { position: static; }
header p, footer p, .note { color: var(--ink); font-size: .9rem; }
.note { opacity: .85; }
nav { border: 1px solid var(--edge); border-radius: .5rem; padding: 1rem 1.2rem; margin: 1.2rem 0 2rem; }
nav ul { list-style: none; margin: 0; padding: 0; }
nav li { padding: .35rem 0; border-top: 1px solid var(--edge); overflow-wrap: anywhere; }
nav li:first-child { border-top: 0; }
nav li a { font-weight: 600; }
section { border-top: 1px solid var(--edge); padding: 1.6rem 0 1rem; }
.answer { font-size: 1.08rem; }
.mark { display: inline-block; padding: 0 .5rem; border: 1px solid currentColor; border-radius: 1rem; font-size: .75rem;
  font-weight: 600; line-height: 1.5; white-space: nowrap; vertical-align: .1em; }
.mark.look { color: var(--warning); }
.mark.ok { color: var(--good); }
.mark.unknown, .mark.info { color: var(--ink); opacity: .75; }
figure { margin: 1rem 0; }
figcaption { font-weight: 600; font-size: .95rem; margin-bottom: .25rem; overflow-wrap: anywhere; }
.drawing { overflow-x: auto; }
svg { display: block; width: 100%; min-width: 34rem; height: auto; }
svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", "DejaVu Sans", sans-serif !important; }
.scroll { overflow-x: auto; margin: 1rem 0; }
.scroll:focus-visible, a:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
table { border-collapse: collapse; font-size: .88rem; line-height: 1.4; min-width: 100%; }
caption { text-align: left; font-weight: 600; font-size: .95rem; padding-bottom: .4rem; }
th, td { padding: .3rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--edge); }
td.text, tbody th { overflow-wrap: anywhere; min-width: 7rem; }
td.when { min-width: 5.5rem; }
thead th { background: var(--soft); vertical-align: bottom; }
tbody th { font-weight: 600; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
@media print {
  :root { color-scheme: light; --ground: #ffffff; --ink: #000000; --faint: #666666; --soft: #f2f2f2; --edge: #bbbbbb;
    --link: #000000; --warning: #9c1c14; --good: #14532d; --line1: #1f6fb4; --line2: #b8560f; --line3: #2e7d4f;
    --line4: #7a4fb5; --line5: #a03a6a; --line6: #5d6670; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  figure, tr, nav li { break-inside: avoid; }
  h2, figcaption, caption { break-after: avoid; }
  thead { display: table-header-group; }
  .scroll, .drawing { overflow: visible; }
  svg { min-width: 0; }
  table { font-size: 8pt; }
  td.text, tbody th { min-width: 4rem; }
  td.when { min-width: 0; }
  th, td { padding: .2rem .35rem; }
  .skip { display: none; }
}
"""
