# The cluster's network: a bridge with the API server and the cloud nodes; for each edge site a
# router, in a namespace of its own, that translates addresses and lets nothing in.
# shellcheck shell=bash

in_netns() {
  local namespace=$1
  shift
  # `ip netns exec` would mount another /sys, without the cgroups.
  nsenter --net="/run/netns/$namespace" "$@"
}

make_netns() {
  [[ -e /run/netns/$1 ]] && return
  ip netns add "$1"
  in_netns "$1" ip link set lo up
}

set_in_netns() {
  local namespace=$1 setting
  shift
  for setting; do
    in_netns "$namespace" sh -c "echo ${setting#*=} >/proc/sys/net/${setting%%=*}" 2>/dev/null ||
      warn "$namespace: the kernel refuses net/$setting"
  done
}

make_network() {
  if [[ ! -e /sys/class/net/$bridge ]]; then
    ip link add "$bridge" type bridge
    ip link set "$bridge" alias "isthmus $state"
    ip address add "$api_address/24" dev "$bridge"
    ip link set "$bridge" up
    block "$cluster_cidr"
  fi
  # A machine with a firewall (docker's, say) filters bridged packets too.
  if [[ -r /proc/sys/net/bridge/bridge-nf-call-iptables && $(</proc/sys/net/bridge/bridge-nf-call-iptables) == 1 ]] &&
    iptables -S FORWARD 2>/dev/null | grep -q -- '-P FORWARD DROP'; then
    iptables -C FORWARD "${bridge_rule[@]/BRIDGE/$bridge}" 2>/dev/null ||
      iptables -I FORWARD "${bridge_rule[@]/BRIDGE/$bridge}"
  fi
}

readonly bridge_rule=(-i BRIDGE -o BRIDGE -m comment --comment isthmus-cluster -j ACCEPT)

# veth HOST_END NAMESPACE NAME [PEER_NAMESPACE]: a pair, one end in NAMESPACE as NAME.
make_veth() {
  ip link add "$1" type veth peer name "$3" netns "$2"
}

make_site() {
  local uplink=${bridge}s$node_site wan
  [[ -f $state/run/$site_netns.made ]] && return
  remove_netns "$site_netns"
  wan=$network.$((209 + node_site))
  make_netns "$site_netns"
  make_veth "$uplink" "$site_netns" wan
  ip link set "$uplink" master "$bridge" up
  in_netns "$site_netns" ip -batch - <<BATCH
link add lan type bridge
link set lan up
link set wan up
address add $site_network.1/24 dev lan
address add $wan/24 dev wan
route add default via $api_address
BATCH
  set_in_netns "$site_netns" ipv4/ip_forward=1
  block "$site_network.0/24"
  in_netns "$site_netns" iptables-restore <<RULES
*filter
:FORWARD DROP
-A FORWARD -m conntrack --ctstate INVALID -j DROP
-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
-A FORWARD -i lan -j ACCEPT
COMMIT
*nat
-A POSTROUTING -o wan -j SNAT --to-source $wan
COMMIT
RULES
  touch "$state/run/$site_netns.made"
}

connect_node() {
  [[ -f $node_folder/connected ]] && return
  remove_netns "$node_netns"
  make_netns "$node_netns"
  if [[ $node_kind == edge ]]; then
    make_site
    in_netns "$site_netns" ip link add "node$node_number" type veth peer name eth0 netns "$node_netns"
    in_netns "$site_netns" ip link set "node$node_number" master lan up
  else
    make_veth "${bridge}n$node_number" "$node_netns" eth0
    ip link set "${bridge}n$node_number" master "$bridge" up
    ip route replace "$node_pod_cidr" via "$node_address"
  fi
  in_netns "$node_netns" ip -batch - <<BATCH
address add $node_address/24 dev eth0
link set eth0 up
route add default via $node_gateway
BATCH
  set_in_netns "$node_netns" ipv4/ip_forward=1 ipv4/conf/all/route_localnet=1 bridge/bridge-nf-call-iptables=1
  if [[ $node_kind == edge ]]; then
    # The router knows no pods: like a home router, it serves its LAN only.
    in_netns "$node_netns" iptables -t nat -A POSTROUTING -s "$node_pod_cidr" ! -d "$cluster_cidr" -j MASQUERADE
  else
    # The sites' addresses must not leave by the machine's own default route either.
    in_netns "$node_netns" ip route add unreachable 192.168.0.0/16
  fi
  touch "$node_folder/connected"
}

