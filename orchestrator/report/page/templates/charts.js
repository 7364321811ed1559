"use strict";
// Draws the charts: one view of each, in the colours of the theme. Charts in sight are drawn first, the others while the reader rests.
// The figure of a view is JSON for Plotly, in which a colour "@name" is the custom property --name of the style sheet.

const LEGEND_LINE_PX = 21;
// What Plotly adds around the names of rows, the ticks and title below, and a legend. A margin that has this room is drawn once: else
// Plotly makes it wider and draws again.
const ROOM_PX = {
  wide: { names: 36, below: 50, legend: 22, legendLine: 20 },
  narrow: { names: 27, below: 40, legend: 14, legendLine: 19 },
};
const PICTURE_PX = 1100;
// The word for all panels at once, and the largest number of panels that are drawn at once (more: heat_map.py).
const TOGETHER = "all, side by side";
const MOST_TOGETHER = 6;
// The others are drawn when the reader has not used the page for this long.
const REST_MS = 1000;

class Chart {
  constructor(place, described) {
    this.place = place;
    this.views = described.views;
    this.facets = described.facets;
    this.title = described.title;
    this.at = this.views[0].at.slice();
    this.panels = [...new Set(this.views.map((view) => view.at[0]))];
    this.together = described.together && this.panels.length > 1 && this.panels.length <= MOST_TOGETHER;
    if (this.together) this.at[0] = TOGETHER;
    this.drawn = false;
    this.left = [];
    this.drawings = 0;
    place.querySelector(".save")?.addEventListener("click", () => this.save());
    place.querySelector(".numbers").addEventListener("toggle", () => this.tabulate());
    this.offer();
    this.describe();
  }

  /** The views that are shown: one for each panel (small multiples), or the view of the chosen panel. */
  shown() {
    const chosen = this.at[0] === TOGETHER ? this.panels : [this.at[0]];
    return chosen.map((panel) => this.fitting([panel, ...this.at.slice(1)]));
  }

  /** The view at these words. If there is none, the view that fits the most of them. */
  fitting(words) {
    for (let length = words.length; length > 0; length -= 1) {
      const found = this.views.find((view) => words.slice(0, length).every((word, facet) => word === view.at[facet]));
      if (found) return found;
    }
    return this.views[0];
  }

  /** The words of a facet that fit the chosen words of the facets before it. */
  words(facet) {
    const fits = (view, before) => this.at[before] === TOGETHER || view.at[before] === this.at[before];
    const fit = this.views.filter((view) => this.at.slice(0, facet).every((_, before) => fits(view, before)));
    const words = [...new Set(fit.map((view) => view.at[facet]))];
    return facet === 0 && this.together ? [TOGETHER, ...words] : words;
  }

  /** Choose a word of a facet. Later facets keep their word if it fits, else they take the first that fits. */
  choose(facet, word) {
    if (!this.words(facet).includes(word)) return false;
    this.at[facet] = word;
    for (let later = facet + 1; later < this.at.length; later += 1) {
      const words = this.words(later);
      if (!words.includes(this.at[later])) this.at[later] = words[0];
    }
    this.offer();
    this.describe();
    if (this.drawn) this.draw();
    return true;
  }

  /** Show a select for each facet that has several words. */
  offer() {
    const choices = this.place.querySelector(".choices");
    const focused = [...choices.querySelectorAll("select")].indexOf(document.activeElement);
    const offered = this.facets.flatMap((name, facet) => {
      const anywhere = new Set(this.views.map((view) => view.at[facet]));
      if (anywhere.size < 2) return [];
      const words = this.words(facet).map((word) => [word, word]);
      return [choice(name, words, this.at[facet], (word) => chooseEverywhere(this, facet, word))];
    });
    choices.replaceChildren(...offered);
    if (focused >= 0) choices.querySelectorAll("select")[focused]?.focus();
  }

  /** Make a place for each shown view: its plot, its description, and its panel's name if there are several. */
  describe() {
    const views = this.shown();
    const kept = [...this.place.querySelectorAll(".one")];
    const places = views.map((view, at) => kept[at] ?? element("div", { className: "one" }, element("h4", {}), element("div", { className: "plot" }), element("p", { className: "summary" })));
    kept.slice(views.length).forEach((one) => window.Plotly?.purge(one.querySelector(".plot")));
    views.forEach((view, at) => {
      const [heading, plot, summary] = places[at].children;
      heading.textContent = views.length > 1 ? view.at[0] : "";
      plot.setAttribute("role", "img");
      plot.setAttribute("aria-label", `${this.title}. ${views.length > 1 ? `${view.at[0]}: ` : ""}${view.summary}`);
      plot.style.minHeight = `${view.figure.layout.height}px`;
      summary.textContent = view.summary;
    });
    this.place.querySelector(".plots").replaceChildren(...places);
    if (!this.drawn) this.left = [...views.keys()];
    const shown = JSON.stringify(this.at);
    viewButtons(this).forEach((button) => button.setAttribute("aria-pressed", String(JSON.stringify(JSON.parse(button.dataset.at)) === shown)));
    this.tabulate();
  }

