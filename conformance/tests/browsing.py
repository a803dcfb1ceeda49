"""Pages in a real browser: Chromium, headless, its network of no use to them."""

import json
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any, Final

BROWSER_SECONDS_MAX: Final = 120
DESK, PHONE = 1280, 390
FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--force-device-scale-factor=1", "--virtual-time-budget=10000"),
)
DARK: Final = "--blink-settings=preferredColorScheme=0"
MEASURE: Final = Path(__file__).with_name("measure.js").read_text(encoding="utf-8")
NO_FRAMES: Final = "window.requestAnimationFrame = (draw) => setTimeout(draw, 0);"
POLICY: Final = '<meta http-equiv="Content-Security-Policy"'

Browser = Callable[..., str]
"""Runs Chromium once on a page, with arguments of its own; what it printed."""


def browser_in(folder: Path, program: str) -> Browser:
    """A browser with its profile and its page in a folder."""

    def run(page: str, *arguments: str) -> str:
        path = folder / "page.html"
        path.write_text(page, encoding="utf-8")
        done = subprocess.run(
            [
                *(program, *FLAGS, f"--user-data-dir={folder / 'profile'}", *arguments),
                path.as_uri(),
            ],
            capture_output=True,
            text=True,
            check=True,
            timeout=BROWSER_SECONDS_MAX,
        )
        return done.stdout

    return run


def layout(browser: Browser, page: str, width: int, own: str, *arguments: str) -> dict[str, Any]:
    """How a page is laid out in a window of this width, and what its script does.

    A window has a least width, so the page is put into a frame; the frame is what its media
    queries see.

    Args:
        browser: runs it.
        page: the page.
        width: of the frame, in pixels.
        own: put after ``measure.js``; what is asked of this kind of page alone.
        arguments: of the browser.
    """
    assert page.count(POLICY) == 1
    # The policy lets no script run but the page's own, which another test holds it to.
    page = page.replace(POLICY, "<meta data-removed").replace(
        "</body>", f"<script>{MEASURE}\n{own}</script></body>"
    )
    # Nobody looks, so there are no frames to wait for.
    page = page.replace("<head>", f"<head><script>{NO_FRAMES}</script>")
    literal = json.dumps(page).replace("<", "\\u003c")
    framed = (
        "<!doctype html><body style='margin:0'>"
        f"<iframe style='border:0;width:{width}px;height:900px'></iframe><pre></pre><script>"
        "addEventListener('message', e => document.querySelector('pre').textContent = e.data);"
        f"document.querySelector('iframe').srcdoc = {literal};"
        "</script></body>"
    )
    dom = browser(framed, f"--window-size={DESK},1000", "--dump-dom", *arguments)
    text = dom.rpartition("<pre>")[2].partition("</pre>")[0]
    assert text, dom[-2000:]
    found: dict[str, Any] = json.loads(unescape(text))
    assert found["width"] == width
    return found
