"""MkDocs' hooks: what the site has beside docs/.

The README is its home. What pages link to outside of docs/ comes along: Markdown as pages, the rest
as files. The newest run of results/ comes as its HTML page. Links on disk stay as they are, and
lead to the right place on the site.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File, Files

from lstm_bench import cli
from lstm_bench.analysis import results
from lstm_bench.features.page.page import html

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(\]\()([^)\s#]+)")
#: Pages that stand elsewhere on the site than on disk, which is docs/ for the rest.
MOVED = {"README.md": "index.md", "docs/README.md": "pages.md"}
STYLE = "width: 100%; height: 80vh; border: 1px solid #8888"
RUN = f"""# The newest run

`{{name}}`, measured on {{machine}}: `lstm-bench report --run {{name}} --html page.html`.
[The page alone](run.html).

<iframe src="run.html" title="{{name}}" style="{STYLE}"></iframe>
"""


def place(path: str) -> str:
    """Where a file of the repository stands on the site."""
    inside = path.startswith("docs/")
    return MOVED.get(path) or (path[len("docs/") :] if inside else f"repository/{path}")


def target(link: str, page: str) -> str:
    """The file of the repository that a link of one of its pages names."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def linked(pages: list[str]) -> set[str]:
    """All that these pages link to, and the pages among that, outside of docs/."""
    known: set[str] = set()
    while pages:
        page = pages.pop()
        for _, link in LINK.findall((ROOT / page).read_text(encoding="utf-8")):
            path = target(link, page)
            if ":" in link or path in known or path.startswith("docs/"):
                continue
            if (ROOT / path).is_file():
                known.add(path)
                pages += [path] if path.endswith(".md") else []
    return known


def on_files(files: Files, config: Any) -> Files:
    home = files.get_file_from_path("README.md")
    if home:
        files.remove(home)
    on_disk = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    outside = {*MOVED, *linked([*on_disk, *MOVED])}
    for path in sorted(outside):
        files.append(File.generated(config, place(path), content=(ROOT / path).read_bytes()))
    name, page, machine = newest()
    files.append(File.generated(config, "run.html", content=page))
    text = RUN.format(name=name, machine=machine)
    files.append(File.generated(config, "newest-run.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as the site needs them; a block of code keeps what looks like one."""
    there = {place(path): path for path in MOVED}
    uri = page.file.src_uri
    outside = uri.startswith("repository/")
    path = there.get(uri) or (uri[len("repository/") :] if outside else f"docs/{uri}")

    if uri == "reference/commands.md":
        markdown += every_option()

    def led(match: re.Match[str]) -> str:
        link = match[2]
        if ":" in link or uri == "newest-run.md":
            return match[0]
        end = place(target(link, path))
        return match[1] + posixpath.relpath(end, posixpath.dirname(uri) or ".")

    return LINK.sub(led, markdown)


def every_option() -> str:
    """What `--help` says, command by command."""
    text = "\n## Every option\n"
    for name in cli.COMMANDS:
        command = cli.main.get_command(click.Context(cli.main), name)
        shown = click.Context(command, info_name=f"lstm-bench {name}", max_content_width=100)
        text += f"\n### `{name}`\n\n```text\n{command.get_help(shown)}\n```\n"
    return text


def newest() -> tuple[str, str, str]:
    """The run that began last: its name, its page, its machine."""
    manifests = (ROOT / "results").glob("*/manifest.json")
    began = {path.parent: json.loads(path.read_text())["started_at"] for path in manifests}
    folder = max(began, key=lambda folder: began[folder])
    run = results.load(folder)
    machine = run.manifest["machine"]
    gpus = [gpu["name"] for gpu in machine.get("gpus", ())]
    return folder.name, html(run), (gpus or [machine["cpu"]])[0]
