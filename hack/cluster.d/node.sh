# Nodes: a kubelet and a containerd in a network namespace, with folders of their own.
# shellcheck shell=bash

on_node() {
  local init
  init=$(daemon_pid "$node.init") || die "node $node is not running; run: hack/cluster up --name $cluster"
  nsenter --target "$init" --mount --net --uts --wd=/ "$@"
}

# Runs in the namespaces of the node for as long as it exists. Its mounts end with it.
# shellcheck disable=SC2016
readonly init_script='
set -e
hostname "$1"
mount --make-rshared /
own=$2
shift 2
for folder; do
  mkdir -p "$own$folder"
  mount --bind "$own$folder" "$folder"
done
touch "$own/run/xtables.lock"
mount --bind "$own/run/xtables.lock" /run/xtables.lock
touch "$own/.mounted"
exec sleep infinity'

start_node_init() {
  local own=$node_folder/own folders
  runs "$node.init" && return
  mapfile -t folders <"$node_folder/folders"
  rm -f "$own/.mounted"
  mkdir -p "$own/run"
  run_daemon "$node.init" "$node" nsenter --net="/run/netns/$node_netns" \
    unshare --mount --uts --propagation slave \
    bash -c "$init_script" "$node_folder/" "$node" "$own" "${folders[@]}"
  wait_for "node $node" 10 "$state/logs/$node.init.log" test -e "$own/.mounted"
}

overlayfs_works() {
  local try=$state/overlay-try works
  mkdir -p "$try"/{lower,upper,work,merged}
  works=no
  if unshare --mount mount -t overlay overlay -o "lowerdir=$try/lower,upperdir=$try/upper,workdir=$try/work" "$try/merged" 2>/dev/null; then
    works=yes
  fi
  rm -rf "$try"
  [[ $works == yes ]]
}

write_containerd_config() {
  local snapshotter=native
  if overlayfs_works; then snapshotter=overlayfs; fi
  # restrict_oom_score_adj: where root lacks CAP_SYS_RESOURCE every sandbox would die.
  cat >"$node_folder/containerd.toml" <<CONFIG
version = 2
root = "$node_folder/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$node_folder/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$pause_image"
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$snapshotter"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
CONFIG
}

write_kubelet_config() {
  cat >"$node_folder/kubelet.yaml" <<CONFIG
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $state/pki/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $node_folder/pki/kubelet.crt
tlsPrivateKeyFile: $node_folder/pki/kubelet.key
cgroupDriver: cgroupfs
cgroupRoot: /isthmus/$id/$node
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
clusterDNS: [$dns_service]
clusterDomain: cluster.local
staticPodPath: /etc/kubernetes/manifests
volumePluginDir: /var/lib/kubelet/volume-plugins
nodeStatusUpdateFrequency: 4s
nodeStatusReportFrequency: 4s
nodeLeaseDurationSeconds: 10
serializeImagePulls: false
containerLogMaxSize: 2Gi
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
CONFIG
}

