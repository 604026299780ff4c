"""A transformers Trainer on a tiny GPT-2 with random weights and random text."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

tokens = torch.randint(0, 64, (4000, 12), generator=torch.Generator().manual_seed(0))
dataset = [{"input_ids": row, "labels": row} for row in tokens]
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=12, n_embd=16, n_layer=2, n_head=2))
arguments = TrainingArguments(
    output_dir="trainer-output", per_device_train_batch_size=8, gradient_accumulation_steps=2, max_steps=200,
    report_to=[], save_strategy="no", logging_steps=50, disable_tqdm=True,
)  # fmt: skip
Trainer(model=model, args=arguments, train_dataset=dataset).train()
