"""The report of a run: the sections that its records give, most telling first, as one page."""

from __future__ import annotations

from markupsafe import Markup

from vivace.records.finding import Findings, Verdict
from vivace.records.run import Run
from vivace.report.common_sections import command_line, findings_section
from vivace.report.figures import ratio
from vivace.report.hpo_sections import hpo_sections, hpo_title
from vivace.report.measurement_sections import measurement_sections, measurement_title
from vivace.report.page import page
from vivace.report.proof_sections import proof_sections, proof_title
from vivace.report.race_sections import race_sections, race_title
from vivace.report.rate_view import rate_sections, rate_title
from vivace.report.rendering import render
from vivace.report.run_folder import RunFolder
from vivace.report.scaled import facts_lines
from vivace.report.search_sections import batch_sections, batch_title, loader_sections, loader_title

__all__ = ["run_page"]


def run_page(run: RunFolder) -> str:
    name = run.folder.resolve().name
    if run.proof is not None:
        return page(f"{proof_title(run.proof)} · {name}", proof_sections(run, run.proof))
    if run.findings is not None:
        title = _findings_title(run.findings)
        sections = [
            render("findings_headline", title=title, name=name, findings=run.findings, measured=run.measurement)
        ]
        if (listed := findings_section("What to change", run.findings.findings, "findings", _step_ms(run))) is not None:
            sections.append(listed)
        if run.measurement is not None:
            sections += measurement_sections(run.measurement, name, headline=False)
        return page(f"{title} · {name}", sections)
    if run.run is not None:
        return page(f"{run.run.state} · {name}", [_training(run.run, name)])
    if run.batch is not None:
        return page(f"{batch_title(run.batch)} · {name}", batch_sections(run.batch, name))
    if run.loader is not None:
        return page(f"{loader_title(run.loader)} · {name}", loader_sections(run.loader, name))
    if run.race is not None:
        return page(f"{race_title(run.race)} · {name}", race_sections(run.race, name))
    if run.hpo is not None:
        return page(f"{hpo_title(run.hpo)} · {name}", hpo_sections(run.hpo, name))
    if run.rates is not None:
        return page(f"{rate_title(run.rates)} · {name}", rate_sections(run.rates, name))
    assert run.measurement is not None  # read_run refuses a folder without records
    return page(f"{measurement_title(run.measurement)} · {name}", measurement_sections(run.measurement, name))


def _training(run: Run, name: str) -> Markup:
    """``vivace run``: what became of the practices, and of the ranks."""
    rows = [("command", command_line(run.command)), ("state", run.state)]
    rows += [("exit code", str(run.exit_code))] if run.exit_code is not None else []
    rows += [("started", (run.started_at or "").replace("T", " ")), ("ended", (run.ended_at or "").replace("T", " "))]
    rows += [(word, str(answer)) for word, answer in run.told.items()]
    return render("training", name=name, run=run, rows=rows, facts=facts_lines(run.scale))


def _step_ms(run: RunFolder) -> float | None:
    return run.measurement.step_ms.mean if run.measurement and run.measurement.step_ms else None


_TITLE_OF_NOTHING = {
    Verdict.TUNED: "Well tuned",
    Verdict.UNEXPLAINED: "Nothing was found, but not all time is explained",
    Verdict.UNKNOWN: "Nothing was found",
    Verdict.IMPROVABLE: "Nothing was found",
}


def _findings_title(findings: Findings) -> str:
    count = len(findings.findings)
    if not count:
        return _TITLE_OF_NOTHING[findings.verdict]
    best = ratio(max(finding.likely for finding in findings.findings))
    return f"{count} findings, the best likely to bring {best}" if count > 1 else f"1 finding, likely to bring {best}"
