"""tf.distribute programs on JAX, and the same strategies for native Flax training."""

from tfdist_jax._garbage_collection import importing_modules

with importing_modules():
    from tfdist_jax._across_devices import (
        Routed as Routed,
        attend as attend,
        compute_router_z_loss as compute_router_z_loss,
        run_experts as run_experts,
        token_positions as token_positions,
    )
    from tfdist_jax._check_equal import check_equal as check_equal
    from tfdist_jax._checkpoint._checkpointer import Checkpointer as Checkpointer, Restored as Restored
    from tfdist_jax._cluster import (
        TLS as TLS,
        Cluster as Cluster,
        LateSave as LateSave,
        MissingTasksError as MissingTasksError,
        Preemption as Preemption,
        Task as Task,
        Timeouts as Timeouts,
        initialize as initialize,
    )
    from tfdist_jax._compilation_cache import bypass_for_unordered_collectives
    from tfdist_jax._cpu_kernels import install as install_cpu_kernels
    from tfdist_jax._errors import DataLossError as DataLossError
    from tfdist_jax._explain import Explanation as Explanation, assert_collectives as assert_collectives
    from tfdist_jax._forks import refuse_after_forks
    from tfdist_jax._global_batch import Mean as Mean, Rows as Rows, Sum as Sum, layer as layer, row_keys as row_keys
    from tfdist_jax._hardware import HARDWARE as HARDWARE, Hardware as Hardware
    from tfdist_jax._parameter_server import (
        Asynchronous as Asynchronous,
        LocalSGD as LocalSGD,
        ParameterServer as ParameterServer,
        StepResult as StepResult,
        Synchronous as Synchronous,
    )
    from tfdist_jax._pipeline import Schedule as Schedule, ScheduleError as ScheduleError, Staged as Staged
    from tfdist_jax._plan import Plan as Plan, PlannedMesh as PlannedMesh, plan as plan
    from tfdist_jax._runtime import finish_at_exit, prepare_cpu, use_cpu_devices as use_cpu_devices
    from tfdist_jax._sharding._collectives import ReduceOp as ReduceOp, fused_mean as fused_mean, fused_sum as fused_sum
    from tfdist_jax._sharding._compression import (
        BFloat16 as BFloat16,
        Compression as Compression,
        Int8 as Int8,
        PowerSGD as PowerSGD,
        TopK as TopK,
    )
    from tfdist_jax._sharding._exact import assume_exact as assume_exact
    from tfdist_jax._sharding._input import PaddedBatch as PaddedBatch, split_sizes as split_sizes
    from tfdist_jax._sharding._layout import Layout as Layout, StateLeaf as StateLeaf
    from tfdist_jax._sharding._mesh import DATA as DATA, make_mesh as make_mesh
    from tfdist_jax._sharding._values import PerReplica as PerReplica
    from tfdist_jax._strategy import Strategy as Strategy
    from tfdist_jax.strategies import (
        FSDP as FSDP,
        HSDP as HSDP,
        CentralStorage as CentralStorage,
        Compressed as Compressed,
        Mirrored as Mirrored,
        Offloaded as Offloaded,
        Pipeline as Pipeline,
        Sharded as Sharded,
        SingleDevice as SingleDevice,
        TensorParallel as TensorParallel,
        ZeRO1 as ZeRO1,
    )

prepare_cpu()
finish_at_exit()
bypass_for_unordered_collectives()
refuse_after_forks()
install_cpu_kernels()
