# Keys, certificates and kubeconfigs.
# shellcheck shell=bash

readonly days=3650

new_key() {
  openssl ecparam -name prime256v1 -genkey -noout 2>/dev/null | openssl pkcs8 -topk8 -nocrypt -out "$1"
}

make_authority() {
  local folder=$state/pki/$1
  [[ -f $folder.crt ]] && return
  new_key "$folder.key"
  openssl req -x509 -new -key "$folder.key" -days "$days" -subj "/CN=$2" -out "$folder.crt" \
    -addext basicConstraints=critical,CA:true -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature
}

# make_certificate AUTHORITY FILE SUBJECT [SANS]: FILE.crt and FILE.key, for both ends of TLS.
make_certificate() {
  local authority=$state/pki/$1 file=$2 subject=$3 sans=${4:-} extensions
  [[ -f $file.crt ]] && return
  mkdir -p "$(dirname "$file")"
  new_key "$file.key"
  extensions="keyUsage=critical,digitalSignature,keyEncipherment
extendedKeyUsage=serverAuth,clientAuth
basicConstraints=CA:false"
  [[ -z $sans ]] || extensions+=$'\n'"subjectAltName=$sans"
  openssl req -new -key "$file.key" -subj "$subject" -out "$file.csr"
  openssl x509 -req -in "$file.csr" -CA "$authority.crt" -CAkey "$authority.key" -days "$days" \
    -set_serial "0x$(openssl rand -hex 8)" -extfile <(echo "$extensions") -out "$file.crt" 2>/dev/null
  rm "$file.csr"
}

make_kubeconfig() {
  local out=$1 certificate=$2
  (
    umask 077
    cat >"$out" <<CONFIG
apiVersion: v1
kind: Config
clusters:
- name: "$cluster"
  cluster:
    server: $api_server
    certificate-authority-data: $(base64 -w0 "$state/pki/ca.crt")
users:
- name: user
  user:
    client-certificate-data: $(base64 -w0 "$certificate.crt")
    client-key-data: $(base64 -w0 "$certificate.key")
contexts:
- name: "$cluster"
  context: {cluster: "$cluster", user: user}
current-context: "$cluster"
CONFIG
  )
}

make_pki() {
  local pki=$state/pki
  mkdir -p "$pki"
  chmod 700 "$pki"
  make_authority ca "isthmus-$cluster"
  make_authority front-proxy-ca "isthmus-$cluster-front-proxy"
  if [[ ! -f $pki/service-account.key ]]; then
    new_key "$pki/service-account.key"
    openssl pkey -in "$pki/service-account.key" -pubout -out "$pki/service-account.pub"
  fi
  make_certificate ca "$pki/apiserver" /CN=kube-apiserver \
    "IP:$api_address,IP:$kubernetes_service,IP:127.0.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
  make_certificate ca "$pki/apiserver-kubelet" /O=system:masters/CN=kube-apiserver-kubelet-client
  make_certificate front-proxy-ca "$pki/front-proxy" /CN=front-proxy-client
  make_certificate ca "$pki/admin" /O=system:masters/CN=admin
  make_certificate ca "$pki/kube-controller-manager" /CN=system:kube-controller-manager
  make_certificate ca "$pki/kube-scheduler" /CN=system:kube-scheduler
  make_kubeconfig "$state/admin.kubeconfig" "$pki/admin"
  make_kubeconfig "$pki/kube-controller-manager.kubeconfig" "$pki/kube-controller-manager"
  make_kubeconfig "$pki/kube-scheduler.kubeconfig" "$pki/kube-scheduler"
}

make_node_pki() {
  make_certificate ca "$node_folder/pki/kubelet-client" "/O=system:nodes/CN=system:node:$node"
  make_certificate ca "$node_folder/pki/kubelet" "/CN=$node" "IP:$node_address,DNS:$node"
  make_kubeconfig "$node_folder/kubelet.kubeconfig" "$node_folder/pki/kubelet-client"
  mkdir -p "$node_folder/own/etc/kubernetes/pki"
  cp "$state/pki/ca.crt" "$node_folder/own/etc/kubernetes/pki/ca.crt"
}
