# Messages, timed steps and locks.
# shellcheck shell=bash

die() {
  echo "hack/cluster: $*" >&2
  exit 1
}

warn() {
  echo "hack/cluster: $*" >&2
}

# The time since `begun`, in seconds with a tenth.
elapsed() {
  local from=$1 now=${EPOCHREALTIME/[.,]/}
  printf '%d.%d' $(((now - from) / 1000000)) $(((now - from) / 100000 % 10))
}

clock() {
  echo "${EPOCHREALTIME/[.,]/}"
}

# Runs "$@" as a step with a title; the title and the time it took make one line.
step() {
  local title=$1 begun
  shift
  begun=$(clock)
  "$@"
  printf '  %-46s %6s s\n' "$title" "$(elapsed "$begun")" >&2
}

# Tries "$@" until it succeeds or SECONDS have passed.
within() {
  local limit=$1 begun=$SECONDS
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS - begun < limit)) || return 1
    sleep 0.2
  done
}

# Daemons must not inherit a lock, or it is held for as long as they live: see run_daemon. Whoever takes a cluster away
# removes its lock file: one that was waited for and is gone meanwhile locks nothing.
lock_cluster() {
  local file=$clusters/.lock-$cluster
  mkdir -p "$clusters"
  while :; do
    exec 8>"$file"
    flock -n 8 || { warn "waiting for another command on cluster $cluster" && flock 8; }
    [[ ! $file -ef /proc/self/fd/8 ]] || return 0
  done
}

# To be called with the lock held, or for one that nobody holds.
remove_lock() {
  rm -f "$clusters/.lock-$cluster"
}

# For what all clusters of the machine share, wherever their folders are.
with_machine_lock() {
  mkdir -p "$machine" "$clusters"
  exec 9>"$machine/lock"
  flock 9
  "$@"
  exec 9>&-
}
