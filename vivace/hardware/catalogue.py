"""The catalogue of GPUs, clusters and sites: vivace's own data files, and the user's on top of them.

Reads files and nothing else. Called by ``hardware.machine``, ``plan``, ``launch`` and ``measure``; not in the user's
process, which the command tells what it needs (``known_gpus``).

A user adds entries, or replaces one of ours as a whole by giving it the same name, with TOML files of the
same shape. They are looked for in the files and folders that ``$VIVACE_CATALOGUE`` lists (separated like
``$PATH``) and in ``~/.config/vivace/`` (or ``$XDG_CONFIG_HOME/vivace/``)::

    [gpu.my-gpu]
    name = "My GPU"
    patterns = ["NVIDIA My GPU*"]
    dense_peak_tflops = { bf16 = 500 }
    sources = ["vendor's data sheet"]

    [cluster.my-cluster]
    name = "My cluster"
    gpu = "my-gpu"
    gpus_per_node = 4
    inter_node_gbits_per_s_per_gpu = 200
    sources = ["the site's manual"]
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from vivace.errors import UserError
from vivace.files import read_user_text
from vivace.hardware.schema import Place, build, did_you_mean
from vivace.hardware.specs import DTYPES, ClusterSpec, GpuSpec, SiteSpec
from vivace.protocol.gpu_names import KnownGpu, find_by_name

__all__ = [
    "Catalogue",
    "clusters_of",
    "find_cluster",
    "find_gpu",
    "known_gpus",
    "load_catalogue",
    "named_gpu",
    "user_files",
]

DATA = Path(__file__).parent / "data"
BUILT_IN = "vivace"
ENTRY_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclass(frozen=True)
class Catalogue:
    """All entries by name, the user's included."""

    gpus: Mapping[str, GpuSpec] = field(default_factory=dict)
    clusters: Mapping[str, ClusterSpec] = field(default_factory=dict)
    sites: Mapping[str, SiteSpec] = field(default_factory=dict)

    def over(self, below: Catalogue) -> Catalogue:
        """These entries on top of ``below``."""
        return Catalogue(
            {**below.gpus, **self.gpus}, {**below.clusters, **self.clusters}, {**below.sites, **self.sites}
        )


def find_gpu(name: str) -> GpuSpec | None:
    """The GPU that the driver calls ``name``, or that the catalogue does; None when it is not catalogued.

    >>> find_gpu("NVIDIA H200").sm_count
    132
    """
    specs = list(load_catalogue().gpus.values())
    gpus = [_known(spec) for spec in specs]
    found = find_by_name(name, gpus)
    return specs[gpus.index(found)] if found is not None else None


def known_gpus() -> tuple[KnownGpu, ...]:
    """What a process needs to know of the catalogue: which GPUs have a peak, and for which arithmetics."""
    return tuple(_known(spec) for spec in load_catalogue().gpus.values())


def _known(spec: GpuSpec) -> KnownGpu:
    return KnownGpu((spec.key, spec.name, *spec.aliases), spec.patterns, tuple(spec.dense_peak_tflops))


def named_gpu(name: str) -> GpuSpec:
    """``find_gpu`` for a name that a user typed: an unknown one is a ``UserError`` with the nearest names."""
    spec = find_gpu(name)
    if spec is None:
        raise _unknown("GPU", name, load_catalogue().gpus, "vivace hardware --gpus")
    return spec


def find_cluster(name: str) -> ClusterSpec:
    """The cluster of that name, or a ``UserError`` with the nearest names.

    >>> find_cluster("jean-zay-a100").gpus_per_node
    8
    """
    clusters = load_catalogue().clusters
    spec = clusters.get(name.strip().lower())
    if spec is None:
        raise _unknown("cluster", name, clusters, "vivace hardware --clusters")
    return spec


def clusters_of(name: str) -> tuple[ClusterSpec, ...]:
    """All partitions of a site (``jean-zay``), or the one cluster of that name; a ``UserError`` for neither.

    >>> [spec.partition for spec in clusters_of("jean-zay")][-2:]
    ['gpu_p5', 'gpu_p6']
    """
    catalogue, wanted = load_catalogue(), name.strip().lower()
    if of_site := tuple(spec for spec in catalogue.clusters.values() if spec.site == wanted):
        return of_site
    if wanted in catalogue.clusters:
        return (catalogue.clusters[wanted],)
    known = {**catalogue.sites, **catalogue.clusters}
    raise _unknown("cluster", name, known, "vivace hardware --clusters")


def load_catalogue() -> Catalogue:
    """vivace's entries with the user's on top. A user's file that cannot be used is a ``UserError``."""
    catalogue = _built_in()
    for path in user_files():
        catalogue = _read(path, str(path)).over(catalogue)
    return replace(catalogue, clusters={key: _joined(spec, catalogue) for key, spec in catalogue.clusters.items()})


