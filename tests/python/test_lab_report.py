"""Pages and charts of the lab are well-formed, whatever text is in them."""

import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

PROBE = Path(os.environ["CAME_LAB"]) / "came_lab_probe_report"
AWKWARD = "<b>\"x\" & 'y'</b> \ufffd é日本 ]]> <!-- --"
SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "path", "line"}


def output_of(what):
    return subprocess.run([PROBE, what], capture_output=True, check=True, timeout=60).stdout.decode("utf-8")


def test_a_chart_is_xml_of_its_own():
    root = ElementTree.fromstring(output_of("chart"))
    assert root.tag == SVG + "svg"
    texts = [element.text for element in root.iter(SVG + "text")]
    assert texts.count(AWKWARD) == 3  # title and both labels
    width, height = float(root.get("width")), float(root.get("height"))
    for path in root.iter(SVG + "path"):
        points = re.findall(r"[ML]([\d.]+) ([\d.]+)", path.get("d"))
        assert points and all(0 <= float(x) <= width and 0 <= float(y) <= height for x, y in points)
    # Ten curves in two stretches each, and ten signs in the legend.
    assert len(list(root.iter(SVG + "path"))) == 30


class Checker(HTMLParser):
    """Every element is closed, in order; keeps what stands in which."""

    def __init__(self):
        super().__init__()
        self.open, self.texts, self.tags = [], [], set()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))


def test_a_page_is_html_and_shows_text_as_text():
    checker = Checker()
    checker.feed(output_of("page"))
    checker.close()
    assert checker.open == []
    assert "b" not in checker.tags and "script" not in checker.tags
    for tag, count in (("h1", 1), ("h2", 1), ("p", 2), ("caption", 1), ("th", 1), ("td", 1)):
        assert checker.texts.count((tag, AWKWARD)) == count, tag
