"""The page of ``kgroup timeline`` in a real browser: how readers zoom, move and read it."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kgroup.cli.timeline.command import stories_of, write
from tests.cli.timeline.browser import CTRL, Browser, NoBrowserError, Page, browser, find_browser
from tests.cli.timeline.lines import ended, line, two_members

# A browser takes longer to start than a test, so all tests share one.
pytestmark = pytest.mark.xdist_group("browser")

WHOLE = "0.0 s to 40.0 s"
SOON = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
#: Pairs of visible texts of the picture that lie upon each other.
OVERLAPS = """
(() => {
  const texts = [...document.querySelectorAll(".picture text")]
    .filter((one) => getComputedStyle(one).visibility === "visible" && one.textContent)
    .map((one) => [one.textContent, one.getBoundingClientRect()]);
  return texts.flatMap(([word, a], index) => texts.slice(index + 1)
    .filter(([, b]) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
    .map(([other]) => `${word} / ${other}`));
})()
"""
#: The lowest contrast (as WCAG 2 has it) of a text of the picture with what it is read upon, and of
#: the page's own text; for a bar with a pattern this is its ground.
CONTRAST = """
(() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number)
      .map((one) => one / 255)
      .map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const fill = (one) => getComputedStyle(one).fill;
  const found = [];
  const paper = fill(document.querySelector(".paper"));
  const band = fill(document.querySelector(".band"));
  for (const text of document.querySelectorAll(".picture text")) {
    const span = text.closest(".span");
    const bar = span && (document.querySelector(`pattern[id^=${span.dataset.kind}] rect`)
      || span.querySelector("rect"));
    for (const ground of bar ? [fill(bar)] : [paper, band]) {
      found.push([contrast(fill(text), ground), text.textContent]);
    }
  }
  const style = getComputedStyle(document.body);
  found.push([contrast(style.color, style.backgroundColor), "the page"]);
  return found.sort((a, b) => a[0] - b[0])[0];
})()
"""
#: How many pixels of a screenshot have each colour of a list, and how many colours there are.
COLOURS = """
(async () => {
  const image = new Image();
  image.src = "data:image/png;base64,%s";
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
  canvas.drawImage(image, 0, 0);
  const data = canvas.getImageData(0, 0, image.width, image.height).data;
  const counts = {};
  for (let at = 0; at < data.length; at += 4) {
    const colour = [data[at], data[at + 1], data[at + 2]].join();
    counts[colour] = (counts[colour] || 0) + 1;
  }
  return counts;
})()
"""


def a_day() -> list[str]:
    """Two members with each kind of end of a generation and of marks, and many commits."""
    lines = [*two_members(), line(131.0, "a", "Joining"), line(131.2, "a", "Joined", 3)]
    lines.append(line(131.2, "a", "GenerationStarted", 3))
    lines += [line(131.3 + n / 1000, "a", "Committed", 3) for n in range(1000)]
    lines.append(line(133.0, "a", "CommitRefused", 3, level="WARNING", message="refused: t-0"))
    lines.append(ended(135.9, "a", 3, "task raised"))
    for number, cause in ((4, "processing stuck"), (5, "fenced")):
        at = 128.0 + 2 * number
        lines.append(line(at, "a", "GenerationStarted", number))
        lines.append(ended(at + 1.9, "a", number, cause))
    lines.append(line(140.0, "a", "BackingOff", 5, level="WARNING"))
    return lines


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for all tests of this file.

    A machine without one can run all other tests, so these are reported as skipped there. In CI,
    which installs one, they fail.
    """
    try:
        find_browser(os.environ)
    except NoBrowserError as error:
        if "CI" in os.environ:
            raise
        pytest.skip(str(error))  # README's command has to pass on a machine without a browser
    with browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of ``a_day``, as the command writes it."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "events").write_text("\n".join(a_day()), encoding="utf-8")
    write(stories_of([folder / "events"]), folder / "page.html")
    return folder / "page.html"


@pytest.fixture
def page(program: Browser, file: Path) -> Iterator[Page]:
    """The page in a new tab; it may not complain about anything."""
    tab = program.open(file)
    yield tab
    complaints = tab.complaints()
    tab.close()
    assert complaints == []


def seen(page: Page) -> str:
    """The seconds that are in sight, as the page shows them."""
    return str(page.run("document.querySelector('.range').textContent"))


def detail(page: Page) -> str:
    """The line of details."""
    return str(page.run("document.querySelector('.detail').textContent"))


def middle(page: Page, selector: str) -> tuple[float, float]:
    """Where the middle of the first element of a selector is."""
    x, y = page.run(
        f"(({{left, top, width, height}}) => [left + width / 2, top + height / 2])"
        f"(document.querySelector({selector!r}).getBoundingClientRect())"
    )
    return x, y


