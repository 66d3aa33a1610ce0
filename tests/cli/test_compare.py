"""One page from scored runs: what it says, and what it refuses."""

import base64
import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from tests.cli.test_commands import SHORT, csv, data, refused  # noqa: F401
from tests.test_pages import charts
from tsforecast.cli import main
from tsforecast.evaluation import paired_difference
from tsforecast.plots import colour_of, save_figure


class Page(HTMLParser):
    """Rows of all tables, and pictures."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.pictures, self.open = [], [], []
        self.cell = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "img", "wbr"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.cell = ""
        elif tag == "img":
            self.pictures.append(dict(attributes))

    def handle_data(self, text):
        if self.cell is not None:
            self.cell += text

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag in ("td", "th"):
            self.rows[-1].append(self.cell)
            self.cell = None


@pytest.fixture(scope="module")
def scored(csv, tmp_path_factory):  # noqa: F811
    folder = tmp_path_factory.mktemp("runs") / "one"
    assert main(["train", "issm", *data(csv), *SHORT, "--output", str(folder)]) == 0
    options = ["--baselines", "seasonal_naive", "--num_samples", "10", "--plot_series", "1"]
    assert main(["evaluate", str(folder), *options]) == 0
    return folder


@pytest.fixture
def worse(scored, tmp_path):
    """The same run under another name, every forecast worse by .01."""
    folder = tmp_path / "<two>"
    shutil.copytree(scored, folder)
    scores = json.loads((folder / "scores.json").read_text())
    for protocol in ("rolling", "long_term"):
        scores[protocol]["crps"] += 0.01
    (folder / "scores.json").write_text(json.dumps(scores))
    table = pd.read_csv(folder / "per_forecast.csv")
    table.loc[table["model"] == "issm", "crps"] += 0.01
    table.to_csv(folder / "per_forecast.csv", index=False)
    return folder


def test_the_page_has_scores_differences_and_pictures(scored, worse, tmp_path, capsys):
    output = tmp_path / "pages" / "comparison.html"
    assert main(["evaluate", "--compare", str(worse), str(scored), "--output", str(output)]) == 0
    assert str(output) in capsys.readouterr().out
    text = output.read_text()
    page = Page(text)
    assert page.open == []
    assert re.search(r"<h1>[\w-]+: &lt;two&gt;, issm \(level, [\w ,]+\); one, issm \(level, ", text)
    assert "default-src 'none'" in text
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert len(page.pictures) == 6  # differences, two runs' forecasts; by protocol
    steps, shares = charts(text)
    assert [chart["name"] for chart in steps["charts"]] == ["Rolling", "Long-term"]
    assert [chart["name"] for chart in shares["charts"][:2]] == [
        "Rolling, share in central intervals",
        "Rolling, share below quantiles",
    ]
    (panel,) = steps["charts"][0]["panels"]
    assert [line["label"] for line in panel["lines"]] == ["<two>", "one", "seasonal_naive"]
    for picture in page.pictures:
        kind, _, content = picture["src"].partition(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(content, validate=True).startswith(b"\x89PNG")
        assert picture["alt"]
    scores = json.loads((scored / "scores.json").read_text())
    rows = {row[0]: row for row in page.rows[::-1] if row[0]}
    assert {"one", "<two>", "seasonal_naive"} == {*rows}
    assert rows["one"][1] == f"{scores['rolling']['crps']:#.4g}"
    sure = [row for row in page.rows if row[0] == "<two>" and len(row) == 4]
    assert [row[1] for row in sure] == ["+0.01", "+0.01"]
    assert [row[3] for row in sure] == ["0 of 3", "0 of 3"]

    table = pd.read_csv(output.with_suffix(".csv"))
    assert len(table) == 6
    found = table.set_index(["protocol", "label"]).loc[("rolling", "<two>")]
    np.testing.assert_allclose(found[["minus_best", "low", "high"]].astype(float), 0.01, rtol=1e-6)
    assert table.loc[table["label"] == "one", "minus_best"].isna().all()


def test_what_is_wide_scrolls_and_says_so(scored, worse, tmp_path):
    output = tmp_path / "page.html"
    assert main(["compare", str(worse), str(scored), "--output", str(output)]) == 0
    text = output.read_text()
    assert '<meta name="viewport" content="width=device-width' in text
    boxes = re.findall(r'<p class="swipe">Scroll sideways for more ([\w ]+) →</p><div class="scroll"[^>]*><(\w+)', text)
    assert boxes == [("columns", "table")] * 4 + [("of the picture", "img")] * 4
    assert text.count("<table") == 4
    assert "seasonal_<wbr>naive" in text  # may be broken there


def test_a_model_has_one_colour_in_evaluate_and_compare(scored, worse, tmp_path, monkeypatch):
    """Runs of one model beside a baseline: the former share a colour, and the same is in pictures of `evaluate`."""
    figures = {}
    monkeypatch.setattr(
        "tsforecast.cli.drawn.save_figure",
        lambda figure, path: figures.update({path.name: figure}) or save_figure(figure, path),
    )
    assert main(["evaluate", str(scored), "--baselines", "seasonal_naive", "--num_samples", "10"]) == 0
    options = ["--output", str(tmp_path / "page.html")]
    assert main(["compare", str(worse), str(scored), *options]) == 0
    found = {}
    for name, figure in figures.items():
        for artist in (artist for axis in figure.axes for artist in axis.lines):
            found.setdefault(artist.get_label(), {})[name] = artist.get_color()
    for place, section in enumerate(charts((tmp_path / "page.html").read_text())):
        for chart in section["charts"]:
            for line in chart["panels"][0]["lines"]:
                found.setdefault(line["label"], {})[f"{place} {chart['name']}"] = line["colour"]
    assert {*found["seasonal_naive"].values()} == {colour_of("seasonal_naive")}
    assert len(found["seasonal_naive"]) == 3 + 6  # calibration and steps ahead, in both
    for label, count in (("issm", 3), ("one", 6), ("<two>", 6)):
        assert {*found[label].values()} == {colour_of("issm")}
        assert len(found[label]) == count
    assert {*found["median"].values()} == {colour_of("issm")}


@pytest.mark.parametrize("names", [["NA", "nan", "None"], ["null", "", "007"]])
def test_series_are_compared_whatever_they_are_called(scored, worse, tmp_path, names):
    for run in (scored, worse):
        copy = tmp_path / run.name.strip("<>")
        shutil.copytree(run, copy, dirs_exist_ok=True)
        table = pd.read_csv(copy / "per_forecast.csv")
        table["item_id"] = table["item_id"].map(dict(zip(table["item_id"].unique(), names, strict=True)))
        table.to_csv(copy / "per_forecast.csv", index=False)
    runs = [str(tmp_path / "one"), str(tmp_path / "two")]
    assert main(["compare", *runs, "--output", str(tmp_path / "named.html")]) == 0
    assert main(["compare", str(scored), str(worse), "--output", str(tmp_path / "plain.html")]) == 0
    found, expected = (
        [row[1:] for row in Page((tmp_path / name).read_text()).rows if len(row) == 4]
        for name in ("named.html", "plain.html")
    )
    assert [row[2] for row in expected].count("0 of 3") == 4  # the other run and the baseline, twice
    assert found == expected


def test_a_difference_is_computed_once(scored, worse, tmp_path, monkeypatch):
    calls = []

    def counted(first, second):
        calls.append(len(first))
        return paired_difference(first, second)

    monkeypatch.setattr("tsforecast.plots.pages.comparison.paired_difference", counted)
    assert main(["compare", str(worse), str(scored), "--output", str(tmp_path / "page.html")]) == 0
    assert len(calls) == 4  # of the other run and of the baseline, under two protocols


def test_runs_that_cannot_be_compared_are_refused(scored, worse, tmp_path, capsys):
    assert "expected scores in" not in refused(capsys, "compare", scored, tmp_path / "none")
    other = json.loads((worse / "run.json").read_text())
    (worse / "run.json").write_text(json.dumps({**other, "targets_fingerprint": "another"}))
    message = refused(capsys, "compare", scored, worse, "--output", tmp_path / "page.html")
    assert "expected runs on the same data and windows, but their target values differ" in message
    (worse / "run.json").write_text(json.dumps(other))
    (worse / "scores.json").write_text("{")
    message = refused(capsys, "compare", worse)
    assert "scores.json: not readable as JSON" in message
    assert "write it again by `tsforecast evaluate" in message
    (worse / "per_forecast.csv").unlink()
    assert "it has no per_forecast.csv: `tsforecast evaluate" in refused(capsys, "compare", worse)
    assert "there is no run folder" in refused(capsys, "compare", tmp_path / "nowhere")
    refused(capsys, "compare")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(("series", "windows", "enough"), [(1, 3, False), (2, 2, False), (2, 3, True), (6, 1, True)])
def test_few_forecasts_have_no_interval(series, windows, enough):
    index = pd.MultiIndex.from_product([range(series), range(windows)], names=["item_id", "start"])
    first = pd.DataFrame({"crps": np.arange(len(index)) % 3.0, "size": 1.0}, index=index)
    found = paired_difference(first, first.assign(crps=0.0))
    assert found.has_interval == enough
    if not enough:
        plural = "s" if windows > 1 else ""
        assert found.interval == f"too few for an interval ({series} series, {windows} window{plural})"


def test_covariates_do_not_keep_runs_apart(tmp_path, capsys):
    stamps = pd.date_range("2024-01-01", periods=60, freq="D")
    frame = pd.DataFrame({"date": stamps, "sales": np.arange(60) % 7 + 0.5, "price": np.arange(60) % 5})
    path = tmp_path / "one.csv"
    frame.to_csv(path, index=False)
    split = ["--prediction_length", "3", "--windows", "3", "--max_epochs", "1", "--num_batches_per_epoch", "1"]
    runs = {"with": ["--covariates", "price"], "without": [], "other": []}
    for name, options in runs.items():
        if name == "other":
            frame.assign(sales=frame["sales"] + 1).to_csv(path, index=False)
        assert main(["train", "gls", "--data", str(path), *split, *options, "--output", str(tmp_path / name)]) == 0
        quick = ["--baselines", "none", "--num_samples", "10", "--plot_series", "0"]
        assert main(["evaluate", str(tmp_path / name), *quick]) == 0
    output = tmp_path / "page.html"
    assert main(["compare", str(tmp_path / "with"), str(tmp_path / "without"), "--output", str(output)]) == 0
    assert "The targets are the same; covariates or static features of the runs differ." in output.read_text()
    assert "too few for an interval (1 series, 3 windows)" in output.read_text()
    assert pd.read_csv(output.with_suffix(".csv")).get("low", pd.Series(dtype=float)).isna().all()
    assert "target values differ" in refused(capsys, "compare", tmp_path / "with", tmp_path / "other")
