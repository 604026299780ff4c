#!/bin/bash
# demo: 16 GPUs on 2 nodes of jean-zay-v100-8way
# Written by vivace VERSION. To send it again: sbatch runs/demo-001/job.sh
#SBATCH --job-name=demo
#SBATCH --output=runs/demo-001/%j.out
#SBATCH --error=runs/demo-001/%j.err
#SBATCH --open-mode=append
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=3
#SBATCH --partition=gpu_p2
#SBATCH --account=xyz@v100
#SBATCH --qos=qos_gpu-t3
#SBATCH --time=05:00:00
#SBATCH --requeue
#SBATCH --signal=B:USR1@300
#SBATCH --hint=nomultithread

vivace_job=$SLURM_JOB_ID
if [ -n "$SLURM_ARRAY_JOB_ID" ]; then  # the plain id of an array's last task would requeue the whole array
    vivace_job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
fi

# This script and rank 0 talk through $vivace_files.told and $vivace_files.state (vivace.preemption), about this start of the job.
vivace_files=runs/demo-001/$vivace_job
vivace_command=  # its process
rm -f "$vivace_files.told" "$vivace_files.state"
export VIVACE_JOB_FILES="$vivace_files" VIVACE_REQUEUE_BY=script VIVACE_MAX_REQUEUES=10

rank_0_says() {  # listening, saved or done; nothing, when the command does not use vivace.preemption
    local word=
    [ -r "$vivace_files.state" ] && read -r word <"$vivace_files.state"
    echo "$word"
}

pass_the_warning_on() {  # Slurm gives it to this script alone: torchrun and others would die of the signal
    warned=yes
    case $(rank_0_says) in
        done) return ;;  # nothing is left to interrupt
        listening | saved) date +%FT%T >"$vivace_files.told" && return ;;  # it looks at this file
    esac
    date +%FT%T >"$vivace_files.told"  # for ranks that begin to listen later
    [ -z "$vivace_command" ] || kill -"$1" "$vivace_command"  # for a command that handles the signal by itself
}
trap 'pass_the_warning_on USR1' USR1
# Whoever wants this script alone to end wants the command to: a script that is gone leaves a job that reads FAILED.
trap '[ -n "$vivace_command" ] || exit 143; pass_the_warning_on TERM' TERM HUP INT

cd /home/me/project || exit 1

module purge || exit 1
module load pytorch-gpu/py3/2.4.0 || exit 1

# Where the ranks meet: the first node, and a port that follows from the job's number.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
export MASTER_ADDR MASTER_PORT
export PYTHONUNBUFFERED=1
unset SLURM_EXPORT_ENV  # with --export=NONE, srun would keep these variables from the ranks
# What vivace records inside the job lies beside its logs: `vivace status` reads it there.
export VIVACE_RUNS=runs/demo-001

set -m  # the command in the background, so that a warning is heard at once, and with Ctrl-C as in the foreground
# One task a rank. The variables are those that torchrun would set; "$@" is the command, word for word.
# A process that does not handle the warning (torchrun, a rank that still imports) ignores it.
code=0
srun --kill-on-bad-exit=1 --cpus-per-task=3 \
    bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
        trap "" USR1 USR2; exec "$@"' rank \
    python dlojz.py --batch-size 128 &
vivace_command=$!
set +m  # else bash takes a command that is stopped (in a suspended job) for one that has ended
while warned=; wait "$vivace_command"; code=$?; [ -n "$warned" ]; do :; done
trap : USR1 TERM HUP INT  # the command has ended: what it ended with must get out

ask_state() {  # while Slurm's controller is down, asks again with longer pauses, for as long as the job may run
    local pause=5 answer
    until answer=$(timeout 60 scontrol --oneliner show job "$vivace_job" 2>&1) || [[ $answer == *"Invalid job id"* ]]; do
        if [ $((SECONDS + pause)) -ge 18000 ]; then
            answer=
            break
        fi
        echo "vivace: Slurm does not answer, asking again in $pause s: ${answer##*$'\n'}" >&2
        sleep "$pause"
        pause=$((pause < 40 ? 2 * pause : 60))
    done
    state=$(sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p' <<<"$answer")
    reason=$(sed -n 's/.*JobState=COMPLETING Reason=\([A-Za-z]*\).*/\1/p' <<<"$answer")
}

may_be=RUNNING
job_goes_on() {  # a job that someone cancelled is not to start again
    ask_state
    [ "$reason" != TimeLimit ] || state=TIMEOUT  # as Slurm calls it once its last process has ended
    [[ $state =~ ^($may_be)$ ]] || { echo "vivace: not requeued, the job is ${state:-unknown to Slurm}" >&2; return 1; }
}

start_again() {
    local refusals=0
    if [ "${SLURM_RESTART_COUNT:-0}" -ge 10 ]; then
        echo "vivace: not requeued again after 10 restarts; the last checkpoint is kept" >&2
        return
    fi
    until timeout 60 scontrol requeue "$vivace_job"; do
        refusals=$((refusals + 1))
        if [ "$refusals" -ge 3 ] || ! sleep 5 || ! job_goes_on; then
            echo "vivace: scontrol could not requeue the job; send it again to go on from the checkpoint" >&2
            return
        fi
    done
    echo "vivace: requeued, restart $((${SLURM_RESTART_COUNT:-0} + 1)) of at most 10"
    ask_state
    [[ $state =~ ^(PENDING|REQUEUE|COMPLETING) ]] ||
        echo "vivace: but the queue does not show it as pending: see squeue --me" >&2
}

# The ranks were told to stop, saved, and ask to go on later. torchrun makes another code of their 85.
if [ "$code" -eq 85 ] || [ "$(rank_0_says)" = saved ]; then
    code=85
    may_be="RUNNING|TIMEOUT|PREEMPTED"  # while they saved, or Slurm was silent, its time may have ended
    date +%FT%T >>"$vivace_files.saved"
    job_goes_on && start_again
# It was told to stop and had not yet begun to listen: it saved before, or has just begun to run. 138: SIGUSR1 ended it;
# 143: SIGTERM, from this script.
elif { [ "$code" -eq 138 ] || { [ "$code" -eq 143 ] && [ -e "$vivace_files.told" ]; }; } &&
    [ "$(rank_0_says)" != done ] && { [ -e "$vivace_files.saved" ] || [ "$SECONDS" -lt 180 ]; }; then
    job_goes_on && start_again
fi
exit "$code"
