"""Generated images, folders and parquet files of real JPEGs, in this process and in DataLoader workers."""

from __future__ import annotations

import io
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from vivace.errors import UserError
from vivace.train.data import (
    GeneratedImages,
    ImageFolder,
    ParquetImages,
    open_images,
    train_and_val_paths,
)
from vivace.train.data.transforms import ToTensor


def jpeg(red: int, size: tuple[int, int] = (12, 8)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, (red, 0, 0)).save(buffer, "JPEG", quality=100)
    return buffer.getvalue()


def red_of(image: Image.Image) -> int:
    return round(float(np.array(image)[..., 0].mean()))


def write_parquet(path: Path, reds: list[int], labels: list[int], row_group_size: int = 3, hf: bool = False) -> Path:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pyarrow.parquet as pq

    images = [{"bytes": jpeg(red), "path": None} if hf else jpeg(red) for red in reds]
    pq.write_table(pa.table({"image": images, "label": labels}), path, row_group_size=row_group_size)
    return path


# --- generated ---


def test_generated_images_depend_on_index_and_seed_only() -> None:
    first, again, other = (GeneratedImages(1000, 16, 10, seed=seed) for seed in (1, 1, 2))
    assert len(first) == 1000
    for index in (0, 63, 64, 999):
        assert np.array_equal(first[index][0], again[index][0])
        assert first[index][1] == again[index][1]
    assert not np.array_equal(first[5][0], other[5][0])
    assert not np.array_equal(first[5][0], first[15][0])  # the same class, another image


def test_generated_images_are_bytes_of_the_asked_size() -> None:
    image, label = GeneratedImages(10, size=30)[3]
    assert image.shape == (30, 30, 3)
    assert image.dtype == np.uint8
    assert image.min() < 40
    assert image.max() > 150
    assert 0 <= label < 1000


def test_generated_labels_cover_the_classes() -> None:
    dataset = GeneratedImages(500, size=8, num_classes=10)
    assert {dataset[i][1] for i in range(500)} == set(range(10))
    assert dataset.num_classes == 10


def test_generated_classes_look_alike_across_seeds() -> None:
    """What makes validation on another seed mean something: nearest class by average tile is right."""
    train, val = (GeneratedImages(64, 32, 8, seed=seed) for seed in (1, 2))

    def tiles(image: np.ndarray) -> np.ndarray:
        return image.reshape(4, 8, 4, 8, 3).mean(axis=(1, 3)).ravel()

    for index in range(8):
        distances = [np.abs(tiles(train[j][0]) - tiles(val[index][0])).sum() for j in range(8)]
        assert int(np.argmin(distances)) == val[index][1]


def test_generated_end_of_data() -> None:
    with pytest.raises(IndexError):
        GeneratedImages(3, size=8)[3]


# --- folder ---


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split, reds in {"train": (10, 20), "val": (30,)}.items():
        for name, shift in {"cat": 0, "dog": 100}.items():
            (tmp_path / split / name).mkdir(parents=True)
            for red in reds:
                (tmp_path / split / name / f"{red}.JPEG").write_bytes(jpeg(red + shift))
    (tmp_path / "train" / "cat" / "notes.txt").write_text("not an image")
    return tmp_path


def test_folder_reads_classes_in_order(folder: Path) -> None:
    dataset = ImageFolder(folder / "train")
    assert dataset.classes == ["cat", "dog"]
    samples = [dataset[i] for i in range(len(dataset))]
    assert [label for _, label in samples] == [0, 0, 1, 1]
    assert [red_of(image) for image, _ in samples] == pytest.approx([10, 20, 110, 120], abs=2)
    assert samples[0][0].size == (12, 8)


def test_folder_applies_its_transform_in_workers(folder: Path) -> None:
    loader = DataLoader(ImageFolder(folder / "train", ToTensor()), batch_size=4, num_workers=2)
    images, labels = next(iter(loader))
    assert images.shape == (4, 3, 8, 12)
    assert labels.tolist() == [0, 0, 1, 1]


