// Makes each picture of the page one that can be zoomed, moved and walked through.
//
// A shape carries its time in data-a and data-b, in seconds since the first event. The script keeps
// the seconds that are in sight, and at each change moves every shape to where its time belongs.
// Only the marks are made again: those that lie upon each other are one shape, and which ones do
// depends on the zoom. They come from the JSON beside the picture, so that a row never has more
// shapes than pixels, however many commits there are.
"use strict";

// The shortest of 1, 2 and 5, times a power of ten, that needs at most so many steps.
function tickStep(length, most) {
  const power = 10 ** Math.floor(Math.log10(length / most));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step * most >= length);
}

// The first index of an ascending list whose time is at least this one.
function firstFrom(list, seconds) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle].a < seconds) low = middle + 1; else high = middle;
  }
  return low;
}

function element(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

const titleOf = (shape) => shape.querySelector(":scope > title").textContent;

function timeline(section) {
  const picture = section.querySelector(".picture"), svg = picture.querySelector("svg");
  const detail = section.querySelector(".detail"), range = section.querySelector(".range");
  const left = Number(svg.dataset.left), right = Number(svg.dataset.right);
  const length = Number(svg.dataset.length), height = svg.viewBox.baseVal.height;
  const clip = svg.querySelector("clipPath"), bounds = clip.querySelector("rect");
  const shapes = [...svg.querySelectorAll("rect[data-a], text[data-a]")].map((shape) => (
    { shape, a: Number(shape.dataset.a), b: Number(shape.dataset.b), shown: true }));
  const lines = [...svg.querySelectorAll("line.tick")], texts = [...svg.querySelectorAll("text.tick")];
  const clocks = [...svg.querySelectorAll("text.clock")], began = Number(svg.dataset.begin);
  const groups = [];
  const marks = JSON.parse(section.querySelector("script.marks").textContent);
  const rows = [...svg.querySelectorAll("g.row")].map((row, number) => readRow(row, marks[number]));
  const selection = element("rect", { class: "selection", rx: 3 });
  svg.appendChild(element("g", { "clip-path": `url(#${clip.id})` })).appendChild(selection);
  let plot = 1, from = 0, to = length;
  let chosen = null, chosenRow = 0;

  // What keys walk through in a row: its phases and marks, and, separately, its commits.
  function readRow(row, lists) {
    const items = [...row.querySelectorAll("rect.item, .span > rect")].map((shape) => (
      { a: Number(shape.dataset.a), b: Number(shape.dataset.b), text: titleOf(shape) }));
    let commits = [];
    for (const group of row.querySelectorAll("g.marks")) {
      const kind = group.dataset.kind;
      const list = lists[kind].map(([at, text]) => ({ a: at, b: at, text: `${moment(at)}, ${text}` }));
      groups.push({ group, list });
      if (kind === "commit") commits = list; else items.push(...list);
    }
    items.sort((one, other) => one.a - other.a);
    return { name: row.dataset.name, y: Number(row.dataset.y), items, commits };
  }

  // The time of day in UTC. A picture without script has it too, so it cannot be the reader's own.
  function clock(seconds, digits) {
    const at = new Date(Math.round((began + seconds) * 1000)).toISOString();
    return at.slice(11, digits ? Math.min(20 + digits, 23) : 19);
  }
  function moment(seconds) {
    return `${seconds.toFixed(3)} s (${clock(seconds, 3)} UTC)`;
  }

  const x = (seconds) => left + ((seconds - from) / (to - from)) * plot;
  const inSight = (item) => item.b >= from && item.a <= to;
  const secondsAt = (clientX) => {
    const share = (clientX - svg.getBoundingClientRect().left - left) / plot;
    return from + Math.min(Math.max(share, 0), 1) * (to - from);
  };

  function draw() {
    for (const one of shapes) {
      const shape = one.shape, shown = inSight(one);
      // A file of a day has ten thousand phases, of which few are in sight: the others cost nothing.
      if (shown !== one.shown) shape.setAttribute("display", shown ? "inline" : "none");
      one.shown = shown;
      if (!shown) continue;
      const a = x(one.a), b = x(one.b);
      if (shape.tagName === "rect") {
        shape.setAttribute("x", a);
        shape.setAttribute("width", Math.max(b - a, 1));
      } else if (shape.classList.contains("after")) {
        placeText(shape, a, Math.min(b, left + plot), shape.textContent);
      } else {
        // A label stays visible while a part of its span is.
        const begin = Math.max(a, left), room = Math.min(b, left + plot) - begin - 6;
        const { long, short } = shape.dataset;
        placeText(shape, begin, Math.min(b, left + plot), room >= 7 * long.length ? long : short);
      }
    }
    for (const { group, list } of groups) drawMarks(group, list);
    drawAxis();
    drawSelection();
    const digits = Math.max(1, Math.ceil(2 - Math.log10(to - from)));
    range.textContent = `${from.toFixed(digits)} s to ${to.toFixed(digits)} s`;
    range.title = `${clock(from, 3)} to ${clock(to, 3)} UTC`;
  }

  function placeText(shape, begin, end, text) {
    shape.setAttribute("x", begin + 4);
    shape.textContent = text;
    shape.setAttribute("visibility", end - begin - 4 >= 7 * text.length ? "visible" : "hidden");
  }

  // Makes the marks of one kind in a row that are in sight.
  function drawMarks(group, list) {
    const { y, cell, path, plural } = group.dataset;
    const margin = (Number(cell) / plot) * (to - from), width = margin;
    const made = [];
    let index = firstFrom(list, from - margin);
    while (index < list.length && list[index].a <= to + margin) {
      const first = list[index];
      const next = Math.max(firstFrom(list, first.a + width), index + 1), last = list[next - 1];
      const mark = element("path", {
        class: "item", d: path, transform: `translate(${x(first.a)} ${y})`, "data-a": first.a, "data-b": last.a,
      });
      let text = first.text;
      if (next - index > 1) {
        mark.setAttribute("stroke-width", 2.5);
        text = `${next - index} ${plural} from ${moment(first.a)} to ${moment(last.a)}; the first: ${text}`;
      }
      mark.appendChild(element("title", {})).textContent = text;
      made.push(mark);
      index = next;
    }
    group.replaceChildren(...made);
  }

  function drawAxis() {
    const most = Math.min(Math.max(Math.floor(plot / 80), 2), lines.length - 1);
    const step = tickStep(to - from, most), first = Math.ceil(from / step);
    const digits = Math.max(0, -Math.floor(Math.log10(step)));
    lines.forEach((line, number) => {
      const seconds = (first + number) * step, at = x(seconds), text = texts[number], time = clocks[number];
      for (const shape of [line, text, time]) {
        shape.setAttribute("visibility", seconds <= to ? "visible" : "hidden");
      }
      line.setAttribute("x1", at);
      line.setAttribute("x2", at);
      text.setAttribute("x", at);
      text.textContent = `${seconds.toFixed(digits)} s`;
      time.setAttribute("x", at);
      time.textContent = clock(seconds, digits);
    });
  }

  function drawSelection() {
    selection.setAttribute("visibility", chosen ? "inherit" : "hidden");
    if (!chosen) return;
    selection.setAttribute("x", x(chosen.a) - 4);
    selection.setAttribute("width", x(chosen.b) - x(chosen.a) + 8);
    selection.setAttribute("y", rows[chosenRow].y + 15);
    selection.setAttribute("height", 66);
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

  function pan(seconds) {
    show(from + seconds, to + seconds);
  }

  function choose(number, item) {
    chosenRow = number;
    chosen = item;
    detail.textContent = `${rows[number].name}: ${item.text}`;
    if (inSight(item)) draw(); else pan((item.a + item.b - from - to) / 2);
  }

  // Zooms about what is chosen, so that it stays in sight.
  function zoomByKey(factor) {
    zoom(factor, chosen && inSight(chosen) ? Math.max(chosen.a, from) : undefined);
  }

  // Chooses the next or previous one of a row's phases and marks, or of its commits.
  function step(list, direction) {
    const items = rows[chosenRow][list];
    if (!items.length) return;
    let index = chosen ? items.indexOf(chosen) : -1;
    if (index < 0) {
      index = firstFrom(items, chosen ? chosen.a : from) - (direction < 0 ? 1 : 0);
    } else {
      index += direction;
    }
    choose(chosenRow, items[Math.min(Math.max(index, 0), items.length - 1)]);
  }

  // Chooses another member, at the time that was chosen.
  function stepRow(direction) {
    const number = Math.min(Math.max(chosenRow + direction, 0), rows.length - 1);
    const items = rows[number].items, at = chosen ? chosen.a : from;
    if (items.length) choose(number, items.findLast((item) => item.a <= at) || items[0]);
  }

  const moves = {
    in: () => zoom(0.5),
    out: () => zoom(2),
    left: () => pan((from - to) / 4),
    right: () => pan((to - from) / 4),
    all: () => show(0, length),
  };
  const keys = {
    "+": () => zoomByKey(0.5), "=": () => zoomByKey(0.5), "-": () => zoomByKey(2), 0: moves.all,
    ArrowLeft: moves.left, ArrowRight: moves.right,
    ArrowUp: () => stepRow(-1), ArrowDown: () => stepRow(1),
    n: () => step("items", 1), p: () => step("items", -1),
    c: () => step("commits", 1), C: () => step("commits", -1),
  };

  for (const button of section.querySelectorAll("button")) {
    button.addEventListener("click", moves[button.dataset.move]);
  }
  picture.addEventListener("keydown", (event) => {
    if (keys[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      keys[event.key]();
    }
  });
  picture.addEventListener("focus", () => {
    // A click gives it the focus too, but then the mouse points at what is to be read.
    if (!picture.matches(":focus-visible")) return;
    if (chosen) choose(chosenRow, chosen); else stepRow(0);
  });
  // Without Ctrl the wheel scrolls the page. A trackpad reports two fingers as a wheel with Ctrl.
  picture.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 0.8 : 1.25, secondsAt(event.clientX));
  }, { passive: false });

  // One pointer moves the picture; two zoom it about the place between them.
  const pointers = new Map();
  picture.addEventListener("pointerdown", (event) => {
    if (event.button === 0) pointers.set(event.pointerId, event.clientX);
  });
  picture.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId), now = event.clientX;
    if (before === undefined || before === now) return;
    picture.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, now);
    const others = [...pointers].filter(([id]) => id !== event.pointerId);
    if (others.length) {
      const other = others[0][1];
      zoom(Math.abs(before - other) / Math.max(Math.abs(now - other), 1), secondsAt((now + other) / 2));
    } else {
      pan(((before - now) / plot) * (to - from));
    }
  });
  for (const name of ["pointerup", "pointercancel"]) {
    picture.addEventListener(name, (event) => pointers.delete(event.pointerId));
  }
  svg.addEventListener("pointerover", (event) => {
    const shape = event.target.closest(".item, .band");
    if (!shape) return;
    const row = shape.closest("g.row"), text = titleOf(shape.querySelector(":scope > title") ? shape : shape.querySelector("rect"));
    detail.textContent = row ? `${row.dataset.name}: ${text}` : text;
  });

  // A pixel of the picture is one of the screen, so that text is as large in a narrow window.
  function fit() {
    const width = Math.max(picture.clientWidth, 200);
    plot = width - left - right;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    bounds.setAttribute("width", plot + 2 * (left - Number(bounds.getAttribute("x"))));
    draw();
  }
  picture.classList.add("live");
  window.addEventListener("resize", fit);
  fit();
}

for (const section of document.querySelectorAll("section.group")) timeline(section);
