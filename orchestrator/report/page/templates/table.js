"use strict";
// The table of all rows, with filters, sorting and pages. A row opens to show its runs, command, ends of logs and files.

// An address with more ids would be too long for some programs.
const MOST_IN_ADDRESS = 12;
const inOrder = new Intl.Collator("en", { numeric: true }).compare;

class Table {
  constructor(place, data) {
    this.place = place;
    this.data = data;
    this.hidden = new Set(data.columns.filter((column) => column.hidden).map((column) => column.name));
    this.sorted = { column: null, down: false };
    this.picked = new Map();
    this.ids = null;
    this.words = [];
    // Rows without news are left out until the reader asks for all rows.
    this.withoutNews = new Set(data.withoutNews);
    this.all = false;
    this.page = 0;
    this.open = new Set();
    this.offerFilters();
    this.offerColumns();
    this.listen();
    this.restore();
    this.find();
  }

  /** Take the filters and the order from the page's address. */
  restore() {
    this.get("search").value = inAddress("search") ?? "";
    this.words = wordsIn(this.get("search").value);
    const rows = inAddress("rows");
    if (rows) this.ids = new Set(rows.split(" "));
    const sort = inAddress("sort") ?? "";
    const column = this.column(sort.replace(/^-/, ""));
    if (column) this.sorted = { column, down: sort.startsWith("-") };
  }

  column(name) {
    return this.data.columns.find((column) => column.name === name);
  }

  shown(column, row) {
    if (column.shown) return column.shown[row];
    return column.at[row] === null ? "-" : column.words[column.at[row]];
  }

  /** The text of each row that the filter searches. It is made for the first search. */
  get texts() {
    const columns = this.data.columns;
    this.searched ??= this.data.ids.map((id, row) => [id, ...columns.map((column) => this.shown(column, row))].join("\n").toLowerCase());
    return this.searched;
  }

  get(id) {
    return document.getElementById(id);
  }

  listen() {
    this.get("search").addEventListener("input", () => {
      this.words = wordsIn(this.get("search").value);
      keepInAddress("search", this.get("search").value);
      this.find();
    });
    this.get("clear").addEventListener("click", () => this.clear());
    this.get("before").addEventListener("click", () => this.turn(-1));
    this.get("behind").addEventListener("click", () => this.turn(1));
    this.get("length").addEventListener("change", () => this.find());
    addEventListener("beforeprint", () => this.show(1000));
    addEventListener("afterprint", () => this.show());
  }

  offerFilters() {
    const offered = this.data.filters.flatMap((name) => {
      const column = this.column(name);
      const counted = new Map();
      for (let row = 0; row < this.data.rows; row += 1) {
        const word = this.shown(column, row);
        counted.set(word, (counted.get(word) ?? 0) + 1);
      }
      if (counted.size < 2 || counted.size > 100) return [];
      const words = [...counted].sort(([a], [b]) => inOrder(a, b));
      const options = [["", "any"], ...words.map(([word, count]) => [`=${word}`, `${word} (${count})`])];
      const kept = inAddress(`only.${name}`) ?? "";
      if (counted.has(kept.slice(1))) this.picked.set(column, kept.slice(1));
      return [choice(column.label, options, kept, (value) => {
        if (value) this.picked.set(column, value.slice(1));
        else this.picked.delete(column);
        keepInAddress(`only.${name}`, value);
        this.find();
      })];
    });
    this.get("filters").replaceChildren(...this.offerAll(), ...offered);
  }

  /** Offer the choice between the news and all rows, if only some rows are news. */
  offerAll() {
    const news = this.data.rows - this.withoutNews.size;
    if (news === 0) this.withoutNews.clear();
    if (this.withoutNews.size === 0) return [];
    const options = [["", `news (${news})`], ["all", `all (${this.data.rows})`]];
    const kept = inAddress("which") ?? "";
    this.all = kept === "all";
    return [choice("Rows", options, kept, (value) => {
      this.all = value === "all";
      keepInAddress("which", value);
      this.find();
    })];
  }

