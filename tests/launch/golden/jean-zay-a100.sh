#!/bin/bash
# demo: 16 GPUs on 2 nodes of jean-zay-a100
# Written by vivace VERSION. To send it again: sbatch runs/demo-001/job.sh
#SBATCH --job-name=demo
#SBATCH --output=runs/demo-001/%j.out
#SBATCH --error=runs/demo-001/%j.err
#SBATCH --open-mode=append
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=8
#SBATCH --constraint=a100
#SBATCH --account=xyz@a100
#SBATCH --qos=qos_gpu_a100-t3
#SBATCH --time=05:00:00
#SBATCH --requeue
#SBATCH --signal=USR1@300
#SBATCH --hint=nomultithread

cd /home/me/project || exit 1

module purge || exit 1
module load arch/a100 || exit 1
module load pytorch-gpu/py3/2.6.0 || exit 1

# Where the ranks meet: the first node, and a port that follows from the job's number.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
export MASTER_ADDR MASTER_PORT
export PYTHONUNBUFFERED=1
unset SLURM_EXPORT_ENV  # with --export=NONE, srun would keep these variables from the ranks
# What vivace records inside the job lies beside its logs: `vivace status` reads it there.
export VIVACE_RUNS=runs/demo-001
export VIVACE_REQUEUE_BY=script VIVACE_MAX_REQUEUES=10

# One task a rank. The variables are those that torchrun would set; "$@" is the command, word for word.
code=0
srun --kill-on-bad-exit=1 --cpus-per-task=8 \
    bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS; exec "$@"' rank \
    python dlojz.py --batch-size 128 || code=$?

job=$SLURM_JOB_ID
if [ -n "$SLURM_ARRAY_JOB_ID" ]; then  # the plain id of an array's last task would requeue the whole array
    job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
fi

job_goes_on() {  # a job that someone cancelled is not to start again
    local state
    state=$(timeout 60 scontrol --oneliner show job "$job" | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p')
    [ "$state" = RUNNING ] || { echo "vivace: not requeued, the job is ${state:-unknown to Slurm}" >&2; return 1; }
}

start_again() {
    if [ "${SLURM_RESTART_COUNT:-0}" -ge 10 ]; then
        echo "vivace: not requeued again after 10 restarts; the last checkpoint is kept" >&2
    elif timeout 60 scontrol requeue "$job"; then
        echo "vivace: requeued, restart $((${SLURM_RESTART_COUNT:-0} + 1)) of at most 10"
        timeout 20 scontrol --oneliner show job "$job" | grep -q 'JobState=\(PENDING\|REQUEUE\|COMPLETING\)' ||
            echo "vivace: but the queue does not show it as pending: see squeue --me" >&2
    else
        echo "vivace: scontrol could not requeue the job; send it again to go on from the checkpoint" >&2
    fi
}

# 85: the ranks were told to stop, saved, and ask to go on later (vivace.preemption).
saved=runs/demo-001/$job.saved
if [ "$code" -eq 85 ]; then
    date +%FT%T >>"$saved"
    job_goes_on && start_again
# 138: SIGUSR1 ended a rank. A command that saved before does listen: this time it had not yet begun to.
elif [ "$code" -eq 138 ] && [ -e "$saved" ]; then
    job_goes_on && start_again
fi
exit "$code"
