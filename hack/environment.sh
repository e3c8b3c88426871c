# Where the hack commands keep what they build: outside the tree, so that a fresh clone finds it again.
# shellcheck shell=bash disable=SC2034
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${ISTHMUS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/isthmus}
# Where hack/setup puts Go and Rust, of a machine that has none or old ones.
export PATH=$cache/toolchains/go/bin:$HOME/.cargo/bin:$PATH
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}
# .cargo/config.toml names the machine's own target, of which cargo makes a folder: $(built)/release, $(built)/edge.
built() {
  echo "$CARGO_TARGET_DIR/$(rustc --print host-tuple)"
}
# A commit that is stamped in would link everything anew after each; `cargo xtask dist` by itself stamps it.
export ISTHMUS_COMMIT=${ISTHMUS_COMMIT:-development}
mkdir -p "$cache/logs"

# The script by its whole path: it goes to the folder of the tree.
script=$(realpath "$0")

# Before cargo. It tells by the age of files whether a crate of the workspace must be built again: what a clone elsewhere built
# into the same folder would pass for ours, whatever its sources, and is forgotten. What comes from registries stays. The
# folder is ours until the script ends; daemons of a cluster close descriptor 9.
claim_target() {
  local owner=$CARGO_TARGET_DIR/clone manifest crate
  mkdir -p "$CARGO_TARGET_DIR"
  exec 9>>"$owner"
  until flock -s 9 && [[ $(<"$owner") == "$repository" ]]; do
    flock -n 9 || { echo "${0##*/}: waits for a command of $(<"$owner"), which builds into the same folder" >&2 && flock 9; }
    if [[ $(<"$owner") == "$repository" ]]; then continue; fi
    for manifest in "$repository"/{crates/*,e2e}/Cargo.toml; do
      crate=$(sed -n 's/^name = "\(.*\)"$/\1/p;T;q' "$manifest")
      find "$CARGO_TARGET_DIR" -mindepth 3 -maxdepth 4 -path "*/.fingerprint/$crate-*" -prune -exec rm -rf {} +
    done
    echo "$repository" >"$owner"
  done
}

# Says in one line that root is missing, before anything is built.
require_root() {
  [[ $EUID == 0 ]] || { echo "${0##*/}: needs root, for network namespaces and kubelets: run it by sudo" >&2 && exit 1; }
}

# Points kubectl at cluster NAME. If it is not up nothing must go on, with another cluster.
use_cluster() {
  local settings
  settings=$(hack/cluster env --name "$1") || return
  eval "$settings"
}

# Loads the images of dist/ onto the nodes of the cluster that is used.
load_images() {
  local image
  for image in dist/*.tar; do hack/cluster load-image "$image"; done
}

# Last line of a script: its main, or the one function that `step` runs.
start() {
  if [[ ${1:-} == --function ]]; then "${@:2}"; else main "$@"; fi
}

# Where a step's output goes.
log_of() {
  echo "$cache/logs/${0##*/}-${1//[ :]/-}.log"
}

# Runs a command with its output in a log, and shows one line for it: `step NAME COMMAND...`. A function of the script runs in
# a process of its own: bash goes on after failures in whatever is called where its status is asked for, and hides them.
step() {
  local name=$1 log began=$SECONDS code=0
  shift
  if [[ $(type -t "$1") == function ]]; then set -- bash "$script" --function "$@"; fi
  log=$(log_of "$name")
  printf '%-44s' "$name"
  : >"$log"
  tell_of_progress "$log" &
  local teller=$!
  "$@" >"$log" 2>&1 || code=$?
  kill "$teller" 2>/dev/null || true
  wait "$teller" 2>/dev/null || true
  if ((code == 0)); then
    printf ' ok      %4d s\n' $((SECONDS - began))
  else
    printf ' FAILED  %4d s\n' $((SECONDS - began))
    { tests_that_failed "$log" | grep . || tail -n 40 "$log"; } | sed 's/^/    /'
    echo "    whole log: $log"
  fi
  return "$code"
}

# What cargo test says of each test that failed; a log ends with what came after them.
tests_that_failed() {
  sed -n '/^failures:$/,/^test result: FAILED/p' "$1" | cut -c 1-400 | awk 'NR <= 300'
}

# Says each minute how far a step is, which would look like a hang: the last line of its log, which is also where cargo
# says that it waits for another build.
tell_of_progress() {
  local seconds=0 silence line
  # Waiting for a line that never comes, and not in a process of its own, which would outlive this one and keep its output open.
  exec {silence}<> <(:)
  until read -rt 60 -u "$silence" line; do
    seconds=$((seconds + 60))
    printf '... %d s: %.70s\n%-44s' "$seconds" "$(tail -n 5 "$1" | grep '[^[:space:]]' | tail -n 1 | tr -d '\r' | sed 's/^ *//')" ''
  done
}