def user_files() -> list[Path]:
    """The user's files, weakest first: the configuration folder, then ``$VIVACE_CATALOGUE`` from its end."""
    configuration = Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")) / "vivace"
    files = sorted(configuration.glob("*.toml"))
    for entry in reversed(os.environ.get("VIVACE_CATALOGUE", "").split(os.pathsep)):
        if entry:
            files.extend(_listed(Path(entry).expanduser()))
    return files


def _listed(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob("*.toml"))
    if not path.exists():
        raise UserError(
            f"$VIVACE_CATALOGUE names {path}, which does not exist",
            hint=f"it lists files or folders, separated by {os.pathsep!r}",
        )
    return [path]


@lru_cache(maxsize=1)
def _built_in() -> Catalogue:
    catalogue = Catalogue()
    for path in sorted(DATA.rglob("*.toml")):
        catalogue = _read(path, BUILT_IN).over(catalogue)
    return catalogue


def _read(path: Path, defined_in: str) -> Catalogue:
    tables = _parsed(path)
    groups = {"gpu": GpuSpec, "cluster": ClusterSpec, "site": SiteSpec}
    for key in tables:
        if key not in groups:
            hint = did_you_mean(key, groups) or "entries are [gpu.NAME], [cluster.NAME] and [site.NAME]"
            raise UserError(f"{path}: {key}: unknown key", hint)
    return Catalogue(
        gpus={name: _gpu(name, table, place, defined_in) for name, table, place in _entries(path, tables, "gpu")},
        clusters={
            name: build(ClusterSpec, table, place, {"key": name, "defined_in": defined_in, "site_spec": None})
            for name, table, place in _entries(path, tables, "cluster")
        },
        sites={
            name: build(SiteSpec, table, place, {"key": name, "defined_in": defined_in})
            for name, table, place in _entries(path, tables, "site")
        },
    )


def _gpu(name: str, table: Mapping[str, Any], place: Place, defined_in: str) -> GpuSpec:
    spec = build(GpuSpec, table, place, {"key": name, "defined_in": defined_in})
    for key in ("dense_peak_tflops", "sparse_peak_tflops", "achievable_tflops"):
        for dtype in getattr(spec, key):
            if dtype not in DTYPES:
                hint = did_you_mean(dtype, DTYPES) or f"known formats: {', '.join(DTYPES)}"
                raise place.error(f"{key}.{dtype}", "unknown number format", hint)
    return spec


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_user_text(path))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}", hint="see https://toml.io for the syntax") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None


def _entries(path: Path, tables: Mapping[str, Any], group: str) -> Iterator[tuple[str, dict[str, Any], Place]]:
    entries = tables.get(group, {})
    if not isinstance(entries, dict):
        raise UserError(f"{path}: {group}: must hold tables", hint=f"write [{group}.NAME], then its keys")
    for name, table in entries.items():
        place = Place(str(path), f"{group}.{name}")
        if not ENTRY_NAME.fullmatch(name):
            raise place.error("the name", "may hold a-z, 0-9, '-', '.' and '_' only, so that it can be typed")
        if not isinstance(table, dict):
            raise UserError(f"{path}: [{group}]: {name}: must be a table", hint=f"write [{group}.NAME], then its keys")
        yield name, table, place


def _joined(cluster: ClusterSpec, catalogue: Catalogue) -> ClusterSpec:
    """The cluster with its site. What it names may stand in any file, so this comes after all are read."""
    place = Place(cluster.defined_in, f"cluster.{cluster.key}")
    if cluster.gpu not in catalogue.gpus:
        raise place.error("gpu", f"no GPU is called {cluster.gpu!r}", did_you_mean(cluster.gpu, catalogue.gpus))
    if cluster.site is None:
        if cluster.qos:
            raise place.error("qos", "names limits of a site, and no site is given", hint='add site = "…"')
        return cluster
    if cluster.site not in catalogue.sites:
        raise place.error("site", f"no site is called {cluster.site!r}", did_you_mean(cluster.site, catalogue.sites))
    site = catalogue.sites[cluster.site]
    known = [qos.name for qos in site.qos]
    for name in cluster.qos:
        if name not in known:
            raise place.error("qos", f"the site {site.key} has no QoS {name!r}", did_you_mean(name, known))
    return replace(cluster, site_spec=site)


def _unknown(what: str, name: str, known: Mapping[str, object], command: str) -> UserError:
    near = did_you_mean(name.strip().lower(), known)
    return UserError(
        f"no {what} is called {name!r}", f"{near} ({command} lists all)" if near else f"{command} lists all"
    )
