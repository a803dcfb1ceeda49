// Put after measure.js: what the script of report.html does.
const shown = () => document.querySelectorAll(".row:not([hidden])").length;
const filters = document.querySelector(".filters");
measured.filters = { usable: !filters.hidden, all: shown() };
for (const button of filters.querySelectorAll("[data-show]")) {
  button.click();
  measured.filters[button.dataset.show || "all again"] = shown();
}
const search = filters.querySelector("input");
filters.querySelector("[data-show='']").click();
search.value = "wc-time-";
search.dispatchEvent(new Event("input"));
measured.filters.found = shown();
search.value = "nothing is like this";
search.dispatchEvent(new Event("input"));
measured.filters.nothing = !document.querySelector(".nothing").hidden;
search.value = "";
search.dispatchEvent(new Event("input"));
measured.copies = [...document.querySelectorAll("[data-copy]")].filter(visible).length;
const fold = document.querySelector("[data-fold]");
if (fold) {
  const rows = () => [...document.querySelectorAll(".equal")[0].rows].filter(visible).length;
  measured.fold = [rows(), (fold.click(), rows()), (fold.click(), rows())];
}
const first = document.querySelector(".primary");
measured.first = first ? document.querySelector(first.hash).querySelector("h3").textContent : "";
finish();
