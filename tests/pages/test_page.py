"""Pages of templates: what they are given is text, and what they were not given is an error."""

import re

import pytest
from jinja2 import UndefinedError

from rrf.pages.page import render
from tests.repository.structure import ROOT

TEMPLATES = sorted((ROOT / "rrf").rglob("*.html"))


def test_no_template_turns_text_into_markup():
    marked = re.compile(r"\|\s*safe\b|\bautoescape\b")
    assert [path.name for path in TEMPLATES if marked.search(path.read_text())] == []


def test_every_page_has_the_shared_frame():
    shared = {"base.html", "macros.html"}
    first_lines = {path.name: path.read_text().splitlines()[0] for path in TEMPLATES}
    assert len(first_lines) == len(TEMPLATES) > len(shared)
    pages = {name: line for name, line in first_lines.items() if name not in shared}
    assert set(pages.values()) == {'{% extends "pages/base.html" %}'}


def test_a_frame_shows_its_title_as_text():
    page = render("pages/base.html", title="<script>")
    assert page.startswith("<!doctype html>\n")
    assert "<title>&lt;script&gt;</title>" in page
    assert "<h1>&lt;script&gt;</h1>" in page


def test_a_page_that_was_not_given_what_it_shows_is_an_error():
    with pytest.raises(UndefinedError, match="'title' is undefined"):
        render("pages/base.html")
