#!/bin/sh
# Slurm runs this before each task of an srun inside the job (SLURM_TASK_PROLOG) and sets what it prints.
echo "export RANK=$SLURM_PROCID"
echo "export LOCAL_RANK=$SLURM_LOCALID"
echo "export WORLD_SIZE=$SLURM_NTASKS"
