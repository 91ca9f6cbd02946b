"""Models of `models.MODELS` in Flax, with the same layers and sizes, and their training step."""

# pyright: basic
import jax
import optax
from flax import nnx
from models import CLASSES, MODELS, WORDS


def write_step(name):
    """Return a function that lowers a training step."""
    model = {"resnet50": ResNet50, "deep transformer": Encoder}[name](nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    graph, state = nnx.split((model, optimizer))

    @jax.jit
    def step(state, x, y):
        model, optimizer = nnx.merge(graph, state)

        def loss_fn(model):
            return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

        loss, grads = nnx.value_and_grad(loss_fn)(model)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), loss

    return lambda: step.lower(state, *MODELS[name].batch())


class _Block(nnx.Module):
    def __init__(self, width, rngs):
        self.attention = nnx.MultiHeadAttention(4, width, decode=False, rngs=rngs)
        self.norms = nnx.List([nnx.LayerNorm(width, rngs=rngs) for _ in range(2)])
        self.wide, self.narrow = nnx.Linear(width, 4 * width, rngs=rngs), nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.narrow(nnx.gelu(self.wide(self.norms[1](x))))


class Encoder(nnx.Module):
    """A transformer's encoder, normalized first."""

    def __init__(self, rngs, width=256, depth=12):
        """Make the parameters."""
        self.embed = nnx.Embed(WORDS, width, rngs=rngs)
        self.blocks = nnx.List([_Block(width, rngs) for _ in range(depth)])
        self.norm, self.head = nnx.LayerNorm(width, rngs=rngs), nnx.Linear(width, CLASSES, rngs=rngs)

    def __call__(self, x):
        """Return logits of sentences."""
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class _Normalized(nnx.Module):
    def __init__(self, inputs, filters, size, strides, rngs):
        self.convolution = nnx.Conv(inputs, filters, (size, size), strides=strides, rngs=rngs)
        self.norm = nnx.BatchNorm(filters, rngs=rngs)

    def __call__(self, x):
        return self.norm(self.convolution(x))


class _Bottleneck(nnx.Module):
    def __init__(self, inputs, filters, strides, rngs):
        self.first = _Normalized(inputs, filters, 1, strides, rngs)
        self.second = _Normalized(filters, filters, 3, 1, rngs)
        self.third = _Normalized(filters, 4 * filters, 1, 1, rngs)
        self.shortcut = None if inputs == 4 * filters else _Normalized(inputs, 4 * filters, 1, strides, rngs)

    def __call__(self, x):
        y = self.third(nnx.relu(self.second(nnx.relu(self.first(x)))))
        return nnx.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet50(nnx.Module):
    """The network of `keras.applications`."""

    def __init__(self, rngs):
        """Make the parameters."""
        blocks, inputs = [], 64
        for filters, count, strides in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(count):
                blocks.append(_Bottleneck(inputs, filters, 1 if i else strides, rngs))
                inputs = 4 * filters
        self.stem, self.blocks = _Normalized(3, 64, 7, 2, rngs), nnx.List(blocks)
        self.head = nnx.Linear(inputs, CLASSES, rngs=rngs)

    def __call__(self, x):
        """Return logits of images."""
        x = nnx.max_pool(nnx.relu(self.stem(x)), (3, 3), strides=(2, 2), padding="SAME")
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))