# Nodes of one network segment (the cloud, or one site) route each other's pods.
segment() {
  if [[ $node_kind == edge ]]; then echo "site$node_site"; else echo cloud; fi
}

connect_neighbours() {
  local self=$node own_segment own_netns own_cidr own_address name
  own_segment=$(segment) own_netns=$node_netns own_cidr=$node_pod_cidr own_address=$node_address
  for name in $(node_names); do
    [[ $name != "$self" ]] || continue
    select_node "$name"
    [[ $(segment) == "$own_segment" && -e /run/netns/$node_netns ]] || continue
    in_netns "$own_netns" ip route replace "$node_pod_cidr" via "$node_address"
    in_netns "$node_netns" ip route replace "$own_cidr" via "$own_address"
  done
  select_node "$self"
}

disconnect_node() {
  local self=$node own_segment own_cidr name neighbours=0
  own_segment=$(segment) own_cidr=$node_pod_cidr
  if [[ $node_kind == cloud ]]; then
    ip route del "$node_pod_cidr" 2>/dev/null || true
  fi
  for name in $(node_names); do
    [[ $name != "$self" ]] || continue
    select_node "$name"
    [[ $(segment) == "$own_segment" && -e /run/netns/$node_netns ]] || continue
    neighbours=$((neighbours + 1))
    in_netns "$node_netns" ip route del "$own_cidr" 2>/dev/null || true
  done
  select_node "$self"
  remove_netns "$node_netns"
  if [[ $node_kind == edge && $neighbours == 0 ]]; then
    clear_weather
    remove_netns "$site_netns"
    rm -f "$state/run/$site_netns".*
    [[ -n $(other_sites_of_network) ]] || unblock "$site_network.0/24"
  fi
  [[ $node_kind == edge ]] || ip link del "${bridge}n$node_number" 2>/dev/null || true
}

# Sites that have the addresses of this one.
other_sites_of_network() {
  local self=$node network=$site_network site=$node_site name
  for name in $(node_names); do
    select_node "$name"
    if [[ $node_kind == edge && $site_network == "$network" && $node_site != "$site" ]]; then echo "$node_site"; fi
  done
  select_node "$self"
}

remove_netns() {
  [[ ! -e /run/netns/$1 ]] || ip netns del "$1"
}

# What is behind the machine's default route must not answer in place of an edge node or its
# pods. The metric is the cluster's own; a real network of the same range goes first.
block() {
  ip route replace unreachable "$1" metric "$((9000 + index))"
}

unblock() {
  ip route del unreachable "$1" metric "$((9000 + index))" 2>/dev/null || true
}

blocked_ranges() {
  ip route show type unreachable | awk -v metric="$((9000 + index))" '/ metric / && $0 ~ "metric " metric "( |$)" { print $2 }'
}

remove_network() {
  local file link route
  for file in /run/netns/"$id".*; do
    [[ ! -e $file ]] || ip netns del "${file##*/}"
  done
  if [[ -n ${bridge:-} ]]; then
    for link in /sys/class/net/"$bridge"[ablnpsw]*; do
      [[ ! -e $link ]] || ip link del "${link##*/}" 2>/dev/null || true
    done
    ip link del "$bridge" 2>/dev/null || true
    while read -r route; do unblock "$route"; done < <(blocked_ranges)
    while iptables -D FORWARD "${bridge_rule[@]/BRIDGE/$bridge}" 2>/dev/null; do :; done
  fi
}
