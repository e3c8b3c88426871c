# How the API server comes to kubelets: by address, by node name, or through the tunnel.
# shellcheck shell=bash

# addresses, names, egress or socket
reach_mode() {
  cat "$state/reach" 2>/dev/null || echo addresses
}

address_types() {
  # Sites have the same addresses, so what goes through the tunnel is told apart by name.
  if [[ $(reach_mode) == addresses ]]; then echo InternalIP,Hostname; else echo Hostname,InternalIP; fi
}

# What the API server's process is run with: a file of names of its own.
reach_wrapper() {
  [[ $(reach_mode) != addresses ]] || return 0
  # shellcheck disable=SC2016
  printf '%s\n' unshare --mount --propagation slave bash -c 'mount --bind "$1" /etc/hosts; shift; exec "$@"' hosts "$state/hosts"
}

reach_arguments() {
  cat "$state/reach-arguments" 2>/dev/null || true
  [[ $(reach_mode) =~ ^(egress|socket)$ ]] || return 0
  echo "--egress-selector-config-file=$state/egress.yaml"
}

# write_hosts names|egress|socket. The machine of the API server has no kube-proxy: in place of the Service's address its names have the
# balancer's, which is before the same ports of the same gateways. Without names of nodes, only the tunnel leads to the edge.
write_hosts() {
  {
    cat /etc/hosts
    printf '%s\tgateway.isthmus.internal\n' "$(balancer_address)"
    [[ $1 != names ]] || kubectl -n kube-system get configmap edge-tunnel-nodes --ignore-not-found -o 'jsonpath={.data.tunnel-nodes}' |
      awk -v address="$(balancer_address)" 'NF >= 2 { print address "\t" $2 }'
    for name in $(node_names); do
      select_node "$name"
      [[ $node_kind == edge ]] || printf '%s\t%s\n' "$node_address" "$name"
    done
  } >"$state/hosts.new"
  # In place: the file is mounted.
  cat "$state/hosts.new" >"$state/hosts"
  rm "$state/hosts.new"
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

command_reach() {
  local mode=${1:-} before wanted
  [[ $mode =~ ^(addresses|names|egress|socket)$ ]] || die "usage: hack/cluster reach addresses | names | egress | socket [APISERVER-ARG...]"
  require_root
  need_cluster
  lock_cluster
  before="$(reach_mode) $(cat "$state/reach-arguments" 2>/dev/null || true)"
  wanted="$mode $(printf '%s\n' "${@:2}")"
  case $mode in
    names) write_hosts names ;;
    egress | socket) write_hosts "$mode" && write_egress "$mode" ;;
  esac
  [[ $wanted != "$before" ]] || return 0
  echo "$mode" >"$state/reach"
  printf '%s\n' "${@:2}" | sed '/^$/d' >"$state/reach-arguments"
  step "API server stopped" stop_daemon kube-apiserver 1
  start_kube_apiserver
  step "API server ready, kubelets by $mode" wait_for_api
}
