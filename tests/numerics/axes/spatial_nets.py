"""Nets of torch's own modules, as somebody would write them; nothing here is split."""

import torch
from torch import nn


def double_conv(channels: int, width: int, norm: type[nn.Module]) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(channels, width, 3, padding=1, bias=False),
        norm(width),
        nn.LeakyReLU(0.01, inplace=True),
        nn.Conv3d(width, width, 3, padding=1, bias=False),
        norm(width),
        nn.LeakyReLU(0.01, inplace=True),
    )


class UNet3d(nn.Module):
    """Two levels down and up again, with skips; voxel-wise classes."""

    def __init__(self, norm: type[nn.Module] = nn.InstanceNorm3d) -> None:
        super().__init__()
        self.down1 = double_conv(1, 4, norm)
        self.down2 = double_conv(4, 8, norm)
        self.bottom = double_conv(8, 16, norm)
        self.pool = nn.MaxPool3d(2)
        self.up2 = nn.ConvTranspose3d(16, 8, 2, stride=2)
        self.join2 = double_conv(16, 8, norm)
        self.up1 = nn.ConvTranspose3d(8, 4, 2, stride=2)
        self.join1 = double_conv(8, 4, norm)
        self.head = nn.Conv3d(4, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.down1(x)
        two = self.down2(self.pool(one))
        three = self.bottom(self.pool(two))
        two = self.join2(torch.cat([self.up2(three), two], dim=1))
        one = self.join1(torch.cat([self.up1(two), one], dim=1))
        return self.head(one)


class Residual(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels != width:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """As torchvision's, with two stages of small width."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(Residual(8, 8, 1), Residual(8, 8, 1))
        self.layer2 = nn.Sequential(Residual(8, 16, 2), Residual(16, 16, 1))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.avgpool(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(x, 1))
