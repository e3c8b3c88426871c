# etcd and the control plane, in the machine's own network, on addresses of the cluster's own.
# shellcheck shell=bash

readonly control_plane=(etcd kube-apiserver kube-controller-manager kube-scheduler)

start_etcd() {
  runs etcd && return
  # The data lives as long as the cluster: a crash of the machine may take it.
  run_daemon etcd control-plane "$state/bin/etcd" \
    --name="$cluster" --data-dir="$state/etcd" --unsafe-no-fsync \
    --listen-client-urls="http://$loopback_address:2379" --advertise-client-urls="http://$loopback_address:2379" \
    --listen-peer-urls="http://$loopback_address:2380" --initial-advertise-peer-urls="http://$loopback_address:2380" \
    --initial-cluster="$cluster=http://$loopback_address:2380" \
    --quota-backend-bytes=8589934592 --auto-compaction-retention=10m --log-level=warn
}

start_kube_apiserver() {
  local pki=$state/pki extra=() reach=() wrapper=()
  runs kube-apiserver && return
  [[ ! -f $state/apiserver-args ]] || mapfile -t extra <"$state/apiserver-args"
  mapfile -t reach < <(reach_arguments)
  mapfile -t wrapper < <(reach_wrapper)
  # Services of webhooks and of aggregated APIs are routed to their endpoints: no kube-proxy
  # runs beside the API server.
  run_daemon kube-apiserver control-plane ${wrapper[@]+"${wrapper[@]}"} "$state/bin/kube-apiserver" \
    --etcd-servers="http://$loopback_address:2379" \
    --bind-address="$api_address" --advertise-address="$api_address" --secure-port=6443 \
    --service-cluster-ip-range="$service_cidr" \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
    --enable-bootstrap-token-auth --allow-privileged \
    --client-ca-file="$pki/ca.crt" \
    --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local \
    --service-account-key-file="$pki/service-account.pub" \
    --service-account-signing-key-file="$pki/service-account.key" \
    --kubelet-client-certificate="$pki/apiserver-kubelet.crt" --kubelet-client-key="$pki/apiserver-kubelet.key" \
    --kubelet-certificate-authority="$pki/ca.crt" \
    --kubelet-preferred-address-types="$(address_types)" \
    --requestheader-client-ca-file="$pki/front-proxy-ca.crt" \
    --requestheader-allowed-names=front-proxy-client \
    --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
    --requestheader-extra-headers-prefix=X-Remote-Extra- \
    --proxy-client-cert-file="$pki/front-proxy.crt" --proxy-client-key-file="$pki/front-proxy.key" \
    --enable-aggregator-routing=true \
    --shutdown-delay-duration=0s \
    ${reach[@]+"${reach[@]}"} ${extra[@]+"${extra[@]}"}
}

# How long a silent node counts as ready: short, so that a fault shows soon; longer with fake
# nodes, whose thousands of heartbeats come seldom.
node_grace() {
  if [[ -f $state/fake-nodes ]]; then echo 60s; else echo "${ISTHMUS_NODE_GRACE:-12s}"; fi
}

start_kube_controller_manager() {
  local pki=$state/pki
  runs kube-controller-manager && return
  run_daemon kube-controller-manager control-plane "$state/bin/kube-controller-manager" \
    --kubeconfig="$pki/kube-controller-manager.kubeconfig" \
    --authentication-kubeconfig="$pki/kube-controller-manager.kubeconfig" \
    --authorization-kubeconfig="$pki/kube-controller-manager.kubeconfig" \
    --bind-address="$loopback_address" --leader-elect=false \
    --root-ca-file="$pki/ca.crt" --service-account-private-key-file="$pki/service-account.key" \
    --use-service-account-credentials \
    --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
    --controllers='*,bootstrapsigner,tokencleaner' \
    --allocate-node-cidrs=false --cluster-cidr="$cluster_cidr" --service-cluster-ip-range="$service_cidr" \
    --node-monitor-period=2s --node-monitor-grace-period="$(node_grace)" \
    --kube-api-qps=200 --kube-api-burst=400
}

start_kube_scheduler() {
  local pki=$state/pki
  runs kube-scheduler && return
  run_daemon kube-scheduler control-plane "$state/bin/kube-scheduler" \
    --kubeconfig="$pki/kube-scheduler.kubeconfig" \
    --authentication-kubeconfig="$pki/kube-scheduler.kubeconfig" \
    --authorization-kubeconfig="$pki/kube-scheduler.kubeconfig" \
    --bind-address="$loopback_address" --leader-elect=false
}

api_server_is_ready() {
  kubectl get --raw /readyz
}

start_api() {
  start_etcd
  start_kube_apiserver
}

wait_for_api() {
  wait_for "the API server" 90 "$state/logs/kube-apiserver.log" api_server_is_ready
}

start_controllers() {
  start_kube_controller_manager
  start_kube_scheduler
}
