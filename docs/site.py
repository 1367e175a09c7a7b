"""The site (`make site`): the pages of docs/ by what a person wants, an API reference, and live pages that other commands wrote.

    python docs/site.py --out site/docs [--live gallery=site/gallery --live demo=runs/demo/report]

docs/README.md is the list of pages, and the navigation. A page keeps its links: those between pages, and those to other files of
the repository, which come along. Any warning, and any link of the finished site that leads nowhere, stops the build.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from steadyscore import read_stub

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
LIVE = {
    "demo": ("Start", "The demo's report"),
    "gallery": ("Reproduce the paper", "Gallery of tables and figures"),
}
"""Pages that other commands write: the section of the navigation, and their title there."""
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.M | re.S)
LINK = re.compile(r"(\]\()([^)\s]+)|((?:src|href)=\")([^\"]+)")


# ---- pages


def place_of(file: Path) -> Path:
    """Where a file of the repository is in the site's source: pages of docs/ at the top, the README as the first page."""
    if file == ROOT / "README.md":
        return Path("index.md")
    if file == DOCS / "README.md":
        return Path("pages.md")
    return file.relative_to(DOCS) if file.is_relative_to(DOCS) else Path("repository", file.relative_to(ROOT))


def copy_pages(source: Path) -> None:
    """Every page of docs/, and every file that a page links to, with links that fit the site."""
    waiting = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    known = {*waiting}
    for file in waiting:
        target = source / place_of(file)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix != ".md":
            shutil.copyfile(file, target)
            continue
        text, linked = adapt_links(file.read_text(encoding="utf-8"), file)
        target.write_text(text, encoding="utf-8")
        waiting += [one for one in linked if one not in known]
        known.update(linked)


def adapt_links(text: str, page: Path) -> tuple[str, list[Path]]:
    """A page with its links as they are in the site, and the files they lead to. Code stays as it is."""
    linked: list[Path] = []

    def adapted(match: re.Match[str]) -> str:
        before, target = match[1] or match[3], match[2] or match[4]
        path, mark, fragment = target.partition("#")
        if not path or re.match(r"[a-z]+:", target):
            return match[0]
        file = (page.parent / path).resolve()
        linked.append(file)
        there = os.path.relpath(place_of(file), place_of(page).parent)
        return f"{before}{there}{mark}{fragment}"

    parts, end = [], 0
    for code in CODE.finditer(text):
        parts += [LINK.sub(adapted, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, LINK.sub(adapted, text[end:])]), linked


def sections() -> dict[str, dict[str, str]]:
    """The sections of docs/README.md and their pages: title -> file in the site's source; behind a README its folder."""
    parts = re.split(r"^## ", (DOCS / "README.md").read_text(encoding="utf-8"), flags=re.M)[1:]
    listed: dict[str, dict[str, str]] = {}
    for part in parts:
        pages = listed[part.partition("\n")[0]] = {}
        for title, path in re.findall(r"^\| \[([^]]+)\]\(([^)]+)\)", part, re.M):
            file = (DOCS / path).resolve()
            below = sorted({*file.parent.glob("*.md")} - {file}) if file.name == "README.md" else []
            pages[title[0].upper() + title[1:]] = place_of(file).as_posix()
            pages |= {
                page.read_text(encoding="utf-8").split("\n# ")[1].partition("\n")[0]: place_of(page).as_posix() for page in below
            }
    return listed


def navigation(live: dict[str, Path]) -> str:
    """The value of `nav`: TOML takes lists and tables of strings as here."""
    listed = sections()
    listed["Understand"] |= {"API reference": "reference.md", "API reference: measures": "reference-measures.md"}
    for name in live:
        section, title = LIVE[name]
        listed[section][title] = f"{name}/index.html"
    tables = [f"{{ {quote(name)} = [{', '.join(f'{{ {quote(t)} = {quote(f)} }}' for t, f in pages.items())}] }}"
              for name, pages in listed.items()]  # fmt: skip
    return f'[{{ "Home" = "index.md" }}, {", ".join(tables)}]'


def quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# ---- API reference

ENTRY = re.compile(r"(\w[\w.@, ]*?) {2,}(\S.*)")
"""A line of a docstring that says what a parameter is."""


def reference(package: Any, heading: str, lead: str) -> str:
    """A page with every public name of a package, functions first: signature, types, and what its docstring says."""
    members = [(name, package[name]) for name in sorted(read_stub(package.filepath.with_suffix(".pyi")))]
    members = [(name, one.final_target if one.is_alias else one) for name, one in members]
    kinds = ("function", "class")
    chosen = [(name, one) for kind in kinds for name, one in members if one.kind.value == kind]
    return "\n\n".join([f"# {heading}", lead, *(entry(f"{package.path}.{name}", one) for name, one in chosen)]) + "\n"


def entry(path: str, one: Any) -> str:
    heading = f"## {path.rpartition('.')[2]}"
    if one.kind.value == "function":
        return "\n\n".join([heading, signature(path, one), *prose(one)])
    members = [m for m in one.members.values() if not m.name.startswith("_") and m.kind.value in ("attribute", "function")]
    fields = [m for m in members if m.kind.value == "attribute"]
    methods = [m for m in members if m.kind.value == "function" and m.docstring]
    made = signature(path, one.members["__init__"]) if "dataclass" in one.labels and "__init__" in one.members else None
    rows = [f"| `{m.name}` | {cell_code(m.annotation)} | {cell(m.docstring)} |" for m in fields]
    table = ["\n".join(["| field | type | |", "|---|---|---|", *rows])] if rows else []
    parts = [part for m in methods for part in (signature(f"{path.rpartition('.')[2]}.{m.name}", m), *prose(m))]
    return "\n\n".join([heading, *([made] if made else [f"```python\nclass {path}\n```"]), *prose(one), *table, *parts])


def signature(path: str, function: Any) -> str:
    """How a function is called, a parameter a line where it would be long."""
    shown, kinds = [], {"variadic positional": "*", "variadic keyword": "**"}
    is_keyword_only = False
    for parameter in function.parameters:
        if parameter.name in ("self", "cls"):
            continue
        kind = parameter.kind.value
        if kind == "variadic positional" or (kind == "keyword-only" and not is_keyword_only):
            is_keyword_only = True
            shown += [] if kind == "variadic positional" else ["*"]
        typed = f": {parameter.annotation}" if parameter.annotation is not None else ""
        default = f" = {parameter.default}" if parameter.default is not None and kind not in kinds else ""
        shown.append(f"{kinds.get(kind, '')}{parameter.name}{typed}{default}")
    returned = f" -> {function.returns}" if function.returns is not None and function.name != "__init__" else ""
    line = f"{path}({', '.join(shown)}){returned}"
    if len(line) > 100:
        line = f"{path}(\n" + "".join(f"    {one},\n" for one in shown) + f"){returned}"
    return f"```python\n{line}\n```"


def prose(one: Any) -> list[str]:
    """What a docstring says: paragraphs, a table of the parameters, examples as code."""
    if not one.docstring:
        return []
    parts: list[str] = []
    for block in re.split(r"\n\s*\n", one.docstring.value.strip()):
        if block.startswith(">>>"):
            parts.append(f"```pycon\n{block}\n```")
        elif block.startswith("    "):
            parts.append("```text\n" + "\n".join(line[4:] for line in block.splitlines()) + "\n```")
        else:
            parts += block_parts(block)
    return parts


def block_parts(block: str) -> Iterator[str]:
    """A paragraph, and the table of the parameters that its lines name."""
    lines, rows = [], []
    for line in block.splitlines():
        if match := ENTRY.fullmatch(line):
            rows.append([match[1], match[2]])
        elif rows:
            rows[-1][1] += f" {line.strip()}"
        else:
            lines.append(line)
    if lines:
        yield plain("\n".join(lines))
    if rows:
        yield "\n".join(
            [
                "| parameter | |",
                "|---|---|",
                *(f"| `{name}` | {plain(text).replace('|', chr(92) + '|')} |" for name, text in rows),
            ]
        )


