"""The pages: every link to another page, or to a heading of one, leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md", "results/README.md")),
    ROOT / "study" / "README.md",
    ROOT / "lstm_kernels" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "study" / "notes").glob("*.md")),
]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def headings(page):
    """The anchors of a page of Markdown: in lower case, words joined, no other signs."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    actual = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in actual}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    for link in LINK.findall(page.read_text()):
        if re.match(r"https?:", link):
            continue
        name, _, heading = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not heading or heading in headings(target), link


DOCS = sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.stem)
def test_every_page_is_linked_from_the_home_of_the_pages(page):
    home = ROOT / "docs" / "README.md"
    assert page == home or f"]({page.relative_to(home.parent)})" in home.read_text()


def test_the_readme_stays_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_all_pages_together_can_be_read():
    words = sum(len(page.read_text().split()) for page in (ROOT / "README.md", *DOCS))
    assert words <= 18_000, "say less, or move evidence to study/notes"
