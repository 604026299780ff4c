"""Memory and time on more ranks, by figures worked out by hand."""

from __future__ import annotations

import pytest
from practices.evidence import measurement, spread

from vivace.plan.machines.cluster import machine_for
from vivace.records.measurement import Measurement
from vivace.records.structure import Optimizer, Structure
from vivace.tune.ranks.memory import memory_by_mode
from vivace.tune.ranks.predicting import predict, site_of

GIB = 2**30


def job(**fields: object) -> Measurement:
    structure = Structure(
        optimizers=(Optimizer(name="AdamW"),), parameter_dtypes={"float32": GIB}, repeated_blocks={"Block": 8}
    )
    return measurement().model_copy(
        update={"parameters": GIB, "trainable_parameters": GIB, "structure": structure, "first_steps": None, **fields}
    )


def test_what_a_rank_keeps_of_a_billion_parameters_with_adam():
    (ddp, zero1, fsdp), notes = memory_by_mode(job(), ranks=4)
    assert notes == ()
    assert (ddp.parameters_gib, ddp.gradients_gib, ddp.states_gib) == (4, 4, 8)
    assert (zero1.parameters_gib, zero1.gradients_gib, zero1.states_gib) == (4, 4, 2)
    assert (fsdp.parameters_gib, fsdp.gradients_gib, fsdp.states_gib, fsdp.block_gib) == (1, 1, 2, 0.5)
    assert (ddp.total_gib, fsdp.total_gib) == (16, 4.5)


def test_an_unknown_optimizer_is_said_to_be():
    unknown = job().structure.model_copy(update={"optimizers": (Optimizer(name="Lion"),)})
    memory, notes = memory_by_mode(job(structure=unknown), ranks=2)
    assert memory[0].states_gib == 0
    assert notes == ("the states of Lion are not known and not counted",)


def test_a_step_on_eight_gpus_of_one_node():
    """A ring of n moves 2(n-1)/n of the gradients; forward and backward shrink, the optimizer does not."""
    site = machine_for("jean-zay-h100")
    phases = {"forward": spread(100.0), "backward": spread(200.0), "optimizer": spread(20.0)}
    m = job(devices=("NVIDIA H100 80GB HBM3",), step_ms=spread(320.0), phases_ms=phases)
    predicted = predict(m, site, 4, "ddp", gradient_bytes=4e9)
    links = site.machine.links
    ring_ms = 1e3 * 2 * 3 / 4 * 4e9 / (links.intra_gb_s * links.intra_fraction * 1e9)
    assert predicted.exchange_ms == pytest.approx(ring_ms, rel=0.05)  # and its latency
    assert predicted.exposed_ms is not None
    assert predicted.exposed_ms < predicted.exchange_ms
    assert predicted.step_ms == pytest.approx(300 / 4 + 20 + predicted.exposed_ms)
    assert predicted.efficiency == pytest.approx(320 / predicted.step_ms / 4)


def test_a_cpu_says_nothing_about_steps_on_a_gpu():
    m = job(devices=())
    assert site_of(m, None)[0] is None
    predicted = predict(m, machine_for("jean-zay-h100"), 4, "ddp", gradient_bytes=4e9)
    assert predicted.step_ms is None
    assert predicted.exchange_ms > 0
    assert "another device" in predicted.assumptions[0]
