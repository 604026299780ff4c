"""Loader workers started by spawn: the script is imported again in each of them."""

import torch
from common import make_dataset, make_model
from torch.utils.data import DataLoader


def main() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(make_dataset(1600), 16, num_workers=2, multiprocessing_context="spawn")
    for inputs, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