def test_grey_images_become_rgb(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.new("L", (4, 4), 77).save(tmp_path / "a" / "x.png")
    image, _ = ImageFolder(tmp_path)[0]
    assert image.mode == "RGB"


def test_validation_keeps_the_numbers_of_the_training_classes(folder: Path) -> None:
    (folder / "val" / "cat" / "30.JPEG").unlink()
    (folder / "val" / "cat").rmdir()
    dataset = ImageFolder(folder / "val", classes=["cat", "dog"])
    assert [dataset[i][1] for i in range(len(dataset))] == [1]
    (folder / "val" / "eel").mkdir()
    with pytest.raises(UserError, match="eel"):
        ImageFolder(folder / "val", classes=["cat", "dog"])


def test_folder_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no folder"):
        ImageFolder(tmp_path / "nowhere")
    with pytest.raises(UserError, match="one sub-folder per class"):
        ImageFolder(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "broken.jpg").write_bytes(jpeg(9)[:80])
    with pytest.raises(UserError, match=r"broken\.jpg is not a readable image"):
        ImageFolder(tmp_path)[0]


# --- parquet ---


REDS = [5, 25, 45, 65, 85, 105, 125, 145]
LABELS = [0, 1, 2, 3, 0, 1, 2, 6]


@pytest.mark.parametrize("hf", [False, True])
def test_parquet_rows_across_row_groups(tmp_path: Path, hf: bool) -> None:
    dataset = ParquetImages(write_parquet(tmp_path / "x.parquet", REDS, LABELS, hf=hf))
    assert len(dataset) == 8
    assert dataset.num_classes == 7
    samples = {i: dataset[i] for i in (7, 0, 3, 2, 5, 6, 1, 4)}
    assert [samples[i][1] for i in range(8)] == LABELS
    assert [red_of(samples[i][0]) for i in range(8)] == pytest.approx(REDS, abs=2)
    with pytest.raises(IndexError):
        dataset[8]


def test_parquet_in_forked_workers_after_use_in_the_parent(tmp_path: Path) -> None:
    dataset = ParquetImages(write_parquet(tmp_path / "x.parquet", REDS, LABELS), ToTensor())
    expected = [dataset[i][0] for i in range(8)]  # the parent has a handle and a cache before the fork
    loader = DataLoader(dataset, batch_size=2, num_workers=2)
    batches = list(loader)
    assert torch.equal(torch.cat([images for images, _ in batches]), torch.stack(expected))
    assert torch.cat([labels for _, labels in batches]).tolist() == LABELS


def test_parquet_travels_to_a_spawned_process(tmp_path: Path) -> None:
    dataset = ParquetImages(write_parquet(tmp_path / "x.parquet", REDS, LABELS))
    dataset[0]
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy._file is None
    assert red_of(copy[6][0]) == pytest.approx(125, abs=2)


def test_parquet_cache_keeps_the_row_groups_used_last(tmp_path: Path) -> None:
    dataset = ParquetImages(write_parquet(tmp_path / "x.parquet", REDS, LABELS), cache_bytes=1)
    for index in (0, 3, 6, 0):
        dataset[index]
        assert list(dataset._cache) == [index // 3]
    roomy = ParquetImages(tmp_path / "x.parquet")
    for index in (0, 3, 6, 0):
        roomy[index]
    assert list(roomy._cache) == [1, 2, 0]


def test_parquet_mistakes_are_told(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pyarrow.parquet as pq

    with pytest.raises(UserError, match="no file"):
        ParquetImages(tmp_path / "x.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    with pytest.raises(UserError, match="not a readable parquet file"):
        ParquetImages(tmp_path / "bad.parquet")
    pq.write_table(pa.table({"img": [b""], "label": [1]}), tmp_path / "names.parquet")
    with pytest.raises(UserError, match=r"no column image \(it has img, label\)"):
        ParquetImages(tmp_path / "names.parquet")


@pytest.mark.parametrize(("module", "needs"), [("pyarrow.parquet", "pyarrow"), ("PIL", "Pillow")])
def test_missing_libraries_are_named_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, needs: str
) -> None:
    path = write_parquet(tmp_path / "x.parquet", REDS, LABELS)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"needs {needs}\n  hint: pip install 'vivace\[data\]'"):
        ParquetImages(path)[0]


# --- paths ---


def test_open_images_picks_the_reader(folder: Path) -> None:
    assert isinstance(open_images(folder / "train"), ImageFolder)
    path = write_parquet(folder / "x.parquet", REDS, LABELS)
    assert isinstance(open_images(path), ParquetImages)


def test_where_validation_data_is_found(folder: Path) -> None:
    assert train_and_val_paths(folder) == (folder / "train", folder / "val")
    assert train_and_val_paths(folder / "train") == (folder / "train", folder / "val")
    (folder / "a-train.parquet").touch()
    assert train_and_val_paths(folder / "a-train.parquet") == (folder / "a-train.parquet", None)
    (folder / "a-test.parquet").touch()
    assert train_and_val_paths(folder / "a-train.parquet")[1] == folder / "a-test.parquet"
    assert train_and_val_paths(folder / "a-test.parquet") == (folder / "a-test.parquet", None)
