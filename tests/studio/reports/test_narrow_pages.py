"""Reports on a phone: what is to be read fits its width."""

from __future__ import annotations

import pytest

from isthmus.studio.reports.page import Section, html_page, table
from support.browser import Browser, chromium

CAUSES = [
    ["91 %", "outside", "the number motor_lag is outside of what was believed: about 0.0523 s, not 0.002 to 0.015"],
    ["4 %", "controller", "runs/loop-pendulum-swingup/0-prior.controller/and/a/path/without/any/space.mcap was another one"],
    ["under 1 %", "link", ""],
]
SCALES = "[...document.querySelectorAll('.wide')].map(d => [d.scrollWidth, d.clientWidth])"


@pytest.mark.skipif(chromium() is None, reason="chromium is not installed (apt-get install chromium)")
@pytest.mark.parametrize("width", [390, 1100])
def test_a_table_of_causes_does_not_scroll_sideways(tmp_path, width):
    file = tmp_path / "page.html"
    file.write_text(html_page("t", [Section("Why", table(["probability", "cause", "what speaks for it"], CAUSES, right=(0,)))]))
    browser = Browser(tmp_path / "profile", (width, 800))
    try:
        browser.open(file.as_uri())
        browser.wait_for(lambda: browser.run("document.querySelectorAll('.wide').length == 1"), "the table")
        assert browser.run("innerWidth") == width
        ((needed, there),) = browser.run(SCALES)
    finally:
        browser.close()
    assert needed <= there
