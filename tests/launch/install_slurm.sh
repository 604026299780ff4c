#!/bin/sh
# Installs a Slurm (and the database of its accounts) for the tests in this folder, where apt can be used as root.
# Elsewhere it says so and ends well: those tests then skip, with the reason.
PATH=$PATH:/usr/sbin:/sbin
missing=
for program in slurmctld slurmd munged slurmdbd mariadbd; do
    command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "no$missing, and no root or apt to install them: the Slurm tests that need them will be skipped" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
install() { apt-get install --yes --no-install-recommends "$@"; }
if ! { apt-get update && install slurm-wlm munge && install slurmdbd mariadb-server; } >"$log" 2>&1; then
    echo "Slurm could not be installed: its tests will be skipped ($(tail -n 1 "$log"))" >&2
fi
rm -f "$log"
exit 0
