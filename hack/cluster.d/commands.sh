# The commands that start, change and show a cluster.
# shellcheck shell=bash

command_up() {
  local cloud=1 edge=1 coredns=no balancer=no arguments=() sites=() site begun fresh=no
  keep=no
  while (($#)); do
    case $1 in
      --cloud) cloud=${2:?--cloud needs a number} && shift ;;
      --edge) edge=${2:?--edge needs a number} && shift ;;
      --site) sites+=("${2:?--site needs NAME:N}") && shift ;;
      --balancer) balancer=yes ;;
      --coredns) coredns=yes ;;
      --apiserver-arg) arguments+=("${2:?--apiserver-arg needs a value}") && shift ;;
      --keep) keep=yes ;;
      *) die "unknown option $1 (see --help)" ;;
    esac
    shift
  done
  [[ $cloud =~ ^[0-9]+$ && $edge =~ ^[0-9]+$ ]] || die "--cloud and --edge need numbers"
  for site in ${sites[@]+"${sites[@]}"}; do
    [[ $site =~ ^[a-z][a-z0-9-]{0,15}:[1-9][0-9]?$ ]] || die "bad --site '$site': NAME:N, the name of up to 16 of a-z, 0-9 and -"
  done
  require_machine
  begun=$(clock)
  lock_cluster
  find_index
  if ! is_complete; then
    fresh=yes
    if [[ -n $(leftovers) ]]; then
      step "sweep what an earlier run left" remove_cluster
    fi
    # A failed or interrupted start must not leave half a cluster. Stream 7 is for its message:
    # the signal may come while standard error is turned away.
    exec 7>&2
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    trap abandon_up EXIT
  fi
  with_machine_lock claim_index
  if [[ $fresh == yes ]]; then
    printf '%s\n' ${arguments[@]+"${arguments[@]}"} | sed '/^$/d' >"$state/apiserver-args"
  elif ((${#arguments[@]})); then
    warn "--apiserver-arg is for a new cluster: ignored"
  fi
  [[ $coredns == no ]] || touch "$state/coredns"
  bring_up "$cloud" "$edge" ${sites[@]+"${sites[@]}"}
  [[ $balancer == no ]] || step "load balancer" start_balancer
  cat /proc/sys/kernel/random/boot_id >"$state/complete"
  trap - EXIT INT TERM HUP
  exec 7>&-
  echo "cluster $cluster: up in $(elapsed "$begun") s; use it with: eval \"\$(hack/cluster env --name $cluster)\"" >&2
}

abandon_up() {
  local code=$?
  trap - EXIT INT TERM HUP
  exec 2>&7
  if [[ $keep == yes ]]; then
    warn "up failed; what is there stays (--keep): $state"
  else
    warn "up failed; removing what it began (--keep would leave it)"
    jobs -p | xargs -r kill 2>/dev/null || true
    wait
    remove_cluster || true
    verify_removed || true
    remove_lock
  fi
  exit "$code"
}

bring_up() {
  local cloud=$1 edge=$2 site number name nodes runtimes tools=()
  shift 2
  [[ ! -f $state/coredns ]] || tools+=(coredns)
  step "binaries" prepare_binaries ${tools[@]+"${tools[@]}"}
  step "certificates, images" prepare_machine
  for ((number = 1; number <= cloud; number++)); do add_node "cloud-$number" cloud 0 bridge '' ''; done
  for ((number = 1; number <= edge; number++)); do add_node "edge-$number" edge 1 bridge '' ''; done
  for site; do
    for ((number = 1; number <= ${site#*:}; number++)); do
      add_node "${site%%:*}-$number" edge "${site%%:*}" bridge '' ''
    done
  done
  mapfile -t nodes < <(node_names)
  start_api
  # The nodes' runtimes start while the API server does.
  step "nodes (${#nodes[@]}): network, containerd" start_runtimes ${nodes[@]+"${nodes[@]}"} &
  runtimes=$!
  step "etcd, API server" wait_for_api
  step "controllers, kube-proxy's manifest" start_cluster_services
  wait "$runtimes" || exit 1
  step "nodes (${#nodes[@]}): kubelets registered" register_nodes ${nodes[@]+"${nodes[@]}"}
  for name in ${nodes[@]+"${nodes[@]}"}; do
    step "node $name ready" wait_for_node "$name"
  done
  [[ ! -f $state/fake-nodes ]] || step "kwok" start_kwok
  if ! is_complete; then step "Services work" wait_for_services; fi
  if [[ -f $state/coredns && ! -f $state/coredns.installed ]]; then
    step "CoreDNS ready" start_coredns
  fi
}

start_coredns() {
  install_coredns
  kubectl -n kube-system rollout status deployment/coredns --timeout=60s >/dev/null
}

# Without it the first pod of a caller may be refused, or not reach 10.96.0.1.
wait_for_services() {
  wait_for "the default service account" 30 "$state/logs/kube-controller-manager.log" \
    kubectl get serviceaccount default
  kubectl -n kube-system rollout status daemonset/kube-proxy --timeout=60s >/dev/null
}

prepare_binaries() {
  link_binaries
  (($# == 0)) || link_binaries "$@"
}

prepare_machine() {
  with_machine_lock change_machine
  make_cgroup control-plane
  make_pki
  make_base_images
}

start_runtimes() {
  local name
  for name; do start_node_runtime "$name"; done
}

register_nodes() {
  local name
  for name; do
    select_node "$name"
    start_kubelet
  done
  for name; do register_node "$name"; done
}

start_cluster_services() {
  start_controllers
  install_kube_proxy
}

command_join() {
  local name='' kind=cloud site=1 cni=bridge labels='' taints='' hub=no token='' options=()
  while (($#)); do
    case $1 in
      --edge) kind=edge ;;
      --hub) hub=yes ;;
      --hub-token) hub=yes token=$(realpath "${2:?--hub-token needs a file}") && shift ;;
      --hub-option) options+=("${2:?--hub-option needs an option of edge-hub run}") && shift ;;
      --site) site=${2:?--site needs a number or a name} && shift ;;
      --cni) cni=${2:?--cni needs bridge or none} && shift ;;
      --label) labels+=${labels:+,}${2:?--label needs K=V} && shift ;;
      --taint) taints+=${taints:+,}${2:?--taint needs K=V:EFFECT} && shift ;;
      -*) die "unknown option $1 (see --help)" ;;
      *) name=$1 ;;
    esac
    shift
  done
  [[ -n $name ]] || die "usage: hack/cluster join NODE [--edge [--site N|NAME]] [--hub | --hub-token FILE] [--hub-option OPTION]... [--cni bridge|none] [--label K=V]... [--taint K=V:EFFECT]..."
  [[ $cni == bridge || $cni == none ]] || die "--cni is bridge or none"
  if [[ $site =~ ^[0-9] ]]; then
    if [[ ! $site =~ ^[1-9][0-9]?$ ]] || ((site > 40)); then die "--site is a number from 1 to 40, or a name"; fi
  fi
  require_machine
  need_cluster
  lock_cluster
  with_machine_lock change_machine
  make_base_images
  add_node "$name" "$kind" "$site" "$cni" "$labels" "$taints"
  step "$name: network, containerd" start_node_runtime "$name"
  [[ -z $token ]] || install -m 0600 "$token" "$state/nodes/$name/hub-token"
  # Before the kubelet starts: it never sees the API server itself.
  if [[ $hub == yes ]]; then step "$name: edge-hub" hub_on "$name" plain '' '' ${options[@]+"${options[@]}"}; fi
  step "$name: kubelet registered" register_node "$name"
  if [[ $cni == none ]]; then
    echo "  $name: not ready until a CNI configuration is in its /etc/cni/net.d" >&2
  else
    step "$name: ready" wait_for_node "$name"
  fi
}

