"""Hooks of MkDocs: the pages are written for GitHub, and shown here as they are shown there."""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

TOP = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/supervise-rl/supervise/blob/main/"
# Pages of the site that have another path in the repository.
ELSEWHERE = {
    "index.md": "README.md",
    "all-pages.md": "docs/README.md",
    "benchmarks.md": "BENCHMARKS.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
}
PAGES = {source: page for page, source in ELSEWHERE.items()}
LINK = re.compile(r'(\]\(|\b(?:src|href)=")([^)"#:]+)((?:#[^)"]*)?[)"])')
FENCE = re.compile(r"\s*```")
ITEM = re.compile(r" *(?:[-*]|\d+\.) ")


BULLET = re.compile(r"- \[([^]]+)\]\(([^)]+)\)")


def on_config(config):
    config.nav = navigation((TOP / "docs/README.md").read_text())
    return config


def navigation(index):
    """The parts of the index, with the pages that it lists below each line that ends in a colon."""
    nav = []
    for line in index.split("\n"):
        if line.startswith("## "):
            group = part = []
            nav.append({line[3:]: part})
        elif nav and line.endswith(":"):
            group = []
            part.append({line[:-1]: group})
        elif found := BULLET.match(line):
            title, link = found.groups()
            group.append({title.replace("`", ""): target(link, "docs/README.md", "all-pages.md")})
    nav[0] = {name: [{"Overview": "index.md"}, {"All pages": "all-pages.md"}, *pages] for name, pages in nav[0].items()}
    return nav


def on_files(files, config):
    files.remove(files.get_file_from_path("README.md"))
    for page, source in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(TOP / source).read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    path = page.file.src_uri
    source = ELSEWHERE.get(path, "docs/" + path)
    out, fenced, before = [], False, ""
    for line in markdown.split("\n"):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            line = LINK.sub(lambda link: link[1] + target(link[2], source, path) + link[3], line)
            if ITEM.match(line):
                # GitHub starts a list in the middle of a paragraph, and nests it by two columns.
                if before.strip() and not ITEM.match(before) and not before.startswith("  "):
                    out.append("")
                line = " " * (len(line) - len(line.lstrip())) + line
        out.append(line)
        before = line
    return "\n".join(out)


def target(link, source, path):
    """Where a link of a file in the repository leads on the site."""
    named = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    if named in PAGES:
        page = PAGES[named]
    elif named.startswith("docs/"):
        page = named.removeprefix("docs/")
    else:
        return REPOSITORY + named
    # Links to scripts among the pages lead to the repository as well.
    if page.endswith(".py"):
        return REPOSITORY + named
    return posixpath.relpath(page, posixpath.dirname(path) or ".")
