"""A GPT-2 with random weights, trained by the Trainer of transformers on generated tokens. Downloads nothing.

python examples/transformers_trainer.py --max-steps 10 --layers 2 --width 32 --heads 2 --length 32 -b 4
"""

import argparse
import sys
import tempfile

import torch
from torch.utils.data import Dataset

try:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
except ImportError:
    sys.exit("this example needs transformers: pip install transformers accelerate")


class Tokens(Dataset):
    """Phrases over and over, in random order."""

    def __init__(self, samples, length, vocab_size):
        self.samples, self.length = samples, length
        self.phrases = torch.randint(vocab_size, (64, 8), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        order = torch.randint(64, (self.length // 8 + 1,), generator=torch.Generator().manual_seed(index))
        ids = self.phrases[order].flatten()[: self.length]
        return {"input_ids": ids, "labels": ids}


def main():
    parser = argparse.ArgumentParser(description="Train a GPT-2 with the transformers Trainer")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--vocab-size", type=int, default=8192)
    parser.add_argument("-b", "--batch-size", type=int, default=32)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--max-steps", type=int, default=2000)
    args = parser.parse_args()

    config = GPT2Config(
        vocab_size=args.vocab_size,
        n_positions=args.length,
        n_embd=args.width,
        n_layer=args.layers,
        n_head=args.heads,
        bos_token_id=0,
        eos_token_id=0,
    )
    with tempfile.TemporaryDirectory() as output:
        arguments = TrainingArguments(
            output_dir=output,
            per_device_train_batch_size=args.batch_size,
            max_steps=args.max_steps,
            learning_rate=5e-4,
            logging_steps=10,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            seed=0,
        )
        model = GPT2LMHeadModel(config)
        Trainer(model=model, args=arguments, train_dataset=Tokens(args.samples, args.length, args.vocab_size)).train()


if __name__ == "__main__":
    main()