command_leave() {
  [[ $# == 1 ]] || die "usage: hack/cluster leave NODE"
  require_root
  need_cluster
  lock_cluster
  if [[ ! -f $state/nodes/$1/spec ]]; then
    echo "node $1 is not there" >&2
    return
  fi
  step "$1: removed" remove_node "$1"
  kubectl delete node "$1" --ignore-not-found --wait=false >/dev/null
}

command_status() {
  local component name word
  if ! is_complete; then
    echo "cluster $cluster: not up" && return 1
  fi
  echo "cluster $cluster: API server $api_server, pods $cluster_cidr, services $service_cidr, state $state"
  for component in "${control_plane[@]}"; do show_daemon "$component" "$component"; done
  [[ ! -f $state/balanced ]] || show_daemon "balancer, $(balancer_address)" balancer
  [[ ! -e /run/netns/$id.proxy ]] || show_daemon "proxy, $(proxy_address)" proxy
  [[ ! -f $state/fake-nodes ]] || show_daemon kwok kwok
  for name in $(node_names); do
    select_node "$name"
    word=$node_kind
    [[ $node_kind == cloud ]] || word="edge, site ${node_site_name:-$node_site}"
    echo "$name ($word): $node_address, pods $node_pod_cidr"
    show_daemon containerd "$name.containerd"
    show_daemon kubelet "$name.kubelet"
    ! hub_is_wanted || show_daemon edge-hub "$name.edge-hub"
  done
  ! runs kube-apiserver || kubectl get nodes -l '!isthmus.dev/fake'
}

show_daemon() {
  printf '  %-26s %s\n' "$1" "$(daemon_pid "$2" || echo stopped)"
}

command_env() {
  need_cluster
  printf 'export KUBECONFIG=%q\n' "$state/admin.kubeconfig"
  printf "export PATH=%q:\"\$PATH\"\n" "$state/bin"
  printf 'export ISTHMUS_CLUSTER=%q\n' "$cluster"
}

# The daemon that COMPONENT [NODE] means; also selects the node.
daemon_of() {
  case ${1:-} in
    etcd | kube-apiserver | kube-controller-manager | kube-scheduler | kwok | balancer | proxy) daemon=$1 ;;
    kubelet | containerd | edge-hub)
      [[ -n ${2:-} ]] || die "$1 needs a node (has: $(node_names | tr '\n' ' '))"
      select_node "$2"
      daemon=$2.$1
      ;;
    *) die "unknown component '${1:-}' (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok, balancer, proxy, kubelet NODE, containerd NODE, edge-hub NODE)" ;;
  esac
}

