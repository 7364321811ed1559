"use strict";
// "What should I use?": the fastest configuration that fits into a memory, with its cost. A card of the answer can be saved.

const HOUR_S = 3600;
const CARD = { width: 720, line: 30, margin: 28 };

class Chooser {
  constructor(place, data) {
    this.place = place;
    this.data = data;
    const names = data.places.map((one) => one.place);
    const twice = new Set(names.filter((name, at) => names.indexOf(name) !== at));
    this.names = data.places.map((one) => (twice.has(one.place) ? `${one.place}, ${one.scenario}` : one.place));
    const withChoice = data.places.findIndex((one) => one.candidates.length > 1);
    const kept = this.names.indexOf(inAddress("use"));
    this.at = Math.max(0, kept < 0 ? withChoice : kept);
    this.gib = Number(inAddress("gib")) || null;
    this.price = Number(inAddress("price")) || 0;
    place.querySelector("#chosen-row").addEventListener("click", () => this.chosen && table?.only([this.chosen.id]));
    place.querySelector("#chosen-command").addEventListener("click", () => copied(this.command()));
    place.querySelector("#card").addEventListener("click", () => this.save());
    this.offer();
    this.answer();
  }

  offer() {
    const words = this.names.map((name, at) => [String(at), name]);
    const model = choice("Model and GPUs", words, String(this.at), (at) => {
      this.at = Number(at);
      keepInAddress("use", this.names[this.at]);
      this.offer();
      this.answer();
    });
    const sizes = this.current().candidates.map((one) => one.gib).filter((gib) => gib !== null);
    const most = Math.ceil(Math.max(...sizes));
    const parts = [model];
    if (sizes.length) {
      const shown = element("output", {}, "");
      const value = Math.min(this.gib ?? most, most);
      const slider = element("input", { type: "range", min: String(Math.floor(Math.min(...sizes))), max: String(most), step: "0.5", value: String(value) });
      const moved = () => {
        this.gib = Number(slider.value) < most ? Number(slider.value) : null;
        shown.textContent = this.gib === null ? "no limit" : `${this.gib} GiB`;
        keepInAddress("gib", this.gib === null ? "" : String(this.gib));
        this.answer();
      };
      slider.addEventListener("input", moved);
      shown.textContent = this.gib === null ? "no limit" : `${value} GiB`;
      parts.push(element("label", {}, "Memory per GPU ", slider, " ", shown));
    }
    if (this.current().priced) {
      const price = element("input", { type: "number", min: "0", step: "0.01", value: this.price ? String(this.price) : "", placeholder: "0.00" });
      price.addEventListener("input", () => {
        this.price = Math.max(0, Number(price.value) || 0);
        keepInAddress("price", this.price ? String(this.price) : "");
        this.answer();
      });
      parts.push(element("label", {}, "Price of a GPU per hour ", price));
    }
    this.place.querySelector(".choices").replaceChildren(...parts);
  }

  /** The command that repeats a run of the chosen experiment; empty if the page has no room for it. */
  command() {
    const detail = DATA.table.details[this.chosen ? DATA.table.ids.indexOf(this.chosen.id) : -1];
    return detail?.of ? repeatOf(detail.runs, detail.of) : "";
  }

  current() {
    return this.data.places[this.at];
  }

  /** The lines of the answer: the configuration, then what it takes. */
  lines() {
    const { unit, gpus, priced } = this.current();
    const fits = this.fitting();
    this.chosen = fits[0] ?? null;
    if (!this.chosen) return [`Nothing that ran fits into ${this.gib} GiB.`];
    const { name, shown, runs, gib, energy, cost, speed } = this.chosen;
    const rival = this.chosen.rivals[fits[1]?.id] ?? { same: false, words: "" };
    const measured = `${shown} ${unit} over ${runs} run${runs === 1 ? "" : "s"}`;
    const lines = rival.same ? [`${name} or ${fits[1].name}`, rival.words, `${name}: ${measured}`] : [name, measured];
    if (gib !== null) lines.push(`${gib.toFixed(2)} GiB in use on the fullest GPU`);
    if (energy) lines.push(`${energy} per token`);
    if (this.price && priced) {
      const typed = (this.price * gpus * 1e9) / (speed * HOUR_S);
      lines.push(`${typed.toLocaleString("en", { maximumSignificantDigits: 3 })} per billion tokens at ${this.price} per GPU-hour`);
    } else if (cost) {
      lines.push(cost);
    }
    if (!rival.same && rival.words) lines.push(rival.words);
    return [...lines, this.ofHowMany(fits.length, rival.same)];
  }

  /** The candidates that fit into the memory, the fastest first. */
  fitting() {
    const fits = this.current().candidates.filter((one) => this.gib === null || (one.gib !== null && one.gib <= this.gib));
    return fits.sort((one, other) => other.speed - one.speed);
  }

  /** Words about the number of experiments that were compared, and about those that were left out. */
  ofHowMany(count, isUnclear) {
    const { inDoubt, without } = this.current();
    const that = `${this.gib === null ? "" : "that fit, "}with a speed that counts`;
    const one = `the only one ${this.gib === null ? "" : "that fits, "}with a speed that counts`;
    const many = `${isUnclear ? "of" : "fastest of"} ${count} ${that}`;
    return [count === 1 ? one : many, ...(inDoubt ? [`${inDoubt} in doubt left out`] : []), ...(without ? [`${without} without this speed`] : [])].join("; ");
  }

  answer() {
    const [name, ...rest] = this.lines();
    this.place.querySelector(".chosen").replaceChildren(element("strong", {}, name), ` ${rest.join(" · ")}`);
    this.place.querySelectorAll("#chosen-row, #card").forEach((button) => { button.disabled = !this.chosen; });
    this.place.querySelector("#chosen-command").disabled = !this.command();
  }

  /** Save the answer as an SVG picture with the hardware and the title of the page. */
  save() {
    const limit = this.gib === null ? "" : `, at most ${this.gib} GiB`;
    const lines = [`${this.names[this.at]}${limit}`, ...this.lines(), this.data.hardware, document.title];
    const height = CARD.margin * 2 + CARD.line * lines.length;
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const set = (node, values) => Object.entries(values).forEach(([name, value]) => node.setAttribute(name, value));
    set(svg, { width: CARD.width, height, viewBox: `0 0 ${CARD.width} ${height}`, "font-family": "sans-serif" });
    const add = (tag, values, text = "") => {
      const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
      set(node, values);
      node.textContent = text;
      svg.append(node);
    };
    add("rect", { width: "100%", height: "100%", rx: 12, fill: "#ffffff", stroke: "#c3cad3" });
    lines.forEach((line, at) => add("text", {
      x: CARD.margin, y: CARD.margin + CARD.line * (at + 0.7), fill: at === 1 ? "#16191d" : "#5b646f",
      "font-size": at === 1 ? 24 : 16, "font-weight": at === 1 ? 700 : 400,
    }, line));
    const file = new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" });
    const link = element("a", { href: URL.createObjectURL(file), download: "what-to-use.svg" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
}

const chooserPlace = document.getElementById("chooser");
if (chooserPlace && DATA.chooser?.places.length) new Chooser(chooserPlace, DATA.chooser);
else chooserPlace?.remove();
