"""Workers that live on between epochs: the samples come in the order in which they came without them."""

from __future__ import annotations

from pathlib import Path

import pytest
from practices.changed import run_with

SCRIPT = """
import json, torch
from torch.utils.data import DataLoader

def main():
    torch.manual_seed(7)
    loader = DataLoader(torch.arange(12), batch_size=4, shuffle=True, **OPTIONS)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], 0.1)
    epochs = []
    for epoch in range(3):
        seen = []
        for batch in loader:
            seen += batch.tolist()
            weight.square().sum().backward()
            optimizer.step()
        epochs.append(seen)
    print(json.dumps({"epochs": epochs, "then": torch.rand(1).item()}))

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("{}", ["workers=1"]),
        ("{'generator': torch.Generator().manual_seed(3)}", ["workers=1"]),
        ("{'num_workers': 1}", ["persistent_workers"]),
    ],
)
def test_every_epoch_comes_in_the_scripts_own_order(tmp_path: Path, options: str, words: list[str]):
    script = SCRIPT.replace("OPTIONS", options)
    own, kept = run_with(script, [], tmp_path / "own"), run_with(script, words, tmp_path / "kept")
    assert all(text.startswith("applied") for text in kept.told.values())
    assert len({tuple(epoch) for epoch in own.printed["epochs"]}) == 3
    assert kept.printed == own.printed


def test_a_script_that_keeps_its_workers_itself_keeps_its_own_order(tmp_path: Path):
    script = SCRIPT.replace("OPTIONS", "{'num_workers': 1, 'persistent_workers': True}")
    own, kept = run_with(script, [], tmp_path / "own"), run_with(script, ["workers=2"], tmp_path / "kept")
    assert kept.printed == own.printed
