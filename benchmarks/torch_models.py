"""Models of `models.MODELS` in PyTorch, with the same layers and sizes, and their training step."""

# pyright: basic, reportMissingImports=false
import torch
from models import CLASSES, WORDS
from torch import nn
from torch.nn import functional


def write_loop(model, batch):
    """Return what takes steps in bfloat16, compiled, on the first GPU or else on the CPU."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    x, y = (torch.from_numpy(array).to(device) for array in batch)
    if x.ndim == 4:
        x = x.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
        model = model.to(memory_format=torch.channels_last)
    model = model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    compiled, y = torch.compile(model), y.long()

    def run(steps):
        for _ in range(steps):
            with torch.autocast(device.type, torch.bfloat16):
                logits = compiled(x)
            loss = functional.cross_entropy(logits.float(), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        loss.item()

    return run


class _Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.mix, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.mix(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.wide(self.norms[1](x))))


class Encoder(nn.Module):
    """A transformer's encoder, normalized first."""

    def __init__(self, width, depth, heads):
        """Make the parameters."""
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList([_Block(width, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x):
        """Return logits of sentences."""
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class _Normalized(nn.Sequential):
    def __init__(self, inputs, filters, size, strides=1):
        super().__init__(nn.Conv2d(inputs, filters, size, strides, size // 2), nn.BatchNorm2d(filters))


class _Bottleneck(nn.Module):
    def __init__(self, inputs, filters, strides):
        super().__init__()
        self.first, self.second = _Normalized(inputs, filters, 1, strides), _Normalized(filters, filters, 3)
        self.third = _Normalized(filters, 4 * filters, 1)
        self.shortcut = nn.Identity() if inputs == 4 * filters else _Normalized(inputs, 4 * filters, 1, strides)

    def forward(self, x):
        y = self.third(functional.relu(self.second(functional.relu(self.first(x)))))
        return functional.relu(y + self.shortcut(x))


class ResNet50(nn.Module):
    """The network of `keras.applications`."""

    def __init__(self):
        """Make the parameters."""
        super().__init__()
        blocks, inputs = [], 64
        for filters, count, strides in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(count):
                blocks.append(_Bottleneck(inputs, filters, 1 if i else strides))
                inputs = 4 * filters
        self.stem, self.pool = _Normalized(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inputs, CLASSES)

    def forward(self, x):
        """Return logits of images."""
        return self.head(self.blocks(self.pool(functional.relu(self.stem(x)))).mean((2, 3)))
