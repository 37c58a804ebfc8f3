// Draws the curves of one run or several: over steps or over time, with what restarts did to them.
"use strict";
(() => {
  const place = document.getElementById("charts");
  if (!place || !window.uPlot) return;
  const ids = place.dataset.runs.split(" ");
  const runs = ids.map((id) => ({ id, seen: 0, name: id, attempts: [], marks: [], live: false, points: [], metrics: new Map() }));
  const PALETTE = ["#2f6fdb", "#c2570c", "#1c8a4d", "#9b3fb5", "#b8860b", "#0e8a94", "#d1406a", "#6b7280"];
  const view = { axis: "step", log: false };
  let charts = [];

  // ---- what there is
  const read = async (run) => {
    const answer = await fetch(`/run/${run.id}/curves.json?after=${run.seen}`, { credentials: "same-origin" });
    if (!answer.ok) return;
    const data = await answer.json();
    // A restarted server counts from zero: read everything again.
    if (data.seen < run.seen) { run.seen = 0; run.points = []; run.metrics.clear(); return read(run); }
    Object.assign(run, { seen: data.seen, name: data.name, attempts: data.attempts, marks: data.marks, live: data.live });
    run.points.push(...data.points);
    for (const m of data.metrics) {
      if (!run.metrics.has(m.name)) run.metrics.set(m.name, []);
      run.metrics.get(m.name).push(...m.rows);
    }
    run.again = again(run);
  };
  // Steps that were trained twice: from where the next attempt began to where this one came.
  const again = (run) => {
    const out = [];
    (run.attempts || []).forEach((a, n) => {
      const next = run.attempts[n + 1];
      if (!next) return;
      const of = run.points.filter((p) => p[0] === a.attempt);
      const high = of.length ? of[of.length - 1][2] : 0;
      if (high <= next.start) return;
      const from = of.find((p) => p[2] > next.start);
      out.push({ step: [next.start, high], time: [from ? from[1] : a.to, a.to], count: high - next.start });
    });
    return out;
  };
  // Several runs are compared by the time since each began.
  const several = runs.length > 1;
  const origin = (run) => (several ? run.attempts?.[0]?.from ?? 0 : 0);
  const number = (value) => (typeof value === "number" ? value : null);
  // The last value of each step, and those that a later attempt replaced. Rows: attempt, step, time, value.
  const byStep = (rows) => {
    const last = new Map(), lost = new Map();
    for (const [attempt, step, , value] of rows) {
      const before = last.get(step);
      if (before && before[0] !== attempt) lost.set(step, before[1]);
      last.set(step, [attempt, number(value)]);
    }
    const xs = [...last.keys()].sort((a, b) => a - b);
    // A step that was not trained twice ends the line of those that were.
    const ends = (x, n) => lost.has(x) || (n > 0 && lost.has(xs[n - 1]));
    const twice = xs.filter(ends);
    return [[xs, xs.map((x) => last.get(x)[1])], [twice, twice.map((x) => (lost.has(x) ? lost.get(x) : null))]];
  };
  // A line ends with its attempt. Rows: attempt, time, value.
  const byTime = (rows) => {
    const xs = [], ys = [];
    rows.forEach(([attempt, at, value], n) => {
      if (n > 0 && rows[n - 1][0] !== attempt) { xs.push((rows[n - 1][1] + at) / 2); ys.push(null); }
      xs.push(at); ys.push(number(value));
    });
    return [xs, ys];
  };

  // ---- how it is drawn
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const short = (v) => {
    if (v === null || v === undefined) return "–";
    const size = Math.abs(v);
    if (Number.isInteger(v) && size < 1e9) return v.toLocaleString("en-US");
    return size < 1e-3 || size >= 1e6 ? v.toExponential(2) : String(Number(v.toPrecision(5)));
  };
  const span = (s) => window.duration(1000 * s);
  const stamp = (s) => several ? span(s) : new Date(1000 * s).toLocaleString("sv-SE");
  const decorate = (list, chart) => (u) => {
    const { ctx, bbox } = u, time = chart.time;
    ctx.save();
    ctx.beginPath(); ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height); ctx.clip();
    const x = (value) => u.valToPos(value, "x", true);
    // What is no number: a reader looks for it.
    ctx.fillStyle = color("--bad");
    for (const at of chart.odd) ctx.fillRect(x(at) - devicePixelRatio, bbox.top, 2 * devicePixelRatio, bbox.height);
    for (const run of list) {
      ctx.fillStyle = color("--shade");
      for (const part of run.again || []) {
        const [from, to] = time ? part.time : part.step;
        ctx.fillRect(x(from), bbox.top, Math.max(x(to) - x(from), 1), bbox.height);
      }
      ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.lineWidth = devicePixelRatio;
      for (const [n, a] of (run.attempts || []).entries()) {
        const line = (at, tone) => { ctx.strokeStyle = color(tone); ctx.beginPath(); ctx.moveTo(x(at), bbox.top); ctx.lineTo(x(at), bbox.top + bbox.height); ctx.stroke(); };
        if (n > 0) {
          line(time ? a.from : a.start, "--soft");
          ctx.fillStyle = color("--soft"); ctx.font = `${11 * devicePixelRatio}px system-ui`;
          ctx.fillText(a.attempt, x(time ? a.from : a.start) + 3 * devicePixelRatio, bbox.top + 11 * devicePixelRatio);
        }
        if (time && a.class) line(a.to, "--bad");
      }
    }
    ctx.restore();
  };
  // Ticks of a time axis, from years to seconds, by a clock of 24 hours.
  const DAY = "\n{D} {MMM}", YEAR = "\n{D} {MMM} {YYYY}";
  const TICKS = [
    [31536000, "{YYYY}", null, null, null, null, null, null, 1],
    [2419200, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [86400, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [60, "{HH}:{mm}", YEAR, null, DAY, null, null, null, 1],
    [1, "{HH}:{mm}:{ss}", YEAR, null, DAY, null, null, null, 1],
  ];
  const axes = (y, time) => {
    const look = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 }, font: "12px system-ui", labelFont: "12px system-ui" };
    const x = { ...look, label: time ? "time" : "step", labelSize: 18, space: 80, size: time ? 48 : 32 };
    if (time && several) Object.assign(x, { label: "time since the first launch", incrs: [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800], values: (u, all) => all.map(span) });
    else if (time) x.values = TICKS;
    else x.incrs = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7, 1e8];
    return [x, { ...look, label: y, labelSize: 18, size: 64, values: (u, all) => all.map((v) => (v === null ? "" : short(v))) }];
  };
  const draw = (title, series, time, list, odd) => {
    const isSteps = title === "Step";
    const id = `chart-${title.replaceAll(" ", "-")}`;
    let figure = document.getElementById(id);
    if (!figure) {
      figure = document.createElement("figure");
      figure.id = id;
      figure.innerHTML = "<figcaption></figcaption><div></div>";
      figure.firstChild.textContent = title;
      place.append(figure);
    }
    const holder = figure.lastChild;
    figure.dataset.restarts = list.reduce((sum, r) => sum + Math.max(0, (r.attempts || []).length - 1), 0);
    figure.dataset.again = list.reduce((sum, r) => sum + (r.again || []).reduce((all, part) => all + part.count, 0), 0);
    const tables = series.map((s) => s.data);
    // The axis goes on while nothing happens.
    if (time) for (const r of runs.filter((r) => r.live)) tables.push([[Date.now() / 1000 - origin(r)], [null]]);
    // A null breaks a line, also between the values of other lines.
    const data = uPlot.join(tables, tables.map((t) => t.map(() => 2)));
    data.length = series.length + 1;
    const known = charts.find((c) => c.title === title);
    if (known && known.series.length === series.length) {
      known.odd = odd;
      known.plot.setData(data, !known.zoomed);
      if (known.zoomed) known.plot.redraw();
      return;
    }
    if (known) { known.plot.destroy(); charts = charts.filter((c) => c !== known); }
    const above = data.slice(1).every((ys) => ys.every((y) => y === null || y === undefined || y > 0));
    const chart = { title, series, time, odd, zoomed: false };
    const plot = new uPlot({
      width: holder.clientWidth, height: isSteps ? 260 : 220,
      scales: { x: { time: time && !several }, y: { distr: !view.log || isSteps ? 1 : above ? 3 : 4 } },
      axes: axes(title.toLowerCase(), time),
      cursor: { sync: { key: time ? "time" : "step" }, drag: { x: true, y: false } },
      legend: { live: true },
      series: [
        { label: time ? "time" : "step", value: (u, v) => (v === null ? "–" : time ? stamp(v) : String(v)) },
        ...series.map((s, n) => ({
          label: s.label, stroke: s.color, width: s.faint ? 1 : 1.75, dash: s.faint ? [4, 4] : undefined,
          points: s.dots ? { show: true, size: 7, fill: s.color } : { show: s.data[0].length < 60 }, paths: s.dots ? () => null : undefined,
          value: (u, v) => short(v), show: n < 24,
        })),
      ],
      hooks: {
        drawAxes: [decorate(list, chart)],
        setSelect: [(u) => { if (u.select.width > 0) { chart.zoomed = true; reset.disabled = false; } }],
      },
    }, data, holder);
    plot.over.addEventListener("dblclick", unzoom);
    Object.assign(chart, { plot, holder });
    charts.push(chart);
  };

  const show = () => {
    const time = view.axis === "time";
    const label = (run, text) => (several ? run.name : text);
    const steps = runs.flatMap((run, n) => {
      const out = [{ label: label(run, "step"), color: PALETTE[n % 8], data: byTime(run.points.map(([attempt, at, step]) => [attempt, at - origin(run), step])) }];
      if (!several && run.marks.length) out.push({ label: "proven", color: color("--good"), dots: true, data: [run.marks.map((m) => m[0]), run.marks.map((m) => m[1])] });
      return out;
    });
    draw("Step", steps, true, several ? [] : runs, []);
    const names = [...new Set(runs.flatMap((run) => [...run.metrics.keys()]))];
    for (const name of names) {
      const series = runs.flatMap((run, n) => {
        const rows = run.metrics.get(name) || [], tone = PALETTE[n % 8];
        if (time) return [{ label: label(run, name), color: tone, data: byTime(rows.map(([attempt, , at, value]) => [attempt, at - origin(run), value])) }];
        const [last, lost] = byStep(rows);
        return [{ label: label(run, name), color: tone, data: last }, ...(several ? [] : [{ label: "before a restart", color: color("--odd"), faint: true, data: lost }])];
      });
      const odd = runs.flatMap((run) => (run.metrics.get(name) || []).filter((r) => typeof r[3] === "string").map((r) => (time ? r[2] - origin(run) : r[1])));
      draw(name, series, time, several ? [] : runs, odd);
    }
    place.dataset.points = Math.max(0, ...runs.flatMap((r) => [...r.metrics.values()].map((rows) => rows.length)));
  };
  const again_ = () => { charts.forEach((c) => c.plot.destroy()); charts = []; place.querySelectorAll("figure").forEach((f) => f.remove()); reset.disabled = true; show(); };
  const unzoom = () => { for (const c of charts) { c.zoomed = false; c.plot.setData(c.plot.data, true); } reset.disabled = true; };

  // ---- the controls
  const tools = document.createElement("p");
  tools.className = "tools";
  tools.innerHTML = '<label>Curves over <select><option value="step">steps</option><option value="time">time</option></select></label> <label><input type="checkbox"> log scale</label> <button type="button" disabled>Reset zoom</button> <span class="soft">Drag over a part to see it larger.</span>';
  const [select, log, reset] = ["select", "input", "button"].map((s) => tools.querySelector(s));
  select.onchange = () => { view.axis = select.value; again_(); };
  log.onchange = () => { view.log = log.checked; again_(); };
  reset.onclick = unzoom;
  place.append(tools);

  let busy = false;
  const renew = async () => {
    if (busy || document.hidden) return;
    busy = true;
    try { await Promise.all(runs.map(read)); show(); } catch { /* The page itself says that it is not live. */ }
    busy = false;
  };
  renew();
  document.addEventListener("renewed", renew);
  setInterval(() => { if (runs.some((r) => r.live) && !document.hidden && charts.length) show(); }, 10_000);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again_);
  new ResizeObserver(() => { for (const c of charts) c.plot.setSize({ width: c.holder.clientWidth, height: c.plot.height }); }).observe(place);
})();
