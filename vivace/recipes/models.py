"""The model that a recipe names: vivace's own, torchvision's, timm's, Hugging Face's, or a function of the user's."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn

from vivace.errors import UserError
from vivace.parallel.tied import COPY, ORIGINAL, tie
from vivace.recipes.contrastive import with_projection
from vivace.recipes.first_weights import load_weights
from vivace.recipes.own_code import is_own_code, load_function
from vivace.recipes.recipe import Recipe
from vivace.train.models.cifar_net import CifarNet
from vivace.train.models.gpt import GPT
from vivace.train.models.initial import fill, gpt_rule
from vivace.train.models.lora import add_lora
from vivace.train.models.mup import MuP
from vivace.train.models.resnet import NAMES, by_name

__all__ = ["build_model", "logits_of", "mup_of"]

_PROJECTION = 4  # width of the projection's first layer, in embeddings
_OWN = ("gpt", "cifarnet", *NAMES)
_LIBRARIES = {"torchvision": "vision", "timm": "vision", "hf": "text"}


def build_model(recipe: Recipe, classes: int | None, device: torch.device) -> nn.Module:
    """On the device, with first weights from the recipe's seed. ``classes``: of the data; None for tokens."""
    model = _with_ends(recipe, classes, device)
    if recipe.model.weights is not None:
        load_weights(model, recipe.model.weights)
    if recipe.model.lora_rank is not None:
        assert isinstance(model, GPT), "checked"
        add_lora(model, recipe.model.lora_rank, recipe.model.lora_alpha, recipe.seed)
    return model


def _with_ends(recipe: Recipe, classes: int | None, device: torch.device) -> nn.Module:
    own_embedding = is_own_code(recipe.model.name)  # a function of the user's gives a model that ends in embeddings
    if recipe.objective.name != "contrastive" or own_embedding:
        return _named_model(recipe, classes, device)
    embedding = recipe.objective.embedding
    width = _PROJECTION * embedding
    return with_projection(_named_model(recipe, width, device), width, embedding).to(device)


def _named_model(recipe: Recipe, classes: int | None, device: torch.device) -> nn.Module:
    torch.manual_seed(recipe.seed)
    name, args = recipe.model.name, recipe.model.args
    library, colon, rest = name.partition(":")
    if is_own_code(name):
        model = _checked(load_function(name, "model.name")(**args), name)
    elif colon and library in _LIBRARIES:
        model = _from_library(library, rest, dict(args), classes)
    elif name == "gpt":
        return _gpt(recipe, device)
    elif name in _OWN:
        if args:
            raise UserError(f"model.args: {name} takes none", hint="model.stem = cifar, for small images")
        model = CifarNet(classes or 10) if name == "cifarnet" else _resnet(recipe, classes or 1000)
    else:
        others = ", ".join(f"{each}:NAME" for each in _LIBRARIES)
        raise UserError(
            f"model.name: there is no model {name!r}", hint=f"{', '.join(_OWN)}, {others}, FILE.py:FUNCTION"
        )
    return model.to(device)


def logits_of(output: Any) -> Tensor:
    """Of a tensor, or of what Hugging Face models return."""
    logits: Tensor = output if isinstance(output, Tensor) else output.logits
    return logits


def mup_of(recipe: Recipe) -> MuP | None:
    """None without ``model.mup_base_width``."""
    model = recipe.model
    if model.mup_base_width is None:
        return None
    return MuP(model.sizes, model.mup_base_width, model.mup_base_heads or model.sizes.heads)


def _gpt(recipe: Recipe, device: torch.device) -> GPT:
    """The same first weights as those of the layout engine: they follow from the seed and the parameters' names."""
    sizes, seq_len = recipe.model.sizes, recipe.data.seq_len
    with torch.device("meta"):
        model = GPT(sizes, seq_len)
    model.to_empty(device=device)
    tie(model)
    mup = mup_of(recipe)
    rule = gpt_rule(sizes.layers) if mup is None else mup.rule()
    fill(model, recipe.seed, rule, {COPY: ORIGINAL} if model.tied else None)
    if mup is not None:
        mup.scale(model)
    model.set_positions(torch.arange(seq_len, device=device))
    return model


def _resnet(recipe: Recipe, classes: int) -> nn.Module:
    model = by_name(recipe.model.name, classes)
    if recipe.model.stem == "cifar":
        model.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
        model.maxpool = nn.Identity()  # type: ignore[assignment]
    return model


def _from_library(library: str, name: str, args: dict[str, Any], classes: int | None) -> nn.Module:
    package = {"hf": "transformers"}.get(library, library)
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        raise UserError(
            f"model.name: {library}:{name} needs {package}, which cannot be imported ({error})",
            hint=f"pip install 'vivace[{_LIBRARIES[library]}]'",
        ) from None
    try:
        if library == "torchvision":
            return _checked(
                module.models.get_model(name, **{"weights": None, "num_classes": classes or 1000, **args}), name
            )
        if library == "timm":
            return _checked(module.create_model(name, **{"num_classes": classes or 1000, **args}), name)
        config = module.AutoConfig.from_pretrained(name, trust_remote_code=False)  # a folder, or a name on the hub
        return _checked(module.AutoModelForCausalLM.from_config(config, **args), name)
    except (ValueError, OSError, RuntimeError, TypeError) as error:
        raise UserError(f"model.name: {package} has no {name!r}: {str(error).splitlines()[0][:200]}") from None


def _checked(model: Any, name: str) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise UserError(f"model.name: {name} gave a {type(model).__name__}, not a torch.nn.Module")
    return model
