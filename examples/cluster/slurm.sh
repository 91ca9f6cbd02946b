#!/bin/bash
# Two nodes with Slurm: sbatch slurm.sh train.py --its --arguments
#
# One process a node, with all of its GPUs. When a process fails, all start again and go on from the last checkpoint.
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@120
##SBATCH --gpus-per-node=4

set -euo pipefail

# A port for each job, since jobs may share a node.
port=$((20000 + SLURM_JOB_ID % 20000))
HOSTS=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s/$/:$port/" | paste -s -d, -)
export HOSTS

# Each task asks for its own number: the variable is the task's, not this script's.
srun --kill-on-bad-exit=1 bash -c \
  'exec tfdist-jax launch --hosts "$HOSTS" --index "$SLURM_PROCID" --max-restarts 3 --stop-timeout 100 "$@"' \
  launch "$@"
