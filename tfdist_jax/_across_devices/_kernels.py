"""Attention kernels of accelerators, for tokens that are all on one device."""

import functools
import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def find_kernel(
    query: jax.Array, key: jax.Array, value: jax.Array, mask: jax.Array | None, is_causal: bool
) -> Callable[..., jax.Array] | None:
    """Return what computes attention of 16 bits in one kernel where the function runs that is being traced; None if nothing fits.

    A kernel sees one device's arrays, so it fits only where all axes of the mesh are split by hand. Wider numbers are left to XLA, which
    keeps their precision.

    Args:
        query: `[rows, tokens, heads, features]`.
        key: `[rows, tokens, key heads, features]`.
        value: As `key`.
        mask: No kernel takes one that differs between rows.
        is_causal: Whether only a token itself and those before it count.

    Returns:
        A function of query, key and value, as `jax.nn.dot_product_attention`.
    """
    if mask is not None or not query.dtype == key.dtype == value.dtype:
        return None
    platform, length, features = _platform(), query.shape[1], query.shape[-1]
    if platform == "tpu" and query.dtype == jnp.bfloat16 and length % 128 == 0 and features % 64 == 0:
        return functools.partial(attend_on_tpu, is_causal)
    is_half = query.dtype in (jnp.bfloat16, jnp.float16)
    if platform == "gpu" and is_half and features % 8 == 0 and features <= 128 and _has_flash_attention():
        return functools.partial(jax.nn.dot_product_attention, is_causal=is_causal, implementation="cudnn")
    return None


def _platform() -> str | None:
    """Where the function runs that is being traced; None if that is not known, or XLA divides what it computes."""
    mesh = jax.sharding.get_abstract_mesh()
    sizes = zip(mesh.axis_types, mesh.axis_sizes, strict=True)
    is_by_hand = all(kind == jax.sharding.AxisType.Manual or size == 1 for kind, size in sizes)
    device = mesh.abstract_device
    return device.platform if is_by_hand and device is not None else None


def _has_flash_attention() -> bool:
    """Whether cuDNN has a kernel for all GPUs here: those of NVIDIA with compute capability 8.0 or more."""
    found = [str(getattr(device, "compute_capability", "")) for device in jax.local_devices()]
    # Those of AMD have names, such as gfx942.
    return all(re.fullmatch(r"\d+\.\d+", one) and float(one) >= 8 for one in found)


def attend_on_tpu(is_causal: bool, query: Any, key: Any, value: Any, *, interpret: bool = False) -> jax.Array:
    """Attend with the splash kernel.

    Args:
        is_causal: Whether only a token itself and those before it count.
        query: `[rows, tokens, heads, features]`, tokens a multiple of 128.
        key: `[rows, tokens, key heads, features]`.
        value: As `key`.
        interpret: Whether to run the kernel step by step, on any device.
    """
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask

    _, length, heads, features = query.shape
    shape = (length, length)
    mask = splash_attention_mask.CausalMask(shape) if is_causal else splash_attention_mask.FullMask(shape)
    block = next(size for size in (512, 384, 256, 128) if length % size == 0)
    sizes = splash_attention_kernel.BlockSizes(
        block_q=block,
        block_kv=block,
        block_kv_compute=block,
        block_q_dkv=block,
        block_kv_dkv=block,
        block_kv_dkv_compute=block,
        block_q_dq=block,
        block_kv_dq=block,
    )
    attend: Any = splash_attention_kernel.make_splash_mha(
        splash_attention_mask.MultiHeadMask([mask] * heads),
        block_sizes=sizes,
        head_shards=1,
        q_seq_shards=1,
        interpret=interpret,
    )
    scaled = (query.astype(np.float32) / math.sqrt(features)).astype(query.dtype)
    rows = (x.swapaxes(1, 2) for x in (scaled, key, value))
    return jax.vmap(attend)(*rows).swapaxes(1, 2)
