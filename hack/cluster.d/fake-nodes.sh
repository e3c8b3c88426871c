# Fake nodes: Node objects that kwok keeps ready, and whose pods it reports as running.
# shellcheck shell=bash

readonly fake_label=isthmus.dev/fake=true

start_kwok() {
  runs kwok && return
  # Heartbeats every 30 s: thousands of nodes leave the machine something to do.
  run_daemon kwok control-plane "$state/bin/kwok" --kubeconfig="$state/admin.kubeconfig" --config="$hack/cluster.d/fake-nodes.yaml" \
    --manage-all-nodes=false --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake \
    --node-lease-duration-seconds=120 --server-address="$loopback_address:10247" --v=WARN
}

# The manifests of the fake nodes FROM to TO-1. Without the label kubernetes.io/os, so that
# kube-proxy and the like stay on the real ones; with addresses outside of every cluster's.
fake_manifests() {
  awk -v from="$1" -v to="$2" -v pools="$3" 'BEGIN {
    printf "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":["
    for (i = from; i < to; i++) {
      name = sprintf("fake-%05d", i)
      pool = pools > 0 ? sprintf(",\"apps.openyurt.io/nodepool\":\"pool-%d\"", i % pools) : ""
      cidr = sprintf("10.%d.%d.0/24", 128 + int(i / 256), i % 256)
      printf "%s{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"%s\",\"annotations\":{\"kwok.x-k8s.io/node\":\"fake\"}," \
        "\"labels\":{\"isthmus.dev/fake\":\"true\",\"type\":\"kwok\",\"kubernetes.io/hostname\":\"%s\",\"openyurt.io/is-edge-worker\":\"true\"%s}}," \
        "\"spec\":{\"podCIDR\":\"%s\",\"podCIDRs\":[\"%s\"],\"taints\":[{\"key\":\"kwok.x-k8s.io/node\",\"value\":\"fake\",\"effect\":\"NoSchedule\"}]}}", \
        (i > from ? "," : ""), name, name, pool, cidr, cidr
    }
    print "]}"
  }'
}

# The fake nodes as lines "NAME POOL READY". Raw: kubectl's own listing takes ten times as long.
list_fake_nodes() {
  kubectl get --raw "/api/v1/nodes?labelSelector=${fake_label/=/%3D}" |
    jq -r '.items[] | [.metadata.name, (.metadata.labels["apps.openyurt.io/nodepool"] // "-"),
      (.status.conditions // [] | map(select(.type == "Ready").status) | first // "-")] | join(" ")'
}

# Whether exactly the nodes 0 to COUNT-1 are there, each in its pool.
fake_nodes_are_as_wanted() {
  cmp -s <(list_fake_nodes | cut -d' ' -f1,2 | sort) \
    <(awk -v count="$1" -v pools="$2" 'BEGIN {
        for (i = 0; i < count; i++) printf "fake-%05d %s\n", i, (pools > 0 ? "pool-" i % pools : "-")
      }')
}

# In portions, side by side: one kubectl limits its own rate.
apply_fake_nodes() {
  local count=$1 pools=$2 from to jobs=() job failed=0
  for ((from = 0; from < count; from += 250)); do
    to=$((from + 250 < count ? from + 250 : count))
    fake_manifests "$from" "$to" "$pools" |
      kubectl apply --server-side --force-conflicts --field-manager=isthmus-cluster --validate=false -f - >/dev/null &
    jobs+=($!)
  done
  for job in ${jobs[@]+"${jobs[@]}"}; do
    wait "$job" || failed=1
  done
  ((failed == 0)) || die "cannot create the fake nodes"
}

remove_fake_nodes_from() {
  local keep=$1 selector
  # One request for many: `kubectl delete` asks for each.
  while read -r selector; do
    kubectl delete --raw "/api/v1/nodes?labelSelector=$selector" >/dev/null
  done < <(list_fake_nodes | cut -d' ' -f1 |
    awk -F- -v keep="$keep" '$2 + 0 >= keep' | xargs -r -n 250 |
    sed 's/ /,/g; s/.*/kubernetes.io%2Fhostname%20in%20(&)/')
}

fake_nodes_are_ready() {
  local ready
  ready=$(list_fake_nodes | grep -c ' True$' || true)
  ((ready >= $1))
}

command_nodes() {
  local count='' pools=0
  while (($#)); do
    case $1 in
      --pools) pools=${2:?--pools needs a number} && shift ;;
      -*) die "unknown option $1" ;;
      *) count=$1 ;;
    esac
    shift
  done
  [[ $count =~ ^[0-9]+$ && $pools =~ ^[0-9]+$ ]] || die "usage: hack/cluster nodes N [--pools P]"
  ((count <= 18000)) || die "at most 18000 fake nodes"
  need_cluster
  lock_cluster
  if ((count == 0)); then
    step "remove the fake nodes" remove_fake_nodes_from 0
    stop_daemon kwok
    if [[ -f $state/fake-nodes ]]; then
      rm -f "$state/fake-nodes"
      restart_controller_manager
    fi
    return
  fi
  if [[ ! -f $state/fake-nodes ]]; then
    touch "$state/fake-nodes"
    step "longer node grace period" restart_controller_manager
  fi
  step "kwok" start_kwok
  if ! fake_nodes_are_as_wanted "$count" "$pools"; then
    step "$count fake nodes" apply_fake_nodes "$count" "$pools"
    remove_fake_nodes_from "$count"
  fi
  step "fake nodes ready" wait_for "fake nodes ready" 180 "$state/logs/kwok.log" fake_nodes_are_ready "$count"
}

restart_controller_manager() {
  stop_daemon kube-controller-manager
  start_kube_controller_manager
}
