# What runs in the cluster from the start: kube-proxy, and CoreDNS when asked for. The nodes
# share this machine's files, so the binaries come by hostPath into the busybox image.
# shellcheck shell=bash

binary_folder() {
  dirname "$(readlink -f "$state/bin/$1")"
}

# Debian's iptables is linked dynamically: its libraries and its alternatives come along.
host_paths() {
  local entry
  for entry in "$@"; do
    [[ ! -d ${entry%%:*} ]] || echo "$entry"
  done
}

host_volumes() {
  local entry number=0
  for entry; do
    echo "      - {name: host-$number, hostPath: {path: ${entry%%:*}}}"
    number=$((number + 1))
  done
}

host_mounts() {
  local entry number=0
  for entry; do
    echo "        - {name: host-$number, mountPath: ${entry#*:}, readOnly: true}"
    number=$((number + 1))
  done
}

kube_proxy_manifest() {
  local paths
  mapfile -t paths < <(host_paths "$(binary_folder kube-proxy):/opt/isthmus" /usr:/usr /usr/lib:/lib /usr/lib64:/lib64 /usr/sbin:/sbin /etc/alternatives:/etc/alternatives)
  cat <<MANIFEST
apiVersion: v1
kind: ServiceAccount
metadata: {name: kube-proxy, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kubeadm:node-proxier}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:node-proxier}
subjects:
- {kind: ServiceAccount, name: kube-proxy, namespace: kube-system}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: kube-proxy
  namespace: kube-system
  labels: {app: kube-proxy}
data:
  config.conf: |
    apiVersion: kubeproxy.config.k8s.io/v1alpha1
    kind: KubeProxyConfiguration
    mode: iptables
    clusterCIDR: $cluster_cidr
    # On lines of its own, as kubeadm writes it: a hub shows this one as a comment (inclusterconfig).
    clientConnection:
      kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
      qps: 0
    # Not the nodes' to set: the limits belong to the machine.
    conntrack: {maxPerCore: 0, min: 0}
    oomScoreAdj: 1000
  kubeconfig.conf: |
    apiVersion: v1
    kind: Config
    clusters:
    - cluster:
        certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
        server: $api_server
      name: default
    contexts:
    - context: {cluster: default, namespace: default, user: default}
      name: default
    current-context: default
    users:
    - name: default
      user: {tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token}
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: kube-proxy
  namespace: kube-system
  labels: {k8s-app: kube-proxy}
spec:
  selector: {matchLabels: {k8s-app: kube-proxy}}
  updateStrategy: {type: RollingUpdate}
  template:
    metadata: {labels: {k8s-app: kube-proxy}}
    spec:
      serviceAccountName: kube-proxy
      priorityClassName: system-node-critical
      hostNetwork: true
      nodeSelector: {kubernetes.io/os: linux}
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 2
      containers:
      - name: kube-proxy
        image: $busybox_image
        imagePullPolicy: IfNotPresent
        command: [/opt/isthmus/kube-proxy, --config=/var/lib/kube-proxy/config.conf, --hostname-override=\$(NODE_NAME)]
        env:
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        securityContext: {privileged: true}
        volumeMounts:
        - {name: kube-proxy, mountPath: /var/lib/kube-proxy}
        - {name: xtables-lock, mountPath: /run/xtables.lock}
$(host_mounts "${paths[@]}")
      volumes:
      - {name: kube-proxy, configMap: {name: kube-proxy}}
      - {name: xtables-lock, hostPath: {path: /run/xtables.lock, type: FileOrCreate}}
$(host_volumes "${paths[@]}")
MANIFEST
}

# What a data centre's own DNS knows of the cloud's nodes.
cloud_names() {
  local name
  for name in $(node_names); do
    select_node "$name"
    [[ $node_kind == edge ]] || echo "           $node_address $name"
  done
}

# The names of edge nodes lead to gateways: ConfigMap edge-tunnel-nodes, as the manager writes it.
coredns_manifest() {
  cat <<MANIFEST
apiVersion: v1
kind: ServiceAccount
metadata: {name: coredns, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: system:coredns}
rules:
- {apiGroups: [""], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: system:coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:coredns}
subjects:
- {kind: ServiceAccount, name: coredns, namespace: kube-system}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    .:53 {
        errors
        health
        ready
        kubernetes cluster.local in-addr.arpa ip6.arpa {
           pods insecure
           fallthrough in-addr.arpa ip6.arpa
           ttl 30
        }
        hosts /etc/edge/tunnel-nodes {
$(cloud_names)
           ttl 5
           reload 1s
           fallthrough
        }
        cache 5
        reload
        loadbalance
    }
---
apiVersion: v1
kind: Service
metadata:
  name: kube-dns
  namespace: kube-system
  labels: {k8s-app: kube-dns, kubernetes.io/name: CoreDNS}
spec:
  clusterIP: $dns_service
  selector: {k8s-app: kube-dns}
  ports:
  - {name: dns, port: 53, protocol: UDP}
  - {name: dns-tcp, port: 53, protocol: TCP}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: coredns
  namespace: kube-system
  labels: {k8s-app: kube-dns}
spec:
  replicas: 1
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec:
      serviceAccountName: coredns
      priorityClassName: system-cluster-critical
      dnsPolicy: Default
      nodeSelector: {kubernetes.io/os: linux, openyurt.io/is-edge-worker: "false"}
      tolerations: [{key: node-role.kubernetes.io/control-plane, effect: NoSchedule}]
      terminationGracePeriodSeconds: 2
      containers:
      - name: coredns
        image: $busybox_image
        imagePullPolicy: IfNotPresent
        command: [/opt/isthmus/coredns, -conf, /etc/coredns/Corefile]
        readinessProbe: {httpGet: {path: /ready, port: 8181}, periodSeconds: 2}
        volumeMounts:
        - {name: config, mountPath: /etc/coredns}
        - {name: edge, mountPath: /etc/edge}
        - {name: binary, mountPath: /opt/isthmus, readOnly: true}
      volumes:
      - {name: config, configMap: {name: coredns}}
      - {name: edge, configMap: {name: edge-tunnel-nodes, optional: true}}
      - {name: binary, hostPath: {path: $(binary_folder coredns)}}
MANIFEST
}

# Once only: what a user or a test patched since must stay.
install_kube_proxy() {
  if [[ ! -f $state/kube-proxy.installed ]]; then
    kube_proxy_manifest | kubectl apply --server-side -f - >/dev/null
    touch "$state/kube-proxy.installed"
  fi
}

# After kube-proxy: a CoreDNS that cannot reach 10.96.0.1 yet waits for half a minute.
install_coredns() {
  if [[ -f $state/coredns && ! -f $state/coredns.installed ]]; then
    coredns_manifest | kubectl apply --server-side -f - >/dev/null
    touch "$state/coredns.installed"
  fi
}
