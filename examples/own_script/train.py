"""An ordinary training script: a tiny model learns to add, from sums that are made here. It knows nothing of Tunebench.

python train.py --max_steps 50 --output_dir out
"""

import random
from dataclasses import dataclass, field

import torch
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

SIGNS = "0123456789+=."
PADDING = len(SIGNS)


@dataclass
class ModelArguments:
    hidden_size: int = field(default=64, metadata={"help": "Width of the model."})
    layers: int = field(default=2, metadata={"help": "Number of its layers."})


@dataclass
class DataArguments:
    sums: int = field(default=640, metadata={"help": "Number of sums in the training data."})
    digits: int = field(default=4, metadata={"help": "Most digits of a number."})


class Sums(torch.utils.data.Dataset):
    """Sums such as `12+7=19.`, of different lengths, as tokens."""

    def __init__(self, count, digits, seed):
        dice = random.Random(seed)
        pairs = [[dice.randrange(10 ** dice.randint(1, digits)) for _ in range(2)] for _ in range(count)]
        self.texts = [f"{a}+{b}={a + b}." for a, b in pairs]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return [SIGNS.index(sign) for sign in self.texts[index]]


class AnswerCollator:
    """Pads a batch to its longest sum. Only the answers have a loss."""

    def __call__(self, rows):
        longest = max(map(len, rows))
        ids = torch.full((len(rows), longest), PADDING)
        labels = torch.full((len(rows), longest), -100)
        for place, row in enumerate(rows):
            answer = row.index(SIGNS.index("=")) + 1
            ids[place, : len(row)] = torch.tensor(row)
            labels[place, answer : len(row)] = torch.tensor(row[answer:])
        return {"input_ids": ids, "attention_mask": (ids != PADDING).long(), "labels": labels}


def build_model(arguments):
    config = LlamaConfig(
        vocab_size=len(SIGNS) + 1,
        hidden_size=arguments.hidden_size,
        intermediate_size=2 * arguments.hidden_size,
        num_hidden_layers=arguments.layers,
        num_attention_heads=4,
        max_position_embeddings=64,
        pad_token_id=PADDING,
    )
    return LlamaForCausalLM(config)


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_arguments, data_arguments, training_arguments = parser.parse_args_into_dataclasses()
    set_seed(training_arguments.seed)
    trainer = Trainer(
        model=build_model(model_arguments),
        args=training_arguments,
        train_dataset=Sums(data_arguments.sums, data_arguments.digits, training_arguments.seed),
        data_collator=AnswerCollator(),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
