#!/usr/bin/env bash
#SBATCH --job-name=@JOB@
#SBATCH --nodes=@COUNT@
#SBATCH --nodelist=@NODELIST@
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=0
#SBATCH --no-requeue
@HEADER@
set -euo pipefail

# Slurm sorts the nodes of a job by itself, so that its task 0 need not be the head: ranks follow from the names.
run_rank() {
    set -euo pipefail
    local head=@HEAD@ rank own
    name=@JOB@-${SLURM_JOB_ID:?} # not local: read at the end of the shell
    case ${SLURMD_NODENAME:?} in
@RANKS@
    *)
        echo "$SLURMD_NODENAME is no node of unit @UNIT@" >&2
        return 1
        ;;
    esac
    local -a container=(
@CONTAINER@
    )
    local -a words
    if [ "$rank" -eq 0 ]; then
        words=(
@HEADWORDS@
        )
    else
        words=(
@WORKERWORDS@
        )
    fi
    # Slurm ends docker's client, which does not always end the container.
    trap 'docker stop --time @DRAIN@ "$name" >/dev/null 2>&1 || true' EXIT
    trap 'exit 143' TERM INT
    docker run --name "$name" "${container[@]}" "${words[@]}" &
    wait "$!"
}

mapfile -t given < <(scontrol show hostnames "${SLURM_JOB_NODELIST:?}" | LC_ALL=C sort)
mapfile -t wanted < <(printf '%s\n' @NODES@ | LC_ALL=C sort)
if [ "${given[*]}" != "${wanted[*]}" ]; then
    echo "unit @UNIT@ needs the nodes ${wanted[*]}; Slurm gave ${given[*]}" >&2
    exit 1
fi
export -f run_rank
# When one rank ends, Slurm ends all others.
exec srun --nodes=@COUNT@ --ntasks-per-node=1 --kill-on-bad-exit=1 --label bash -c run_rank
