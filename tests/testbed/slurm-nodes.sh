#!/usr/bin/env bash
# A Slurm cluster of several nodes, for one test, on one machine: each node has its own network, processes and host name, so that it can
# lose its power or its link. Root and iproute2 are needed. Nothing in /etc is used.
#
# usage: slurm-nodes.sh install            the packages, where they are missing
#        slurm-nodes.sh up DIR PORT        starts it, with $NODES nodes n1, n2, ... (2); names and addresses are made from PORT
#        slurm-nodes.sh power-off DIR NODE kills everything on a node at once
#        slurm-nodes.sh power-on DIR NODE  starts it again
#        slurm-nodes.sh cut DIR NODE       takes its link away: its processes live on
#        slurm-nodes.sh heal DIR NODE      gives it back
#        slurm-nodes.sh kill-daemon DIR NODE  kills its slurmd: what it runs lives on; `start-daemon` starts another
#        slurm-nodes.sh exec DIR NODE CMD  runs something there
#        slurm-nodes.sh stop DIR           ends its controller; `start` brings it back
#        slurm-nodes.sh down DIR           ends its jobs, then all that `up` made
#
# GRACE: jobs of the partition `urgent` take the nodes of other jobs, which are told so many seconds before, and requeued.
# HOSTS: names of the nodes resolve on the nodes, as on most clusters.
# KILLWAIT: seconds from SIGTERM to SIGKILL (30). SLURMDTIMEOUT: seconds until a node that does not answer counts as down (300).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mode=${1:?install, up, power-off, power-on, cut, heal, kill-daemon, start-daemon, exec, stop, start or down}
. "$here/slurm-parts.sh"

are_idle() { [ "$(sinfo -h -N -o '%N %t' 2>/dev/null | sort -u | grep -c ' idle$')" = "$nodes" ]; } # each node stands there once for each partition
space() { echo "sv$port-$1"; }
link() { echo "sv$port$1"; }

configure() {
  local host lines="" n
  host=$(hostname -s)
  lay_out
  echo "$port $nodes" >"$dir/etc/made"
  [ -z "${HOSTS:-}" ] || echo "127.0.0.1 localhost" >"$dir/etc/hosts"
  for n in $(seq "$nodes"); do
    mkdir -p "$dir/spool/n$n"
    [ -z "${HOSTS:-}" ] || echo "$net.$((10 + n)) n$n" >>"$dir/etc/hosts"
    lines+="NodeName=n$n NodeHostname=n$n NodeAddr=$net.$((10 + n)) Port=$((port + n)) CPUs=8 RealMemory=16384"$'\n'
  done
  # A network namespace has its own /sys, without control groups: nothing here needs them.
  printf 'CgroupAutomount=no\nCgroupPlugin=cgroup/v1\n' >"$dir/etc/cgroup.conf"
  cat >"$dir/etc/slurm.conf" <<C
ClusterName=test
SlurmctldHost=$host($net.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdPidFile=$dir/run/slurmd-%n.pid
SlurmdSpoolDir=$dir/spool/%n
SlurmdLogFile=$dir/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SlurmctldTimeout=300
SlurmdTimeout=${SLURMDTIMEOUT:-300}
MessageTimeout=10
TCPTimeout=2
MinJobAge=3600
KillWait=${KILLWAIT:-30}
SchedulerParameters=sched_interval=1,batch_sched_delay=0
${lines}PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 ${GRACE:+PreemptMode=REQUEUE GraceTime=$GRACE}
${GRACE:+PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF}
C
}

power_on() {
  local n=$1
  ip netns exec "$(space "$n")" setsid unshare --uts --pid --mount --fork --kill-child=KILL --mount-proc \
    bash -c "hostname $n; [ ! -e $dir/etc/hosts ] || mount --bind $dir/etc/hosts /etc/hosts; slurmd -D -f $SLURM_CONF -N $n & while :; do wait; sleep 1; done" \
    >"$dir/log/node-$n.out" 2>&1 </dev/null &
  echo $! >"$dir/run/node-$n.pid"
}

power_off() {
  local pid
  pid=$(cat "$dir/run/node-$1.pid" 2>/dev/null) && kill -9 "$pid" 2>/dev/null
  rm -f "$dir/run/node-$1.pid"
}

first_process() {
  local pid
  pid=$(cat "$dir/run/node-$1.pid")
  tr -d ' ' <"/proc/$pid/task/$pid/children"
}

up() {
  local n bridge
  configure
  bridge=$(link b)
  ip link add "$bridge" type bridge
  ip addr add "$net.1/24" dev "$bridge"
  ip link set "$bridge" up
  for n in $(seq "$nodes"); do
    ip netns add "$(space "n$n")"
    ip link add "$(link "$n")" type veth peer name eth0 netns "$(space "n$n")"
    ip link set "$(link "$n")" master "$bridge" up
    ip -n "$(space "n$n")" addr add "$net.$((10 + n))/24" dev eth0
    ip -n "$(space "n$n")" link set eth0 up
    ip -n "$(space "n$n")" link set lo up
  done
  start_controller
  for n in $(seq "$nodes"); do power_on "n$n"; done
  until_true are_idle
}

down() {
  local n
  end_jobs
  for n in $(seq "$nodes"); do power_off "n$n" || true; done
  stop_controller
  for n in $(seq "$nodes"); do
    ip link del "$(link "$n")" 2>/dev/null || true
    ip netns del "$(space "n$n")" 2>/dev/null || true
  done
  ip link del "$(link b)" 2>/dev/null || true
}

if [ "$mode" = install ]; then
  command -v ip >/dev/null || { echo "slurm-nodes.sh: iproute2 is missing" >&2; exit 1; }
  exec "$here/slurm.sh" install
fi
dir=${2:?a directory}
export SLURM_CONF=$dir/etc/slurm.conf
if [ "$mode" = up ]; then
  port=${3:?a port} nodes=${NODES:-2}
else
  read -r port nodes <"$dir/etc/made"
fi
net=10.$((port / 256 % 256)).$((port % 256))
case $mode in
  up) up ;;
  power-off) power_off "$3" ;;
  power-on) power_on "$3" ;;
  cut) ip link set "$(link "${3#n}")" down ;;
  heal) ip link set "$(link "${3#n}")" up ;;
  kill-daemon)
    pid=$(first_process "$3")
    # The daemon is the one child of that name; the steps that it began have no other parent than themselves.
    for child in $(tr -d '\0' <"/proc/$pid/task/$pid/children"); do
      [ "$(cat "/proc/$child/comm")" != slurmd ] || kill -9 "$child"
    done
    ;;
  start-daemon) nsenter -t "$(first_process "$3")" -a -- slurmd -f "$SLURM_CONF" -N "$3" ;;
  exec)
    node=$3
    shift 3
    exec nsenter -t "$(first_process "$node")" -a -- "$@"
    ;;
  stop) stop "$dir/run/slurmctld.pid" slurmctld ;;
  start) slurmctld -f "$SLURM_CONF" ;;
  down) down ;;
  *) exit 64 ;;
esac
