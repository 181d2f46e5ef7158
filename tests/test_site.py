"""The site: built strictly, without a warning; every link on it leads somewhere."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("mkdocs")
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert "WARNING" not in done.stderr
    return folder


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.ids = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids.add(given.get("id"))
        self.links += [given[key] for key in ("href", "src") if given.get(key)]


@pytest.mark.xdist_group("site")
def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site):
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name not in ("404.html",)}
    assert len(pages) > 40
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("https", "data"):
                continue
            assert not parts.netloc, (path, link)
            end = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert end.exists(), (path, link)
            if parts.fragment and end in pages and end.name != "run.html":
                assert unquote(parts.fragment) in pages[end].ids | {"__search"}, (path, link)
    loaded = r"<(?:script|img|iframe)[^>]+src=\"https?:|<link[^>]+stylesheet[^>]+https?:"
    assert not [path for path in pages if re.search(loaded, path.read_text())]


@pytest.mark.xdist_group("site")
def test_it_has_a_search_the_api_the_study_and_the_newest_run(site):
    found = json.loads((site / "search/search_index.json").read_text())["docs"]
    assert {"explanation/noise.html", "study.html"} <= {page["location"] for page in found}
    api = (site / "reference/api.html").read_text()
    for name in ("lstm_kernels.lstm.replace", "lstm_kernels.stream.Stream", "lstm_bench.load"):
        assert f'id="{name}"' in api
    assert "lstm-bench" in (site / "run.html").read_text()
