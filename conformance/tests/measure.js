// Put at the end of a page by browsing.py: says how the page is laid out.
const measured = {};
const scrolls = (element) => element.closest("figure, .scroll, .lanes, .near, pre, svg, .skip, [hidden]");
const visible = (element) => element.checkVisibility({ visibilityProperty: true });
const elements = [...document.body.querySelectorAll("*")].filter((e) => visible(e) && !scrolls(e));
const named = (e) => `${e.tagName.toLowerCase()}.${e.className} «${e.textContent.trim().slice(0, 30)}»`;

measured.width = innerWidth;
measured.title = document.title;
measured.scrollWidth = document.documentElement.scrollWidth;
measured.outside = elements.filter((e) => {
  const box = e.getBoundingClientRect();
  return box.width && (box.left < -0.5 || box.right > innerWidth + 0.5);
}).map(named);
measured.cut = elements.filter((e) => e.clientWidth && e.scrollWidth > e.clientWidth + 1).map(named);

// The drawing: nothing beyond its edge, no label on another.
const svg = document.querySelector("svg");
measured.drawing = { labels: 0, outside: [], overlapping: [] };
if (svg) {
  const edge = svg.viewBox.baseVal;
  const labels = [...svg.querySelectorAll("text")].map((e) => [e.textContent, e.getBBox()]);
  measured.drawing.labels = labels.length;
  for (const [text, box] of labels) {
    if (box.x < 0 || box.x + box.width > edge.width || box.y + box.height > edge.height) {
      measured.drawing.outside.push(text);
    }
  }
  labels.forEach(([text, a], n) => {
    for (const [other, b] of labels.slice(n + 1)) {
      // Lines of one label stand close; three units are their leading.
      const x = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x);
      const y = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
      if (x > 0 && y > 3) measured.drawing.overlapping.push(`${text} | ${other}`);
    }
  });
}

// Contrast of text, as WCAG computes it.
const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
const luminance = (colour) => {
  const [r, g, b] = channels(colour).slice(0, 3).map((c) => {
    c /= 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const colour = getComputedStyle(e).backgroundColor;
    if ((channels(colour)[3] ?? 1) > 0.99) return colour;
  }
  return "rgb(255, 255, 255)";
};
measured.faint = [];
for (const e of document.body.querySelectorAll("*")) {
  const says = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!says || !visible(e) || e.closest("svg, script, .skip")) continue;
  const [a, b] = [luminance(getComputedStyle(e).color), luminance(ground(e))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) measured.faint.push(`${ratio.toFixed(2)} ${named(e)}`);
}
measured.faint = [...new Set(measured.faint)];
measured.page = getComputedStyle(document.body).backgroundColor;

// Called by what is put after this, and knows one kind of page.
const finish = () => parent.postMessage(JSON.stringify(measured), "*");
