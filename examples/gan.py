"""A DCGAN: two networks, two optimizers, losses printed as everybody prints them.

python examples/gan.py --epochs 1 --images 512 -b 32 --image-size 32 --features 16
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Blobs(Dataset):
    """Soft coloured discs on a dark ground: what the generator should learn to paint."""

    def __init__(self, images, side):
        self.images, self.side = images, side
        line = torch.linspace(-1, 1, side)
        self.y, self.x = torch.meshgrid(line, line, indexing="ij")

    def __len__(self):
        return self.images

    def __getitem__(self, index):
        rng = torch.Generator().manual_seed(index)
        cx, cy, radius, *colour = torch.rand(6, generator=rng).tolist()
        disc = torch.sigmoid(20 * (0.2 + 0.4 * radius - ((self.x - cx + 0.5) ** 2 + (self.y - cy + 0.5) ** 2).sqrt()))
        return torch.stack([2 * c * disc - 1 for c in colour])


def weights_init(module):
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


def make_generator(latent, features, side):
    """From a latent vector to side x side: 4, 8, 16, ... pixels."""
    width = features * side // 8
    layers = [nn.ConvTranspose2d(latent, width, 4, 1, 0), nn.BatchNorm2d(width), nn.ReLU(True)]
    while side > 8:
        layers += [nn.ConvTranspose2d(width, width // 2, 4, 2, 1), nn.BatchNorm2d(width // 2), nn.ReLU(True)]
        width, side = width // 2, side // 2
    return nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())


def make_discriminator(features, side):
    layers, width = [nn.Conv2d(3, features, 4, 2, 1), nn.LeakyReLU(0.2, True)], features
    while side > 8:
        layers += [nn.Conv2d(width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2, True)]
        width, side = 2 * width, side // 2
    return nn.Sequential(*layers, nn.Conv2d(width, 1, 4, 1, 0), nn.Flatten(0))


def main():
    parser = argparse.ArgumentParser(description="Train a DCGAN")
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--image-size", type=int, default=64, help="a power of two")
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--latent", type=int, default=100)
    parser.add_argument("-b", "--batch-size", type=int, default=128)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--seed", type=int, default=999)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader = DataLoader(Blobs(args.images, args.image_size), args.batch_size, shuffle=True, num_workers=args.workers)
    netG = make_generator(args.latent, args.features, args.image_size).to(device)
    netD = make_discriminator(args.features, args.image_size).to(device)
    netG.apply(weights_init)
    netD.apply(weights_init)
    criterion = nn.BCEWithLogitsLoss()
    optimizerD = torch.optim.Adam(netD.parameters(), lr=args.lr, betas=(0.5, 0.999))
    optimizerG = torch.optim.Adam(netG.parameters(), lr=args.lr, betas=(0.5, 0.999))

    for epoch in range(args.epochs):
        for i, real in enumerate(loader):
            # Discriminator: maximize log(D(x)) + log(1 - D(G(z)))
            netD.zero_grad()
            real = real.to(device)
            size = real.size(0)
            label = torch.full((size,), 1.0, device=device)
            output = netD(real)
            errD_real = criterion(output, label)
            errD_real.backward()
            D_x = output.sigmoid().mean().item()

            noise = torch.randn(size, args.latent, 1, 1).to(device)
            fake = netG(noise)
            label.fill_(0.0)
            output = netD(fake.detach())
            errD_fake = criterion(output, label)
            errD_fake.backward()
            D_G_z1 = output.sigmoid().mean().item()
            optimizerD.step()

            # Generator: maximize log(D(G(z)))
            netG.zero_grad()
            label.fill_(1.0)
            output = netD(fake)
            errG = criterion(output, label)
            errG.backward()
            D_G_z2 = output.sigmoid().mean().item()
            optimizerG.step()

            errD = errD_real.item() + errD_fake.item()
            if i % 50 == 0:
                print(
                    f"[{epoch}/{args.epochs}][{i}/{len(loader)}] Loss_D {errD:.4f} Loss_G {errG.item():.4f} "
                    f"D(x) {D_x:.4f} D(G(z)) {D_G_z1:.4f} / {D_G_z2:.4f}"
                )


if __name__ == "__main__":
    main()