  tabulate() {
    const details = this.place.querySelector(".numbers");
    if (!details.open) return;
    const views = this.shown();
    const several = views.length > 1;
    const columns = [...(several ? [this.facets[0]] : []), ...views[0].columns];
    const head = element("tr", {}, ...columns.map((word) => element("th", { scope: "col" }, word)));
    const rows = views.flatMap((view) => view.rows.map((row) => [...(several ? [view.at[0]] : []), ...row]));
    const lines = rows.map((row) => element("tr", {}, ...row.map((word) => element("td", {}, word))));
    const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...lines));
    details.querySelector(".scroll").replaceChildren(table);
  }

  /** Draw the shown views, at once. */
  async draw(width) {
    this.drawings += 1;
    this.left = [];
    await Promise.all([...this.shown().keys()].map((at) => this.drawView(at, width)));
  }

  /** Draw a shown view. A plot is busy (aria-busy) until its last requested drawing is complete. */
  async drawView(at, width) {
    runPlotly();
    this.drawn = true;
    const mine = this.drawings;
    const plot = this.place.querySelectorAll(".plot")[at];
    const { data, layout } = painted(this.shown()[at].figure, width ?? plot.clientWidth, Boolean(width));
    const options = { displayModeBar: false, responsive: !width, showTips: false };
    plot.style.minHeight = `${layout.height}px`;
    plot.setAttribute("aria-busy", "true");
    await Plotly.react(plot, data, width ? { ...layout, width } : { ...layout, autosize: true }, options);
    if (mine === this.drawings) plot.setAttribute("aria-busy", "false");
  }

  save() {
    if (!this.drawn) this.draw();
    for (const view of this.shown()) {
      const filename = [this.place.dataset.chart, ...view.at].join("-").replace(/[^\w.-]+/g, "_").slice(0, 100);
      const { data, layout } = painted(view.figure, PICTURE_PX);
      const size = { width: PICTURE_PX, height: layout.height };
      const figure = { data, layout: { ...layout, ...size, paper_bgcolor: colourOf("paper"), title: { text: "" } } };
      Plotly.downloadImage(figure, { format: "png", filename, scale: 2, ...size });
    }
  }
}

/** Make a choice in all charts that have it: a reader who chooses a model wants to see it in every chart. */
function chooseEverywhere(chart, facet, word) {
  chart.choose(facet, word);
  const name = chart.facets[facet];
  keepInAddress(`chart.${name}`, word);
  if (name === "Rows") return;
  for (const other of charts) {
    const same = other === chart ? -1 : other.facets.indexOf(name);
    if (same >= 0 && other.at[same] !== word) other.choose(same, word);
  }
}

/** Run plotly.js, which the page has as a text. Return false if it ran before. */
function runPlotly() {
  const text = document.getElementById("plotly");
  text?.replaceWith(element("script", {}, text.textContent));
  return Boolean(text);
}

function colourOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** The width of the widest text. */
const pen = document.createElement("canvas").getContext("2d");
function widest(texts, font) {
  pen.font = `${font.size}px ${font.family}`;
  return Math.max(0, ...texts.map((text) => pen.measureText(text).width));
}

/** The number of lines of Plotly's legend: one if all names fit, else columns as wide as the longest name. The legend is as wide as
 *  the plot, which the names of rows make narrower. */
function legendLines(data, layout, width) {
  if (!layout.showlegend) return 0;
  const named = data.filter((trace) => trace.showlegend !== false).map((trace) => widest([trace.name], layout.font) + 56);
  if (named.reduce((sum, length) => sum + length, 0) <= width) return 1;
  return Math.ceil(named.length / Math.max(1, Math.floor(width / Math.max(...named))));
}