command_logs() {
  local follow=() words=() word daemon
  for word; do
    if [[ $word == -f ]]; then follow=(-F); else words+=("$word"); fi
  done
  daemon_of ${words[@]+"${words[@]}"}
  [[ -f $state/logs/$daemon.log ]] || die "no log of ${words[*]} in cluster $cluster"
  exec tail -n +1 ${follow[@]+"${follow[@]}"} "$state/logs/$daemon.log"
}

command_stop() {
  local daemon
  need_cluster
  require_root
  daemon_of "$@"
  lock_cluster
  step "stop $*" stop_daemon "$daemon"
}

command_start() {
  local daemon
  need_cluster
  require_root
  daemon_of "$@"
  lock_cluster
  step "start $*" "start_${1//-/_}"
  # What cannot start ends within a moment, and says why in its log.
  sleep 1
  runs "$daemon" || { tail -n 5 "$state/logs/$daemon.log" >&2 && die "$* ended at once; see: hack/cluster logs $*"; }
  [[ $1 != kube-apiserver ]] || step "API server ready" wait_for_api
}

command_reboot() {
  [[ $# == 1 ]] || die "usage: hack/cluster reboot NODE"
  require_root
  need_cluster
  lock_cluster
  select_node "$1"
  step "$1: rebooted" reboot_node "$1"
}

command_signal() {
  local daemon pid signal=${1:-}
  signal=${signal#SIG}
  [[ $signal =~ ^(STOP|CONT|KILL|TERM|HUP|INT|USR1|USR2|QUIT)$ ]] ||
    die "usage: hack/cluster signal SIGNAL COMPONENT [NODE], SIGNAL being STOP, CONT, KILL, TERM, HUP ..."
  shift
  need_cluster
  require_root
  daemon_of "$@"
  # Without the lock: whoever holds it may wait for the component that is to go on.
  pid=$(daemon_pid "$daemon") || die "$* does not run"
  kill -s "$signal" "$pid"
  [[ $signal == KILL ]] || return 0
  # A large process takes a moment to be gone, and `start` would take it for a running one.
  local tries
  for ((tries = 0; tries < 200; tries++)); do
    ! is_gone "$pid" || return 0
    sleep 0.05
  done
  die "$* is still there 10 s after it was killed"
}

command_exec() {
  need_cluster
  require_root
  [[ $# -ge 3 && $2 == -- ]] || die "usage: hack/cluster exec NODE -- CMD..."
  select_node "$1"
  shift 2
  # The command starts in the node's /: what was named from here must still be found.
  if [[ $1 == */* && $1 != /* && -e $1 ]]; then set -- "$PWD/$1" "${@:2}"; fi
  on_node "$@"
}

command_path() {
  need_cluster
  select_node "${1:-}"
  case ${2:-} in
    cni) echo "$node_folder/own/etc/cni/net.d" ;;
    kubelet-config) echo "$node_folder/kubelet.yaml" ;;
    root) echo "$node_folder/own" ;;
    netns) echo "/run/netns/$node_netns" ;;
    hub-ca) echo "$state/pki/ca.crt" ;;
    *) die "usage: hack/cluster path NODE cni|kubelet-config|root|netns|hub-ca" ;;
  esac
}
