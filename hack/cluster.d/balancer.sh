# A load balancer before the gateways, with an address and a namespace of its own, as clouds have them: each new connection goes
# to one of the cloud nodes that answer on that port, and that the slices of the gateways' Service list: so it hears of one that is about
# to close its ports, which by a look at ports alone would be too late.
# shellcheck shell=bash

# Port of the balancer and of the nodes: links of agents, also by the port that firewalls let out, the API server's
# EgressSelector, and node names by TLS server name.
readonly balanced_ports=(10262:10262 443:10262 10265:10265 10250:10263)

balancer_address() {
  echo "$network.250"
}

# Looks at each node and port twice a second, and writes the rules anew when somebody came or went. A connection stays where it is.
# While the API server is away what it said last holds; without slices all nodes are listed.
# shellcheck disable=SC2016
readonly balancer_script='
set -u
nodes=$1 pki=$2 slices=$3
shift 3
before=none listed=all
while :; do
  if answer=$(curl -sfm 1 --cacert "$pki/ca.crt" --cert "$pki/admin.crt" --key "$pki/admin.key" "$slices"); then
    listed=$(jq -r "if .items == [] then \"all\" else [.items[].endpoints[]?.addresses[]] | join(\" \") end" <<<"$answer")
  fi
  rules=
  declare -A answers=()
  for pair; do
    alive=()
    while read -r address; do
      [[ $listed == all || " $listed " == *" $address "* ]] || continue
      place=$address/${pair#*:}
      if [[ ! -v answers[$place] ]]; then
        answers[$place]=no
        if timeout 1 bash -c "exec 3<>/dev/tcp/$place" 2>/dev/null; then answers[$place]=yes; fi
      fi
      [[ ${answers[$place]} == no ]] || alive+=("$address")
    done <"$nodes"
    left=${#alive[@]}
    for address in ${alive[@]+"${alive[@]}"}; do
      chance=
      if ((left > 1)); then chance="-m statistic --mode nth --every $left --packet 0"; fi
      rules+="-A PREROUTING -p tcp --dport ${pair%%:*} $chance -j DNAT --to-destination $address:${pair#*:}"$'"'\\n'"'
      left=$((left - 1))
    done
  done
  if [[ $rules != "$before" ]]; then
    printf "*nat\n%s-A POSTROUTING -j MASQUERADE\nCOMMIT\n" "$rules" | iptables-restore && before=$rules
    echo "$(date +%T.%N) $rules"
  fi
  sleep 0.5
done'

start_balancer() {
  local namespace=$id.lb name
  local slices="$api_server/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices"
  slices+="?labelSelector=kubernetes.io/service-name%3Dx-raven-proxy-internal-svc"
  for name in $(node_names); do
    select_node "$name"
    [[ $node_kind == edge ]] || echo "$node_address"
  done >"$state/balanced"
  if [[ ! -e /run/netns/$namespace ]]; then
    make_netns "$namespace"
    make_veth "${bridge}l" "$namespace" eth0
    ip link set "${bridge}l" master "$bridge" up
    in_netns "$namespace" ip -batch - <<BATCH
address add $(balancer_address)/24 dev eth0
link set eth0 up
BATCH
    set_in_netns "$namespace" ipv4/ip_forward=1
  fi
  runs balancer || run_daemon balancer control-plane nsenter --net="/run/netns/$namespace" \
    bash -c "$balancer_script" balancer "$state/balanced" "$state/pki" "$slices" "${balanced_ports[@]}"
}

# Its address, for the status of Services of type LoadBalancer.
command_balancer() {
  require_root
  need_cluster
  lock_cluster
  start_balancer
  balancer_address
}
