"""Images from files to the device: the same with any number of workers, corrupt ones skipped, the right crops."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image
from recipes.small import IMAGES, losses, recipe_of, trained, write_images

from vivace import distributed
from vivace.errors import ExitCode, UserError
from vivace.recipes.course import Course
from vivace.recipes.decoding import Cut, cut_out, decode, nvjpeg_decode
from vivace.recipes.feeding import Feed
from vivace.recipes.practised import with_practices
from vivace.recipes.sources import EVALUATED, DataError, Key, open_source
from vivace.train.data.transforms import CenterCrop, RandomResizedCrop, Resize


def on_files(folder: Path) -> tuple[str, ...]:
    return (f"data.train={folder}", f"data.val={folder}", "batch=8", "duration=1ep", "data.classes=4")


@pytest.mark.parametrize("crop", ["resized", "none"])
def test_the_number_of_workers_changes_nothing(tmp_path: Path, crop: str):
    write_images(tmp_path / "images", 24)
    changes = (*on_files(tmp_path / "images"), f"augment.crop={crop}", "augment.randaugment=1")
    alone = trained(tmp_path / "0", IMAGES, *changes, "data.workers=0")
    helped = trained(tmp_path / "2", IMAGES, *changes, "data.workers=2")
    assert losses(tmp_path / "0") == losses(tmp_path / "2")
    assert alone.val_loss == helped.val_loss


def test_corrupt_images_are_counted_and_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    paths = write_images(tmp_path / "images", 24)
    whole = paths[3].read_bytes()
    paths[3].write_bytes(whole[: len(whole) // 2])
    paths[8].write_bytes(b"no image at all")
    changes = (*on_files(tmp_path / "images"), "data.corrupt_share=0.1", "duration=2ep")
    record = trained(tmp_path / "run", IMAGES, *changes)
    assert record.skipped_images == 2
    assert record.steps == 6
    written = (tmp_path / "run" / "skipped.txt").read_text()
    said = capfd.readouterr().err
    for path in (paths[3], paths[8]):
        assert str(path) in written
        assert said.count(str(path)) == 1  # once, not in each epoch
    events = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [event["samples"] for event in events if event["event"] == "validation"] == [22, 22]
    resident = trained(tmp_path / "resident", IMAGES, *changes, "data.resident=true")
    assert resident.skipped_images == 2
    assert '"samples": 22' in (tmp_path / "resident" / "metrics.jsonl").read_text()
    with pytest.raises(UserError, match="2 images cannot be read, more than") as caught:
        trained(tmp_path / "strict", IMAGES, *changes, "data.corrupt_share=0.05")
    assert caught.value.exit_code is ExitCode.NEGATIVE


def test_data_without_one_readable_image(tmp_path: Path):
    for path in write_images(tmp_path / "images", 16):
        path.write_bytes(b"nothing")
    for resident in ("false", "true"):
        changes = ("data.corrupt_share=1", f"data.resident={resident}", "data.workers=1")
        with pytest.raises(DataError, match="can be read"):
            trained(tmp_path / resident, IMAGES, *on_files(tmp_path / "images"), *changes)


def test_a_parquet_file_gives_what_the_folder_gives(tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    paths = write_images(tmp_path / "images", 16)
    ordered = sorted(paths)
    table = pyarrow.table(
        {"image": [path.read_bytes() for path in ordered], "label": ["ab".index(path.parent.name) for path in ordered]}
    )
    parquet.write_table(table, tmp_path / "images.parquet")
    trained(tmp_path / "folder", IMAGES, *on_files(tmp_path / "images"))
    trained(tmp_path / "parquet", IMAGES, *on_files(tmp_path / "images.parquet"))
    assert losses(tmp_path / "folder") == losses(tmp_path / "parquet")


def test_resident_images_are_the_same_images(tmp_path: Path):
    write_images(tmp_path / "images", 16)
    trained(tmp_path / "read", IMAGES, *on_files(tmp_path / "images"))
    trained(tmp_path / "resident", IMAGES, *on_files(tmp_path / "images"), "data.resident=true")
    assert losses(tmp_path / "read") == losses(tmp_path / "resident")


def test_validation_in_rectangles_cuts_less(tmp_path: Path):
    write_images(tmp_path / "images", 8, (96, 48))
    write_images(tmp_path / "tall", 8, (48, 96))
    for path in (tmp_path / "tall").rglob("*.jpg"):
        path.rename(tmp_path / "images" / path.parent.name / f"tall-{path.name}")
    recipe = recipe_of(
        tmp_path, IMAGES, *on_files(tmp_path / "images"), "data.image_size=32", "validation.rectangles=true"
    )
    source = open_source(recipe, train=False)
    assert source is not None
    feed = Feed(recipe, source, Course(16, None, 8, 32), distributed.world({}), torch.device("cpu"))
    batches = list(feed.evaluation(source))
    assert [tuple(batch.inputs.shape) for batch in batches] == [(8, 3, 64, 32), (8, 3, 32, 64)]
    assert sorted(torch.cat([batch.indices for batch in batches]).tolist()) == list(range(16))


# -- decoding ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def picture(tmp_path: Path) -> Image.Image:
    (path,) = write_images(tmp_path, 1, (90, 60))
    return Image.open(path).convert("RGB")


def png(picture: Image.Image) -> bytes:
    data = io.BytesIO()
    picture.save(data, "png")
    return data.getvalue()


def test_the_middle_is_what_resize_and_centre_crop_give(picture: Image.Image):
    ours = decode(png(picture), "it", Cut(28, 28, None, 0, 32 / 28), "pillow").astype(int)
    theirs = np.asarray(CenterCrop(28)(Resize(32)(picture))).astype(int)
    assert np.abs(ours - theirs).mean() < 1.5  # of 255: one resize in place of two


def test_a_random_crop_is_pillows_crop_and_resize_of_its_box(picture: Image.Image):
    cut = Cut(16, 16, (0.08, 1.0), seed=5)
    left, top, right, bottom = cut.box(90, 60)
    assert (left, top) != (0, 0)
    expected = picture.crop((int(left), int(top), int(right), int(bottom))).resize((16, 16), Image.Resampling.BILINEAR)
    difference = np.abs(decode(png(picture), "it", cut, "pillow").astype(int) - np.asarray(expected).astype(int))
    assert difference.mean() < 2  # the pixels next to the box may count at its edge


def test_random_boxes_have_torchvisions_distribution():
    """Means of 3,000 boxes against those of the transform that draws as torchvision does; five standard errors."""
    torch.manual_seed(0)
    transform = RandomResizedCrop(16)
    theirs = np.array([transform.box(90, 60) for _ in range(3000)], dtype=float)
    boxes = np.array([Cut(16, 16, (0.08, 1.0), seed).box(90, 60) for seed in range(3000)])
    ours = np.column_stack([boxes[:, 0], boxes[:, 1], boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]])
    for column in range(4):
        spread = np.sqrt(ours[:, column].var() / 3000 + theirs[:, column].var() / 3000)
        assert abs(ours[:, column].mean() - theirs[:, column].mean()) < 5 * spread
        assert ours[:, column].std() == pytest.approx(theirs[:, column].std(), rel=0.1)


def test_torchvisions_decoders_get_what_they_take(picture: Image.Image, monkeypatch: pytest.MonkeyPatch):
    """With a stand-in for torchvision: where it is called, and what is done with what it gives."""
    module = ModuleType("torchvision.io")

    def one(data: torch.Tensor, mode: str, device: object = None):
        assert mode == "RGB"
        assert data.dtype == torch.uint8
        raw = data.numpy().tobytes()
        if b"IHDR" not in raw[:64]:
            raise RuntimeError("not a JPEG")
        return torch.from_numpy(np.array(Image.open(io.BytesIO(raw)))).permute(2, 0, 1)

    def several(data, mode: str, device: object = None):
        return [one(each, mode) for each in data] if isinstance(data, list) else one(data, mode)

    module.decode_image, module.decode_jpeg = one, several  # type: ignore[attr-defined]
    module.ImageReadMode = type("ImageReadMode", (), {"RGB": "RGB"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.io", module)
    cut = Cut(16, 16, (0.3, 1.0), seed=5)
    by_pillow, by_other = (decode(png(picture), "it", cut, name) for name in ("pillow", "torchvision"))
    assert by_other.shape == (16, 16, 3)
    assert np.abs(by_pillow.astype(int) - by_other.astype(int)).mean() < 2
    files = [torch.frombuffer(bytearray(data), dtype=torch.uint8) for data in (png(picture), b"broken", png(picture))]
    pixels, bad = nvjpeg_decode(files, [cut] * 3, torch.device("cpu"))
    assert bad == [1]
    assert np.array_equal(pixels[1].permute(1, 2, 0).numpy(), by_other)


def test_a_cut_of_the_whole_image_is_the_image():
    pixels = torch.randint(256, (3, 12, 12), dtype=torch.uint8)
    assert torch.equal(cut_out(pixels, Cut(12, 12, None, 0)), pixels)


def test_a_sample_follows_from_its_key(tmp_path: Path):
    write_images(tmp_path / "images", 6)
    recipe = recipe_of(tmp_path, IMAGES, *on_files(tmp_path / "images"), "augment.crop=resized")
    source = open_source(recipe, train=True)
    assert source is not None
    keys = [Key(index, epoch, 8, 8) for epoch in (0, 1) for index in range(6)]
    together = source[keys].inputs
    for row, key in enumerate(keys):
        assert torch.equal(source[[key]].inputs[0], together[row])
    assert not torch.equal(together[:6], together[6:])  # another crop in another epoch
    evaluated = source[[Key(0, EVALUATED, 8, 8)]].inputs
    assert torch.equal(evaluated, source[[Key(0, EVALUATED, 8, 8)]].inputs)


# -- what a tune kept -------------------------------------------------------------------------------------------------


def test_practices_become_settings(tmp_path: Path):
    words = "practices='bf16,tf32,channels_last,workers=3,fused_optimizer,persistent_workers'"
    recipe, applied = with_practices(recipe_of(tmp_path, IMAGES, words))
    assert (recipe.speed.precision, recipe.speed.channels_last, recipe.speed.fused_optimizer) == ("bf16", True, True)
    assert recipe.data.workers == 3
    assert "channels_last" in applied
    with pytest.raises(UserError, match="no setting for checkpointing") as caught:
        with_practices(recipe_of(tmp_path, IMAGES, "practices=checkpointing"))
    assert "vivace run --with checkpointing -- vivace train small" in (caught.value.hint or "")
    with pytest.raises(UserError, match="contains no tune"):
        with_practices(recipe_of(tmp_path, IMAGES, f"practices=@{tmp_path}"))