def focus(page: Page) -> None:
    """Reach the picture by Tab, as a reader without a mouse does."""
    for _ in range(12):
        page.press("Tab")
        if page.run("document.activeElement.className").startswith("picture"):
            return
    raise AssertionError("Tab does not reach the picture")


def test_keys_zoom_and_move(page: Page) -> None:
    """Keys zoom about what is chosen, here the first phase, while the picture has the focus."""
    page.press("+")
    assert seen(page) == WHOLE
    focus(page)
    seconds = []
    for key in ("+", "+", "ArrowRight", "ArrowLeft", "-", "0"):
        page.press(key)
        seconds.append(seen(page))
    assert seconds == [
        "0.0 s to 20.0 s",
        "0.0 s to 10.0 s",
        "2.5 s to 12.5 s",
        "0.0 s to 10.0 s",
        "0.0 s to 20.0 s",
        WHOLE,
    ]


def test_buttons_zoom_and_move(page: Page) -> None:
    """Each button does what it says, and nothing moves beyond the first and last event."""
    seconds = []
    for move in ("in", "left", "left", "right", "out", "in", "all"):
        page.run(f"document.querySelector('[data-move={move}]').click()")
        seconds.append(seen(page))
    assert seconds == [
        "10.0 s to 30.0 s",
        "5.0 s to 25.0 s",
        "0.0 s to 20.0 s",
        "5.0 s to 25.0 s",
        WHOLE,
        "10.0 s to 30.0 s",
        WHOLE,
    ]


def test_the_wheel_scrolls_and_zooms_with_ctrl(page: Page) -> None:
    """The tables below the picture can be reached by the wheel; with Ctrl it zooms at the mouse."""
    x, y = middle(page, ".picture")
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-100, modifiers=CTRL)
    assert seen(page) == "4.0 s to 36.0 s"
    assert page.run("scrollY") == 0
    scrolled = page.run(
        "window.scrolled = new Promise((done) => addEventListener('scroll', done, {once: true})), 1"
    )
    assert scrolled
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=300)
    page.run("window.scrolled.then(() => 1)")
    assert page.run("scrollY") > 0
    assert seen(page) == "4.0 s to 36.0 s"


def test_a_mouse_moves_the_picture(page: Page) -> None:
    """What is dragged stays under the mouse, and after the button is released nothing moves."""
    page.run("document.querySelector('[data-move=in]').click()")
    x, y = middle(page, ".picture")
    plot = page.run("document.querySelector('.picture svg').viewBox.baseVal.width - 50")
    page.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
    for part in (0.1, 0.25):
        page.mouse("mouseMoved", x + part * plot, y, button="left", buttons=1)
    page.mouse("mouseReleased", x + plot / 4, y, button="left", clickCount=1)
    assert seen(page) == "5.0 s to 25.0 s"
    page.mouse("mouseMoved", x, y)
    assert seen(page) == "5.0 s to 25.0 s"


def test_fingers_move_and_zoom_the_picture(page: Page) -> None:
    """One finger moves it, and two that part from each other zoom it."""
    page.run("document.querySelector('[data-move=in]').click()")
    x, y = middle(page, ".picture")
    page.touch("touchStart", (x, y))
    page.touch("touchMove", (x + 100, y))
    page.touch("touchMove", (x + 200, y))
    page.touch("touchEnd")
    begin, end = (float(one) for one in seen(page).replace(" s", "").split(" to "))
    assert begin < 10
    assert end - begin == pytest.approx(20)
    page.touch("touchStart", (x - 50, y), (x + 50, y))
    page.touch("touchMove", (x - 100, y), (x + 100, y))
    page.touch("touchMove", (x - 200, y), (x + 200, y))
    page.touch("touchEnd")
    begin, end = (float(one) for one in seen(page).replace(" s", "").split(" to "))
    assert end - begin == pytest.approx(5, rel=0.3)


def test_pointing_shows_details(page: Page) -> None:
    """The line of details has the member, and what the shape under the mouse is."""
    expected = {
        ".span[data-kind=planned] rect": "running for 9.500 s, from 1.000 s (00:01:41.000 UTC)",
        ".span[data-kind=raised] rect": "GenerationEnded happened",
        ".picture rect.lag": "a (h, 7): learned of the rebalance to generation 2 after 0.500 s",
        ".span[data-kind=silent] rect": "silent for 19.200 s, from 12.000 s (00:01:52.000 UTC)",
        "g.refusal path": "33.000 s (00:02:13.000 UTC), CommitRefused: refused: t-0",
        "g.commit path": "10.400 s (00:01:50.400 UTC), Committed: Committed happened",
        "g.join path": "0.500 s (00:01:40.500 UTC), Joined: Joined happened",
        ".picture .band": "rebalance to generation 1",
    }
    for selector, words in expected.items():
        x, y = middle(page, selector)
        page.mouse("mouseMoved", x, y)
        assert words in detail(page), selector