  offerColumns() {
    const fields = this.data.columns.map((column) => {
      const box = element("input", { type: "checkbox", checked: !this.hidden.has(column.name) });
      box.addEventListener("change", () => {
        if (box.checked) this.hidden.delete(column.name);
        else this.hidden.add(column.name);
        this.show();
      });
      return element("label", { title: column.title }, box, ` ${column.label}`);
    });
    this.place.querySelector("fieldset").append(...fields);
  }

  clear() {
    this.get("search").value = "";
    this.get("filters").querySelectorAll("select").forEach((select) => { select.value = ""; });
    this.words = [];
    this.picked.clear();
    this.ids = null;
    this.all = false;
    ["search", "rows", "which", ...this.data.filters.map((name) => `only.${name}`)].forEach((name) => keepInAddress(name, ""));
    this.find();
  }

  /** Show only the rows with these ids, and their panel in the charts. */
  only(ids) {
    this.clear();
    this.ids = new Set(ids);
    if (ids.length <= MOST_IN_ADDRESS) keepInAddress("rows", ids.join(" "));
    const panels = new Set(this.data.panels.filter((_, row) => this.ids.has(this.data.ids[row])));
    const chart = charts.find((one) => panels.size === 1 && one.panels.includes([...panels][0]));
    if (chart) chooseEverywhere(chart, 0, [...panels][0]);
    this.find();
    this.place.scrollIntoView();
    this.place.querySelector(".scroll").focus({ preventScroll: true });
  }

  fits(row) {
    if (this.ids && !this.ids.has(this.data.ids[row])) return false;
    if (!this.words.every((word) => this.texts[row].includes(word))) return false;
    return [...this.picked].every(([column, word]) => this.shown(column, row) === word);
  }

  find() {
    const fitting = [];
    for (let row = 0; row < this.data.rows; row += 1) if (this.fits(row)) fitting.push(row);
    this.rows = this.all || this.ids ? fitting : fitting.filter((row) => !this.withoutNews.has(row));
    this.left = fitting.length - this.rows.length;
    this.sort();
    this.page = 0;
    this.show();
  }

  /** Sort the rows. Missing values come last in both directions. */
  sort() {
    const { column, down } = this.sorted;
    if (!column) return;
    const value = (row) => (column.raw ? column.raw[row] : column.at[row] === null ? null : column.words[column.at[row]]);
    const way = down ? -1 : 1;
    const compared = column.raw ? (a, b) => a - b : inOrder;
    this.rows.sort((a, b) => {
      const [first, second] = [value(a), value(b)];
      if (first === null || second === null) return (first === null) - (second === null) || a - b;
      return way * compared(first, second) || a - b;
    });
  }

  sortBy(column) {
    const same = this.sorted.column === column;
    this.sorted = { column, down: same ? !this.sorted.down : Boolean(column.raw) };
    keepInAddress("sort", `${this.sorted.down ? "-" : ""}${column.name}`);
    this.sort();
    this.page = 0;
    this.show();
    this.place.querySelector(`th[aria-sort] button`)?.focus();
  }

  turn(pages) {
    this.page += pages;
    this.show();
  }

  show(length = Number(this.get("length").value)) {
    const pages = Math.max(1, Math.ceil(this.rows.length / length));
    this.page = Math.min(Math.max(this.page, 0), pages - 1);
    const from = this.page * length;
    const rows = this.rows.slice(from, from + length);
    const columns = this.data.columns.filter((column) => !this.hidden.has(column.name));
    this.place.querySelector("thead").replaceChildren(this.head(columns));
    this.place.querySelector("tbody").replaceChildren(...rows.flatMap((row) => this.row(row, columns)));
    this.stick(columns);
    const all = this.data.rows.toLocaleString("en");
    const found = this.rows.length.toLocaleString("en");
    const left = this.left ? `; ${this.left.toLocaleString("en")} more without news` : "";
    const picked = this.ids ? ", those of one finding" : left;
    this.get("count").textContent = this.rows.length === this.data.rows ? `${all} rows` : `${found} of ${all} rows${picked}`;
    this.get("place").textContent = rows.length ? `${from + 1}–${from + rows.length} of ${found}` : "no row";
    this.get("before").disabled = this.page === 0;
    this.get("behind").disabled = this.page >= pages - 1;
  }

