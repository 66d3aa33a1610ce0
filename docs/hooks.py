"""What the site takes from outside its folder: README, examples, data sets, pictures of results."""

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from pygments.formatters import HtmlFormatter

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from docs.options import with_options  # noqa: E402

EXAMPLES = {f"examples/{path.stem}.md": f"examples/{path.name}" for path in sorted((ROOT / "examples").glob("*.py"))}
PAGES = {"index.md": "README.md", "datasets.md": "datasets/README.md", **EXAMPLES}


def on_files(files: Files, config: Any) -> Files:
    """Adds them."""
    for page, source in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=rendered(text, source) if page in EXAMPLES else text))
    light, dark = (HtmlFormatter(style=style) for style in ("default", "github-dark"))
    colours = [light.get_style_defs(".highlight"), dark.get_style_defs('[data-bs-theme="dark"] .highlight')]
    files.append(File.generated(config, "pygments.css", content="\n".join(colours)))
    for picture in sorted(ROOT.glob("experiments/*/results/*.png")):
        files.append(File.generated(config, picture.relative_to(ROOT).as_posix(), abs_src_path=str(picture)))
    return files


def rendered(script: str, source: str) -> str:
    """Cells of an example as a page: text, code, and the picture in which the script ends."""
    parts = []
    for cell in re.split(r"^# %%", script, flags=re.MULTILINE)[1:]:
        kind, _, body = cell.partition("\n")
        if kind.strip() == "[markdown]":
            parts.append(re.sub(r"^# ?", "", body.strip(), flags=re.MULTILINE))
        else:
            parts.append(f"```python\n{body.strip()}\n```")
    picture = f"docs/images/examples/{Path(source).stem}.png"
    return "\n\n".join([*parts, f"![What the script draws](../{picture})", f"The script is `{source}`.", ""])


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

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)", moved, with_options(markdown))


def on_page_content(html: str, **_: Any) -> str:
    """Marks short code, such as an option with its value: a line never breaks in it."""
    return re.sub(r"<code>(?=[^<]{1,22}</code>)", '<code class="word">', html)