write_cni_config() {
  local folder=$node_folder/own/etc/cni/net.d
  mkdir -p "$folder"
  [[ $node_cni == bridge ]] || return 0
  cat >"$folder/10-bridge.conflist" <<CONFIG
{
  "cniVersion": "0.4.0",
  "name": "isthmus",
  "plugins": [
    {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
     "ipam": {"type": "host-local", "ranges": [[{"subnet": "$node_pod_cidr"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
CONFIG
}

# add_node NODE KIND SITE CNI LABELS TAINTS: only its files; labels and taints with commas. SITE is a number or a name.
add_node() {
  local folder=$state/nodes/$1 edge_worker=false node_site node_site_name node_host
  [[ ! -f $folder/spec ]] || return 0
  [[ $1 =~ ^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$ && ! $1 =~ ^(site[0-9]+|control-plane)$ ]] ||
    die "bad node name '$1': 1 to 32 of a-z, 0-9 and -"
  [[ $2 == cloud ]] || edge_worker=true
  choose_site "$3"
  mkdir -p "$folder"
  cat >"$folder/spec.new" <<SPEC
node_number=$(allocate_node_number)
node_kind=$2
node_site=$node_site
node_site_name=$node_site_name
node_host=$node_host
node_cni=$4
node_labels=$(printf %q "openyurt.io/is-edge-worker=$edge_worker${5:+,$5}")
node_taints=$(printf %q "$6")
SPEC
  node_folders >"$folder/folders"
  mv "$folder/spec.new" "$folder/spec"
}

# Everything up to containerd with its images: what does not need the API server.
start_node_runtime() {
  select_node "$1"
  local file
  connect_node
  connect_neighbours
  make_cgroup "$node"
  if [[ ! -f $node_folder/prepared ]]; then
    make_node_pki
    write_containerd_config
    write_kubelet_config
    write_cni_config
    mkdir -p "$node_folder/own/etc/kubernetes/manifests"
    touch "$node_folder/prepared"
  fi
  start_node_init
  start_containerd
  if [[ ! -f $node_folder/imported ]]; then
    for file in "${base_images[@]}"; do import_image "$file"; done
    touch "$node_folder/imported"
  fi
}

containerd_is_ready() {
  on_node ctr --address /run/containerd/containerd.sock --namespace k8s.io images ls -q
}

start_containerd() {
  local init
  runs "$node.containerd" && return
  init=$(daemon_pid "$node.init")
  run_daemon "$node.containerd" "$node" nsenter --target "$init" --mount --net --uts --wd=/ \
    containerd --config "$node_folder/containerd.toml" --log-level warn
  wait_for "containerd of $node" 20 "$state/logs/$node.containerd.log" containerd_is_ready
}

start_kubelet() {
  local init kubeconfig=$node_folder/kubelet.kubeconfig
  runs "$node.kubelet" && return
  if hub_is_wanted; then
    start_edge_hub
    [[ $(hub_mode) == gateway ]] || kubeconfig=$node_folder/hub.kubeconfig
  fi
  init=$(daemon_pid "$node.init") || die "node $node is not running; run: hack/cluster up --name $cluster"
  # Where kubeadm has it, and `edge-hub hostnet` looks.
  ln -sfn "$node_folder/kubelet.yaml" "$node_folder/own/var/lib/kubelet/config.yaml"
  run_daemon "$node.kubelet" "$node" nsenter --target "$init" --mount --net --uts --wd=/ \
    "$state/bin/kubelet" --config="$node_folder/kubelet.yaml" --kubeconfig="$kubeconfig" \
    --hostname-override="$node" --node-ip="$node_address" \
    --node-labels="$node_labels" --register-with-taints="$node_taints"
}

node_is_registered() {
  kubectl get node "$node" -o name
}

# The address range is fixed with the node's number, so nobody else allocates it.
register_node() {
  select_node "$1"
  start_kubelet
  wait_for "node $node registered" 60 "$state/logs/$node.kubelet.log" node_is_registered
  kubectl patch node "$node" -p "{\"spec\":{\"podCIDR\":\"$node_pod_cidr\",\"podCIDRs\":[\"$node_pod_cidr\"]}}" >/dev/null
}

node_is_ready() {
  [[ $(kubectl get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}') == True ]]
}

# A node without a network configuration is not ready, and is not meant to be.
wait_for_node() {
  select_node "$1"
  [[ $node_cni != none ]] || return 0
  wait_for "node $node ready" 90 "$state/logs/$node.kubelet.log" node_is_ready "$node"
}

# As after a loss of power: every process is gone, what was mounted, in memory or in the kernel with them. What was on the disk
# stays, and so does whatever somebody did to the network from outside, such as a link that was cut.
reboot_node() {
  local folder
  select_node "$1"
  kill_cgroup "$node"
  rm -f "$state/run/$node".{init,kubelet,containerd,edge-hub}.pid
  rm -rf "$node_folder"/own/run/*
  # A kubelet that finds those of containers that are gone looks at each for seconds.
  for folder in $(cgroup_folders "$node/kubepods"); do
    [[ ! -d $folder ]] || within 5 remove_cgroup_tree "$folder" || warn "cannot remove the cgroup $folder"
  done
  in_netns "$node_netns" ip link del cni0 2>/dev/null || true
  in_netns "$node_netns" sh -c 'iptables-save | grep -v KUBE- | iptables-restore'
  echo "$node starts at $(date +%s.%N)"
  start_node_init
  start_containerd
  start_kubelet
}

# Containers and their shims outlive containerd and the kubelet, and are in the node's cgroup.
remove_node() {
  select_node "$1"
  stop_daemon "$node.kubelet" 2
  kill_cgroup "$node"
  rm -f "$state/run/$node".{init,kubelet,containerd,edge-hub}.pid
  disconnect_node
  remove_cgroup "$node"
  rm -rf "$node_folder"
}
