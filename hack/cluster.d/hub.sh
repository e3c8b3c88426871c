# A node whose kubelet reaches the API server through edge-hub only, on the same node.
# shellcheck shell=bash

# Where the hub listens for agents of the node.
readonly hub_server=http://127.0.0.1:10261

hub_is_wanted() {
  [[ -e $node_folder/edge-hub ]]
}

# plain, report, tunnel or gateway
hub_mode() {
  cat "$node_folder/hub-mode" 2>/dev/null || echo plain
}

# The role in the tunnel is the one that the Gateways give the node; a gateway has ways in for the API server as well. What tests
# reach beside kubelets: Services and pods of the cloud, and a port of hosts.
mode_options() {
  case $(hub_mode) in
    plain) return 0 ;;
    report) printf '%s\n' --node-metric "--node-metric-cgroup-root=/isthmus/$id/$node" && return 0 ;;
  esac
  printf '%s\n' --tunnel "--tunnel-destinations=$service_cidr@cloud=80+443,$cluster_cidr@cloud=1-65535,*.svc.cluster.local@cloud=80+443,*.e2e-tunnel@cloud=80,nodes=18090$(more_destinations)"
  proxy_options
  [[ $(hub_mode) == gateway ]] || return 0
  printf '%s\n' "--tunnel-clients-address=$node_address:10265" "--tunnel-client-ca-file=$state/pki/ca.crt" \
    --tunnel-client-names=kube-apiserver-egress "--tunnel-egress-socket=$(egress_socket)"
}

# Rules of this node's hub alone.
more_destinations() {
  sed 's/^/,/' "$node_folder/hub-destinations" 2>/dev/null || true
}

# Whatever is to be spared by the environment of who starts it, this hub goes through its proxy.
proxy_options() {
  [[ -f $node_folder/hub-http-proxy ]] || return 0
  printf '%s\n' "--tunnel-http-proxy=$(<"$node_folder/hub-http-proxy")" --tunnel-no-proxy=
}

# By which an API server on a gateway's own node comes to nodes.
egress_socket() {
  echo "$node_folder/egress.sock"
}

# A gateway resolves names of Services as pods do.
resolver_wrapper() {
  [[ $(hub_mode) == gateway ]] || return 0
  printf 'nameserver %s\nsearch svc.cluster.local cluster.local\noptions ndots:3\n' "$dns_service" >"$node_folder/resolv.conf"
  # shellcheck disable=SC2016
  printf '%s\n' unshare --mount --propagation slave bash -c 'mount --bind "$1" /etc/resolv.conf; shift; exec "$@"' resolver "$node_folder/resolv.conf"
}

# $EDGE_HUB, the one in the PATH, or the one that `cargo xtask dist` made.
find_edge_hub() {
  local found=${EDGE_HUB:-$(command -v edge-hub || true)}
  [[ -n $found ]] || found=$hack/../dist/edge-hub
  [[ -x $found ]] || die "no edge-hub: run cargo xtask dist, or set EDGE_HUB"
  realpath "$found"
}

# Pods come to the node's address, those with host network to localhost: HTTPS on both.
# The kubelet has no credentials of its own: that it is root is what the hub goes by.
make_hub_files() {
  make_certificate ca "$node_folder/pki/edge-hub" "/CN=$node" "IP:127.0.0.1,IP:$node_address,DNS:localhost"
  chmod 600 "$node_folder/pki/edge-hub.key"
  cat >"$node_folder/hub.kubeconfig" <<CONFIG
apiVersion: v1
kind: Config
clusters:
- name: "$cluster"
  cluster: {server: "$hub_server"}
contexts:
- name: "$cluster"
  context: {cluster: "$cluster", user: ""}
current-context: "$cluster"
CONFIG
}

edge_hub_is_ready() {
  on_node "$state/bin/kubectl" --server http://127.0.0.1:10267 get --raw /readyz
}

# As kubeadm prints it.
authority_digest() {
  echo "sha256:$(openssl x509 -in "$state/pki/ca.crt" -noout -pubkey | openssl pkey -pubin -outform der | sha256sum | cut -d' ' -f1)"
}

# Options that this hub alone has.
own_options() {
  cat "$node_folder/hub-options" 2>/dev/null || true
}

