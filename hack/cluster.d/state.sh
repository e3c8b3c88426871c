# Where a cluster keeps its state, and the addresses that follow from its index.
# shellcheck shell=bash

clusters=${ISTHMUS_CLUSTERS:-/var/lib/isthmus}
machine=/run/isthmus-clusters
readonly clusters machine
readonly service_cidr=10.96.0.0/16 kubernetes_service=10.96.0.1 dns_service=10.96.0.10
readonly max_clusters=10

# Unix socket paths end at 108 bytes; the deepest one here needs about 50 behind the folder.
readonly longest_folder=55

select_cluster() {
  cluster=$1
  [[ $cluster =~ ^[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?$ ]] ||
    die "bad cluster name '$cluster': 1 to 24 of a-z, 0-9 and -"
  state=$clusters/$cluster
  # Names that the whole machine shares: another folder may hold a cluster of the same name.
  id=$cluster
  [[ $clusters == /var/lib/isthmus ]] || id+=_$(cksum <<<"$clusters" | cut -d" " -f1)
  ((${#state} <= longest_folder)) ||
    die "$state is too long for unix sockets; set ISTHMUS_CLUSTERS to a shorter folder"
  if [[ -f $state/index ]]; then
    set_addresses "$(<"$state/index")"
  fi
}

set_addresses() {
  index=$1
  bridge=ist$index
  network=10.$((200 + index)).0
  api_address=$network.1
  api_server=https://$api_address:6443
  loopback_address=127.0.$((20 + index)).1
  pod_network=10.$((210 + index))
  cluster_cidr=$pod_network.0.0/16
}

# The smallest index, claimed with its bridge, that neither a cluster of this folder nor a bridge of another one uses.
claim_index() {
  local candidate used='' name
  mkdir -p "$state"
  if [[ ! -f $state/index ]]; then
    used=
    for name in $(cluster_names); do used+=" $(<"$clusters/$name/index") "; done
    for ((candidate = 0; candidate < max_clusters; candidate++)); do
      [[ $used != *" $candidate "* ]] || continue
      [[ ! -e /sys/class/net/ist$candidate ]] || continue
      [[ -z $(ip -4 route show root 10.$((200 + candidate)).0.0/16) ]] || continue
      [[ -z $(ip -4 route show root 10.$((210 + candidate)).0.0/16) ]] || continue
      echo "$candidate" >"$state/index"
      break
    done
    [[ -f $state/index ]] || die "no free address range: $max_clusters clusters are in use; see hack/cluster down --all"
  fi
  set_addresses "$(<"$state/index")"
  make_network
}

# A cluster is complete once `up` has written its boot: after a reboot it no longer is.
is_complete() {
  [[ -f $state/complete && $(<"$state/complete") == "$(</proc/sys/kernel/random/boot_id)" ]]
}

need_cluster() {
  is_complete || die "cluster $cluster is not up; run: hack/cluster up --name $cluster"
}

cluster_names() {
  local file
  for file in "$clusters"/*/index; do
    [[ -f $file ]] && basename "$(dirname "$file")"
  done
  return 0
}

# --- nodes -------------------------------------------------------------------------------

node_names() {
  local folder
  for folder in "$state"/nodes/*/; do
    [[ -f $folder/spec ]] && basename "$folder"
  done
  return 0
}

# Reads a node's spec and sets node, node_folder, node_address and what else depends on it.
select_node() {
  node=$1
  node_folder=$state/nodes/$node
  [[ -f $node_folder/spec ]] || die "no node $node in cluster $cluster (has: $(node_names | tr '\n' ' '))"
  # shellcheck source=/dev/null
  source "$node_folder/spec"
  node_netns=$id.$node
  node_pod_cidr=$pod_network.$node_number.0/24
  if [[ $node_kind == edge ]]; then
    site_network=192.168.$((100 + node_site))
    site_netns=$id.site$node_site
    node_address=$site_network.$((10 + node_number))
    node_gateway=$site_network.1
  else
    node_address=$network.$((10 + node_number))
    node_gateway=$network.1
  fi
}

# They are part of addresses; what is above belongs to the sites' routers.
allocate_node_number() {
  local number
  for ((number = 1; number <= 190; number++)); do
    grep -qsx "node_number=$number" "$state"/nodes/*/spec || break
  done
  ((number <= 190)) || die "a cluster has at most 190 real nodes"
  echo "$number"
}
