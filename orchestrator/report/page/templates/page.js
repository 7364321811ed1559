"use strict";
// The parts that every page needs: its data, its theme, and functions that make elements. Text from the data never becomes markup.

const DATA = JSON.parse(document.getElementById("data").textContent);
const NARROW_PX = 560;
// The charts of the page. charts.js adds them last: what a reader uses first is ready before.
const charts = [];

/** Make an element with properties, and with texts or elements inside. */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Make a select with a label. It calls `chosen` with the chosen word. */
function choice(label, words, current, chosen) {
  const select = element("select", { onchange: () => chosen(select.value) });
  for (const [value, shown] of words) select.append(element("option", { value, selected: value === current }, shown));
  return element("label", {}, label + " ", select);
}

// The view of a page is kept in its address, after #, so that a link shows somebody else the same view.
const address = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");

function inAddress(name) {
  return address.get(name);
}
function keepInAddress(name, value) {
  if (value) address.set(name, value);
  else address.delete(name);
  history.replaceState(null, "", address.size ? `#${address}` : location.pathname + location.search);
}
addEventListener("hashchange", () => {
  if (location.hash.includes("=")) location.reload();
});

const theme = {
  listeners: [],
  dark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  },
  set(name) {
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
    this.changed();
  },
  changed() {
    const button = document.getElementById("theme");
    button.setAttribute("aria-pressed", String(this.dark()));
    this.listeners.forEach((listener) => listener());
  },
};

// If a page may store nothing (a private window, a strict browser), the theme lasts as long as the page is open.
function kept(name) {
  try { return localStorage.getItem("tunebench-theme"); } catch { return null; }
}
function keep(name) {
  try { localStorage.setItem("tunebench-theme", name); } catch { /* the theme is not stored */ }
}

const before = kept();
if (before === "dark" || before === "light") document.documentElement.dataset.theme = before;
document.getElementById("theme").setAttribute("aria-pressed", String(theme.dark()));
document.getElementById("theme").addEventListener("click", () => {
  const next = theme.dark() ? "light" : "dark";
  keep(next);
  theme.set(next);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme.changed());
