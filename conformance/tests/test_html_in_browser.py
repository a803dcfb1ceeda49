"""``report.html`` in a real browser: how it is laid out, what its script does, how it looks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import reports
from browsing import DARK, DESK, PHONE, Browser, browser_in, layout
from PIL import Image

from checkpoint_conformance.renderings.html import render
from checkpoint_conformance.rules import rules

OWN: Final = Path(__file__).with_name("measure_report.js").read_text(encoding="utf-8")


@pytest.fixture
def browser(tool: Callable[[str], str], tmp_path: Path) -> Browser:
    """Chromium, with a profile of its own."""
    return browser_in(tmp_path, tool("chromium"))


def measured(browser: Browser, name: str, width: int, *arguments: str) -> dict[str, Any]:
    """The layout of a report's page in a window of this width."""
    return layout(browser, render(reports.ALL[name]()), width, OWN, *arguments)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [DESK, PHONE])
@pytest.mark.parametrize("name", ["passing", "failing", "hostile", "erroneous", "excused"])
def test_the_page_fits_and_can_be_read(
    name: str, width: int, scheme: str, browser: Browser
) -> None:
    """Nothing beyond the edge, cut off, on top of something else or fainter than WCAG's AA."""
    found = measured(browser, name, width, *([DARK] if scheme == "dark" else []))
    assert found["page"] == {"light": "rgb(244, 246, 248)", "dark": "rgb(13, 17, 23)"}[scheme]
    assert found["scrollWidth"] <= width
    assert (found["outside"], found["cut"]) == ([], [])
    assert found["drawing"]["outside"] == found["drawing"]["overlapping"] == []
    assert (found["drawing"]["labels"] > 0) is (name != "erroneous")
    assert found["faint"] == []
    assert found["title"].endswith(" · Workflow Checkpoint conformance")


def test_the_page_s_script_does_what_its_buttons_say(browser: Browser) -> None:
    """Filter by status and by words, fold what is right, copy, and go to the first failure."""
    found = measured(browser, "failing", DESK)
    filters = found["filters"]
    assert (filters.pop("usable"), filters.pop("nothing")) == (True, True)
    statuses = [rule["status"] for rule in reports.failing()["rules"].values()]
    assert filters == {
        "all": len(rules()),
        "all again": len(rules()),
        "found": len([rule for rule in rules().values() if "WC-TIME-" in rule.text + rule.id]),
        **{status: statuses.count(status) for status in statuses},
    }
    assert found["copies"] == 2 + 1
    assert found["fold"] == [0, 3, 0]
    assert found["first"] == "WC-CLAIM-8 is broken"


def test_the_page_s_policy_lets_no_other_script_run(browser: Browser) -> None:
    """Were an escape missing, what a target answered would still do nothing."""
    page = render(reports.failing()).replace(
        "</main>",
        "<script>document.title = 'taken'</script>"
        "<img src=x onerror=\"document.title = 'taken'\"></main>",
    )
    dom = browser(page, "--dump-dom")
    assert "<title>FAIL · Workflow Checkpoint conformance</title>" in dom
    assert 'data-scripted=""' in dom
    assert 'role="group" aria-label="Show rules by status" hidden' not in dom


@pytest.mark.parametrize(
    ("name", "scheme", "band"),
    [
        ("passing", "light", (27, 127, 69)),
        ("passing", "dark", (63, 185, 111)),
        ("failing", "light", (192, 39, 29)),
        ("failing", "dark", (255, 107, 96)),
    ],
)
def test_the_page_looks_like_its_verdict(
    name: str, scheme: str, band: tuple[int, int, int], browser: Browser, tmp_path: Path
) -> None:
    """A screenshot: the band in the verdict's colour, the bar below in those of the statuses."""
    picture = tmp_path / "picture.png"
    arguments = [f"--window-size={DESK},1400", f"--screenshot={picture}"]
    browser(render(reports.ALL[name]()), *arguments, *([DARK] if scheme == "dark" else []))
    with Image.open(picture) as opened:
        image = opened.convert("RGB")
    assert image.width == DESK
    assert image.getpixel((DESK // 2, 2)) == band
    found = image.getcolors(image.width * image.height)
    assert found is not None
    by_colour = {colour: number for number, colour in found}
    assert by_colour[band] > DESK * 6, "the stamp and the bar have the colour too"
    # Text and drawing are there: a page whose style had failed would have few colours.
    assert len(by_colour) > 200