  /** Let the columns that identify a row stay in sight when the table scrolls sideways. Their places follow their widths. */
  stick(columns) {
    const table = this.place.querySelector("table");
    const sticky = columns.findIndex((column) => !this.data.sticky.includes(column.name));
    const cells = [...table.tHead.rows[0].cells].slice(0, (sticky < 0 ? columns.length : sticky) + 1);
    const widths = cells.map((cell) => cell.getBoundingClientRect().width);  // all before the first change: each measuring is a layout
    const rows = table.querySelectorAll(":scope > thead > tr, :scope > tbody > tr.row");
    let left = 0;
    widths.forEach((width, at) => {
      for (const row of rows) {
        row.cells[at].classList.add("sticky");
        row.cells[at].style.left = `${left}px`;
      }
      left += width;
    });
  }

  head(columns) {
    const cells = columns.map((column) => {
      const button = element("button", { type: "button", title: column.title, onclick: () => this.sortBy(column) }, column.label);
      const cell = element("th", { scope: "col", className: column.raw ? "number" : "" }, button);
      if (this.sorted.column === column) cell.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
      return cell;
    });
    return element("tr", {}, element("td", {}), ...cells);
  }

  row(row, columns) {
    const name = this.data.ids[row];
    const button = element("button", { type: "button", className: "open", title: "Runs, command, logs and files" });
    button.setAttribute("aria-label", `Details of ${name}`);
    button.setAttribute("aria-expanded", String(this.open.has(row)));
    const line = element("tr", { className: "row" }, element("td", {}, button), ...columns.map((column) => this.cell(column, row)));
    button.addEventListener("click", () => {
      const opened = !this.open.has(row);
      if (opened) {
        this.open.add(row);
        line.after(this.detail(row, columns.length + 1));
      } else {
        this.open.delete(row);
        line.nextElementSibling.remove();
      }
      button.setAttribute("aria-expanded", String(opened));
    });
    return this.open.has(row) ? [line, this.detail(row, columns.length + 1)] : [line];
  }

  /** Why nothing is claimed about a speed: a doubt about this row, or about the row that it is compared with. */
  doubt(column, row) {
    if (!column.speed) return "";
    const ofBoth = { speedup: this.data.withheld, scaling_efficiency: this.data.unscaled }[column.name];
    return this.data.doubts[row] || ofBoth?.[row] || "";
  }

  /** A cell. A speed that is in doubt is grey, and an empty speed-up says why it is empty. A ratio is shaded by its value. */
  cell(column, row) {
    const text = this.shown(column, row);
    const bad = column.name === "status" && !["ok", "skipped", "pending", "running"].includes(text);
    const doubt = this.doubt(column, row);
    const cell = element("td", { className: bad ? "status-bad" : column.raw ? "number" : text.length > 36 ? "words" : "word" });
    cell.dataset.label = column.label;
    const shade = column.shades?.[row];
    if (shade) {
      cell.classList.add(shade > 0 ? "better" : "worse");
      cell.style.setProperty("--shade-of", `${Math.round(60 * Math.abs(shade))}%`);
    }
    if (doubt) {
      cell.classList.add("doubted");
      cell.title = `In doubt: ${doubt}`;
    }
    cell.append(doubt && column.name === "speedup" && text === "-" ? `⚠ ${doubt}` : text);
    const after = column.after?.[row];
    if (after) cell.append(" ", element("span", { className: "after", title: "95 % interval over runs" }, after));
    return cell;
  }

  detail(row, width) {
    const { runs = [], more, of, command, logs = [], profile = null } = this.data.details[row];
    const inner = element("div", { className: "inner" }, element("h4", {}, this.data.ids[row]));
    if (runs.length) inner.append(this.runs(runs));
    else inner.append(element("p", { className: "note" }, "No run of this experiment has ended."));
    if (more) inner.append(element("p", { className: "note" }, `${more} more ${more === 1 ? "run is" : "runs are"} in the folder of the experiment.`));
    if (profile !== null) inner.append(...this.profile(this.data.profiles[profile]));
    if (command) inner.append(...this.command(command, of, repeatOf(runs, of)));
    for (const log of logs) inner.append(element("h4", {}, `End of ${log.name}, ${of}`), pre(log.end, `End of ${log.name}`));
    return element("tr", { className: "detail" }, element("td", { colSpan: width }, inner));
  }

