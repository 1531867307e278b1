"use strict";
// Everything on the page can be read without this: it opens the page at the
// first violation, copies replay commands, zooms timelines and tells a bar's
// times where it is touched.
for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const code = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}

for (const figure of document.querySelectorAll("figure.timeline")) {
  const strip = figure.querySelector(".strip");
  const picture = strip.querySelector("svg");
  figure.querySelector(".zoom").hidden = false;
  for (const button of figure.querySelectorAll(".zoom button")) {
    button.addEventListener("click", () => {
      const zoom = Math.min(64, Math.max(1, figure.dataset.zoom * button.dataset.by));
      const centre = (strip.scrollLeft + strip.clientWidth / 2) / strip.scrollWidth;
      figure.dataset.zoom = zoom;
      figure.classList.toggle("finer", zoom >= 4);
      figure.classList.toggle("finest", zoom >= 16);
      picture.style.width = zoom * 100 + "%";
      strip.scrollLeft = centre * strip.scrollWidth - strip.clientWidth / 2;
    });
  }
}

// Bars are thin: the nearest one within a finger's width is meant.
for (const figure of document.querySelectorAll("figure.timeline")) {
  const told = figure.querySelector("p.told");
  figure.querySelector("svg.tl").addEventListener("click", (event) => {
    let nearest = null, least = 18;
    for (const title of figure.querySelectorAll("svg.tl title")) {
      const box = title.nextElementSibling.getBoundingClientRect();
      const across = Math.max(box.left - event.clientX, event.clientX - box.right, 0);
      const down = Math.max(box.top - event.clientY, event.clientY - box.bottom, 0);
      const far = Math.hypot(across, 2 * down);
      if (far < least) [nearest, least] = [title, far];
    }
    for (const old of figure.querySelectorAll("g.told")) old.classList.remove("told");
    told.hidden = !nearest;
    if (!nearest) return;
    nearest.parentNode.classList.add("told");
    told.textContent = nearest.textContent;
  });
}

function open(id) {
  const target = id && document.getElementById(id);
  if (!target) return;
  for (let e = target; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
  target.scrollIntoView();
}
addEventListener("hashchange", () => open(decodeURIComponent(location.hash.slice(1))));
open(location.hash ? decodeURIComponent(location.hash.slice(1)) : document.body.dataset.jump);

let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const d of closed) d.open = true;
});
addEventListener("afterprint", () => { for (const d of closed) d.open = false; });
