"""Pipelines: layers on different devices, which compute one microbatch after another."""

from tfdist_jax._pipeline._cuts import count_operations as count_operations
from tfdist_jax._pipeline._makers import SCHEDULES as SCHEDULES, make_schedule as make_schedule
from tfdist_jax._pipeline._operations import Kind as Kind, ScheduleError as ScheduleError
from tfdist_jax._pipeline._plan import PipelinePlan as PipelinePlan, Remat as Remat, StagedLoss as StagedLoss
from tfdist_jax._pipeline._schedule import Schedule as Schedule, align_ticks as align_ticks
from tfdist_jax._pipeline._slots import make_slot_table as make_slot_table
from tfdist_jax._pipeline._staged import Staged as Staged