def test_reading_without_a_mouse(page: Page) -> None:
    """Focus and keys show the same details, and what is chosen comes into sight."""
    focus(page)
    assert detail(page).startswith("a (h, 7): joining for 0.500 s")
    page.press("n")
    assert "0.500 s (00:01:40.500 UTC), Joined" in detail(page) or "starting" in detail(page)
    page.press("c")
    assert "10.400 s (00:01:50.400 UTC), Committed" in detail(page)
    page.press("ArrowDown")
    assert detail(page).startswith("b (h, 7): joining")
    page.press("ArrowUp")
    assert detail(page).startswith("a (h, 7): ")
    page.press("+")
    for _ in range(3):
        page.press("+")
    for _ in range(25):
        page.press("n")
    assert "40.000 s (00:02:20.000 UTC), BackingOff" in detail(page)
    assert seen(page).endswith("40.00 s")
    for _ in range(25):
        page.press("p")
    assert detail(page).startswith("a (h, 7): joining for 0.500 s")
    assert page.run("document.activeElement.getAttribute('aria-label')") == "Timeline of group g"
    assert page.run(
        "document.getElementById(document.activeElement.getAttribute('aria-describedby')) !== null"
    )


def test_marks_that_were_one_come_apart(page: Page) -> None:
    """A stroke for many commits becomes many strokes when one zooms in, never more than fit."""
    of_first = "document.querySelector('g.commit').children"
    words = f"[...{of_first}].map((one) => one.textContent).join()"
    assert "commits from" in page.run(words)
    focus(page)
    page.press("c")
    page.press("c")
    for _ in range(9):
        page.press("+")
    assert "commits from" not in page.run(words)
    plot = page.run("document.querySelector('.picture svg').viewBox.baseVal.width")
    assert 10 < page.run(f"{of_first}.length") < plot / 3


@pytest.mark.parametrize("width", [1300, 380])
def test_texts_do_not_overlap(page: Page, width: int) -> None:
    """At each zoom every text that is shown can be read, and no window is too narrow."""
    page.resize(width, 900)
    page.run(f"{SOON}.then(() => 1)")
    assert page.run("document.documentElement.scrollWidth") <= width
    shown = page.run("document.querySelector('.picture svg').getBoundingClientRect().width")
    assert shown == page.run("document.querySelector('.picture svg').viewBox.baseVal.width")
    for _ in range(6):
        assert page.run(OVERLAPS) == []
        page.run("document.querySelector('[data-move=in]').click()")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_contrast(page: Page, scheme: str) -> None:
    """On light and on dark screens each text has the contrast that WCAG asks of small text."""
    page.prefer(scheme)
    lowest, text = page.run(CONTRAST)
    assert lowest >= 4.5, text


@pytest.mark.parametrize(("scheme", "paper"), [("light", "255,255,255"), ("dark", "31,41,51")])
def test_a_screenshot_shows_the_picture(page: Page, scheme: str, paper: str) -> None:
    """Its ground, and the bars of each end of a generation, are seen in both schemes."""
    page.prefer(scheme)
    page.run(f"document.querySelector('.legend').open = false, {SOON}.then(() => 1)")
    picture = base64.b64encode(page.screenshot()).decode()
    counts: dict[str, Any] = page.run(COLOURS % picture)
    assert counts[paper] > 100_000
    assert counts["31,111,235"] > 1000, "planned"
    for name, colour in (("raised", "124,58,237"), ("lost", "192,39,27"), ("slow", "138,75,8")):
        assert counts[colour] > 100, name


def test_partitions_that_stand_still_are_read_in_both_schemes(page: Page) -> None:
    """The bar has its words and its seconds, and a colour of its own, which is no bar's of work."""
    page.run(f"document.querySelector('.legend').open = false, {SOON}.then(() => 1)")
    label = ".picture .span[data-kind=silent] text"
    assert page.run(f"document.querySelector('{label}').textContent") == "stands still 19.2 s"
    assert page.run(f"document.querySelector('{label}').getAttribute('visibility')") == "visible"
    for scheme, ground in (("light", "251,227,223"), ("dark", "84,48,44")):
        page.prefer(scheme)
        picture = base64.b64encode(page.screenshot()).decode()
        counts: dict[str, Any] = page.run(COLOURS % picture)
        assert counts[ground] > 500, scheme


def test_without_a_browser_the_error_says_what_to_install(tmp_path: Path) -> None:
    """Neither a missing browser nor a wrong variable skips these tests."""
    with pytest.raises(NoBrowserError, match="no Chromium was found.*apt-get install chromium"):
        find_browser({"PATH": str(tmp_path)})
    with pytest.raises(NoBrowserError, match="KGROUP_BROWSER=/no/chrome is no program"):
        find_browser({"KGROUP_BROWSER": "/no/chrome"})
    own = tmp_path / "own"
    own.touch(mode=0o755)
    assert find_browser({"KGROUP_BROWSER": str(own)}) == str(own)
