"""The report of a run: which sections its records give, what they say, and that no text of theirs becomes HTML."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report.made import EVIL, made_finding, made_measurement, made_proof, made_trial
from rich.console import Console

from vivace.records.finding import Findings, Risk
from vivace.records.proof import Gain, Harm, Interval, Payback, Rejected, Side
from vivace.records.search import BatchSearch, BatchTried, LoaderSearch, LoaderTried
from vivace.report.proof_view import proof_view
from vivace.report.run_folder import RunFolder
from vivace.report.run_page import run_page

PROOF_SECTIONS = [
    "headline", "recipe", "steps", "gains", "losses", "costs", "by-hand", "decide", "left-out", "findings", "machine",
    "method",
]  # fmt: skip
FOLDER = Path("runs/train-001")


def sections_of(text: str) -> list[str]:
    return re.findall(r'<section id="([\w-]+)">', text)


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.links: list[str | None] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.links += [value for name, value in attrs if name in ("href", "xlink:href")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def proof_page() -> str:
    trials = (
        made_trial("a", (), 100.0),
        made_trial("b", ("bf16",), 60.0),
        made_trial("c", ("bf16", "channels_last"), 40.0),
        made_trial("d", ("compile",), None, outcome="crash", message=EVIL),
    )
    return run_page(RunFolder(FOLDER, proof=made_proof(), trials=trials, unreadable=(EVIL,)))


def test_a_proof_gives_every_section(proof_page: str):
    assert sections_of(proof_page) == PROOF_SECTIONS


def test_a_proof_leads_with_the_speed_up_and_its_interval(proof_page: str):
    assert "<h1>2.50× faster</h1>" in proof_page
    assert "95 % interval 2.40× to 2.60×" in proof_page
    assert "after 1,000 steps" in proof_page


@pytest.mark.parametrize(
    ("fields", "title", "in_terminal"),
    [
        ({"speedup": Interval(median=7.97, low=1.91, high=15.55)}, "1.9× to 15.6× faster", "1.9× to 15.6× faster: the"),
        (
            {"practices": (), "rejected": (Rejected(practice="bf16", why="not tried: no time"),)},
            "Not enough time to try anything",
            "No verdict: not enough time",
        ),
        ({"practices": (), "harm": None}, "Nothing tried beats the noise", "No practice made this job faster"),
    ],
)
def test_nothing_claims_more_than_the_runs_say(fields: dict, title: str, in_terminal: str):
    proof = made_proof(**fields)
    assert f"<h1>{title}</h1>" in run_page(RunFolder(FOLDER, proof=proof))
    shown = io.StringIO()
    Console(file=shown, width=200).print(proof_view(proof))
    assert in_terminal in shown.getvalue()


def test_no_text_from_a_record_becomes_html(proof_page: str):
    for text in (proof_page, run_page(RunFolder(FOLDER, measurement=made_measurement()))):
        tags = Tags(text)
        assert not tags.names & {"script", "img", "iframe", "object"}
        assert not {name for name in tags.attributes if name.startswith("on")}
        assert any(EVIL in one for one in tags.texts)  # and it can still be read


def test_nothing_is_loaded_from_outside(proof_page: str):
    assert Tags(proof_page).attributes.isdisjoint({"src", "srcset", "action", "data"})
    links = Tags(proof_page).links
    assert links == ["data:,", "#by-hand"]  # an empty icon, or a browser would ask for one; a section of the page
    assert not re.search(r"https?:|url\(|@import", proof_page)


def test_the_waterfall_shows_each_set_as_it_grew(proof_page: str):
    rows = re.findall(r"<p><span>([^<]*)</span><span>([^<]*)</span></p>", proof_page)
    assert rows[:4] == [
        ("the script as it is", "100 ms"),
        ("+ bf16", "−40.0 ms"),
        ("+ channels_last", "−20.0 ms"),
        ("all of them", "40.0 ms"),
    ]


def test_steps_before_and_after_are_on_one_scale(proof_page: str):
    bars = re.findall(r'<svg class="bar"[^>]*>(.*?)</svg>', proof_page)
    widths = [[float(width) for width in re.findall(r'width="([\d.]+)%"', one)] for one in bars[:2]]
    assert widths == [[20.0, 80.0], [2.0, 38.0]]


def test_a_finding_stands_beside_what_it_came_to(proof_page: str):
    rows = re.findall(r"<td [^>]*>([^<]*)</td><td [^>]*>([^<]*)</td><td [^>]*>([^<]*)</td></tr>", proof_page)
    assert ("1.25×", "2.00×", "kept") in rows
    assert ("1.25×", "–", "not tried") in rows


def test_a_bare_proof_leaves_out_what_it_cannot_say():
    empty = made_proof(
        practices=(), harm=None, before=None, after=Side(), payback=None, rejected=(), proposed=(), findings=(),
        machine=None, run_with="", notes=(), trials=(), speedup=Interval(median=1, low=1, high=1),
    )  # fmt: skip
    text = run_page(RunFolder(FOLDER, proof=empty))
    assert sections_of(text) == ["headline", "method"]
    assert "Nothing tried beats the noise" in text


def test_a_gain_that_harms_is_not_called_noise():
    harm = Harm(verdict="outside the band", says="a loss became NaN")
    text = run_page(RunFolder(FOLDER, proof=made_proof(practices=(), harm=harm)))
    assert "<h1>Faster, but the losses changed</h1>" in text
    assert "the faster set changes the training" in text
    assert "noise" not in text


def test_an_ablation_that_was_not_run_is_told():
    bare = Gain(practice="bf16", risk=Risk.ROUNDING)
    text = run_page(RunFolder(FOLDER, proof=made_proof(practices=(bare,))))
    assert "The gains of single practices were not measured." in text


def test_a_gain_within_the_noise_is_called_so():
    text = run_page(RunFolder(FOLDER, proof=made_proof(speedup=Interval(median=1.02, low=0.99, high=1.05))))
    assert "<h1>1.02×, within the noise</h1>" in text


def test_a_change_that_never_pays_back_is_called_so():
    never = Payback(extra_s=60.0, saved_ms_per_step=-1.0, steps=None)
    assert "It never catches up" in run_page(RunFolder(FOLDER, proof=made_proof(payback=never)))


def test_a_measurement_alone_gives_its_own_page():
    text = run_page(RunFolder(FOLDER, measurement=made_measurement()))
    assert sections_of(text) == ["headline", "steps", "curves", "syncs", "machine", "method"]
    assert "<h1>100 ms per step</h1>" in text
    assert "640.0 samples/s" in text


def test_a_partial_measurement_says_why():
    record = made_measurement(status="partial", reason=EVIL, phases_ms={}, losses=())
    text = run_page(RunFolder(FOLDER, measurement=record.model_copy(update={"step_ms": None})))
    assert "No step was measured" in text
    assert "Partial: &lt;script&gt;" in text


def test_findings_alone_and_with_their_measurement():
    findings = Findings(
        measurement="m.json", findings=(made_finding(),), verdict="improvable", worth=1.25, notes=(EVIL,)
    )
    alone = run_page(RunFolder(FOLDER, findings=findings))
    assert sections_of(alone) == ["headline", "findings"]
    assert "<h1>1 finding, likely to bring 1.11×</h1>" in alone
    both = run_page(RunFolder(FOLDER, findings=findings, measurement=made_measurement()))
    assert sections_of(both) == ["headline", "findings", "steps", "curves", "syncs"]


def test_a_well_tuned_job_is_told_so():
    text = run_page(RunFolder(FOLDER, findings=Findings(measurement="m.json", findings=(), verdict="tuned")))
    assert "<h1>Well tuned</h1>" in text
    assert "No practice would bring 2 % or more." in text


def test_a_job_that_only_lacks_memory_is_not_called_well_tuned_above_a_finding():
    room = made_finding(practice="checkpointing", worth=1.0, exposed_ms=0.0)
    text = run_page(RunFolder(FOLDER, findings=Findings(measurement="m.json", findings=(room,), verdict="tuned")))
    assert "<h1>1 finding, likely to bring 1.00×</h1>" in text
    assert "The findings below free memory" in text
    assert "well tuned" not in text


def test_a_batch_search_shows_every_size_that_was_run():
    tried = (
        BatchTried(size=64, outcome="ok", batch_size=64, samples_per_s=500.0, margin_gib=12.0),
        BatchTried(size=128, outcome="ok", batch_size=128, samples_per_s=1000.0, margin_gib=3.0),
        BatchTried(size=256, outcome="out-of-memory", message=EVIL),
    )
    search = BatchSearch(
        command=("python", EVIL), flag="-b", own_size=64, tried=tried, margin_gib=2.0, knee=128, largest=128,
        complete=True, ended=EVIL, advice=(EVIL,), run_with=EVIL, notes=(EVIL,),
    )  # fmt: skip
    text = run_page(RunFolder(FOLDER, batch=search))
    assert sections_of(text) == ["headline", "tried", "recipe"]
    assert "<h1>Batch 128</h1>" in text
    assert re.findall(r'x="0.000%" y="0" width="([\d.]+)%"', text) == ["50.000", "100.000"]
    assert "script" not in Tags(text).names


def test_a_loader_search_names_what_it_chose():
    own = LoaderTried(workers=0, outcome="ok", samples_per_s=10.0, loader_ms=50.0, message="")
    two = LoaderTried(words=("workers=2",), workers=2, outcome="ok", samples_per_s=20.0, workers_memory_gib=0.5)
    search = LoaderSearch(
        command=("python",), tried=(own, two), limits=True, workers=2, words=("workers=2",), complete=True
    )
    text = run_page(RunFolder(FOLDER, loader=search))
    assert "<h1>2 workers</h1>" in text
    assert "512 MiB in the workers" in text
    unchanged = search.model_copy(update={"words": ()})
    assert "<h1>Leave the loader as it is</h1>" in run_page(RunFolder(FOLDER, loader=unchanged))