  /** The training's command as one line, the command that repeats the run, and the script that this starts. */
  command(script, of, repeat) {
    const line = lineOf(script);
    const copy = element("button", { type: "button", className: "quiet" }, "Copy");
    copy.addEventListener("click", async () => {
      await copied(repeat);
      copy.textContent = "Copied";
    });
    const whole = element("details", {}, element("summary", {}, "The whole script, with the environment"), pre(script, "Script"));
    const again = repeat ? [element("p", {}, "Repeat it in the results folder: ", element("code", {}, repeat), " ", copy)] : [];
    return [element("h4", {}, `Command of ${of}`), pre(line, "Command"), ...again, ...(line === script ? [] : [whole])];
  }

  /** A table of runs × numbers. */
  runs(runs) {
    const hasFiles = this.data.fileSets.length > 0;
    const columns = [...this.data.runColumns, "remarks", ...(hasFiles ? ["files"] : [])];
    const head = element("tr", {}, ...columns.map((label) => element("th", { scope: "col" }, label)));
    const rows = runs.map((run) => {
      const numbers = run.cells.map((text, at) => element("td", { className: at > 1 ? "number" : "word" }, text));
      const remarks = element("td", { className: "remarks" }, this.data.remarks[run.remarks].join(" · "));
      return element("tr", {}, ...numbers, remarks, ...(hasFiles ? [element("td", { className: "files" }, ...this.files(run))] : []));
    });
    const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
    return element("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: "Runs" }, table);
  }

  /** The difference of two profiles: what changed the most, the operations, and links to both traces. */
  profile({ sentence, columns, rows, more, summaries, traces }) {
    const head = element("tr", {}, ...columns.map((label) => element("th", { scope: "col" }, label)));
    const cells = (row) => row.map((text, at) => element("td", { className: at > 0 ? "number" : "word" }, text));
    const body = element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells(row))));
    const table = element("table", {}, element("thead", {}, head), body);
    const links = traces.map(({ side, href, text }, at) => {
      const link = element("a", { href, target: "_blank", rel: "noopener" }, text);
      return element("p", { className: "note" }, `${side}: ${summaries[at]} `, link);
    });
    const region = element("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: "Profiles" }, table);
    const left = more ? [element("p", { className: "note" }, `and ${more} more operation${more === 1 ? "" : "s"}`)] : [];
    return [element("h4", {}, "Profiles"), element("p", {}, sentence), ...(rows.length ? [region] : []), ...left, ...links];
  }

  files(run) {
    if (run.files === undefined) return [];
    const names = this.data.fileSets[run.files];
    if (!this.data.linked) return [`${decodeURIComponent(run.folder)} (${names.join(", ")})`];
    return ["", ...names].flatMap((name) => [this.link(run.folder, name), " "]);
  }

  link(folder, name) {
    return element("a", { href: folder + encodeURIComponent(name), target: "_blank", rel: "noopener" }, name || "folder");
  }
}

/** The command that repeats a run, for the results folder. */
function repeatOf(runs, of) {
  const folder = runs.find((run) => run.cells[0] === of)?.folder;
  return folder ? `bash ${decodeURIComponent(folder)}command.sh` : "";
}

/** The command of a script as one line. The script ends with it, after `exec`. */
function lineOf(script) {
  const at = script.lastIndexOf("\nexec ");
  return at < 0 ? script : script.slice(at + 6).replace(/ \\\n\s*/g, " ").trim();
}

function wordsIn(text) {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}

/** Copy a text to the clipboard. A page from a disk may not use the clipboard; then a selected field is copied. */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = element("textarea", { value: text });
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

function pre(text, label) {
  return element("pre", { tabIndex: 0, role: "region", ariaLabel: label }, text);
}

const experiments = document.getElementById("experiments");
const table = experiments && DATA.table ? new Table(experiments, DATA.table) : null;
if (table) {
  for (const button of document.querySelectorAll("button[data-ids]")) {
    button.addEventListener("click", () => table.only(button.dataset.ids.split(" ")));
  }
} else {
  document.querySelectorAll("button[data-ids]").forEach((button) => button.remove());
}
