# One cgroup tree a cluster: /isthmus/CLUSTER/control-plane and /isthmus/CLUSTER/NODE, with the
# daemons in .../daemons and a node's pods beside them. So nodes on one machine do not collide,
# and everything that ever ran for a cluster can be found.
# shellcheck shell=bash

cgroup_version() {
  if [[ $(stat -fc %T /sys/fs/cgroup) == cgroup2fs ]]; then echo 2; else echo 1; fi
}

cgroup_hierarchies() {
  if [[ $(cgroup_version) == 2 ]]; then
    echo /sys/fs/cgroup
  else
    awk '$3 ~ /^cgroup2?$/ && $2 ~ "^/sys/fs/cgroup/" { print $2 }' /proc/mounts
  fi
}

# The folders of the cgroup $1 (below the cluster's) in each hierarchy.
cgroup_folders() {
  local hierarchy
  for hierarchy in $(cgroup_hierarchies); do
    echo "$hierarchy/isthmus/$id/$1"
  done
}

make_cgroup() {
  local hierarchy folder part
  for hierarchy in $(cgroup_hierarchies); do
    folder=$hierarchy
    for part in isthmus "$id" "$1" daemons; do
      if [[ $(cgroup_version) == 2 ]]; then
        # A node's pods need the controllers; whatever the kernel refuses is not there to use.
        for controller in $(<"$folder/cgroup.controllers"); do
          echo "+$controller" 2>/dev/null >"$folder/cgroup.subtree_control" || true
        done
      fi
      mkdir -p "$folder/$part"
      # A new cpuset is empty, and nothing can run in it.
      if [[ -f $folder/$part/cpuset.cpus && ! -s $folder/$part/cpuset.cpus ]] || [[ $hierarchy == */cpuset ]]; then
        [[ -n $(<"$folder/$part/cpuset.cpus") ]] || cat "$folder/cpuset.cpus" >"$folder/$part/cpuset.cpus" 2>/dev/null || true
        [[ -n $(<"$folder/$part/cpuset.mems") ]] || cat "$folder/cpuset.mems" >"$folder/$part/cpuset.mems" 2>/dev/null || true
      fi
      folder=$folder/$part
    done
  done
}

# Every process in the cgroup $1, or with '' of the whole cluster.
cgroup_processes() {
  local folder
  for folder in $(cgroup_folders "$1"); do
    [[ -d $folder ]] || continue
    find "$folder" -name cgroup.procs -exec cat {} + 2>/dev/null
  done | sort -un
}

kill_cgroup() {
  local pids round
  for ((round = 0; round < 50; round++)); do
    mapfile -t pids < <(cgroup_processes "$1")
    ((${#pids[@]})) || return 0
    kill -9 "${pids[@]}" 2>/dev/null || true
    sleep 0.1
  done
  warn "processes do not end: ${pids[*]}"
}

remove_cgroup() {
  local folder hierarchy
  for folder in $(cgroup_folders "$1"); do
    [[ -d $folder ]] || continue
    # An ended process leaves its cgroup a moment later.
    within 5 remove_cgroup_tree "$folder" || warn "cannot remove the cgroup $folder"
  done
  for hierarchy in $(cgroup_hierarchies); do
    rmdir "$hierarchy/isthmus/$id" "$hierarchy/isthmus" 2>/dev/null || true
  done
}

remove_cgroup_tree() {
  find "$1" -depth -type d -exec rmdir {} + 2>/dev/null
  [[ ! -d $1 ]]
}
