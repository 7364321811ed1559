"use strict";
// Draws the charts: one view at a time, when it comes into sight, in the colours of the theme.
// A view's figure is Plotly's JSON in which a colour "@name" is the style sheet's custom property --name.

const LEGEND_LINE_PX = 21;
const PICTURE_PX = 1100;
const charts = [];

class Chart {
  constructor(place, described) {
    this.place = place;
    this.views = described.views;
    this.facets = described.facets;
    this.title = described.title;
    this.plot = place.querySelector(".plot");
    this.at = this.views[0].at.slice();
    this.drawn = false;
    this.drawings = 0;
    place.querySelector(".save")?.addEventListener("click", () => this.save());
    place.querySelector(".numbers").addEventListener("toggle", () => this.tabulate());
    this.offer();
    this.describe();
  }

  view() {
    return this.views.find((view) => view.at.every((word, facet) => word === this.at[facet])) ?? this.views[0];
  }

  /** The words that a facet can have, given what is chosen for the facets before it. */
  words(facet) {
    const fit = this.views.filter((view) => view.at.slice(0, facet).every((word, before) => word === this.at[before]));
    return [...new Set(fit.map((view) => view.at[facet]))];
  }

  /** Takes a word where the facet has it, and for later facets what there is beside it. */
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

  /** The selects: one for each facet that has a choice anywhere. */
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

  /** The view in words: beside the drawing, and as the table of its numbers. */
  describe() {
    const view = this.view();
    this.plot.setAttribute("aria-label", `${this.title}. ${view.summary}`);
    this.place.querySelector(".summary").textContent = view.summary;
    if (!this.drawn) this.plot.style.minHeight = `${view.figure.layout.height}px`;
    this.tabulate();
  }

  tabulate() {
    const details = this.place.querySelector(".numbers");
    if (!details.open) return;
    const view = this.view();
    const head = element("tr", {}, ...view.columns.map((word) => element("th", { scope: "col" }, word)));
    const rows = view.rows.map((row) => element("tr", {}, ...row.map((word) => element("td", {}, word))));
    const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
    details.querySelector(".scroll").replaceChildren(table);
  }

  /** Draws the view; the plot is busy (aria-busy) until the last drawing that was asked for is there. */
  async draw(width) {
    const { data, layout } = painted(this.view().figure, width ?? this.plot.clientWidth);
    const options = { displayModeBar: false, responsive: !width, showTips: false };
    this.drawn = true;
    this.drawings += 1;
    const mine = this.drawings;
    this.plot.style.minHeight = `${layout.height}px`;
    this.plot.setAttribute("aria-busy", "true");
    await Plotly.react(this.plot, data, width ? { ...layout, width } : { ...layout, autosize: true }, options);
    if (mine === this.drawings) this.plot.setAttribute("aria-busy", "false");
  }

  save() {
    if (!this.drawn) this.draw();
    const filename = [this.place.dataset.chart, ...this.at].join("-").replace(/[^\w.-]+/g, "_").slice(0, 100);
    const paper = colourOf("paper");
    const { data, layout } = painted(this.view().figure, PICTURE_PX);
    const size = { width: PICTURE_PX, height: layout.height };
    const figure = { data, layout: { ...layout, ...size, paper_bgcolor: paper, title: { text: "" } } };
    Plotly.downloadImage(figure, { format: "png", filename, scale: 2, ...size });
  }
}

/** Charts that are about the same thing move together: who looks at one model wants to see it everywhere. */
function chooseEverywhere(chart, facet, word) {
  chart.choose(facet, word);
  const name = chart.facets[facet];
  if (name === "Rows") return;
  for (const other of charts) {
    const same = other === chart ? -1 : other.facets.indexOf(name);
    if (same >= 0 && other.at[same] !== word) other.choose(same, word);
  }
}

function colourOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** How many lines Plotly's legend takes at a width: all in one, else columns as wide as the longest word. */
function legendLines(data, layout, width) {
  if (!layout.showlegend) return 0;
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${layout.font.size}px ${layout.font.family}`;
  const named = data.filter((trace) => trace.showlegend !== false).map((trace) => pen.measureText(trace.name).width + 56);
  if (named.reduce((sum, one) => sum + one, 0) <= width) return 1;
  return Math.ceil(named.length / Math.max(1, Math.floor(width / Math.max(...named))));
}

/** A figure as it is drawn now: copied, with the theme's colours, room for its legend, and on a phone its shorter texts. */
function painted(figure, width) {
  const narrow = width < NARROW_PX;
  const colours = new Map();
  const coloured = (value, key) => {
    if (Array.isArray(value)) return value.map((item) => coloured(item, key));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, coloured(inner, name)]));
    }
    if (typeof value !== "string" || !value.startsWith("@") || !/color$/.test(key)) return value;
    if (!colours.has(value)) colours.set(value, colourOf(value.slice(1)));
    return colours.get(value);
  };
  const data = coloured(figure.data, "").filter((trace) => !(narrow && trace.meta === "wide"));
  const layout = coloured(figure.layout, "");
  const clear = "rgba(0,0,0,0)";
  layout.font = { family: colourOf("font"), size: narrow ? 11 : 13, color: colourOf("ink") };
  layout.hoverlabel = { bgcolor: colourOf("raised"), bordercolor: colourOf("line"), font: { ...layout.font, size: 12 }, align: "left" };
  layout.paper_bgcolor = clear;
  layout.plot_bgcolor = clear;
  layout.legend.traceorder = "normal";
  const legend = LEGEND_LINE_PX * legendLines(data, layout, width - 24);
  layout.height += legend;
  layout.margin = { ...layout.margin, t: layout.margin.t + legend };
  layout.dragmode = narrow ? false : "zoom";
  if (narrow) {
    layout.margin = { ...layout.margin, l: 4, r: 4 };
    if (figure.narrow.ticktext) layout.yaxis.ticktext = figure.narrow.ticktext;
    if (figure.narrow.range) layout.xaxis.range = figure.narrow.range;
    layout.xaxis.nticks = 4;
    for (const trace of data) if (trace.meta === "labels") trace.textfont.size = 10;
  }
  return { data, layout };
}

for (const place of document.querySelectorAll("[data-chart]")) {
  const chart = new Chart(place, DATA.charts[place.dataset.chart]);
  charts.push(chart);
}

const inSight = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const chart = charts.find((one) => one.place === entry.target);
    if (entry.isIntersecting && !chart.drawn) chart.draw();
  }
}, { rootMargin: "400px" });
charts.forEach((chart) => inSight.observe(chart.place));

theme.listeners.push(() => charts.filter((chart) => chart.drawn).forEach((chart) => chart.draw()));

// A turned phone or a drawn window may need the other texts.
let wasNarrow = innerWidth < NARROW_PX;
addEventListener("resize", () => {
  const narrow = innerWidth < NARROW_PX;
  if (narrow !== wasNarrow) charts.filter((chart) => chart.drawn).forEach((chart) => chart.draw());
  wasNarrow = narrow;
});

// On paper: light, every chart drawn, as wide as a page.
const PAPER_PX = 680;
let asked;
addEventListener("beforeprint", () => {
  asked = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
  charts.forEach((chart) => chart.draw(PAPER_PX));
});
addEventListener("afterprint", () => {
  if (asked) document.documentElement.dataset.theme = asked;
  else delete document.documentElement.dataset.theme;
  charts.forEach((chart) => chart.draw());
});
