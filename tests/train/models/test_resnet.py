"""ResNets: torchvision's parameters, names and numbers, without torchvision."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vivace.errors import UserError
from vivace.train.models import resnet

PARAMETERS = {  # torchvision's documentation
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
}
CONVOLUTIONS = {"resnet18": 20, "resnet34": 36, "resnet50": 53, "resnet101": 104, "resnet152": 155}


def on_meta(name: str, num_classes: int = 1000) -> resnet.ResNet:
    with torch.device("meta"):  # shapes only: no memory, no time
        return resnet.by_name(name, num_classes)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_count(name: str) -> None:
    assert sum(p.numel() for p in on_meta(name).parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_number_of_convolutions_and_state(name: str) -> None:
    """A convolution has 1 entry and its batch norm 5; the linear layer adds 2."""
    state = on_meta(name).state_dict()
    assert len(state) == CONVOLUTIONS[name] * 6 + 2


def test_state_dict_names_and_shapes_of_resnet50() -> None:
    state = on_meta("resnet50").state_dict()
    expected = {
        "conv1.weight": (64, 3, 7, 7),
        "bn1.running_mean": (64,),
        "layer1.0.downsample.0.weight": (256, 64, 1, 1),
        "layer1.0.downsample.1.num_batches_tracked": (),
        "layer2.0.conv2.weight": (128, 128, 3, 3),
        "layer3.5.conv3.weight": (1024, 256, 1, 1),
        "layer4.2.bn3.num_batches_tracked": (),
        "layer4.2.bn3.weight": (2048,),
        "fc.weight": (1000, 2048),
        "fc.bias": (1000,),
    }
    assert {name: tuple(state[name].shape) for name in expected} == expected
    assert not any(name.startswith("layer1.1.downsample") for name in state)
    assert list(state)[:2] == ["conv1.weight", "bn1.weight"]
    assert list(state)[-2:] == ["fc.weight", "fc.bias"]


def test_resnet18_has_no_shortcut_convolution_in_its_first_stage() -> None:
    names = on_meta("resnet18").state_dict()
    assert "layer1.0.downsample.0.weight" not in names
    assert "layer2.0.downsample.0.weight" in names


def test_the_stride_sits_on_the_3x3_convolution() -> None:
    block = on_meta("resnet50").layer2[0]
    assert (block.conv1.stride, block.conv2.stride, block.conv3.stride) == ((1, 1), (2, 2), (1, 1))


def test_initialisation() -> None:
    torch.manual_seed(0)
    model = resnet.resnet18(num_classes=10)
    assert torch.equal(model.layer1[0].bn2.weight, torch.ones(64))
    assert torch.equal(model.layer1[0].bn2.bias, torch.zeros(64))
    # Kaiming, fan out: std = sqrt(2 / (out channels x 3 x 3)) = 0.02083 with 512 channels, 2.4 million draws.
    assert model.layer4[1].conv2.weight.std().item() == pytest.approx(0.020833, rel=0.01)


def test_forward_shape_and_gradient_of_every_parameter() -> None:
    torch.manual_seed(0)
    model = resnet.resnet50(num_classes=7)
    logits = model(torch.randn(2, 3, 64, 64))
    assert logits.shape == (2, 7)
    nn.functional.cross_entropy(logits, torch.tensor([1, 5])).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_num_classes_changes_only_the_last_layer() -> None:
    count = sum(p.numel() for p in on_meta("resnet18", num_classes=10).parameters())
    assert count == PARAMETERS["resnet18"] - 990 * 513


def test_channels_last_changes_strides_and_not_the_result() -> None:
    images = torch.randn(10, 3, 32, 32)
    assert images.to(memory_format=torch.channels_last).stride() == (3072, 1, 96, 3)
    assert torch.randn(10, 3, 16, 16).to(memory_format=torch.channels_last).stride() == (768, 1, 48, 3)
    torch.manual_seed(0)
    model = resnet.resnet18(num_classes=10).eval()
    with torch.no_grad():
        expected = model(images)
        model = model.to(memory_format=torch.channels_last)
        actual = model(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match="resnet18, resnet34, resnet50, resnet101, resnet152"):
        resnet.by_name("resnet51")


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_same_seed_gives_torchvisions_network(name: str) -> None:
    try:
        import torchvision
    except (ImportError, RuntimeError) as error:  # RuntimeError: built for another torch
        pytest.skip(f"torchvision is not usable here: {error}")
    torch.manual_seed(3)
    ours = resnet.by_name(name).eval()
    torch.manual_seed(3)
    theirs = getattr(torchvision.models, name)().eval()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(ours(images), theirs(images))
