// Put after measure.js: what the script of storm.html does.
(async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const find = (id) => document.getElementById(id);
  const drawing = find("drawing");
  const now = async () => {
    await frame();
    const { ops, lanes, view, selected } = drawing.dataset;
    const [from, to] = view.split(" ").map(Number);
    return { ops: Number(ops), lanes: Number(lanes), from, to, selected, details: find("details").innerText };
  };
  const press = async (key) => {
    drawing.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    return now();
  };
  const choose = async (id, value) => {
    find(id).value = value;
    find(id).dispatchEvent(new Event("change"));
    return now();
  };
  measured.error = !find("first").hidden;
  measured.begin = await now();
  measured.all = await press("0");
  measured.zoomed = await press("+");
  measured.moved = await press("ArrowRight");
  measured.all = await press("0");
  await press("Escape");
  measured.next = await press("n");
  measured.after = await press("n");
  measured.before = await press("p");
  measured.named = await choose("lanes", "name");
  measured.byOrder = await choose("lanes", "order");
  measured.workflows = find("workflow").options.length;
  measured.other = await press("]");
  measured.whole = measured.workflows > 1 ? await choose("workflow", "") : null;
  const rounds = [...find("round").options].map((option) => option.value);
  measured.rounds = rounds.length - 1;
  measured.round = rounds.length > 2 ? await choose("round", rounds[1]) : null;
  measured.again = measured.error ? await press("e") : null;
  const buttons = [...document.querySelectorAll("[data-goto]")];
  measured.gotos = buttons.length;
  if (buttons.length > 1) {
    buttons[1].click();
    measured.second = await now();
  }
  // A click where the first lane begins finds its bar.
  const canvas = find("canvas"), edge = canvas.getBoundingClientRect();
  const at = { clientX: edge.left + 90, clientY: edge.top + 4, bubbles: true, pointerId: 1 };
  await press("0");
  await press("Escape");
  canvas.setPointerCapture = () => {};
  canvas.dispatchEvent(new PointerEvent("pointerdown", at));
  canvas.dispatchEvent(new PointerEvent("pointerup", at));
  measured.clicked = await now();
  finish();
})();