/** A copy of a figure with the theme's colours, space for its legend, shorter texts on a phone, and smaller letters on paper. */
function painted(figure, width, onPaper = false) {
  const narrow = width < NARROW_PX;
  const colours = new Map();
  const coloured = (value, key) => {
    if (Array.isArray(value)) return value.map((item) => coloured(item, key));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, coloured(inner, name)]));
    }
    if (typeof value !== "string" || !value.startsWith("@") || !/color(scale)?$/.test(key)) return value;
    if (!colours.has(value)) colours.set(value, colourOf(value.slice(1)));
    return colours.get(value);
  };
  const data = coloured(figure.data, "").filter((trace) => !(narrow && trace.meta === "wide"));
  const layout = coloured(figure.layout, "");
  const clear = "rgba(0,0,0,0)";
  layout.font = { family: colourOf("font"), size: onPaper ? 10 : narrow ? 11 : 13, color: colourOf("ink") };
  layout.hoverlabel = { bgcolor: colourOf("raised"), bordercolor: colourOf("line"), font: { ...layout.font, size: 12 }, align: "left" };
  layout.paper_bgcolor = clear;
  layout.plot_bgcolor = clear;
  layout.legend.traceorder = "normal";
  if (narrow && figure.narrow.ticktext) layout.yaxis.ticktext = figure.narrow.ticktext;
  const names = widest(layout.yaxis.ticktext ?? [], layout.font);
  const lines = legendLines(data, layout, width - 24 - names);
  layout.height += lines * LEGEND_LINE_PX;
  const room = narrow ? ROOM_PX.narrow : ROOM_PX.wide;
  const legend = lines ? room.legend + lines * room.legendLine : 0;
  const { l, r, t } = layout.margin;
  const sides = narrow ? { l: 4, r: 4 } : { l, r };
  layout.margin = { ...sides, t: Math.max(t + lines * LEGEND_LINE_PX, legend), b: room.below };
  if (names) layout.margin.l = Math.ceil(names) + room.names;
  layout.dragmode = narrow ? false : "zoom";
  if (onPaper) data.filter((trace) => trace.textfont).forEach((trace) => { trace.textfont.size = 10; });
  if (narrow) {
    if (figure.narrow.range) layout.xaxis.range = figure.narrow.range;
    layout.xaxis.nticks = 4;
    Object.assign(layout.xaxis, figure.narrow.xaxis);
    for (const trace of data.filter((one) => one.meta === "labels")) {
      trace.textfont.size = 10;
      if (figure.narrow.words) trace.text = figure.narrow.words;
    }
  }
  return { data, layout };
}

for (const place of document.querySelectorAll("[data-chart]")) {
  const chart = new Chart(place, DATA.charts[place.dataset.chart]);
  charts.push(chart);
}
for (const chart of charts) {
  chart.facets.forEach((name, facet) => {
    const word = inAddress(`chart.${name}`);
    if (word) chart.choose(facet, word);
  });
}

// Buttons that choose the view of a chart: the findings and the small curves of a history. The one whose view is shown is pressed.
function viewButtons(chart) {
  return document.querySelectorAll(`button[data-chart-view="${chart.place.dataset.chart}"]`);
}
for (const chart of charts) {
  viewButtons(chart).forEach((button) => button.addEventListener("click", () => {
    JSON.parse(button.dataset.at).forEach((word, facet) => chooseEverywhere(chart, facet, word));
    const { top, bottom } = chart.place.querySelector(".plots").getBoundingClientRect();
    if (top < 0 || bottom > innerHeight) chart.place.scrollIntoView();
  }));
}
// A click anywhere on the card of an event is a click on its first finding.
document.querySelectorAll(".event").forEach((card) => card.addEventListener("click", (event) => {
  if (!event.target.closest("button") && !getSelection().toString()) card.querySelector("button").click();
}));

// One view is drawn after the other: first the charts in sight, then the others when the reader rests, so that a picture of the whole
// page has them. Between two views, the page answers its reader. Safari cannot say when a page is idle.
const inSight = new Set();
const whenIdle = window.requestIdleCallback ?? ((call) => setTimeout(call, 200));
let usedAt = -REST_MS;
let plans = 0;
function planNext() {
  const left = charts.filter((chart) => chart.left.length);
  const next = left.find((chart) => inSight.has(chart.place)) ?? left[0];
  if (!next) return;
  plans += 1;
  const mine = plans;
  const step = async () => {
    if (mine !== plans) return;
    if (!runPlotly() && next.left.length) await next.drawView(next.left.shift());
    planNext();
  };
  if (inSight.has(next.place)) setTimeout(step);
  else setTimeout(() => whenIdle(step), usedAt + REST_MS - performance.now());
}
const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) inSight.add(target);
    else inSight.delete(target);
  }
  planNext();
}, { rootMargin: "400px" });
charts.forEach((chart) => observer.observe(chart.place));
for (const use of ["keydown", "pointerdown", "wheel", "scroll", "input"]) {
  addEventListener(use, () => { usedAt = performance.now(); planNext(); }, { capture: true, passive: true });
}

theme.listeners.push(() => charts.filter((chart) => chart.drawn).forEach((chart) => chart.draw()));

// When a phone is turned or a window is resized, the other texts may be needed.
let wasNarrow = innerWidth < NARROW_PX;
addEventListener("resize", () => {
  const narrow = innerWidth < NARROW_PX;
  if (narrow !== wasNarrow) charts.filter((chart) => chart.drawn).forEach((chart) => chart.draw());
  wasNarrow = narrow;
});

// On paper, all charts are drawn, in light colours and as wide as the page.
const PAPER_PX = 680;
let themeBefore;
addEventListener("beforeprint", () => {
  themeBefore = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
  charts.forEach((chart) => chart.draw(PAPER_PX));
});
addEventListener("afterprint", () => {
  if (themeBefore) document.documentElement.dataset.theme = themeBefore;
  else delete document.documentElement.dataset.theme;
  charts.forEach((chart) => chart.draw());
});
