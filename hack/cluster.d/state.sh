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
  node=$1 node_site_name='' node_host=''
  node_folder=$state/nodes/$node
  [[ -f $node_folder/spec ]] || die "no node $node in cluster $cluster (has: $(node_names | tr '\n' ' '))"
  # shellcheck source=/dev/null
  source "$node_folder/spec"
  node_netns=$id.$node
  node_pod_cidr=$pod_network.$node_number.0/24
  if [[ $node_kind == edge ]]; then
    site_netns=$id.site$node_site
    site_network=192.168.$((100 + node_site))
    # Sites with a name are as shops of one chain are: each has the same addresses.
    [[ -z $node_site_name ]] || site_network=192.168.100
    node_address=$site_network.${node_host:-$((10 + node_number))}
    node_gateway=$site_network.1
  else
    node_address=$network.$((10 + node_number))
    node_gateway=$network.1
  fi
}

# Sets node_site, node_site_name and node_host of a new node in a site: a number, or a name, which gets a number from the
# upper end and whose nodes have the addresses from .10 on.
choose_site() {
  local folder site
  node_site=$1 node_site_name='' node_host=''
  if [[ $1 =~ ^[0-9]+$ ]]; then
    for folder in "$state"/nodes/*/; do
      if grep -qsx "node_site=$1" "$folder/spec" && grep -qs '^node_site_name=.' "$folder/spec"; then
        die "site $1 has a name: $(sed -n 's/^node_site_name=//p' "$folder/spec")"
      fi
    done
    return
  fi
  [[ $1 =~ ^[a-z][a-z0-9-]{0,15}$ ]] || die "bad site '$1': a number, or a name of up to 16 of a-z, 0-9 and -"
  node_site_name=$1
  node_site=$(grep -lsx "node_site_name=$1" "$state"/nodes/*/spec | head -n 1 | xargs -r sed -n 's/^node_site=//p' || true)
  if [[ -z $node_site ]]; then
    for ((site = 40; site >= 1; site--)); do
      grep -qsx "node_site=$site" "$state"/nodes/*/spec || break
    done
    ((site >= 1)) || die "a cluster has at most 40 sites"
    node_site=$site
  fi
  for ((node_host = 10; node_host < 250; node_host++)); do
    taken_in_site "$node_site" "$node_host" || break
  done
}

# Whether a node of the site has that host part of the address.
taken_in_site() {
  local file
  for file in "$state"/nodes/*/spec; do
    if grep -qsx "node_site=$1" "$file" && grep -qsx "node_host=$2" "$file"; then return; fi
  done
  return 1
}

# Sets what select_node sets of a site, from one of its nodes.
select_site() {
  local name
  for name in $(node_names); do
    select_node "$name"
    if [[ $node_kind == edge && ($node_site == "$1" || $node_site_name == "$1") ]]; then return; fi
  done
  die "no site '$1' in cluster $cluster"
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
