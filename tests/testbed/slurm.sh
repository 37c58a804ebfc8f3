#!/usr/bin/env bash
# A Slurm cluster of one node, for one test: own ports, own directory, own key and socket of munge. Nothing in /etc is used.
#
# usage: slurm.sh install            the packages, where they are missing (Debian, root)
#        slurm.sh up DIR PORT        starts it; PORT and PORT+1 are its own; prints the value for SLURM_CONF
#        slurm.sh jobs DIR           lists its jobs' processes
#        slurm.sh down DIR           ends its jobs, then what `up` started, by pid
#
# The node claims to have 8 CPUs and two GPUs: character devices with numbers that no driver has. KILLWAIT: seconds from SIGTERM to
# SIGKILL, 5 where nothing is said. A job that is requeued waits until its credential has expired: 5 s here.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mode=${1:?install, up, jobs or down}
. "$here/slurm-parts.sh"

install() {
  local log
  if command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v sbatch >/dev/null && command -v munged >/dev/null; then return; fi
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "slurm.sh: slurmctld, slurmd, slurm-client and munge are missing, and only root on Debian can install them here" >&2
    return 1
  fi
  log=$(mktemp)
  # One package manager at a time: other parts of the tests may install theirs.
  exec 9>"${TMPDIR:-/tmp}/supervise-testbed.lock"
  flock 9
  if ! { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
    slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    return 1
  fi
  rm -f "$log"
  exec 9>&-
}

is_idle() { [ "$(sinfo -h -o %t 2>/dev/null)" = idle ]; }

configure() {
  local host
  host=$(hostname -s)
  lay_out
  for n in 0 1; do mknod "$dir/gpu$n" c 240 $((port % 100000 + n)); done
  echo "Name=gpu File=$dir/gpu[0-1]" >"$dir/etc/gres.conf"
  cat >"$dir/etc/slurm.conf" <<C
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdPidFile=$dir/run/slurmd.pid
SlurmdSpoolDir=$dir/spool
SlurmdLogFile=$dir/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SlurmctldTimeout=300
SlurmdTimeout=300
MessageTimeout=60
MinJobAge=3600
KillWait=${KILLWAIT:-5}
SchedulerParameters=sched_interval=1,batch_sched_delay=0
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=8 RealMemory=16384 Gres=gpu:2
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
C
}

up() {
  configure
  start_controller
  slurmd -f "$SLURM_CONF" -N n1
  until_true is_idle
  echo "$SLURM_CONF"
}

down() {
  end_jobs
  stop "$dir/run/slurmd.pid" slurmd
  stop_controller
}

if [ "$mode" != install ]; then
  dir=${2:?a directory}
  export SLURM_CONF=$dir/etc/slurm.conf
fi
case $mode in
  install) install ;;
  up) port=${3:?a port} && up ;;
  jobs) squeue -h ;;
  down) down ;;
  *) exit 64 ;;
esac
