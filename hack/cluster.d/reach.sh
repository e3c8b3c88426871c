# How the API server comes to kubelets: by address, by node name, or through the tunnel.
# shellcheck shell=bash

# addresses, names, dns, egress or socket
reach_mode() {
  cat "$state/reach" 2>/dev/null || echo addresses
}

address_types() {
  # Sites have the same addresses, so what goes through the tunnel is told apart by name.
  if [[ $(reach_mode) == addresses ]]; then echo InternalIP,Hostname; else echo Hostname,InternalIP; fi
}

# What the API server's process is run with: a file of names of its own, and with dns a resolver of its own, too.
reach_wrapper() {
  [[ $(reach_mode) != addresses ]] || return 0
  # shellcheck disable=SC2016
  local script='mount --bind "$1/hosts" /etc/hosts; [[ $2 != dns ]] || mount --bind "$1/resolv.conf" /etc/resolv.conf; shift 2; exec "$@"'
  printf '%s\n' unshare --mount --propagation slave bash -c "$script" reach "$state" "$(reach_mode)"
}

reach_arguments() {
  cat "$state/reach-arguments" 2>/dev/null || true
  [[ $(reach_mode) =~ ^(egress|socket)$ ]] || return 0
  echo "--egress-selector-config-file=$state/egress.yaml"
}

# write_hosts names|dns|egress|socket. The machine of the API server has no kube-proxy: in place of the Service's address its names have the
# balancer's, which is before the same ports of the same gateways. Without names of nodes, only the tunnel leads to the edge. With dns it
# has none but this machine's own: what resolves a node's name is CoreDNS.
write_hosts() {
  if [[ $1 == dns ]]; then
    cat /etc/hosts >"$state/hosts"
    return
  fi
  {
    cat /etc/hosts
    printf '%s\tgateway.isthmus.internal\n' "$(balancer_address)"
    [[ $1 != names ]] || names_of_edge_nodes | awk -v address="$(balancer_address)" '{ print address "\t" $1 }'
    for name in $(node_names); do
      select_node "$name"
      [[ $node_kind == edge ]] || printf '%s\t%s\n' "$node_address" "$name"
    done
  } >"$state/hosts.new"
  # In place: the file is mounted.
  cat "$state/hosts.new" >"$state/hosts"
  rm "$state/hosts.new"
}

names_of_edge_nodes() {
  kubectl -n kube-system get configmap edge-tunnel-nodes --ignore-not-found -o 'jsonpath={.data.tunnel-nodes}' | awk 'NF >= 2 { print $2 }'
}

# Its kubelet brings CoreDNS a changed ConfigMap within a minute or so.
dns_knows_edge_nodes() {
  local name
  for name in $(names_of_edge_nodes); do
    busybox nslookup -type=a "$name." "$1" >/dev/null 2>&1 || return 1
  done
}

# The resolver of a pod with `dnsPolicy: ClusterFirstWithHostNet`, but that the server is a pod of CoreDNS and not its Service: clusters side by
# side have the same network of Services, and this machine one table of routes.
write_resolver() {
  local pod
  pod=$(kubectl -n kube-system get pods -l k8s-app=kube-dns --field-selector status.phase=Running -o 'jsonpath={.items[0].status.podIP}')
  [[ -n $pod ]] || die "no CoreDNS runs in cluster $cluster; it is one of: hack/cluster up --coredns"
  printf 'nameserver %s\nsearch kube-system.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n' "$pod" >"$state/resolv.conf"
  within 120 dns_knows_edge_nodes "$pod" || die "CoreDNS does not know the names of ConfigMap edge-tunnel-nodes"
}

# The way to the gateways' Service: a cloud node forwards what comes for it, whose kube-proxy takes it to a gateway as for any other client
# from outside of the cluster's pods. It ends with the bridge.
route_service() {
  local service
  service=$(kubectl -n kube-system get service x-raven-proxy-internal-svc -o 'jsonpath={.spec.clusterIP}')
  [[ -n $service ]] || die "no Service x-raven-proxy-internal-svc in cluster $cluster: no exposed Gateway is elected"
  unroute_service
  select_node "$(cloud_node)"
  ip route replace "$service/32" via "$node_address" dev "$bridge"
  echo "$service" >"$state/reach-service"
}

unroute_service() {
  [[ -f $state/reach-service ]] || return 0
  ip route del "$(<"$state/reach-service")/32" dev "$bridge" 2>/dev/null || true
  rm "$state/reach-service"
}

# The last one: tests kill the first one's hub.
cloud_node() {
  local name
  for name in $(node_names); do
    select_node "$name"
    [[ $node_kind == edge ]] || echo "$name"
  done | tail -n 1
}

# write_egress egress|socket: by the balancer, or by the hub of a gateway on the machine.
write_egress() {
  local transport
  if [[ $1 == egress ]]; then
    make_certificate ca "$state/pki/egress" /CN=kube-apiserver-egress
    transport="tcp: {url: 'https://gateway.isthmus.internal:10265',
        tlsConfig: {caBundle: $state/pki/ca.crt, clientCert: $state/pki/egress.crt, clientKey: $state/pki/egress.key}}"
  else
    select_node cloud-1
    transport="uds: {udsName: $(egress_socket)}"
  fi
  cat >"$state/egress.yaml" <<CONFIG
apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      $transport
CONFIG
}

# Without it names and the selector lead the API server to an address that nobody has, for webhooks, too.
need_balancer() {
  runs balancer || die "no load balancer runs in cluster $cluster, through which the API server would go; start it first: hack/cluster balancer --name $cluster"
}

command_reach() {
  local mode=${1:-} before wanted
  [[ $mode =~ ^(addresses|names|dns|egress|socket)$ ]] || die "usage: hack/cluster reach addresses | names | dns | egress | socket [APISERVER-ARG...]"
  require_root
  need_cluster
  lock_cluster
  [[ ! $mode =~ ^(names|egress)$ ]] || need_balancer
  before="$(reach_mode) $(cat "$state/reach-arguments" 2>/dev/null || true)"
  wanted="$mode $(printf '%s\n' "${@:2}")"
  [[ $mode == dns ]] || unroute_service
  case $mode in
    names) write_hosts names ;;
    dns) write_hosts dns && write_resolver && route_service ;;
    egress | socket) write_hosts "$mode" && write_egress "$mode" ;;
  esac
  [[ $wanted != "$before" ]] || return 0
  echo "$mode" >"$state/reach"
  printf '%s\n' "${@:2}" | sed '/^$/d' >"$state/reach-arguments"
  step "API server stopped" stop_daemon kube-apiserver 1
  start_kube_apiserver
  step "API server ready, kubelets by $mode" wait_for_api
}
