// Zooms each picture by moving its shapes, which carry their times in data-a and data-b.
"use strict";
// The shortest of 1, 2 and 5, times a power of ten, that needs at most so many steps.
function tickStep(length, most) {
  const power = 10 ** Math.floor(Math.log10(length / most));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step * most >= length);
}

for (const section of document.querySelectorAll("section")) {
  const picture = section.querySelector(".picture");
  const svg = picture.querySelector("svg");
  const detail = section.querySelector(".detail");
  const left = Number(svg.dataset.left), plot = Number(svg.dataset.plot);
  const length = Number(svg.dataset.length);
  const shapes = [...svg.querySelectorAll("[data-a]")];
  const lines = [...svg.querySelectorAll("line.tick")], texts = [...svg.querySelectorAll("text.tick")];
  let from = 0, to = length;

  const x = (seconds) => left + ((seconds - from) / (to - from)) * plot;

  function draw() {
    for (const shape of shapes) {
      const a = x(Number(shape.dataset.a)), b = x(Number(shape.dataset.b));
      if (shape.tagName === "rect") {
        shape.setAttribute("x", a);
        shape.setAttribute("width", Math.max(b - a, 1));
      } else if (shape.tagName === "line") {
        shape.setAttribute("x1", a);
        shape.setAttribute("x2", a);
      } else if (shape.tagName === "circle") {
        shape.setAttribute("cx", a);
      } else {
        // A label stays visible while a part of its span is.
        const begin = Math.max(a, left);
        shape.setAttribute("x", begin + 4);
        shape.setAttribute("visibility", b - begin >= 9 * shape.textContent.length ? "visible" : "hidden");
      }
    }
    const step = tickStep(to - from, lines.length - 1);
    const digits = Math.max(0, -Math.floor(Math.log10(step)));
    const first = Math.ceil(from / step);
    lines.forEach((line, number) => {
      const seconds = (first + number) * step, at = x(seconds), text = texts[number];
      for (const shape of [line, text]) {
        shape.setAttribute("visibility", seconds <= to ? "visible" : "hidden");
      }
      line.setAttribute("x1", at);
      line.setAttribute("x2", at);
      text.setAttribute("x", at);
      text.textContent = `${seconds.toFixed(digits)} s`;
    });
  }

  function show(begin, end) {
    const width = Math.min(Math.max(end - begin, length / 1e5), length);
    from = Math.min(Math.max(begin, 0), length - width);
    to = from + width;
    draw();
  }

  function zoom(factor, around = (from + to) / 2) {
    show(around - (around - from) * factor, around + (to - around) * factor);
  }

  const moves = {
    in: () => zoom(0.5),
    out: () => zoom(2),
    left: () => show(from - (to - from) / 4, to - (to - from) / 4),
    right: () => show(from + (to - from) / 4, to + (to - from) / 4),
    all: () => show(0, length),
  };
  const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all" };

  for (const button of section.querySelectorAll("button")) {
    button.addEventListener("click", moves[button.dataset.zoom]);
  }
  picture.addEventListener("keydown", (event) => {
    const move = moves[keys[event.key]];
    if (move && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      move();
    }
  });
  picture.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = svg.getBoundingClientRect();
    const pixels = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    const around = from + ((pixels - left) / plot) * (to - from);
    zoom(event.deltaY < 0 ? 0.8 : 1.25, Math.min(Math.max(around, from), to));
  }, { passive: false });
  svg.addEventListener("pointerover", (event) => {
    const title = event.target.querySelector ? event.target.querySelector(":scope > title") : null;
    if (title && event.target !== svg) detail.textContent = title.textContent;
  });
}
