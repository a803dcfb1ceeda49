(() => {
  "use strict";
  const find = (id) => document.getElementById(id);
  for (const part of document.querySelectorAll("[data-scripted]")) part.hidden = false;
  const board = document.querySelector(".board");
  if (!board) return;

  // -- what there is: one object for each operation, times in microseconds ----------------
  const CHANGED = 0, UNKNOWN = 4, WRONG = 5;
  const ACTIONS = { 0: "changed the record", 1: "a result, nothing changed", 2: "refused by section 6", 3: "turned away undecided", 4: "lost: applied or not" };
  const storms = JSON.parse(find("data").textContent).storms;
  for (const storm of storms) for (const [number, workflow] of storm.workflows.entries()) {
    const failure = workflow.failure;
    workflow.number = number;
    workflow.ops = workflow.ops.map(([lane, client, holder, request, burst, called, sent, returned, gave, answer, kind, place], index) => ({
      workflow, index, lane: storm.lanes[lane], client, holder, request: storm.requests[request],
      round: storm.bursts[burst][0], burst: storm.bursts[burst][1], called, sent, returned, gave,
      end: returned ?? gave ?? null, said: storm.answers[answer][0], members: storm.answers[answer][1], kind, place,
      wrong: failure !== null && failure.operation === index, at: null,
    }));
    // A lost answer has no end; where nobody says when it was given up, it is drawn as long as most.
    const spans = workflow.ops.filter((op) => op.returned !== null).map((op) => op.returned - op.called).sort((a, b) => a - b);
    const usual = spans[spans.length >> 1] ?? 1000;
    for (const op of workflow.ops) op.end ??= op.called + usual;
    placeInTime(workflow);
  }

  // One moment for each step, within its call and after the step before it. There is one, because
  // the order keeps real time; which of the possible ones is a matter of looks.
  function placeInTime(workflow) {
    const steps = workflow.order.map((index) => (index < 0 ? null : workflow.ops[index]));
    const latest = new Array(steps.length + 1).fill(Infinity);
    for (let k = steps.length - 1; k >= 0; k--) latest[k] = Math.min(latest[k + 1], steps[k]?.returned ?? Infinity);
    const placed = steps.filter(Boolean);
    const spans = placed.map((op) => op.end - op.called).sort((a, b) => a - b);
    const pace = (spans[spans.length >> 1] || 1) / Math.max(placed.length, 8);
    let before = -Infinity;
    workflow.at = steps.map((op, k) => {
      if (op) {
        const from = Math.max(before, op.called);
        op.at = before = from + Math.max(0, Math.min(pace, (latest[k] - from) / 2));
      }
      return before;
    });
  }

  // -- what is looked at -------------------------------------------------------------------
  const seen = { storm: storms[0], workflow: null, round: "", byOrder: true, ops: [], lanes: [], selected: null };
  const view = { from: 0, to: 1 };
  let time; // between microseconds and places on an axis without the idle times

  const natural = new Intl.Collator("en", { numeric: true });
  const workflows = () => (seen.workflow ? [seen.workflow] : seen.storm.workflows);

  function look() {
    const all = workflows().flatMap((workflow) => workflow.ops);
    seen.ops = all.filter((op) => seen.round === "" || String(op.round) === seen.round);
    time = squeezed(seen.ops);
    const first = new Map();
    for (const op of seen.ops) {
      // What was not placed comes after what was; of that, what cannot be placed is the first.
      const key = op.at !== null ? op.at : 1e15 + (op.wrong ? 0 : 1e12) + op.called;
      first.set(op.lane, Math.min(first.get(op.lane) ?? Infinity, key));
    }
    const names = [...first.keys()].sort(natural.compare);
    if (seen.byOrder) names.sort((a, b) => first.get(a) - first.get(b));
    seen.lanes = names;
    const places = new Map(names.map((name, place) => [name, place]));
    for (const op of seen.ops) op.y = places.get(op.lane);
    if (seen.selected && !seen.ops.includes(seen.selected)) seen.selected = null;
  }

  // Time on the axis: where nobody waited for an answer it is cut out.
  function squeezed(ops) {
    const spans = ops.map((op) => op.end - op.called).sort((a, b) => a - b);
    const usual = spans[Math.floor(spans.length * 0.9)] ?? 1;
    const busy = ops.map((op) => [op.called, op.returned ?? Math.min(op.end, op.called + usual)]).sort((a, b) => a[0] - b[0]);
    const parts = [];
    for (const [from, to] of busy) {
      const last = parts[parts.length - 1];
      if (last && from - last.to <= Math.max(usual / 2, 200)) last.to = Math.max(last.to, to);
      else parts.push({ from, to });
    }
    if (!parts.length) parts.push({ from: 0, to: 1 });
    const total = parts.reduce((sum, part) => sum + Math.max(part.to - part.from, 1), 0);
    const gap = parts.length > 1 ? Math.min(total * 0.02, total * 0.25 / (parts.length - 1)) : 0;
    let place = 0;
    for (const part of parts) {
      part.place = place;
      part.length = Math.max(part.to - part.from, 1);
      place += part.length + gap;
    }
    const length = Math.max(place - gap, 1);
    const partOf = (key, value) => {
      let low = 0, high = parts.length - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (parts[middle][key] <= value) low = middle; else high = middle - 1;
      }
      return low;
    };
    return {
      parts, gap, length,
      place(at) {
        const n = partOf("from", at), part = parts[n], next = parts[n + 1];
        if (at <= part.to || !next) return part.place + Math.min(at - part.from, part.length + gap * 4);
        return part.place + part.length + gap * ((at - part.to) / (next.from - part.to));
      },
    };
  }

  // -- drawing -----------------------------------------------------------------------------
  const drawing = find("drawing"), canvas = find("canvas"), head = find("head"), map = find("map"), scroller = find("scroller");
  const LEFT = 74, RIGHT = 8;
  const MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', monospace";
  const SANS = "ui-sans-serif, system-ui, 'Segoe UI', Roboto, Helvetica, Arial, 'Liberation Sans', sans-serif";
  let colours = {}, row = 12, waiting = false;

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    const names = ["k0", "k1", "k2", "k3", "k4", "k5", "line", "grid", "select", "text", "quiet", "card", "well", "rule", "accent"];
    names.push(...["none", "claimed", "uncertain", "caller_verified", "failed", "compensated"].map((stage) => `s-${stage}`));
    colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }

  function pen(element, width, height) {
    const ratio = devicePixelRatio || 1;
    element.style.height = `${height}px`;
    element.width = Math.round(width * ratio);
    element.height = Math.round(height * ratio);
    const made = element.getContext("2d");
    made.setTransform(ratio, 0, 0, ratio, 0, 0);
    return made;
  }

  const width = () => Math.max(drawing.clientWidth - 24, 200);
  const inner = () => width() - LEFT - RIGHT;
  const xOfPlace = (place) => LEFT + ((place - view.from) / (view.to - view.from)) * inner();
  const xOf = (at) => xOfPlace(time.place(at));

  function draw() {
    waiting = false;
    const lanes = seen.lanes.length;
    row = Math.max(7, Math.min(24, Math.floor(620 / Math.max(lanes, 1))));
    drawLanes(pen(canvas, width(), lanes * row + 6));
    drawHead(pen(head, width(), 64));
    drawMap(pen(map, width(), 34));
    const placed = seen.ops.filter((op) => op.place !== null).length;
    drawing.dataset.ops = seen.ops.length;
    drawing.dataset.lanes = lanes;
    drawing.dataset.selected = seen.selected ? `${seen.selected.client} ${seen.selected.request.action}` : "";
    drawing.dataset.view = `${(view.from / time.length).toFixed(4)} ${(view.to / time.length).toFixed(4)}`;
    drawing.setAttribute("aria-label", `Operations in time: ${lanes} lanes, ${seen.ops.length} operations, ${placed} of them in the order found`);
  }
  const redraw = () => { if (!waiting) { waiting = true; requestAnimationFrame(draw); } };

  function drawLanes(g) {
    const bottom = seen.lanes.length * row + 4;
    const edge = width() - RIGHT;
    g.font = `${Math.min(11, Math.max(row - 1, 8))}px ${MONO}`;
    g.textBaseline = "middle";
    const step = Math.ceil(11 / row);
    for (let n = 0; n < seen.lanes.length; n++) {
      if (n % 2 === 0) { g.fillStyle = colours.well; g.fillRect(LEFT, n * row + 2, edge - LEFT, row); }
      if (n % step === 0) { g.fillStyle = colours.quiet; g.fillText(fitted(g, seen.lanes[n], LEFT - 8), 0, n * row + row / 2 + 2); }
    }
    g.save();
    g.beginPath(); g.rect(LEFT, 0, edge - LEFT, bottom); g.clip();
    for (const part of time.parts.slice(1)) {
      const x = xOfPlace(part.place - time.gap / 2);
      dashed(g, x, 0, x, bottom, colours.rule);
    }
    for (const op of seen.ops) if (op.kind === UNKNOWN) bar(g, op);
    for (const op of seen.ops) if (!op.wrong && op.kind !== UNKNOWN) bar(g, op);
    // From afar the changes alone: everything else would be a black field.
    const placed = seen.ops.filter((op) => op.at !== null && xOf(op.at) >= LEFT && xOf(op.at) <= edge);
    const near = placed.length <= Math.max(edge - LEFT, 300) * (row > 10 ? 0.5 : 0.4);
    if (seen.workflow && near) orderLine(g, seen.workflow);
    for (const op of placed) if (op.kind !== CHANGED && near) dot(g, op);
    for (const op of placed) if (op.kind === CHANGED) dot(g, op);
    for (const op of seen.ops) if (op.wrong) {
      dashed(g, xOf(op.called), 0, xOf(op.called), bottom, colours.k5);
      bar(g, op);
    }
    const op = seen.selected;
    if (op) {
      const [x, y, w, h] = box(op);
      g.strokeStyle = colours.select; g.lineWidth = 2.5;
      g.strokeRect(x - 2, y - 2, w + 4, h + 4);
      dashed(g, xOf(op.at ?? op.called), 0, xOf(op.at ?? op.called), bottom, colours.select);
    }
    g.restore();
  }

  function box(op) {
    const x = xOf(op.called), pad = op.wrong ? 0 : row > 8 ? 2 : 1;
    return [x, op.y * row + 2 + pad, Math.max(xOf(op.end) - x, 2.5), row - 2 * pad];
  }

  function bar(g, op) {
    const [x, y, w, h] = box(op);
    if (x > width() || x + w < LEFT) return;
    const faint = op.place === null && !op.wrong && op.workflow.failure && op.kind < 3;
    g.globalAlpha = faint ? 0.5 : 1;
    if (op.wrong) {
      g.fillStyle = colours.k5; g.fillRect(x, y, w, h);
      if (h >= 8 && w >= 12) cross(g, x + 6, y + h / 2, Math.min(h / 2 - 1.5, 4), colours.card);
    } else if (op.kind === UNKNOWN) {
      g.setLineDash([4, 3]); g.strokeStyle = colours.k4; g.lineWidth = 1.5;
      g.strokeRect(x + 0.75, y + 0.75, Math.max(w - 1.5, 1.5), Math.max(h - 1.5, 1.5)); g.setLineDash([]);
      if (op.kind === UNKNOWN && op.place !== null) { g.globalAlpha = 0.35; g.fillStyle = colours.k4; g.fillRect(x, y, w, h); }
    } else if (op.kind === 3) {
      g.strokeStyle = colours.k3; g.lineWidth = 1; g.strokeRect(x + 0.5, y + 0.5, Math.max(w - 1, 1), Math.max(h - 1, 1));
    } else {
      g.fillStyle = colours[`k${op.kind}`]; g.fillRect(x, y, w, h);
    }
    g.globalAlpha = 1;
  }

  function dot(g, op) {
    const x = xOf(op.at), [, y, , h] = box(op);
    if (x < LEFT - 4 || x > width()) return;
    const size = op.kind === CHANGED ? Math.min(h / 2, 4.5) : Math.min(h / 2 - 0.5, 2.2);
    g.beginPath(); g.arc(x, y + h / 2, Math.max(size, 1.3), 0, 7);
    g.fillStyle = colours.line; g.fill();
    if (op.kind === CHANGED) { g.lineWidth = 1.5; g.strokeStyle = colours.card; g.stroke(); }
  }

  function orderLine(g, workflow) {
    g.beginPath();
    let begun = false;
    for (const index of workflow.order) {
      const op = index < 0 ? null : workflow.ops[index];
      if (!op || op.y === undefined || !seen.ops.includes(op)) continue;
      const [, y, , h] = box(op);
      if (begun) g.lineTo(xOf(op.at), y + h / 2); else g.moveTo(xOf(op.at), y + h / 2);
      begun = true;
    }
    g.strokeStyle = colours.line; g.globalAlpha = 0.3; g.lineWidth = 1; g.stroke(); g.globalAlpha = 1;
  }

  // The record over time, and the axis below it.
  function drawHead(g) {
    const edge = width() - RIGHT;
    g.font = `11px ${SANS}`; g.textBaseline = "middle";
    g.fillStyle = colours.quiet;
    g.fillText("record", 0, 15); g.fillText("time", 0, 50);
    g.save();
    g.beginPath(); g.rect(LEFT, 0, edge - LEFT, 64); g.clip();
    const workflow = seen.workflow;
    if (workflow) {
      const moments = workflow.states.map(([place, , record]) => ({ at: workflow.at[place], record }));
      const last = workflow.at.length ? workflow.at[workflow.at.length - 1] : -Infinity;
      const pieces = [{ from: LEFT, record: null }, ...moments.map(({ at, record }) => ({ from: xOf(at), record }))];
      // Where no order goes on, what it has come to is seen all the same.
      const end = workflow.failure ? Math.min(Math.max(xOf(Math.max(last, 0)), LEFT) + 110, edge - 125) : edge;
      for (const [n, piece] of pieces.entries()) {
        const from = Math.max(piece.from, LEFT), to = Math.min(pieces[n + 1]?.from ?? end, edge);
        if (to <= from) continue;
        g.fillStyle = colours[`s-${piece.record ? piece.record.stage : "none"}`];
        g.fillRect(from, 4, to - from, 22);
        g.fillStyle = colours.card; g.fillRect(to - 1, 4, 1, 22);
        const label = piece.record ? `${piece.record.stage} · ${piece.record.generation}` : "no record";
        if (to - from > 14) { g.fillStyle = colours.text; g.fillText(fitted(g, label, to - from - 8), from + 5, 15.5); }
      }
      if (workflow.failure) {
        g.fillStyle = colours.k5;
        g.fillText("✕ no order goes on", end + 6, 15.5);
      }
    } else {
      g.fillStyle = colours.quiet;
      g.fillText("choose one workflow to see its record and the order found", LEFT + 4, 15.5);
    }
    axis(g, edge);
    g.restore();
  }

  function axis(g, edge) {
    const perPixel = (view.to - view.from) / inner();
    const step = nice(perPixel * 70);
    g.fillStyle = colours.quiet; g.strokeStyle = colours.rule; g.lineWidth = 1;
    let free = LEFT;
    for (const [n, part] of time.parts.entries()) {
      const from = xOfPlace(part.place), to = xOfPlace(part.place + part.length);
      if (to < LEFT || from > edge) continue;
      g.beginPath(); g.moveTo(Math.max(from, LEFT), 36.5); g.lineTo(Math.min(to, edge), 36.5); g.stroke();
      const first = Math.max(0, Math.floor((view.from - part.place) / step));
      for (let tick = first; tick * step <= part.length; tick++) {
        const x = from + (tick * step) / perPixel;
        if (x < LEFT - 1) continue;
        if (x > edge) break;
        g.fillStyle = colours.quiet; g.fillRect(x, 34, 1, 6);
        const label = tick === 0 ? spoken(part.from) : `+${spoken(tick * step)}`;
        const wide = g.measureText(label).width;
        if (x + 2 >= free && x + wide < edge) { g.fillText(label, x + 2, 50); free = x + wide + 12; }
      }
      if (n + 1 < time.parts.length && to > LEFT && to < edge) {
        const middle = xOfPlace(part.place + part.length + time.gap / 2);
        g.fillStyle = colours.card; g.fillRect(middle - 4, 30, 8, 12);
        g.fillStyle = colours.quiet; g.fillText("≈", middle - 4, 36.5);
      }
    }
  }

  // All of it in small, and the part that is seen.
  function drawMap(g) {
    const across = width() - LEFT - RIGHT;
    const columns = new Array(Math.ceil(across / 2)).fill(0), wrong = [];
    const at = (moment) => (time.place(moment) / time.length) * across;
    for (const op of seen.ops) {
      const from = Math.max(0, Math.floor(at(op.called) / 2)), to = Math.min(columns.length - 1, Math.floor(at(op.returned ?? op.called) / 2));
      for (let n = from; n <= to; n++) columns[n]++;
      if (op.wrong) wrong.push(at(op.called));
    }
    const most = Math.max(...columns, 1);
    g.fillStyle = colours.quiet; g.font = `11px ${SANS}`; g.textBaseline = "middle"; g.fillText("all of it", 0, 17);
    g.fillStyle = colours.well; g.fillRect(LEFT, 0, across, 34);
    g.fillStyle = colours.k1;
    for (const [n, number] of columns.entries()) if (number) {
      const high = Math.max(2, (number / most) * 28);
      g.fillRect(LEFT + n * 2, 34 - high, 2, high);
    }
    g.fillStyle = colours.k5;
    for (const x of wrong) g.fillRect(LEFT + x - 1, 0, 3, 34);
    const from = LEFT + (view.from / time.length) * across, to = LEFT + (view.to / time.length) * across;
    g.strokeStyle = colours.select; g.lineWidth = 2;
    g.strokeRect(from + 1, 1, Math.max(to - from - 2, 4), 32);
  }

  function dashed(g, x, y, toX, toY, colour) {
    g.save(); g.setLineDash([3, 4]); g.strokeStyle = colour; g.lineWidth = 1;
    g.beginPath(); g.moveTo(x, y); g.lineTo(toX, toY); g.stroke(); g.restore();
  }
  function cross(g, x, y, size, colour) {
    g.strokeStyle = colour; g.lineWidth = 1.8;
    g.beginPath(); g.moveTo(x - size, y - size); g.lineTo(x + size, y + size); g.moveTo(x + size, y - size); g.lineTo(x - size, y + size); g.stroke();
  }
  function fitted(g, text, room) {
    if (g.measureText(text).width <= room) return text;
    let kept = text;
    while (kept.length > 1 && g.measureText(`${kept}…`).width > room) kept = kept.slice(0, -1);
    return `${kept}…`;
  }
  function nice(value) {
    const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-3)));
    return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= value);
  }
  function spoken(us) {
    if (Math.abs(us) >= 1e6) return `${trim((us / 1e6).toFixed(3))} s`;
    if (Math.abs(us) >= 1000) return `${trim((us / 1000).toFixed(2))} ms`;
    return `${trim(us.toFixed(1))} µs`;
  }
  const trim = (text) => text.replace(/\.?0+$/, "");

  // -- moving ------------------------------------------------------------------------------
  function show(from, to) {
    const least = Math.min(time.length, 2);
    let length = Math.min(Math.max(to - from, least), time.length);
    let begin = from + (to - from - length) / 2;
    begin = Math.min(Math.max(begin, 0), time.length - length);
    view.from = begin; view.to = begin + length;
    redraw();
  }
  const all = () => show(0, time.length);
  function zoom(factor, around = 0.5) {
    const length = view.to - view.from, middle = view.from + length * around;
    show(middle - length * factor * around, middle + length * factor * (1 - around));
  }
  const pan = (share) => {
    const length = view.to - view.from;
    const from = Math.min(Math.max(view.from + length * share, 0), time.length - length);
    show(from, from + length);
  };
  // The burst of an operation, with a little room on both sides.
  function showBurst(op) {
    const near = seen.ops.filter((other) => other.workflow === op.workflow && other.round === op.round && other.burst === op.burst);
    const answered = near.filter((other) => other.returned !== null);
    const places = (answered.length ? answered : near).flatMap((other) => [time.place(other.called), time.place(other.end)]);
    const from = Math.min(...places, time.place(op.called)), to = Math.max(...places, time.place(op.called));
    show(from - (to - from) * 0.06 - 20, to + (to - from) * 0.06 + 20);
  }
  function reveal(op) {
    const place = time.place(op.at ?? op.called), length = view.to - view.from;
    if (place < view.from || place > view.to) show(place - length / 2, place + length / 2);
    const y = op.y * row;
    if (y < scroller.scrollTop || y + row > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = y - scroller.clientHeight / 2;
  }
  function address(hash) {
    try {
      history.replaceState(null, "", hash);
    } catch { /* A page inside another has no address of its own. */ }
  }
  function choose(op, { moving = true } = {}) {
    seen.selected = op;
    tell();
    if (op && begun) address(`#op-${storms.indexOf(seen.storm)}-${op.workflow.number}-${op.index}`);
    if (op && moving) reveal(op);
    redraw();
  }

  // -- telling -----------------------------------------------------------------------------
  const details = find("details");
  function make(name, attributes = {}, ...inside) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "on") element.addEventListener("click", value); else element.setAttribute(key, value);
    }
    element.append(...inside.filter((one) => one !== null && one !== undefined));
    return element;
  }
  const short = (name) => (name && name.length > 16 ? `${name.slice(0, 8)}…${name.slice(-4)}` : name);
  function stateText(record) {
    if (!record) return [make("span", { class: "chip stage", style: "background: var(--s-none)" }, "no record")];
    const claim = record.abandoned ? "claim abandoned" : `claim until ${record.claim_expires_at.slice(11, 23)}`;
    return [
      make("span", { class: "chip stage", style: `background: var(--s-${record.stage})` }, `${record.stage} · generation ${record.generation}`),
      ` held by ${short(record.holder)}, ${claim}`,
      record.evidence_type ? `, evidence ${record.evidence_type}` : "",
      `, ${record.observations} observation${record.observations === 1 ? "" : "s"}`,
    ];
  }
  // The record just before a place of the order, and just after it.
  function statesAt(workflow, place) {
    let before = null, after = null, rule = null;
    for (const [changed, by, record] of workflow.states) {
      if (changed < place) before = record;
      if (changed <= place) { after = record; if (changed === place) rule = by; }
    }
    return { before, after, rule };
  }
  function versus(failure) {
    const rows = (failure.differs || []).map((name) => make("tr", { class: "differs" },
      make("th", {}, make("span", { class: "mark", title: "differs" }, "≠ "), name),
      make("td", {}, make("ins", {}, value(failure.expected_members, name))),
      make("td", {}, make("del", {}, value(failure.got_members, name)))));
    const table = rows.length ? make("table", { class: "diff" }, make("tbody", {}, ...rows)) : null;
    return [
      make("div", { class: "versus" },
        make("div", { class: "want" }, make("span", {}, "expected"), make("code", {}, failure.expected)),
        make("div", { class: "came" }, make("span", {}, "got"), make("code", {}, failure.got))),
      table, failure.why ? make("p", {}, failure.why) : null,
    ];
  }
  const value = (members, name) => (members && name in members ? JSON.stringify(members[name]) : "(absent)");

  const undecided = (workflow) => workflow.failure.kind === "unknown";

  function tell() {
    const op = seen.selected;
    details.classList.toggle("wrong", Boolean(op && op.wrong));
    details.replaceChildren(...(op ? tellOperation(op) : tellWorkflow()).filter((part) => part !== null));
  }
  function tellWorkflow() {
    const workflow = seen.workflow;
    if (!workflow) {
      const drawn = seen.storm.workflows, failing = drawn.filter((one) => one.failure);
      const open = failing.filter(undecided).length, wrong = failing.length - open;
      const told = [wrong ? `${wrong} of those drawn cannot be explained.` : "", open ? `${open} of those drawn could not be decided.` : ""];
      return [make("h3", {}, `${drawn.length} ${drawn.length === 1 ? "workflow" : "workflows"}`),
        make("p", {}, failing.length ? told.filter(Boolean).join(" ") : "Each of those drawn has an order that explains every answer."),
        make("p", { class: "soft" }, "Choose one above, or click a bar.")];
    }
    const end = workflow.states.length ? workflow.states[workflow.states.length - 1][2] : null;
    return [
      make("h3", {}, !workflow.failure ? "One order explains every answer" : undecided(workflow) ? "Not decided whether one order explains this workflow" : "No order explains this workflow"),
      make("p", { class: "soft" }, `${workflow.key}${workflow.round === null ? "" : `, round ${workflow.round}`}`),
      make("p", {}, `${workflow.order.length} of ${workflow.ops.length} operations are in the order; ${workflow.states.length} of them changed the record.`),
      workflow.failure ? make("p", {}, workflow.failure.why || workflow.why) : null,
      make("h4", {}, workflow.failure ? "As far as it goes" : "In the end"), make("p", {}, ...stateText(end)),
      make("p", { class: "soft" }, "Click a bar, or go through the order with N and P."),
    ];
  }
  function tellOperation(op) {
    const { workflow } = op, request = op.request;
    const failure = op.wrong ? workflow.failure : null;
    const what = [request.action, request.to_stage ? `→ ${request.to_stage}` : "", request.generation ? `generation ${request.generation}` : ""].filter(Boolean).join(" ");
    const states = op.place === null ? null : statesAt(workflow, op.place);
    const parts = [
      make("h3", {}, what),
      make("p", { class: "soft" }, `${op.client}${op.round === null ? "" : `, round ${op.round}`}${op.burst ? `, ${op.burst}` : ""}`),
      make("p", {}, make("b", {}, op.said), ` — ${op.wrong ? "cannot be placed" : op.place === null && op.kind < 3 ? "not placed: the order ends before it" : ACTIONS[op.kind]}`),
    ];
    if (failure) parts.push(...versus(failure));
    parts.push(make("h4", {}, "When"));
    parts.push(make("p", {}, op.returned === null
      ? `called at ${spoken(op.called)}, no answer${op.gave === null ? "" : `, given up after ${spoken(op.gave - op.called)}`}: it may be applied at any later time`
      : `called at ${spoken(op.called)}, answered after ${spoken(op.returned - op.called)}`));
    if (op.place !== null) parts.push(make("p", {}, `place ${op.place + 1} of ${workflow.order.length} in the order, at ${new Date(workflow.observed[op.place]).toISOString().slice(11, 23)} by the store's clock`));
    else if (op.kind === UNKNOWN) parts.push(make("p", {}, "not in the order: it was not applied, or not in time to be seen"));
    if (states) {
      parts.push(make("h4", {}, "The record before"), make("p", {}, ...stateText(states.before)));
      parts.push(make("h4", {}, states.rule ? `The record after, by ${states.rule}` : "The record after"));
      parts.push(make("p", {}, ...(states.rule ? stateText(states.after) : ["unchanged"])));
    } else if (failure && failure.kind === "illegal") {
      parts.push(make("h4", {}, "The record before it"), make("p", {}, ...stateText(failure.state)));
    }
    parts.push(make("h4", {}, "Around it in the order"), near(op));
    parts.push(make("h4", {}, "Request"), make("pre", {}, JSON.stringify(op.holder ? { ...request, holder: op.holder } : request, null, 1)));
    if (op.members) parts.push(make("h4", {}, "Answer"), make("pre", {}, JSON.stringify(op.members, null, 1)));
    return parts;
  }
  function near(op) {
    const { workflow } = op, line = sequence(workflow), here = Math.max(line.indexOf(op), 0);
    const list = make("ol", { class: "near" });
    for (const other of line.slice(Math.max(here - 3, 0), here + 4)) {
      list.append(make("li", {}, make("button", { type: "button", class: other === op ? "here" : "", on: () => choose(other) },
        make("span", { class: "place" }, other.place === null ? "✕" : String(other.place + 1)),
        make("span", {}, `${other.lane} ${other.request.action}`), make("span", { class: "told" }, other.said))));
    }
    return list;
  }

  // The order found, and after it what cannot be placed.
  const sequence = (workflow) => [...workflow.order.filter((index) => index >= 0).map((index) => workflow.ops[index]), ...workflow.ops.filter((op) => op.wrong && op.place === null)];
  function step(by) {
    const workflow = seen.selected?.workflow ?? seen.workflow ?? seen.storm.workflows[0];
    const line = sequence(workflow).filter((op) => seen.ops.includes(op));
    if (!line.length) return;
    const here = seen.selected ? line.indexOf(seen.selected) : by > 0 ? -1 : line.length;
    choose(line[Math.min(Math.max(here + by, 0), line.length - 1)]);
  }
  const firstError = () => {
    for (const [s, storm] of storms.entries()) for (const [w, workflow] of storm.workflows.entries()) {
      if (workflow.failure && workflow.failure.operation !== null) return [s, w, workflow.failure.operation];
    }
    return null;
  };

  // -- choosing ----------------------------------------------------------------------------
  const pick = { storm: find("storm"), workflow: find("workflow"), round: find("round"), lanes: find("lanes") };
  const options = (select, entries) => select.replaceChildren(...entries.map(([key, label]) => make("option", { value: key }, label)));
  const named = (workflow) => `${workflow.failure ? "✕ " : ""}${workflow.round === null ? "" : `round ${workflow.round} · `}${short(workflow.key)} · ${workflow.ops.length}`;
  function toStorm(storm) {
    seen.storm = storm;
    pick.storm.value = String(storms.indexOf(storm));
    const entries = storm.workflows.map((workflow) => [String(workflow.number), named(workflow)]);
    options(pick.workflow, storm.workflows.length > 1 ? [...entries, ["", `all ${storm.workflows.length} drawn`]] : entries);
  }
  function toWorkflow(workflow) {
    seen.workflow = workflow; seen.round = ""; seen.selected = null;
    pick.workflow.value = workflow ? String(workflow.number) : "";
    const rounds = [...new Set(workflows().flatMap((one) => one.ops.map((op) => op.round)))].filter((round) => round !== null).sort((a, b) => a - b);
    options(pick.round, [["", "all"], ...rounds.map((round) => [String(round), String(round)])]);
    pick.round.disabled = rounds.length < 2;
    look(); all(); tell();
  }
  function toRound(round) {
    seen.round = round; pick.round.value = round;
    look(); all(); tell();
  }
  function otherRound(by) {
    const at = pick.round.selectedIndex + by;
    if (!pick.round.disabled && at >= 0 && at < pick.round.options.length) toRound(pick.round.options[at].value);
    else if (seen.workflow) {
      const next = seen.storm.workflows[seen.workflow.number + by];
      if (next) toWorkflow(next);
    }
  }
  function goTo(s, w, index) {
    toStorm(storms[s]);
    toWorkflow(storms[s].workflows[w]);
    const op = seen.workflow.ops[index];
    showBurst(op);
    choose(op);
  }
  pick.storm.addEventListener("change", () => { toStorm(storms[Number(pick.storm.value)]); toWorkflow(seen.storm.workflows[0] ?? null); });
  pick.workflow.addEventListener("change", () => toWorkflow(pick.workflow.value === "" ? null : seen.storm.workflows[Number(pick.workflow.value)]));
  pick.round.addEventListener("change", () => toRound(pick.round.value));
  pick.lanes.addEventListener("change", () => { seen.byOrder = pick.lanes.value === "order"; look(); redraw(); });
  find("in").addEventListener("click", () => zoom(0.5));
  find("out").addEventListener("click", () => zoom(2));
  find("fit").addEventListener("click", all);
  find("next").addEventListener("click", () => step(1));
  find("previous").addEventListener("click", () => step(-1));
  const first = firstError();
  find("first").hidden = first === null;
  find("first").addEventListener("click", () => goTo(...first));
  for (const button of document.querySelectorAll("[data-goto]")) button.addEventListener("click", () => {
    goTo(...button.dataset.goto.split(",").map(Number));
    find("timeline").scrollIntoView();
    drawing.focus({ preventScroll: true });
  });

  const keys = {
    ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6),
    0: all, n: () => step(1), p: () => step(-1), e: () => first && goTo(...first), "[": () => otherRound(-1), "]": () => otherRound(1),
    Escape: () => choose(null),
  };
  drawing.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = keys[event.key] ?? keys[event.key.toLowerCase()];
    if (act) { event.preventDefault(); act(); }
  });

  // -- pointing ----------------------------------------------------------------------------
  const spot = (event, element) => { const edge = element.getBoundingClientRect(); return [event.clientX - edge.left, event.clientY - edge.top]; };
  function under(event) {
    const [x, y] = spot(event, canvas), lane = Math.floor((y - 2) / row);
    let best = null, nearest = 5;
    for (const op of seen.ops) if (op.y === lane) {
      const [from, , w] = box(op), away = Math.max(from - x, x - from - w, 0);
      if (away < nearest || (away === nearest && op.wrong)) { nearest = away; best = op; }
    }
    return best;
  }
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, from: view.from, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) {
      const op = under(event);
      canvas.title = op ? `${op.client}: ${op.request.action} → ${op.said}` : "";
      return;
    }
    const by = event.clientX - drag.x;
    if (Math.abs(by) > 3) { drag.moved = true; canvas.classList.add("dragging"); }
    if (!drag.moved) return;
    const length = view.to - view.from, from = Math.min(Math.max(drag.from - (by / inner()) * length, 0), time.length - length);
    show(from, from + length);
  });
  const release = (event) => {
    if (drag && !drag.moved && event.type === "pointerup") choose(under(event), { moving: false });
    drag = null; canvas.classList.remove("dragging");
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("dblclick", (event) => zoom(0.4, Math.min(Math.max((spot(event, canvas)[0] - LEFT) / inner(), 0), 1)));
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(Math.exp(event.deltaY * 0.003), Math.min(Math.max((spot(event, canvas)[0] - LEFT) / inner(), 0), 1));
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
      event.preventDefault();
      pan((event.deltaX || event.deltaY) / inner());
    }
  }, { passive: false });
  const onMap = (event) => {
    const share = (spot(event, map)[0] - LEFT) / inner(), half = (view.to - view.from) / 2, middle = share * time.length;
    const from = Math.min(Math.max(middle - half, 0), time.length - 2 * half);
    show(from, from + 2 * half);
  };
  map.addEventListener("pointerdown", (event) => { map.setPointerCapture(event.pointerId); onMap(event); });
  map.addEventListener("pointermove", (event) => { if (event.buttons) onMap(event); });

  // -- begin -------------------------------------------------------------------------------
  options(pick.storm, storms.map((storm, number) => [String(number), storm.name]));
  pick.storm.parentElement.hidden = storms.length < 2;
  readColours();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); redraw(); });
  new ResizeObserver(redraw).observe(drawing);
  let begun = false;
  const begin = storms.find((storm) => storm.workflows.length);
  // A link to one operation, as the address shows it once one was chosen.
  const linked = /^#op-(\d+)-(\d+)-(\d+)$/.exec(location.hash)?.slice(1).map(Number);
  if (linked && storms[linked[0]]?.workflows[linked[1]]?.ops[linked[2]]) {
    goTo(...linked);
    find("timeline").scrollIntoView();
  } else if (first) goTo(...first);
  else { toStorm(begin); toWorkflow(begin.workflows[0]); }
  begun = true;
})();
