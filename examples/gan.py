"""Two optimizers that take turns: a generator and a discriminator."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

STEPS, BATCH_SIZE, NOISE = 16, 32, 8


def main() -> None:
    accelerator = Accelerator()
    set_seed(0)
    samples = STEPS * BATCH_SIZE * accelerator.num_processes
    loader = torch.utils.data.DataLoader(torch.randn(samples, 16), batch_size=BATCH_SIZE)
    generator = torch.nn.Sequential(torch.nn.Linear(NOISE, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
    critic = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    generator, critic, loader = accelerator.prepare(generator, critic, loader)
    generator_optimizer = accelerator.prepare(torch.optim.Adam(generator.parameters(), lr=1e-3))
    critic_optimizer = accelerator.prepare(torch.optim.Adam(critic.parameters(), lr=1e-3))

    for real in loader:
        fake = generator(torch.randn(len(real), NOISE, device=accelerator.device))
        critic_loss = critic(fake.detach()).mean() - critic(real).mean()
        critic_optimizer.zero_grad()
        accelerator.backward(critic_loss)
        critic_optimizer.step()

        generator_loss = -critic(fake).mean()
        generator_optimizer.zero_grad()
        accelerator.backward(generator_loss)
        generator_optimizer.step()
    accelerator.print(f"critic {critic_loss.item():.4f}, generator {generator_loss.item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
