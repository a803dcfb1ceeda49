(() => {
  "use strict";
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];

  const rows = all(".row");
  const buttons = all("[data-show]");
  const search = document.querySelector("input[type=search]");
  let status = "";
  const filter = () => {
    const words = search.value.trim().toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const fits = (!status || row.dataset.status === status) &&
        (!words || row.textContent.toLowerCase().includes(words));
      row.hidden = !fits;
      shown += fits;
    }
    for (const part of all(".part")) part.hidden = !part.querySelector(".row:not([hidden])");
    document.querySelector(".nothing").hidden = shown > 0;
  };
  const choose = (chosen) => {
    status = chosen;
    for (const button of buttons) button.setAttribute("aria-pressed", button.dataset.show === status);
    filter();
  };
  for (const button of buttons) button.addEventListener("click", () => choose(button.dataset.show));
  search.addEventListener("input", filter);
  for (const part of all("[data-scripted]")) part.hidden = false;

  // A link to a rule that a filter hides shows it.
  window.addEventListener("hashchange", () => {
    const row = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (row && row.closest("[hidden]")) {
      search.value = "";
      choose("");
      row.scrollIntoView();
    }
  });

  for (const button of all("[data-fold]")) {
    const equal = button.parentElement.querySelector(".equal");
    const label = button.textContent;
    equal.hidden = true;
    button.hidden = false;
    button.addEventListener("click", () => {
      equal.hidden = !equal.hidden;
      button.textContent = equal.hidden ? label : label.replace("Show", "Hide");
    });
  }

  // The drawing is wider than a phone; the table is not.
  if (matchMedia("(max-width: 640px)").matches) for (const table of all(".moves")) table.open = true;

  const copy = async (element) => {
    try {
      await navigator.clipboard.writeText(element.textContent);
      return true;
    } catch {
      // Where the browser keeps the clipboard from a file: mark it, and the older way works.
      getSelection().selectAllChildren(element);
      return document.execCommand("copy");
    }
  };
  for (const button of all("[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const done = await copy(document.getElementById(button.dataset.copy));
      button.textContent = done ? "Copied" : "Marked: press Ctrl+C";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }

  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = all("details:not([open])");
    for (const details of folded) details.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const details of folded) details.open = false;
  });
})();
