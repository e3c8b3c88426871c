# What the machine must have.
# shellcheck shell=bash

require_root() {
  ((EUID == 0)) || die "needs root (network namespaces); run it with sudo"
}

require_machine() {
  local pair missing=()
  [[ $(uname -s) == Linux ]] || die "needs Linux (network namespaces)"
  require_root
  # command:Debian package
  for pair in containerd:containerd runc:runc iptables:iptables conntrack:conntrack socat:socat \
    ip:iproute2 nsenter:util-linux flock:util-linux openssl:openssl jq:jq mount:mount; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
  done
  [[ -x /usr/lib/cni/bridge ]] || missing+=(containernetworking-plugins)
  static_busybox >/dev/null || missing+=(busybox-static)
  ((${#missing[@]} == 0)) ||
    die "missing packages: $(printf '%s\n' "${missing[@]}" | sort -u | xargs); run: apt-get install -y $(printf '%s\n' "${missing[@]}" | sort -u | xargs)"
  [[ -e /proc/self/ns/net ]] || die "the kernel has no network namespaces; use a kernel with CONFIG_NET_NS"
}

# A dynamically linked busybox would not start in an image of its own.
static_busybox() {
  local file
  for file in /bin/busybox /usr/bin/busybox; do
    if [[ -x $file ]] && ! ldd "$file" >/dev/null 2>&1; then
      echo "$file"
      return
    fi
  done
  return 1
}

# The folders that every node has for itself, mounted over the machine's in the node's mount
# namespace. Mount points that the machine lacks are made, and removed with the last cluster.
node_folders() {
  local folders=(/etc/cni /etc/kubernetes /var/lib/kubelet /var/lib/cni /var/lib/edge-hub /var/log/pods /var/log/containers /run/containerd)
  printf '%s\n' "${folders[@]}"
  [[ -z ${ISTHMUS_NODE_DIRS:-} ]] || tr -s ' ' '\n' <<<"$ISTHMUS_NODE_DIRS"
}

make_mount_points() {
  local folder
  while read -r folder; do
    [[ $folder == /?* ]] || die "ISTHMUS_NODE_DIRS needs absolute paths, not $folder"
    [[ -d $folder ]] && continue
    mkdir -p "$folder"
    echo "$folder" >>"$machine/mount-points"
  done < <(node_folders)
  if [[ ! -e /run/xtables.lock ]]; then
    touch /run/xtables.lock
    echo /run/xtables.lock >>"$machine/mount-points"
  fi
}

# A kubelet changes these for the whole machine.
# fs.inotify.max_user_instances is ours: see raise_limits.
readonly kubelet_sysctls=(fs.inotify.max_user_instances vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys kernel.keys.root_maxbytes)

save_sysctls() {
  local key
  [[ -f $machine/sysctls ]] && return
  for key in "${kubelet_sysctls[@]}"; do
    [[ -r /proc/sys/${key//.//} ]] && echo "$key $(<"/proc/sys/${key//.//}")"
  done >"$machine/sysctls"
}

change_machine() {
  make_mount_points
  save_sysctls
  raise_limits
}

# Each kubelet and containerd takes several of root's 128: the third cluster's kubelets would not start.
raise_limits() {
  local file=/proc/sys/fs/inotify/max_user_instances
  (($(<"$file") >= 8192)) || echo 8192 2>/dev/null >"$file" || warn "cannot raise $file; many nodes may not start"
}

# What the first cluster changed on the machine goes with the last one.
restore_machine() {
  local key value path hierarchy
  for hierarchy in $(cgroup_hierarchies); do
    [[ ! -d $hierarchy/isthmus ]] || return 0
  done
  if [[ -f $machine/sysctls ]]; then
    while read -r key value; do
      echo "$value" >"/proc/sys/${key//.//}" || warn "cannot set $key back to $value"
    done <"$machine/sysctls"
    rm -f "$machine/sysctls"
  fi
  if [[ -f $machine/mount-points ]]; then
    while read -r path; do
      if [[ -f $path ]]; then rm -f "$path"; else rmdir --ignore-fail-on-non-empty "$path" 2>/dev/null || true; fi
    done < <(tac "$machine/mount-points")
    rm -f "$machine/mount-points"
  fi
}
