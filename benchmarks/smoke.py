"""Three training steps of GPT-2 (124 M) on random tokens: do they fit, how fast are they?

    python -m benchmarks.smoke [--device cpu] [--batch_size 1] [--mixed_precision fp16] …
    mytorchrun launch --num_gpus 4 -m benchmarks.smoke

It takes the options of train_gpt2.py, needs no data, leaves no files, and prints the time and the memory.
"""

import mytorch
from mytorch.accelerate.throughput import peak_memory
from train_gpt2 import arguments, build, make_accelerator, train_step

VOCAB_SIZE = 50304  # GPT-2's, rounded up


def main() -> None:
    args = arguments(__doc__.partition("\n")[0], model_size="base", context_length=1024, batch_size=1)
    try:
        accelerator = make_accelerator(args)
    except (ImportError, ValueError) as error:  # a message without a traceback
        raise SystemExit(str(error)) from None
    model, optimizer, throughput = build(accelerator, VOCAB_SIZE, args)
    accelerator.print(f"{model.num_parameters():,} parameters, {throughput.tokens:,} tokens a step")
    model, optimizer = accelerator.prepare(model, optimizer)
    shape = args.gradient_accumulation_steps, args.batch_size, args.context_length + 1
    for step in range(1, 4):
        throughput.start(step - 1)
        loss = train_step(accelerator, model, optimizer, mytorch.randint(VOCAB_SIZE, shape), args).item()
        throughput.measure(step)
        memory = f"{peak_memory(accelerator.device) / 1e9:.2f} GB at the peak"
        accelerator.print(f"step {step}: loss {loss:.4f}, {throughput.text()}, {memory}")
    accelerator.end_training()


if __name__ == "__main__":
    mytorch.stream.publish()  # `mytorchrun top` shows this process
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
