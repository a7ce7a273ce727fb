"use strict";
// Every name in the data may have been written by anyone: it reaches the page as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { cells, traces, metrics, parts, rows, specs } = data;
  const byId = (id) => document.getElementById(id);
  const cellCount = (cells.trace || []).length;
  const number = (value, digits) =>
    value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const ms = (us) => (us === null || us === undefined ? "–" : number(us / 1000, 3));
  const state = { trace: slowestTrace(), step: null, metric: Object.keys(metrics)[0] };

  function slowestTrace() {
    let slowest = 0, longest = -1;
    for (let at = 0; at < cellCount; at++) {
      if (cells.step_us[at] > longest) [slowest, longest] = [cells.trace[at], cells.step_us[at]];
    }
    return slowest;
  }

  const cellsOf = (trace) => {
    const found = [];
    for (let at = 0; at < cellCount; at++) if (cells.trace[at] === trace) found.push(at);
    return found;
  };
  const chosenCell = () => cellsOf(state.trace).find((at) => cells.step[at] === state.step);

  // Charts.

  const drawn = new Map();
  const tip = byId("tip");
  function tooltip(_handler, event, _item, text) {
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = String(text);
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${event.clientY + 18}px`;
  }

  async function draw(id, spec, values, description, onClick) {
    const place = document.querySelector(`[data-chart="${id}"]`);
    if (!place || !values.length) return;
    drawn.get(id)?.finalize();
    drawn.set(id, null);
    const full = { ...spec, description, data: { values } };
    full.encoding = { ...spec.encoding, tooltip: { field: "said", type: "nominal" } };
    full.encoding.description = { field: "said", type: "nominal" };
    // The interpreter evaluates expressions without `eval`, which the page's policy forbids.
    const options = { ast: true, actions: false, renderer: "svg", defaultStyle: false, tooltip };
    const result = await vegaEmbed(place, full, options);
    drawn.set(id, result);
    if (onClick) result.view.addEventListener("click", (_event, item) => item?.datum?.said && onClick(item.datum));
  }

  const stack = (kind, at, figures, more, names = parts[kind]) =>
    Object.entries(names).flatMap(([key, part], order) => {
      const us = figures[key];
      if (us === null || us === undefined) return [];
      return [{ at, key, order, value: us / 1000, said: `${more}, ${part}: ${ms(us)} ms`, ...figures.extra }];
    });

  function drawOverview(kind) {
    const values = stack(kind, "step", data.mean, "mean");
    draw(`overview-${kind}`, specs.overview[kind], values, "Mean time per step by part; the figures follow as a list.");
  }

  function drawAgainst(kind) {
    const names = data.against.parts[kind];
    const values = data.against.runs.flatMap(({ label, mean }) => stack(kind, label, mean, label, names));
    const what = "Mean time per step of both runs by part; the table below holds the medians.";
    draw(`against-${kind}`, data.against.specs[kind], values, what);
  }

  function drawHeat() {
    if (!cellCount) return;
    const values = [];
    for (let at = 0; at < cellCount; at++) {
      const us = cells[state.metric][at];
      if (us === null) continue;
      const { row, label } = traces[cells.trace[at]];
      values.push({
        row: rows[row], step: cells.step[at], value: us / 1000, at,
        said: `rank ${label}, step ${cells.step[at]}: ${ms(us)} ms`,
      });
    }
    values.sort((one, other) => one.step - other.step || one.at - other.at);
    // Differences below a fifth should not look like more than they are.
    const known = values.map((one) => one.value);
    const least = Math.min(...known), most = Math.max(...known, 1.2 * least);
    const spec = structuredClone(specs.heat);
    spec.encoding.color.scale.domain = [least, most];
    spec.params[0].value = chosenCell() ?? -1;
    const what = `${metrics[state.metric]}, ms, by rank and step; the table below holds the medians.`;
    return draw("heat", spec, values, what, (datum) => choose(cells.trace[datum.at], cells.step[datum.at], true));
  }

  function drawRanks(kind) {
    const one = (trace, at) => {
      const label = data.traces.length > rows.length ? `${trace.label} (${trace.capture})` : trace.label;
      const extra = { trace: at, faded: false };
      return stack(kind, label, { ...trace.mean, extra }, `rank ${label}`);
    };
    const what = "Mean time per step of each rank by part; the table below holds the medians.";
    draw(`ranks-${kind}`, specs.ranks[kind], traces.flatMap(one), what, (datum) => choose(datum.trace, null, true));
  }

  function drawSteps(kind) {
    const values = cellsOf(state.trace).flatMap((at) => {
      const figures = Object.fromEntries(Object.keys(parts[kind]).map((key) => [key, cells[key][at]]));
      figures.extra = { step: cells.step[at], faded: state.step !== null && cells.step[at] !== state.step };
      return stack(kind, String(cells.step[at]), figures, `step ${cells.step[at]}`);
    });
    const what = `Time of each step of rank ${traces[state.trace].label} by part; the table below holds the same figures.`;
    draw(`steps-${kind}`, specs.steps[kind], values, what, (datum) => choose(state.trace, datum.step, false));
  }

  // One rank.

  function choose(trace, step, jump) {
    state.trace = trace;
    state.step = step;
    showRank();
    drawn.get("heat")?.view.signal("chosen", chosenCell() ?? -1).runAsync();
    if (jump) byId("rank").scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  }

  function showRank() {
    const trace = traces[state.trace];
    const found = cellsOf(state.trace);
    byId("pick-trace").value = String(state.trace);
    const steps = byId("pick-step");
    steps.replaceChildren(new Option("all", ""), ...found.map((at) => new Option(String(cells.step[at]), String(cells.step[at]))));
    steps.value = state.step === null ? "" : String(state.step);
    const at = chosenCell();
    const lengths = found.map((one) => cells.step_us[one]).sort((one, other) => one - other);
    byId("picked").textContent = at === undefined
      ? `Rank ${trace.label}: ${found.length} recorded step${found.length === 1 ? "" : "s"}` +
        (found.length ? `, ${ms(lengths[0])} to ${ms(lengths[lengths.length - 1])} ms.` : ".")
      : `Rank ${trace.label}, step ${state.step}: ${ms(cells.step_us[at])} ms` +
        Object.entries(parts).flatMap(([, names]) => Object.entries(names))
          .filter(([key]) => cells[key][at] !== null).map(([key, name]) => `, ${name} ${ms(cells[key][at])}`).join("") + ".";
    byId("open-command").textContent = data.command(trace, state.step);
    for (const kind of Object.keys(parts)) drawSteps(kind);
    showSteps(found);
    for (const kind of ["operators", "kernels"]) showHotspots(kind, trace);
    for (const row of document.querySelectorAll("#table-ranks tbody tr")) {
      row.classList.toggle("chosen", row.dataset.trace === String(state.trace));
    }
  }

  data.command = (trace, step) => {
    const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
    const rank = /^\d+$/.test(trace.label) ? ` --rank ${trace.label}` : "";
    const capture = trace.capture === null ? "" : ` --capture ${trace.capture}`;
    return `autoprof view ${quoted(data.place)}${rank}${capture}${step === null ? "" : ` --step ${step}`}`;
  };

  function showSteps(found) {
    const names = { step_us: "whole step", ...parts.phases, ...parts.device };
    const body = found.map((at) => [cells.step[at], ...Object.keys(names).map((key) => cells[key][at])]);
    table(byId("table-steps-place"), "table-steps", "Each step of this rank, ms",
      ["step", ...Object.values(names)], body, (value, column) => (column ? ms(value) : String(value)));
  }

  function showHotspots(kind, trace) {
    const place = document.querySelector(`[data-place="${kind}"]`);
    if (!place) return;
    const more = trace.cut[kind] ? `; the first ${trace[kind].length}, \`autoprof operators\` lists all` : "";
    table(place, `table-rank-${kind}`, `${kind === "kernels" ? "Kernels" : "Operators"} of rank ${trace.label} by self time${more}`,
      ["name", "calls", "self, ms", "total, ms", "mean, µs"], trace[kind],
      (value, column) => [String, (v) => number(v, 0), ms, ms, (v) => number(v, 1)][column](value));
  }

  function table(place, id, caption, titles, body, shown) {
    const element = document.createElement("table");
    element.id = id;
    element.createCaption().textContent = caption;
    const head = element.createTHead().insertRow();
    const isText = (column) => body.length > 0 && typeof body[0][column] === "string";
    titles.forEach((title, column) => {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.setAttribute("aria-sort", "none");
      if (!isText(column)) cell.className = "number";
      const button = document.createElement("button");
      Object.assign(button, { type: "button", className: "sort", textContent: title });
      cell.append(button);
      head.append(cell);
    });
    const rowsOf = element.createTBody();
    for (const values of body) {
      const row = rowsOf.insertRow();
      values.forEach((value, column) => {
        const cell = column ? row.insertCell() : row.appendChild(document.createElement("th"));
        if (!column) cell.scope = "row";
        if (isText(column)) {
          cell.append(folded(value));
        } else {
          cell.className = "number";
          cell.dataset.value = value ?? "";
          cell.textContent = shown(value, column);
        }
      });
    }
    const scroll = document.createElement("div");
    Object.assign(scroll, { className: "scroll tall", tabIndex: 0, role: "region", ariaLabel: `Table: ${caption}` });
    scroll.append(element);
    const tools = document.createElement("div");
    tools.className = "tools";
    const copyButton = Object.assign(document.createElement("button"), { type: "button", textContent: "Copy as CSV" });
    copyButton.dataset.copy = id;
    const said = Object.assign(document.createElement("span"), { className: "said", role: "status" });
    tools.append(copyButton, said);
    place.replaceChildren(tools, scroll);
  }

  function folded(text) {
    const code = (shown) => Object.assign(document.createElement("code"), { textContent: shown });
    if (text.length <= 120) return code(text);
    const details = Object.assign(document.createElement("details"), { className: "name" });
    const summary = document.createElement("summary");
    summary.append(code(`${text.slice(0, 110)}…`));
    details.append(summary, code(text));
    return details;
  }

  // Tables: sort, search, copy.

  function valueOf(cell) {
    if (cell.dataset.value === undefined) return cell.textContent.trim().toLowerCase();
    return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  }

  function sort(header) {
    const head = header.parentElement, body = head.closest("table").tBodies[0];
    const column = [...head.children].indexOf(header);
    const isNumber = header.classList.contains("number");
    const order = header.ariaSort === "none" ? (isNumber ? "descending" : "ascending")
      : header.ariaSort === "descending" ? "ascending" : "descending";
    for (const other of head.children) other.ariaSort = "none";
    header.ariaSort = order;
    const sign = order === "ascending" ? 1 : -1;
    const keyed = [...body.rows].map((row) => [valueOf(row.cells[column]), row]);
    keyed.sort(([one], [other]) => {
      if (one === null || other === null) return (one === null) - (other === null);
      return sign * (one < other ? -1 : one > other ? 1 : 0);
    });
    body.append(...keyed.map(([, row]) => row));
  }

  function search(input) {
    const wanted = input.value.trim().toLowerCase();
    const body = byId(input.dataset.search).tBodies[0];
    let left = 0;
    for (const row of body.rows) {
      row.hidden = wanted !== "" && !fullText(row).toLowerCase().includes(wanted);
      left += !row.hidden;
    }
    const said = input.closest(".tools").querySelector(".said");
    said.textContent = wanted ? `${number(left, 0)} of ${number(body.rows.length, 0)} rows` : "";
  }

  const fullText = (row) => [...row.cells].map(cellText).join(" ");
  // A long name is there twice: shortened, and whole where it folds out.
  const cellText = (cell) => (cell.querySelector("details.name > code") ?? cell).textContent.trim();

  function csvField(cell) {
    if (cell.dataset.value !== undefined && cell.dataset.value !== "") return cell.dataset.value;
    let text = cellText(cell);
    if (text === "–") text = "";
    // What begins like this is a formula to a spreadsheet; an apostrophe makes it text again.
    if (/^\s*[=+\-@\t\r＝＋－＠]/.test(text)) text = `'${text}`;
    return `"${text.replaceAll('"', '""')}"`;
  }

  const csv = (element) =>
    [...element.rows].filter((row) => !row.hidden).map((row) => [...row.cells].map(csvField).join(",")).join("\r\n") + "\r\n";

  async function copy(text, said, what) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = Object.assign(document.createElement("textarea"), { value: text });
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      if (!done) what = "The browser did not let it be copied";
    }
    if (said) said.textContent = what;
  }

  document.addEventListener("click", (event) => {
    const target = event.target.closest?.("button");
    if (!target) return;
    if (target.matches("th .sort")) sort(target.parentElement);
    else if (target.matches(".pick")) choose(Number(target.closest("tr").dataset.trace), null, true);
    else if (target.dataset.copy) {
      const element = byId(target.dataset.copy);
      const count = [...element.tBodies[0].rows].filter((row) => !row.hidden).length;
      copy(csv(element), target.parentElement.querySelector(".said"), `Copied ${number(count, 0)} rows`);
    }
  });
  document.addEventListener("input", (event) => {
    if (event.target.dataset?.search) search(event.target);
  });
  byId("copy-command").addEventListener("click", () =>
    copy(byId("open-command").textContent, document.querySelector(".command-line .hint"), "copied"));
  byId("pick-trace").addEventListener("change", (event) => choose(Number(event.target.value), null, false));
  byId("pick-step").addEventListener("change", (event) =>
    choose(state.trace, event.target.value === "" ? null : Number(event.target.value), false));
  byId("metric")?.addEventListener("change", (event) => {
    state.metric = event.target.value;
    drawHeat();
  });
  byId("theme").addEventListener("change", (event) => {
    document.documentElement.dataset.theme = event.target.value;
  });
  addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("details")) one.open = true;
  });

  for (const kind of Object.keys(parts)) {
    drawOverview(kind);
    if (data.against) drawAgainst(kind);
  }
  showRank();
  for (const kind of Object.keys(parts)) drawRanks(kind);
  Promise.resolve(drawHeat()).then(() => document.documentElement.setAttribute("data-ready", ""));
})();
