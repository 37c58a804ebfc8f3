"""Checks the built site: each link and anchor, what pages load, and what a search for some questions finds.

usage: check.py SITE
"""

import json
import re
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

from lunr.builder import Builder
from lunr.stop_word_filter import WORDS

TOP = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/supervise-rl/supervise/blob/main/"
# What a stranger asks, and the page that answers it: one of the first three.
QUESTIONS = {
    "raise the hang limit": "stalls/",
    "resume from an older step": "resume/",
    "exit code 6": "exit-codes/",
    "Slurm requeue": "slurm/",
    "add my own trainer": "adding-a-trainer/",
}
FIRST = 3


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors.update(attrs[name] for name in ("id", "name") if attrs.get(name))
        if tag == "a" and attrs.get("href") is not None:
            self.links.append(attrs["href"])
        if tag == "link" and attrs.get("rel") != "canonical" and attrs.get("href"):
            self.loads.append(attrs["href"])
        if tag != "a" and attrs.get("src"):
            self.loads.append(attrs["src"])


def broken_links(site):
    """Links of the pages that lead nowhere, on the site or in the repository."""
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html")}
    assert len(pages) > 30, f"{site} has {len(pages)} pages"
    for path, page in pages.items():
        # The page of errors is shown at any path.
        own = site if path.name == "404.html" else path.parent
        for link in page.links + page.loads:
            if link.startswith(REPOSITORY):
                found = (TOP / urldefrag(link.removeprefix(REPOSITORY)).url).exists()
            elif re.match(r"[a-z]+:", link):
                found = link not in page.loads
            else:
                file, anchor = urldefrag(link)
                target = site / file.lstrip("/") if file.startswith("/") else own / unquote(file)
                target = path if not file else target
                target = (target / "index.html" if target.is_dir() else target).resolve()
                found = target.exists() and (not anchor or target not in pages or unquote(anchor) in pages[target].anchors)
            if not found:
                yield f"{path.relative_to(site)}: {link}"


def loads_of_styles(site):
    """What style sheets load from elsewhere."""
    for path in site.rglob("*.css"):
        for link in re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]+)", path.read_text()):
            yield f"{path.relative_to(site)}: {link}"


class Search:
    """Ranks nearly as the pages do in a browser: lunr with their boosts, every word may be the start of one, a page counts as its best section."""

    def __init__(self, site):
        index = json.loads((site / "search/search_index.json").read_text())
        builder = Builder()
        builder.ref("location")
        for field, options in index["config"]["fields"].items():
            builder.field(field, boost=options["boost"])
        for section in index["docs"]:
            builder.add({"tags": "", **section, "title": plain(section["title"]), "text": plain(section["text"])})
        self.index = builder.build()

    def pages(self, question):
        words = question.lower().split()
        scores = {}
        for hit in self.index.search(" ".join(word + "*" for word in words)):
            found = [word for word in words if any(term.startswith(word) for term in hit["match_data"].metadata)]
            missed = [word for word in words if word not in found and word in WORDS]
            share = len(found) / len(found + missed)
            page, section = urldefrag(hit["ref"])
            scores[page] = max(scores.get(page, 0), hit["score"] * (1 + ((not section) + share) ** 2))
        return sorted(scores, key=scores.get, reverse=True)


def plain(html):
    return unescape(re.sub(r"<[^>]+>", " ", html))


def main():
    site = Path(sys.argv[1]).resolve()
    wrong = [f"link leads nowhere: {link}" for link in broken_links(site)]
    wrong += [f"loaded from elsewhere: {link}" for link in loads_of_styles(site)]
    search = Search(site)
    for question, page in QUESTIONS.items():
        first = search.pages(question)[:FIRST]
        print(f"{question}: {', '.join(first)}")
        if page not in first:
            wrong.append(f"a search for {question!r} does not find {page} among the first {FIRST}: {', '.join(first)}")
    if wrong:
        sys.exit("check.py: " + "\ncheck.py: ".join(wrong))


main()
