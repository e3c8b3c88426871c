# Images without a registry: the sandbox's and a busybox for tests, made here and imported.
# shellcheck shell=bash

readonly pause_image=isthmus.dev/pause:1 busybox_image=isthmus.dev/busybox:1

# An init that reaps what a shared process namespace leaves behind, and ends at once when told.
readonly pause_script='trap "exit 0" TERM INT; while :; do sleep 2147483647 & wait $!; done'

image_cache() {
  echo "${ISTHMUS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/isthmus}/images"
}

# Sets base_images to the files, made once for each version of busybox and of this recipe.
make_base_images() {
  local busybox folder applet links=()
  busybox=$(static_busybox)
  folder=$(image_cache)/$(cat "$busybox" "${BASH_SOURCE[0]}" "$hack/oci-image" | sha256sum | cut -c1-12)
  base_images=("$folder/pause.tar" "$folder/busybox.tar")
  [[ -f ${base_images[0]} && -f ${base_images[1]} ]] && return
  for applet in $("$busybox" --list); do
    [[ $applet == busybox ]] || links+=(--link "/bin/$applet:busybox")
  done
  "$hack/oci-image" --name "$pause_image" --out "${base_images[0]}" --user 65534 \
    --entrypoint "[\"/bin/busybox\",\"sh\",\"-c\",\"${pause_script//\"/\\\"}\"]" \
    --link /bin/sh:busybox --link /bin/sleep:busybox "$busybox:/bin/busybox:755"
  "$hack/oci-image" --name "$busybox_image" --out "${base_images[1]}" --cmd '["/bin/sh"]' \
    "${links[@]}" "$busybox:/bin/busybox:755"
}

# import_image FILE, on the selected node. The file may be in a folder that the node does not
# see (its /run/containerd is another), so it goes through a pipe.
import_image() {
  on_node ctr --address /run/containerd/containerd.sock --namespace k8s.io images import --all-platforms - \
    <"$1" >/dev/null 2>>"$state/logs/$node.import.log" ||
    die "$node: cannot import $1: $(tail -n 1 "$state/logs/$node.import.log")"
}

command_load_image() {
  local file='' wanted='' name
  while (($#)); do
    case $1 in
      --node) wanted=${2:?--node needs a value} && shift ;;
      -*) die "unknown option $1" ;;
      *) file=$1 ;;
    esac
    shift
  done
  need_cluster
  [[ -r $file ]] || die "load-image: no such file: '$file'"
  for name in ${wanted:-$(node_names)}; do
    select_node "$name"
    step "$name: image $(basename "$file")" import_image "$file"
  done
}
