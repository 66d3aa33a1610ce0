"""Pages hold what tables say, as JSON that no name can break out of."""

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from gluonts.model import QuantileForecast

from tsforecast.analysis.impact import Impact
from tsforecast.plots.forecasts import BAND_LEVELS
from tsforecast.plots.pages import (
    Band,
    Chart,
    Line,
    Page,
    Panel,
    Section,
    anomalies_page,
    answers,
    explain_page,
    forecast_charts,
    forecasts_page,
    impact_page,
)
from tsforecast.plots.pages import page as pages

HOSTILE = "</script><script>alert(1)</script>"


def charts(text):
    """Contents of the sections with charts."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    return json.loads(found)


def days(count):
    return pd.date_range("2024-01-01", periods=count)


def seconds(stamps):
    return [stamp.timestamp() for stamp in stamps]


def test_names_stay_text_and_gaps_stay_gaps():
    chart = Chart(
        HOSTILE, days(3), [Panel([Line(HOSTILE, [1.0, np.nan, np.inf], "#000")], [Band("80 %", [0, 1, 2], [1, 2, 3])])],
        table=pd.DataFrame({"time": days(2), "what": [HOSTILE, None], "much": [1234567.891, 2]}),
    )  # fmt: skip
    text = Page(HOSTILE, [Section(HOSTILE, [chart], HOSTILE)], [HOSTILE]).html()
    assert HOSTILE not in text
    assert text.count("<script") == 3
    (section,) = charts(text)
    (found,) = section["charts"]
    assert (found["name"], found["time"], found["x"]) == (HOSTILE, True, seconds(days(3)))
    assert found["panels"][0]["lines"][0]["values"] == [1.0, None, None]
    assert found["rows"] == [["2024-01-01", HOSTILE, 1234570.0], ["2024-01-02", None, 2.0]]
    assert section["intervals"] == section["shown"] == ["80 %"]


def test_a_notebook_shows_the_page_in_a_frame_that_reaches_nothing():
    page = Page("Title", [])
    source = re.search(r'src="data:text/html;base64,([^"]+)"', page._repr_html_())[1]
    assert base64.b64decode(source).decode() == page.html()
    assert 'sandbox="allow-scripts"' in page._repr_html_()
    assert "connect-src" not in page.html()
    assert "default-src 'none'" in page.html()


def test_what_is_too_much_is_said(monkeypatch):
    monkeypatch.setattr(pages, "MOST_VALUES", 25)
    chart = Chart("a", [1.0, 2.0, 3.0], [Panel([Line("x", [1, 2, 3], "#000")])], axis="step")
    text = Page("Title", [Section("Series", [chart] * 6)]).html()
    (section,) = charts(text)
    assert len(section["charts"]) == 4
    assert "2 further series are in the tables alone." in text


def test_forecasts_follow_each_other_over_the_times_of_the_series(tmp_path):
    entry = {"item_id": "a", "start": pd.Period("2024-01-01", "D"), "target": np.arange(10.0)}
    levels = np.array(BAND_LEVELS)
    forecasts = [
        QuantileForecast(
            (100 * k + levels)[:, None] + np.arange(2.0), pd.Period("2024-01-07", "D") + 2 * k, [*map(str, levels)], "a"
        )
        for k in (1, 0)
    ]
    page = forecasts_page("Title", forecast_charts([entry], forecasts, history=3, unit="EUR"))
    (section,) = charts(page.save(tmp_path / "new" / "page.html").read_text(encoding="utf-8"))
    (chart,) = section["charts"]
    assert chart["x"] == seconds(days(10)[3:])
    observed, median = chart["panels"][0]["lines"]
    assert observed["values"] == [3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    assert median["values"] == [None, None, None, 0.5, 1.5, 100.5, 101.5]
    assert [band["label"] for band in chart["panels"][0]["bands"]] == ["95 %", "80 %", "50 %"]
    assert chart["panels"][0]["bands"][1]["low"] == [None, None, None, 0.1, 1.1, 100.1, 101.1]
    assert (chart["breaks"], section["shown"]) == ([3, 5], ["80 %"])
    assert chart["rows"][0] == ["2024-01-07", 6.0, 0.5, 0.1, 0.9]
    assert chart["panels"][0]["label"] == "EUR"


def test_parts_anomalies_and_effects_have_their_pages(monkeypatch):
    parts = pd.DataFrame({
        "item_id": "a", "timestamp": [*days(2)] * 2, "part": ["level", "level", "fit", "fit"],
        "mean": [1.0, 2, 3, 4], "std": 0.5, "recent": [np.nan, 1, 1, 1],
    })  # fmt: skip
    (section,) = charts(explain_page(parts).html())
    whole, level = section["charts"][0]["panels"]
    assert whole["lines"][0]["values"] == [3.0, 4.0]
    assert level["lines"][1]["values"] == [None, 1.0]
    assert whole["bands"][0]["high"] == [4.0, 5.0]

    steps = pd.DataFrame({
        "item_id": ["a", "a", "b", "b"], "timestamp": [*days(2)] * 2, "value": [1.0, 2, 3, np.nan], "expected": 2.0,
        "lower": 0.0, "upper": 4.0, "score": [0.1, 0.2, 0.3, 9], "tail": [0.9, 0.8, 0.7, 1e-9],
        "flagged": [False, False, False, True], "event": [-1, -1, -1, 0], "kind": ["", "", "", "spike"],
    })  # fmt: skip
    (section,) = charts(anomalies_page(steps, rate=0.001).html())
    rarest, other = section["charts"]
    assert (rarest["name"], other["name"]) == ("b", "a")
    assert rarest["panels"][0]["lines"][2]["values"] == [None, 2.0]
    assert rarest["rows"] == [["2024-01-02", "spike", None, 2.0, 1e-9]]
    assert (rarest["marks"][0]["from"], other["rows"]) == (days(2)[1].timestamp(), [])

    effects = pd.DataFrame({"item_id": "a", "intervention": 1, "timestamp": days(4)[2:], "actual": [5.0, 6]})
    for name in ("predicted", "effect", "cumulative"):
        effects[[name, f"{name}_lower", f"{name}_upper"]] = [[1.0, 0.0, 2.0], [2.0, 1.0, 3.0]]
    monkeypatch.setattr(answers, "MOST_SERIES", 1)
    text = anomalies_page(steps, rate=0.001).html()
    assert [chart["name"] for chart in charts(text)[0]["charts"]] == ["b"]
    assert "1 further series are in the tables alone." in text
    assert "further series" not in explain_page(parts).html()
    past = pd.DataFrame({"item_id": "a", "intervention": 1, "timestamp": days(2), "actual": [7.0, 8]})
    (section,) = charts(impact_page(Impact(effects, effects, past, effects), level=0.9).html())
    (chart,) = section["charts"]
    assert chart["panels"][0]["lines"][0]["values"] == [7.0, 8.0, 5.0, 6.0]
    assert chart["panels"][1]["bands"][0] | {"colour": ""} == {
        "label": "90 %", "low": [None, None, 0.0, 1.0], "high": [None, None, 2.0, 3.0], "colour": "",
    }  # fmt: skip
    for empty in (lambda: explain_page(parts[:0]), lambda: anomalies_page(steps[:0], rate=0.1)):
        with pytest.raises(ValueError, match="at least one series"):
            empty()
    with pytest.raises(ValueError, match="keeps what its columns are, got a polars DataFrame: ask for it by data of"):
        explain_page(pl.from_pandas(parts))


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_marks_of_axes_are_whole_numbers():
    script = (Path(answers.__file__).parent / "page.js").read_text(encoding="utf-8")
    begin, end = script.index("// Marks of a time axis"), script.index("class Section")
    calls = (
        "[ticks(0, [0, 0.0025, 0.005], 1, 0, 0.0025), ticks(0, [-300000, 0], 1, 0, 1e5), ticks(0, [0, 2e9], 1, 0, 1e9)]"
    )
    program = f"{script[begin:end]}\nconsole.log(JSON.stringify({calls}))"
    told = subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True).stdout
    assert json.loads(told) == [["0", "0.0025", "0.005"], ["-300,000", "0"], ["0", "2.00e+9"]]
