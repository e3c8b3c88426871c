# Where the hack commands keep what they build: outside the tree, so that a fresh clone finds it again.
# shellcheck shell=bash disable=SC2034
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${ISTHMUS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/isthmus}
# Where hack/setup puts Go and Rust on a machine that has none.
export PATH=$PATH:$cache/toolchains/go/bin:$HOME/.cargo/bin
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}
# A commit that is stamped in would link everything anew after each; `cargo xtask dist` by itself stamps it.
export ISTHMUS_COMMIT=${ISTHMUS_COMMIT:-development}
mkdir -p "$cache/logs"

# Cargo tells by the age of files whether a crate of the workspace must be built again: what a clone elsewhere built
# into the same folder would pass for ours, whatever its sources. What comes from registries stays.
forget_what_another_clone_built() {
  local owner=$CARGO_TARGET_DIR/clone manifest crate
  mkdir -p "$CARGO_TARGET_DIR"
  if [[ $(cat "$owner" 2>/dev/null) == "$repository" ]]; then return; fi
  for manifest in "$repository"/{crates/*,e2e}/Cargo.toml; do
    crate=$(sed -n 's/^name = "\(.*\)"$/\1/p;T;q' "$manifest")
    find "$CARGO_TARGET_DIR" -mindepth 3 -maxdepth 4 -path "*/.fingerprint/$crate-*" -prune -exec rm -rf {} +
  done
  echo "$repository" >"$owner"
}
forget_what_another_clone_built

# Where a step's output goes.
log_of() {
  echo "$cache/logs/${0##*/}-${1//[ :]/-}.log"
}

# Runs a command with its output in a log, and shows one line for it: `step NAME COMMAND...`.
step() {
  local name=$1 log began=$SECONDS code=0
  shift
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
