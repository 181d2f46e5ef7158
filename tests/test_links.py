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


DOCS = sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.stem)
def test_every_page_is_linked_from_the_home_of_the_pages(page):
    home = ROOT / "docs" / "README.md"
    assert page == home or f"]({page.relative_to(home.parent)})" in home.read_text()


def test_the_readme_stays_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


#: Sentences that new users did not understand.
HARD = (
    "is used, 0 called different",
    "latency less these three",
    "which has none of that",
    "not of the latency, but of the call",
    "won beyond the noise among rows",
    "is a product:",
    "Not so here:",
    "held against",
    "beyond the noise that the same run shows",
)
#: What neither the paper, the grids nor the reports support.
UNTRUE = (
    "The implementations and the grid follow",
    "the paper's ranges, every implementation",
    "with every implementation on CUDA",
    "the nine implementations of the paper: ",
    "`lstm-bench report --energy` shows both",
    "every framework that `make bench` installs, small shapes",
)
WRITTEN = [page for page in PAGES if page.parent.name != "notes"]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_has_a_sentence_that_is_hard_to_read_or_untrue(page):
    text = " ".join(page.read_text().split())
    assert [sentence for sentence in HARD + UNTRUE if sentence in text] == []
