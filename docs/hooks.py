"""What the site takes from outside its folder: the README as its first page, data sets, pictures of results."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"index.md": "README.md", "datasets.md": "datasets/README.md"}


def on_files(files: Files, config: Any) -> Files:
    """Adds them."""
    for page, source in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for picture in sorted((ROOT / "results").glob("*.png")):
        files.append(File.generated(config, f"results/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links as they are in the repository become those of the site; what the site does not have becomes text."""
    folder = str(Path(PAGES.get(page.file.src_uri, f"docs/{page.file.src_uri}")).parent)

    def moved(match: re.Match[str]) -> str:
        mark, text, target, anchor = match.groups()
        if "://" in target or not target:
            return match.group(0)
        path = (ROOT / folder / target).resolve()
        name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else target
        names = {source: page for page, source in PAGES.items()}
        uri = names.get(name, name.removeprefix("docs/"))
        if files.get_file_from_path(uri) is None:
            return text
        up = "../" * page.file.src_uri.count("/")
        link = f"{mark}[{text}]({up}{uri}{anchor or ''})"
        return f"[{link}]({up}{uri})" if mark else link  # a picture opens alone, in full size

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)", moved, markdown)
