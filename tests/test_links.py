"""The pages: every link to another page, or to a heading of one, leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md", "results/README.md")),
    ROOT / "study" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "study" / "notes").glob("*.md")),
]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def headings(page):
    """As a page of Markdown names them: in lower case, words joined, no other signs."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    found = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    for link in LINK.findall(page.read_text()):
        if re.match(r"https?:", link):
            continue
        name, _, heading = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not heading or heading in headings(target), link


def test_a_heading_that_counts_has_as_many_rows_in_its_table():
    words = ("Two", "Three", "Four", "Five", "Six")
    text = (ROOT / "docs" / "method.md").read_text()
    tables = re.findall(r"^## (\w+) .*\n\n((?:\|.*\n)+)", text, re.M)
    counts = [(word, len(table.splitlines()) - 2) for word, table in tables if word in words]
    assert counts == [("Three", 3)]


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_every_page_is_linked_from_the_home_of_the_pages(page):
    home = ROOT / "docs" / "README.md"
    assert page == home or f"]({page.name})" in home.read_text()
