# Taking a cluster away, whatever is left of it, and the proof that nothing is.
# shellcheck shell=bash

# The bridge carries the cluster's folder: it is found even when the folder is gone.
find_index() {
  local file
  [[ ! -f $state/index ]] || return 0
  for file in /sys/class/net/ist*/ifalias; do
    if [[ -f $file && $(<"$file") == "isthmus $state" ]]; then
      file=${file%/ifalias}
      set_addresses "${file##*/ist}"
      return
    fi
  done
}

cluster_mounts() {
  awk -v folder="$state/" 'index($2, folder) == 1 { print $2 }' /proc/mounts | sort -r
}

# A node's daemons, containers and mounts end together, like those of a machine without power:
# the mounts are in a namespace that ends with its last process.
remove_cluster() {
  local mount
  find_index
  kill_cgroup ''
  while read -r mount; do
    umount --lazy "$mount" || true
  done < <(cluster_mounts)
  remove_network
  remove_cgroup ''
  rm -rf "$state"
  with_machine_lock restore_machine
}

# Prints a line for each thing that is left.
leftovers() {
  local file pid words
  for pid in $(cgroup_processes ''); do
    # It may end meanwhile.
    [[ ! -r /proc/$pid/cmdline ]] || echo "process $pid: $({ tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null)"
  done
  for file in /proc/[0-9]*/cmdline; do
    pid=${file//[^0-9]/}
    [[ $pid != "$$" ]] || continue
    # A daemon of the cluster's that got out of its cgroup; not a user's `tail` of a log.
    words=$({ tr '\0' ' ' <"$file"; } 2>/dev/null)
    if [[ $words == "$state"/bin/@(etcd|kube-*|kubelet|kwok|wan|http-proxy)\ * || $words == containerd*"$state/nodes/"* || $words == "$state/nodes/"*/edge-hub\ run\ * ]]; then
      echo "process $pid: $words"
    fi
  done
  cluster_mounts | sed 's/^/mount /'
  for file in /run/netns/"$id".*; do
    [[ ! -e $file ]] || echo "network namespace ${file##*/}"
  done
  for file in $(cgroup_folders ''); do
    [[ ! -e $file ]] || echo "cgroup $file"
  done
  if [[ -n ${bridge:-} ]]; then
    for file in /sys/class/net/"$bridge" /sys/class/net/"$bridge"[ablnpsw]*; do
      [[ ! -e $file ]] || echo "interface ${file##*/}"
    done
    ip route | awk -v pods="$pod_network." -v nodes="$network." 'index($1, pods) == 1 || index($1, nodes) == 1 { print "route " $0 }'
    blocked_ranges | sed "s/^/unreachable route /"
    iptables-save 2>/dev/null | grep -w -- "$bridge" | sed 's/^/iptables rule /' || true
  fi
  [[ ! -e $state ]] || echo "folder $state"
}

verify_removed() {
  local left
  left=$(leftovers)
  [[ -z $left ]] && return
  warn "cluster $cluster left behind:"
  echo "$left" >&2
  return 1
}

command_down() {
  local name failed=0
  require_root
  case ${1:-} in
    --all)
      for name in $(cluster_names); do
        (select_cluster "$name" && down_one) || failed=1
      done
      return "$failed"
      ;;
    '') ;;
    *) die "unknown option $1" ;;
  esac
  down_one
}

down_one() {
  local begun
  begun=$(clock)
  lock_cluster
  find_index
  if [[ -z $(leftovers) ]]; then
    # An earlier one may have been killed before it got there.
    with_machine_lock restore_machine
    remove_lock
    echo "cluster $cluster is not there" >&2
    return
  fi
  remove_cluster
  verify_removed || return
  remove_lock
  sweep_locks
  echo "cluster $cluster: down in $(elapsed "$begun") s" >&2
}

# Lock files of clusters that are gone and that no command holds.
sweep_locks() {
  local file name
  for file in "$clusters"/.lock-*; do
    name=${file##*/.lock-}
    if [[ ! -f $file || -e $clusters/$name ]]; then continue; fi
    (exec 8>"$file" && flock -n 8 && rm -f "$file") || true
  done
}
