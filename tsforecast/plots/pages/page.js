"use strict";
// Draws the charts of a page from the JSON in it. All text goes into the page as text, never as markup.
const sections = JSON.parse(document.getElementById("data").textContent);

function element(name, parent, text, attributes) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  Object.assign(made, attributes || {});
  if (parent) parent.append(made);
  return made;
}

function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(3);
  return value.toLocaleString("en", { maximumSignificantDigits: 5 });
}

function stamp(seconds, isDay) {
  return new Date(seconds * 1000).toISOString().slice(0, isDay ? 10 : 16).replace("T", " ");
}

// Marks of a time axis, of each step from which on: as 5 Nov, not 11/5, and with 24 hours.
const day = "\n{D} {MMM}", date = "\n{D} {MMM} {YYYY}", minute = " {HH}:{mm}";
const times = [
  [31536000, "{YYYY}", null, null, null, null, null, null, 1],
  [2419200, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [86400, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", date, null, day, null, null, null, 1],
  [1, ":{ss}", date + minute, null, day + minute, null, "\n{HH}:{mm}", null, 1],
  [0.001, ":{ss}.{fff}", date + minute, null, day + minute, null, "\n{HH}:{mm}", null, 1],
];

function ticks(plot, splits, axis, space, step) {
  const digits = [...Array(9).keys()].find((k) => Math.abs(step * 10 ** k - Math.round(step * 10 ** k)) < 1e-6 * 10 ** k * step);
  const largest = Math.max(...splits.map(Math.abs));
  if (digits === undefined || largest >= 1e9) return splits.map((value) => value === 0 ? "0" : value.toExponential(2));
  return splits.map((value) => value.toLocaleString("en", { maximumFractionDigits: digits }));
}

// As wide as the longest mark, for which a fixed width has no room.
function room(plot, marks) {
  plot.ctx.save();
  plot.ctx.font = plot.axes[1].font[0];
  const widest = Math.max(0, ...(marks || []).map((mark) => plot.ctx.measureText(mark).width));
  plot.ctx.restore();
  return Math.max(62, Math.ceil(widest / devicePixelRatio) + 20);
}

class Section {
  constructor(host, content) {
    this.charts = content.charts;
    this.shown = new Set(content.shown);
    this.controls = element("div", host, undefined, { className: "controls" });
    if (this.charts.length > 1) this.chooseSeries();
    if (content.intervals.length) this.chooseIntervals(content.intervals);
    for (const [text, title, factor, shift] of [
      ["+", "Zoom in", 0.5, 0], ["−", "Zoom out", 2, 0], ["◀", "Earlier", 1, -0.5], ["▶", "Later", 1, 0.5],
    ]) element("button", this.controls, text, { title, type: "button", onclick: () => this.move(factor, shift) });
    element("button", this.controls, "All", { title: "Whole series", type: "button", onclick: () => this.all() });
    this.body = element("div", host, undefined, { className: "beside" });
    this.draw(0);
  }

  chooseSeries() {
    const select = element("select", this.controls, undefined, { onchange: () => this.draw(Number(select.value)) });
    select.setAttribute("aria-label", "Series");
    const fill = (wanted) => {
      select.replaceChildren();
      this.charts.forEach((chart, k) => {
        if (chart.name.toLowerCase().includes(wanted)) element("option", select, chart.name, { value: k });
      });
      return select.options.length;
    };
    fill("");
    if (this.charts.length < 12) return;
    const search = element("input", null, undefined, { type: "search", placeholder: "Find a series" });
    search.setAttribute("aria-label", "Find a series");
    search.oninput = () => { if (fill(search.value.toLowerCase())) this.draw(Number(select.value)); };
    select.before(search);
  }

  chooseIntervals(names) {
    for (const name of names) {
      const label = element("label", this.controls);
      const box = element("input", label, undefined, { type: "checkbox", checked: this.shown.has(name) });
      box.onchange = () => {
        if (box.checked) this.shown.add(name); else this.shown.delete(name);
        this.draw(this.place, this.limits());
      };
      label.append(` ${name}`);
    }
  }

  limits() {
    const { min, max } = this.plots[0].scales.x;
    return { min, max };
  }

  move(factor, shift) {
    const { min, max } = this.limits();
    const half = (max - min) * factor / 2, middle = (min + max) / 2 + shift * (max - min);
    this.plots.forEach((plot) => plot.setScale("x", { min: middle - half, max: middle + half }));
  }

  all() {
    const x = this.plots[0].data[0];
    this.plots.forEach((plot) => plot.setScale("x", { min: x[0], max: x[x.length - 1] }));
  }

  draw(place, limits) {
    this.place = place;
    (this.plots || []).forEach((plot) => plot.destroy());
    this.body.replaceChildren();
    const chart = this.charts[place], host = element("div", this.body, undefined, { className: "chart" });
    this.isDay = chart.time && chart.x.every((at) => at % 86400 === 0);
    this.legends = [];
    this.room = 0;
    this.plots = chart.panels.map((panel) => this.panel(chart, panel, host));
    this.rows = [];
    this.body.classList.toggle("with-table", chart.rows.length > 0);
    if (chart.rows.length) this.table(chart);
    const x = chart.x;
    this.tell(x.length - 1);
    const range = limits || chart.window && { min: chart.window[0], max: chart.window[1] };
    if (range) this.plots.forEach((plot) => plot.setScale("x", range));
    this.watch && this.watch.disconnect();
    this.watch = new ResizeObserver(() => {
      const width = host.clientWidth;
      this.plots.forEach((plot) => plot.width === width || plot.setSize({ width, height: plot.height }));
    });
    this.watch.observe(host);
  }

  panel(chart, panel, host) {
    const box = element("div", host, undefined, { className: "panel" });
    if (panel.label) element("h3", box, panel.label);
    const legend = element("div", box, undefined, { className: "legend" });
    // A forecast does not go on from the one before it: no line leads from the end of that to its begin.
    const apart = (plot, at, from, to, gaps) => {
      const breaks = chart.breaks.map((k) => [plot.valToPos(chart.x[k - 1], "x", true), plot.valToPos(chart.x[k], "x", true)]);
      return [...gaps, ...breaks].sort((a, b) => a[0] - b[0]);
    };
    const bands = panel.bands.filter((band) => this.shown.has(band.label));
    const data = [chart.x], series = [{}], fills = [];
    for (const band of bands) {
      data.push(band.high, band.low);
      const hidden = { stroke: "transparent", width: 0, points: { show: false }, gaps: apart };
      series.push({ ...hidden }, { ...hidden });
      fills.push({ series: [data.length - 2, data.length - 1], fill: band.colour });
    }
    for (const line of panel.lines) {
      data.push(line.values);
      series.push({
        stroke: line.points ? "transparent" : line.colour, width: line.width, dash: line.dash || undefined,
        ...(line.parts ? { gaps: apart } : {}),
        points: line.points
          ? { show: true, size: 7, fill: line.colour, stroke: line.colour }
          : { show: (plot, at, i0, i1) => i1 - i0 < 60, size: 4, fill: line.colour, stroke: line.colour },
      });
    }
    this.legends.push({ legend, panel, bands });
    const phone = host.clientWidth < 500;
    const whole = chart.x.every(Number.isInteger) ? { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] } : {};
    return new uPlot({
      width: host.clientWidth, height: chart.panels.length > 1 ? 200 : phone ? 260 : 340,
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      scales: { x: { time: chart.time } }, series, bands: fills, legend: { show: false },
      axes: [chart.time ? { values: times } : { label: chart.axis, ...whole }, { values: ticks, size: (...at) => this.wide(...at) }],
      cursor: { sync: { key: chart.name }, drag: { x: true, y: false } },
      hooks: {
        drawClear: [(plot) => this.marks(plot, chart)],
        setCursor: [(plot) => { if (plot.cursor.idx !== null && plot.cursor.idx !== undefined) this.tell(plot.cursor.idx); }],
      },
    }, data, box);
  }

  // All panels of a chart have the room of the widest marks, so that a time stands in one line through them.
  wide(plot, marks) {
    const own = room(plot, marks);
    if (own > this.room) {
      this.room = own;
      requestAnimationFrame(() => this.plots.forEach((each) => each.redraw(false, true)));
    }
    return this.room;
  }

  marks(plot, chart) {
    const { ctx, bbox } = plot;
    ctx.save();
    for (const mark of chart.marks) {
      const from = plot.valToPos(mark.from, "x", true), to = plot.valToPos(mark.to, "x", true);
      const left = Math.max(from, bbox.left), right = Math.min(Math.max(to, from + 2), bbox.left + bbox.width);
      if (right <= bbox.left || left >= bbox.left + bbox.width) continue;
      ctx.fillStyle = mark.colour;
      ctx.fillRect(left, bbox.top, Math.max(right - left, 2), bbox.height);
    }
    ctx.restore();
  }

  tell(place) {
    const chart = this.charts[this.place];
    for (const { legend, panel, bands } of this.legends) {
      legend.replaceChildren();
      element("b", legend, chart.time ? stamp(chart.x[place], this.isDay) : `${chart.axis} ${number(chart.x[place])}`);
      const said = (colour, text) => {
        const entry = element("span", legend);
        element("i", entry).style.background = colour;
        entry.append(text);
      };
      for (const line of panel.lines) {
        const value = line.values[place];
        if (value !== null || !line.points) said(line.colour, `${line.label} ${number(value)}`);
      }
      for (const band of bands) {
        said(band.colour, `${band.label} ${number(band.low[place])} to ${number(band.high[place])}`);
      }
    }
    this.rows.forEach((row) => row.element.classList.toggle("at", row.x === chart.x[place]));
  }

  table(chart) {
    const beside = element("div", this.body, undefined, { className: "table" });
    const hint = element("p", beside, "Scroll sideways for more columns \u2192", { className: "note" });
    const box = element("div", beside, undefined, { className: "wide", tabIndex: 0 });
    const table = element("table", box), head = element("tr", element("thead", table)), body = element("tbody", table);
    chart.columns.forEach((name) => element("th", head, name));
    chart.rows.forEach((cells, k) => {
      const row = element("tr", body);
      cells.forEach((cell) => element("td", row, typeof cell === "number" ? number(cell) : cell === null ? "–" : cell));
      const x = chart.places[k];
      this.rows.push({ element: row, x });
      row.onclick = () => this.plots.forEach((plot) => {
        plot.setCursor({ left: plot.valToPos(x, "x"), top: plot.cursor.top > 0 ? plot.cursor.top : 10 });
      });
    });
    new ResizeObserver(() => { hint.hidden = box.scrollWidth <= box.clientWidth; }).observe(box);
  }
}

document.querySelectorAll(".section").forEach((host) => new Section(host, sections[Number(host.dataset.place)]));