start_edge_hub() {
  local init identity=(--ca-file "$state/pki/ca.crt"
    --client-cert-file "$node_folder/pki/kubelet-client.crt" --client-key-file "$node_folder/pki/kubelet-client.key")
  local more=() wrapper=() own=()
  hub_is_wanted || die "node $node has no hub; run: hack/cluster hub $node --name $cluster"
  runs "$node.edge-hub" && return
  if [[ -f $node_folder/hub-token ]]; then
    # A certificate of its own, and nothing to begin with but the token and the authority's digest.
    identity=(--identity own --bootstrap-token-file "$node_folder/hub-token" --ca-cert-hash "$(authority_digest)")
  fi
  mapfile -t own < <(own_options)
  mapfile -t more < <(mode_options)
  mapfile -t wrapper < <(resolver_wrapper)
  init=$(daemon_pid "$node.init") || die "node $node is not running; run: hack/cluster up --name $cluster"
  run_daemon "$node.edge-hub" "$node" nsenter --target "$init" --mount --net --uts --wd=/ ${wrapper[@]+"${wrapper[@]}"} \
    "$node_folder/edge-hub" run ${own[@]+"${own[@]}"} --node-name "$node" --server-addr "$api_server" \
    --secure-bind-address 0.0.0.0 "${identity[@]}" \
    --serving-cert-file "$node_folder/pki/edge-hub.crt" --serving-key-file "$node_folder/pki/edge-hub.key" \
    ${more[@]+"${more[@]}"}
}

# Files of the node that say which hub it has, and how that was asked for.
readonly hub_settings=(edge-hub hub-mode hub-destinations hub-http-proxy hub-options)

# move_hub_settings FROM TO: folders.
move_hub_settings() {
  local name
  for name in "${hub_settings[@]}"; do
    rm -f "$2/$name"
    [[ ! -L $1/$name && ! -e $1/$name ]] || mv "$1/$name" "$2/$name"
  done
}

edge_hub_is_ready_or_gone() {
  edge_hub_is_ready || is_gone "$(<"$state/run/$node.edge-hub.pid")"
}

# start_edge_hub_or BEFORE: if it does not come up the hub whose settings are in that folder, if any, goes on; a failure all the same.
start_edge_hub_or() {
  local log=$state/logs/$node.edge-hub.log
  start_edge_hub
  if within 20 edge_hub_is_ready_or_gone && edge_hub_is_ready >/dev/null 2>&1; then return; fi
  warn "edge-hub of $node does not come up; the end of $log:"
  tail -n 12 "$log" >&2 || true
  [[ -e $1/edge-hub ]] || exit 1
  stop_daemon "$node.edge-hub"
  move_hub_settings "$1" "$node_folder"
  start_edge_hub
  wait_for "edge-hub of $node, as it was" 20 "$log" edge_hub_is_ready
  die "edge-hub of $node goes on as it was"
}

# hub_on NODE plain|report|tunnel|gateway [DESTINATIONS] [HTTP_PROXY] [OPTION]... The kubelet's containers go on while it starts anew.
hub_on() {
  local binary before
  select_node "$1"
  binary=$(find_edge_hub)
  make_hub_files
  before=$node_folder/hub-before
  mkdir -p "$before"
  move_hub_settings "$node_folder" "$before"
  runs "$node.edge-hub" || rm -f "$before/edge-hub"
  echo "$2" >"$node_folder/hub-mode"
  (($# < 5)) || printf '%s\n' "${@:5}" >"$node_folder/hub-options"
  [[ -z ${3:-} ]] || echo "$3" >"$node_folder/hub-destinations"
  [[ -z ${4:-} ]] || echo "$4" >"$node_folder/hub-http-proxy"
  ln -sfn "$binary" "$node_folder/edge-hub"
  stop_daemon "$node.edge-hub"
  start_edge_hub_or "$before"
  [[ $2 == gateway ]] || restart_kubelet
}

hub_off() {
  select_node "$1"
  rm -f "$node_folder/edge-hub" "$node_folder/hub-mode"
  restart_kubelet
  stop_daemon "$node.edge-hub"
}

restart_kubelet() {
  runs "$node.kubelet" || return 0
  stop_daemon "$node.kubelet"
  start_kubelet
}

command_hub() {
  local name='' off=no mode=plain rules='' proxy='' options=()
  while (($#)); do
    case $1 in
      --off) off=yes ;;
      --tunnel) mode=tunnel ;;
      --gateway) mode=gateway ;;
      --report) mode=report ;;
      --destinations)
        (($# > 1)) || die "--destinations needs rules"
        rules=$2
        shift
        ;;
      --http-proxy)
        (($# > 1)) || die "--http-proxy needs a URL"
        proxy=$2
        shift
        ;;
      --hub-option)
        (($# > 1)) || die "--hub-option needs an option of edge-hub run"
        options+=("$2")
        shift
        ;;
      -*) die "unknown option $1 (see --help)" ;;
      *) name=$1 ;;
    esac
    shift
  done
  [[ -n $name ]] || die "usage: hack/cluster hub NODE [--report | --tunnel | --gateway | --off] [--destinations RULES] [--http-proxy URL] [--hub-option OPTION]..."
  require_root
  need_cluster
  lock_cluster
  select_node "$name"
  if [[ $off == yes ]]; then
    step "$name: kubelet straight to the API server" hub_off "$name"
  else
    step "$name: edge-hub ($mode)" hub_on "$name" "$mode" "$rules" "$proxy" ${options[@]+"${options[@]}"}
    step "$name: ready" wait_for_node "$name"
  fi
}
