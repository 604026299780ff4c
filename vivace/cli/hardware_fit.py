"""``vivace hardware occupancy`` and ``vivace hardware tiles``: how well a kernel or a matrix product fits one GPU."""

from __future__ import annotations

import json as json_format
from math import ceil
from typing import Annotated, Any

import typer

from vivace.cli.console import make_console
from vivace.errors import UserError
from vivace.hardware.generations import generation_of
from vivace.hardware.occupancy import occupancy as occupancy_of
from vivace.hardware.products import TILES, arithmetic_intensity, bytes_per_element, tile_efficiency, wave_efficiency
from vivace.hardware.specs import GpuSpec, peak_tflops
from vivace.plan.machines.gpu_names import known_gpu
from vivace.report.fitting import FittingTable

__all__ = ["occupancy", "tiles"]

_FORMATS = ("fp16", "bf16", "tf32", "fp8", "int8")

Gpu = Annotated[str, typer.Option(help="A GPU of the catalogue: see `vivace hardware --gpus`.")]
Json = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]


def occupancy(
    gpu: Gpu,
    threads: Annotated[int, typer.Option(help="Threads per block.")] = 256,
    registers: Annotated[int, typer.Option(help="Registers per thread, as ptxas or a profiler reports them.")] = 32,
    shared_kib: Annotated[float, typer.Option(help="Shared memory per block, in KiB.")] = 0.0,
    json: Json = False,
) -> None:
    """Show how many warps of a kernel fit on a multiprocessor (SM), and what limits them.

    Examples:

        vivace hardware occupancy --gpu A100 --threads 256 --registers 64

        vivace hardware occupancy --gpu H100 --threads 128 --registers 128 --shared-kib 48
    """
    spec = known_gpu(gpu)
    generation = generation_of(spec)
    if generation is None:
        raise UserError(
            f"the limits of {spec.name} are not known: its compute capability is {spec.compute_capability or 'unknown'}"
        )
    found = occupancy_of(generation, threads, registers, shared_kib)
    if json:
        content = {
            "gpu": spec.key, "threads": threads, "registers": registers, "shared_kib": shared_kib,
            "warps_per_block": found.warps_per_block, "blocks": found.blocks, "warps": found.warps,
            "max_warps": found.max_warps, "occupancy": found.share, "limits": list(found.limits),
            "blocks_by_limit": found.blocks_by_limit,
        }  # fmt: skip
        typer.echo(json_format.dumps(content, indent=2))
        return
    console = make_console(highlight=False)
    console.print(
        f"[bold]{spec.name}[/]  {found.blocks} blocks of {found.warps_per_block} warps on each SM: "
        f"{found.warps} of {found.max_warps} warps, occupancy {found.share:.1%}",
        soft_wrap=True,
    )
    table = FittingTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("limit")
    table.add_column("blocks", justify="right")
    table.add_column("")
    for name, blocks in found.blocks_by_limit.items():
        table.add_row(name, f"{blocks}", "← limits" if name in found.limits else "")
    console.print(table)


def tiles(
    m: Annotated[int, typer.Argument(min=1, help="Rows of the result: often batch x sequence.")],
    n: Annotated[int, typer.Argument(min=1, help="Columns of the result: often the layer's outputs.")],
    k: Annotated[int, typer.Argument(min=1, help="Depth: often the layer's inputs.")],
    gpu: Gpu,
    dtype: Annotated[str, typer.Option(help=f"Format of the numbers: {', '.join(_FORMATS)}.")] = "bf16",
    json: Json = False,
) -> None:
    """Show how a matrix product M x N x K is cut in tiles and waves on a GPU, and whether memory limits it.

    A tile that is partly empty, and a last wave that is partly empty, are computed all the same.

    Examples:

        vivace hardware tiles 2304 1536 4096 --gpu A100      108 tiles on 108 SMs: one full wave

        vivace hardware tiles 2304 1664 4096 --gpu A100      117 tiles: a second wave, nearly empty
    """
    spec = known_gpu(gpu)
    if dtype not in _FORMATS:
        raise UserError(f"there is no format {dtype!r} here", hint=f"--dtype: {', '.join(_FORMATS)}")
    if spec.sm_count is None:
        raise UserError(f"the number of SMs of {spec.name} is not known", hint="a GPU of which --gpu shows the SMs")
    content = _tiles(spec, spec.sm_count, dtype, m, n, k)
    if json:
        typer.echo(json_format.dumps(content, indent=2))
    else:
        _print_tiles(spec, spec.sm_count, content)


def _tiles(spec: GpuSpec, sms: int, dtype: str, m: int, n: int, k: int) -> dict[str, Any]:
    rows = []
    for tile_m, tile_n, _ in TILES:
        count = ceil(m / tile_m) * ceil(n / tile_n)
        filled, busy = tile_efficiency(m, n, (tile_m, tile_n)), wave_efficiency(m, n, sms, (tile_m, tile_n))
        rows.append(
            {"tile": [tile_m, tile_n], "tiles": count, "waves": ceil(count / sms), "tile_efficiency": filled,
             "wave_efficiency": busy, "both": filled * busy}
        )  # fmt: skip
    peak, bandwidth = peak_tflops(spec, dtype), spec.memory_bandwidth_gbytes_per_s
    balance = peak * 1e3 / bandwidth if peak is not None and bandwidth else None
    intensity = arithmetic_intensity(m, n, k, bytes_per_element(dtype))
    limited_by = None if balance is None else "memory" if intensity < balance else "arithmetic"
    return {
        "gpu": spec.key, "m": m, "n": n, "k": k, "dtype": dtype, "flops_per_byte": intensity,
        "gpu_flops_per_byte": balance, "limited_by": limited_by, "tilings": rows,
    }  # fmt: skip


def _print_tiles(spec: GpuSpec, sms: int, content: dict[str, Any]) -> None:
    console = make_console(highlight=False)
    size = " x ".join(str(content[name]) for name in ("m", "n", "k"))
    console.print(f"[bold]{spec.name}[/]  {sms} SMs, {size} in {content['dtype']}")
    intensity, balance = content["flops_per_byte"], content["gpu_flops_per_byte"]
    if balance is None:
        console.print(f"{intensity:.1f} FLOP per byte; the GPU's own balance is not known")
    else:
        console.print(
            f"{intensity:.1f} FLOP per byte; the GPU computes {balance:.1f} per byte it reads: "
            f"{content['limited_by']} limits this product",
            soft_wrap=True,
        )
    table = FittingTable(box=None, pad_edge=False, header_style="bold", caption_justify="left")
    for column in ("tile", "tiles", "waves", "tiles filled", "SMs busy", "both"):
        table.add_column(column, justify="left" if column == "tile" else "right")
    for row in content["tilings"]:
        shares = (row[name] for name in ("tile_efficiency", "wave_efficiency", "both"))
        table.add_row(
            "x".join(map(str, row["tile"])),
            f"{row['tiles']:,}",
            f"{row['waves']:,}",
            *(f"{each:.1%}" for each in shares),
        )
    console.print(table)
