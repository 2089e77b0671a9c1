#!/bin/sh
# A job of 2 machines with 2 ranks each:  sbatch docs/deploy/slurm.sh train.py
#SBATCH --job-name=plait
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
set -eu
# The threads of a rank. MPI=pmi2 for MPICH, pmix for Open MPI; srun --mpi=list shows what a cluster has.
export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"
# Restarts: a script that saves checkpoints goes on from its last one. PLAIT_RESTART counts them.
# --kill-on-bad-exit: a rank that ends with an error ends the job.
PLAIT_RESTART=0
export PLAIT_RESTART
until srun --mpi="${MPI:-pmix}" --cpus-per-task="$OMP_NUM_THREADS" --kill-on-bad-exit=1 python "$@"; do
    PLAIT_RESTART=$((PLAIT_RESTART + 1))
    [ "$PLAIT_RESTART" -le "${RESTARTS:-3}" ] || exit 1
    echo "slurm.sh: restart $PLAIT_RESTART of ${RESTARTS:-3}" >&2
done