def plain(text: str) -> str:
    """Text in which nothing is HTML."""
    return "".join(
        part if part.startswith("`") else part.replace("<", "&lt;").replace("*", "\\*") for part in re.split(r"(`[^`]*`)", text)
    )


def cell(docstring: Any) -> str:
    return plain(" ".join(docstring.value.split())).replace("|", "\\|") if docstring else ""


def cell_code(annotation: Any) -> str:
    return "" if annotation is None else f"`{annotation!s}`".replace("|", "\\|")


def write_reference(source: Path) -> None:
    import griffe  # of the extra `docs`: the tests read the rest of this file without it

    package = griffe.load("steadyscore", search_paths=[ROOT / "src"], resolve_aliases=True)
    lead = "Made from the signatures, types and docstrings of the public names. Examples of use are in [Python](python-api.md)."
    (source / "reference.md").write_text(reference(package, "API reference", lead), encoding="utf-8")
    lead = "Every measure as a function on arrays. What each means, with examples, is in [measures](measures/README.md)."
    (source / "reference-measures.md").write_text(reference(package["measures"], "Measures", lead), encoding="utf-8")


# ---- building and checking


def build(out: Path, live: dict[str, Path]) -> None:
    """Write the site to `out`, in place of an older one."""
    work = out.with_name(out.name + ".work")
    shutil.rmtree(work, ignore_errors=True)
    source = work / "source"
    source.mkdir(parents=True)
    copy_pages(source)
    write_reference(source)
    for name, folder in live.items():
        shutil.copytree(folder, source / name)
    config = (DOCS / "zensical.toml").read_text(encoding="utf-8").replace("nav = []", f"nav = {navigation(live)}")
    (work / "zensical.toml").write_text(config, encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", "zensical.toml"]
    ran = subprocess.run(command, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if ran.returncode or "warning" in ran.stdout.lower():
        raise SystemExit(f"the site has warnings:\n{ran.stdout}")
    if broken := broken_links(work / "html"):
        raise SystemExit("links that lead nowhere:\n" + "\n".join(broken))
    shutil.rmtree(out, ignore_errors=True)
    (work / "html").rename(out)
    shutil.rmtree(work)


class Links(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.update(value for name in ("id", "name") if (value := given.get(name)))
        self.links += [value for name in ("href", "src") if (value := given.get(name))]


def broken_links(site: Path) -> list[str]:
    """Links of a site's pages to files or anchors that are not in it, and any that would load something from elsewhere."""
    pages: dict[Path, Links] = {}
    for file in site.rglob("*.html"):
        pages[file] = Links()
        pages[file].feed(file.read_text(encoding="utf-8"))
    broken = []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            base = site if parts.path.startswith("/") else file.parent
            there = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else file
            there = there / "index.html" if there.is_dir() else there
            is_there = there.is_file() and (not parts.fragment or there not in pages or parts.fragment in pages[there].anchors)
            if not is_there and file.name != "404.html":
                broken.append(f"{file.relative_to(site)}: {link}")
    return sorted({*broken})


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the site from docs/.")
    parser.add_argument("--out", type=Path, default=ROOT / "site" / "docs")
    parser.add_argument(
        "--live", action="append", default=[], metavar="NAME=DIR", help=f"one of {', '.join(LIVE)} and its folder"
    )
    args = parser.parse_args()
    live = {name: Path(folder) for name, _, folder in (text.partition("=") for text in args.live)}
    if absent := [
        f"{name}={folder}" for name, folder in live.items() if name not in LIVE or not (folder / "index.html").is_file()
    ]:
        parser.error(f"there is no page {', '.join(absent)}")
    build(args.out.resolve(), live)
    print(f"{args.out}: {sum(1 for _ in args.out.rglob('*.html'))} pages")


if __name__ == "__main__":
    main()
