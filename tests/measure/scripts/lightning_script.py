"""A Lightning module, trained as its documentation shows."""

import lightning
import torch
from common import make_dataset, make_model
from torch.utils.data import DataLoader


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = make_model()

    def training_step(self, batch, _index):
        inputs, labels = batch
        loss = torch.nn.functional.cross_entropy(self.net(inputs), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _index):
        inputs, labels = batch
        self.log("val", torch.nn.functional.cross_entropy(self.net(inputs), labels))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    trainer = lightning.Trainer(
        max_epochs=50, logger=False, enable_checkpointing=False, enable_progress_bar=False, devices=1
    )
    trainer.fit(Classifier(), DataLoader(make_dataset(640), 32), DataLoader(make_dataset(64), 32))
