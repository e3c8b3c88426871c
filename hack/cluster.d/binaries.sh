# The cluster's binaries: links in $state/bin to what hack/build-tools built or found.
# shellcheck shell=bash

link_binaries() {
  local name path lines
  lines=$("$hack/build-tools" --print-path "$@")
  mkdir -p "$state/bin"
  while read -r name path; do
    ln -sfn "$path" "$state/bin/$name"
  done <<<"$lines"
}

kubectl() {
  "$state/bin/kubectl" --kubeconfig "$state/admin.kubeconfig" --cache-dir "$state/kubectl-cache" "$@"
}
