# Daemons: how they start, whether they run, how they stop.
# shellcheck shell=bash

# run_daemon NAME CGROUP CMD...: pid in $state/run/NAME.pid, output in $state/logs/NAME.log.
# A new session and redirected streams: the caller's pipe must close when the caller ends.
run_daemon() {
  local name=$1 cgroup=$2 folders
  shift 2
  mkdir -p "$state/run" "$state/logs"
  mapfile -t folders < <(cgroup_folders "$cgroup/daemons")
  (
    for folder in "${folders[@]}"; do
      echo "$BASHPID" >"$folder/cgroup.procs"
    done
    # A quarter of the time that the control plane would spend on collecting garbage, for memory that the machine has.
    if [[ $cgroup == control-plane ]]; then export GOGC=${GOGC:-400}; else unset GOGC GOMEMLIMIT; fi
    ulimit -n 65536 2>/dev/null || ulimit -n "$(ulimit -Hn)"
    exec setsid "$@"
  ) </dev/null >>"$state/logs/$name.log" 2>&1 7>&- 8>&- 9>&- &
  echo $! >"$state/run/$name.pid"
  disown
}

# Whether a process is gone, though nobody may have asked how it ended. While one of its threads is left, so are its sockets.
is_gone() {
  local threads=("/proc/$1/task/"*)
  ((${#threads[@]} <= 1)) || return 1
  [[ ! -e /proc/$1 || $(awk '$1 == "State:" { print $2 }' "/proc/$1/status" 2>/dev/null) == Z ]]
}

# A pid may be reused by a stranger: it is ours only while it is in the cluster's cgroup.
daemon_pid() {
  local pid
  [[ -f $state/run/$1.pid ]] || return 1
  pid=$(<"$state/run/$1.pid")
  grep -qs ":/isthmus/$id/" "/proc/$pid/cgroup" || return 1
  ! is_gone "$pid" || return 1
  echo "$pid"
}

runs() {
  daemon_pid "$1" >/dev/null
}

is_stopped() {
  ! runs "$1"
}

# The API server drains for a minute when asked to end: it gets a few seconds, like the others.
stop_daemon() {
  local name=$1 pid
  pid=$(daemon_pid "$name") || return 0
  kill "$pid" 2>/dev/null || true
  if ! within "${2:-4}" is_stopped "$name"; then
    kill -9 "$pid" 2>/dev/null || true
    within 5 is_stopped "$name" || warn "$name (process $pid) does not end"
  fi
  rm -f "$state/run/$name.pid"
}

wait_for() {
  local title=$1 limit=$2 log=$3
  shift 3
  within "$limit" "$@" && return
  warn "$title: not after $limit s; the end of $log:"
  tail -n 12 "$log" >&2 || true
  exit 1
}
