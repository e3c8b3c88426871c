#!/usr/bin/env bash
# Captures the golden vectors beside this file from a real API server. Each is one file: a line with status and content type,
# then the body as it came.
#   hack/cluster up --name wire --cloud 0 --edge 0 && eval "$(hack/cluster env --name wire)"
#   crates/kube-wire/tests/golden/capture.sh && hack/cluster down --name wire
set -euo pipefail
golden=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
config() { kubectl config view --raw -o "jsonpath=$1"; }
server=$(config '{.clusters[0].cluster.server}')
config '{.clusters[0].cluster.certificate-authority-data}' | base64 -d >"$scratch/ca"
config '{.users[0].user.client-certificate-data}' | base64 -d >"$scratch/cert"
(umask 077 && config '{.users[0].user.client-key-data}' | base64 -d >"$scratch/key")

kubectl apply -f - <<'YAML'
apiVersion: v1
kind: Namespace
metadata: {name: golden}
---
apiVersion: v1
kind: Service
metadata: {name: a, namespace: golden, labels: {app: a, tier: front}, annotations: {note: "<a> & \"b\""}}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: b, namespace: golden, labels: {app: b}}
spec: {clusterIP: None}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: golden, labels: {app: a}}
spec: {nodeName: edge-1, containers: [{name: c, image: i}]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.golden.example.com}
spec:
  group: golden.example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    selectableFields: [{jsonPath: .spec.color}]
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {color: {type: string}}}}}}
YAML
kubectl wait --for=condition=Established crd/widgets.golden.example.com
for color in red blue; do
  kubectl apply -f - <<YAML
apiVersion: golden.example.com/v1
kind: Widget
metadata: {name: $color, namespace: golden, labels: {color: $color}}
spec: {color: $color}
YAML
done

# NAME ACCEPT PATH: what the API server answers, of a watch what comes within its timeout.
capture() {
  local code_and_type
  code_and_type=$(curl -sS --cacert "$scratch/ca" --cert "$scratch/cert" --key "$scratch/key" -A isthmus-golden \
    -H "Accept: $2" -o "$scratch/body" -w '%{http_code} %{content_type}' "$server$3")
  { echo "$code_and_type" && cat "$scratch/body"; } >"$golden/$1.golden"
}
json='application/json'
proto='application/vnd.kubernetes.protobuf'
partial=';as=PartialObjectMetadata;g=meta.k8s.io;v=v1'
partials=';as=PartialObjectMetadataList;g=meta.k8s.io;v=v1'
services=/api/v1/namespaces/golden/services
pods=/api/v1/namespaces/golden/pods
widgets=/apis/golden.example.com/v1/namespaces/golden/widgets
watch='watch=1&timeoutSeconds=2&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan'
new='watch=1&timeoutSeconds=1'
for kind in services pods widgets; do
  capture "$kind-list-json" "$json" "${!kind}"
  capture "$kind-watch-json" "$json" "${!kind}?$watch"
  capture "$kind-partial-list-json" "$json$partials" "${!kind}"
  capture "$kind-partial-list-protobuf" "$proto$partials" "${!kind}"
  capture "$kind-partial-watch-json" "$json$partial" "${!kind}?$watch"
  capture "$kind-partial-watch-protobuf" "$proto$partial" "${!kind}?$watch"
done
for kind in services pods; do
  capture "$kind-list-protobuf" "$proto" "${!kind}"
  capture "$kind-watch-protobuf" "$proto;stream=watch" "${!kind}?$watch"
done
capture services-page-json "$json" "$services?limit=1"
capture services-all-page-json "$json" "/api/v1/services?limit=1"
capture services-page-protobuf "$proto" "$services?limit=1"
capture services-empty-json "$json" "$services?labelSelector=none"
capture services-empty-protobuf "$proto" "$services?labelSelector=none"
capture widgets-empty-json "$json" "$widgets?labelSelector=none"
capture widgets-page-json "$json" "$widgets?limit=1"

capture error-label-selector "$json" "$services?labelSelector=a%20b"
capture error-label-selector-key "$json" "$services?labelSelector=-a%3D%3Cb%3E"
capture error-label-selector-value "$json" "$services?labelSelector=a+in+(-,-b)"
capture error-label-selector-gt "$json" "$services?labelSelector=a%3Ex"
capture error-field-selector "$json" "$services?fieldSelector=a"
capture error-field-label "$json" "$services?fieldSelector=spec.nodeName%3Da"
capture error-field-label-default "$json" "/api/v1/configmaps?fieldSelector=a%3Db"
capture error-field-label-custom "$json" "$widgets?fieldSelector=a%3Db"
capture error-limit "$json" "$services?limit=x"
capture error-timeout "$json" "$services?timeoutSeconds=99999999999999999999"
capture error-list-version "$json" "$services?resourceVersion=x"
capture error-list-version-negative "$json" "$services?resourceVersion=-1"
capture error-list-version-range "$json" "$services?resourceVersion=18446744073709551616"
capture error-list-version-custom "$json" "$widgets?resourceVersion=x"
capture error-list-match-alone "$json" "$services?resourceVersionMatch=Exact"
capture error-list-match-zero "$json" "$services?resourceVersionMatch=Exact&resourceVersion=0"
capture error-list-match-unknown "$json" "$services?resourceVersionMatch=Some&resourceVersion=1"
capture error-list-match-continue "$json" "$services?resourceVersionMatch=Exact&resourceVersion=1&continue=x"
capture error-list-everything "$json" "$services?resourceVersionMatch=Some&continue=x&sendInitialEvents=1"
capture error-list-initial-events "$json" "$services?sendInitialEvents=false"
capture error-continue-base64 "$json" "$services?continue=x"
capture error-continue-json "$json" "$services?continue=e30"
capture error-continue-brace "$json" "$services?continue=ew"
capture error-continue-start "$json" "$services?continue=$(printf '{"v":"meta.k8s.io/v1","rv":1}' | basenc --base64url | tr -d =)"
capture error-continue-version "$json" "$services?continue=$(printf '{"v":"meta.k8s.io/v1","start":"a"}' | basenc --base64url | tr -d =)"
capture error-continue-path "$json" "$services?continue=$(printf '{"v":"meta.k8s.io/v1","rv":1,"start":"../a"}' | basenc --base64url | tr -d =)"
capture error-continue-and-version "$json" "$services?resourceVersion=1&continue=$(printf '{"v":"meta.k8s.io/v1","rv":1,"start":"a"}' | basenc --base64url | tr -d =)"
capture error-list-too-large "$json" "$services?resourceVersion=999999999&resourceVersionMatch=NotOlderThan"
capture error-list-too-large-protobuf "$proto" "$services?resourceVersion=999999999&resourceVersionMatch=NotOlderThan"
capture error-list-exact-too-large "$json" "$services?resourceVersion=999999999&resourceVersionMatch=Exact"
capture error-get-version "$json" "$services/a?resourceVersion=x"
capture error-get-version-protobuf "$proto" "$services/a?resourceVersion=x"
capture error-watch-version "$json" "$services?$new&resourceVersion=x"
capture error-watch-version-name "$json" "$services?$new&resourceVersion=x&fieldSelector=metadata.name%3Da"
capture error-watch-version-custom "$json" "$widgets?$new&resourceVersion=x"
capture error-watch-match-alone "$json" "$services?$new&resourceVersionMatch=NotOlderThan&resourceVersion=1"
capture error-watch-match-exact "$json" "$services?$new&resourceVersionMatch=Exact&sendInitialEvents=true"
capture error-watch-initial-events-alone "$json" "$services?$new&sendInitialEvents=true"
capture error-watch-match-continue "$json" "$services?$new&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&continue=x"
capture error-watch-initial-too-large "$json" "$services?watch=1&timeoutSeconds=5&resourceVersion=999999999&resourceVersionMatch=NotOlderThan&sendInitialEvents=true"
capture error-watch-too-old-custom "$json" "$widgets?$new&resourceVersion=1"
capture error-not-found "$json" "$services/none"
capture error-not-acceptable-list 'text/plain' "$services"
capture error-not-acceptable-list-custom 'text/plain' "$widgets"
capture error-not-acceptable-custom-protobuf "$proto" "$widgets"
capture error-not-acceptable-as "$json;as=Widget;g=meta.k8s.io;v=v1" "$services"
capture error-not-acceptable-partial-list "$json$partials" "$services/a"
capture error-not-acceptable-partial-of-list "$json$partial" "$services"
capture error-not-acceptable-watch 'text/plain' "$services?$new"
capture error-no-path "$json" "/api/v1/nothing"

# The API server compacts every five minutes: revision 1 is gone once it is so old.
expired=$(printf '{"v":"meta.k8s.io/v1","rv":1,"start":"a\\u0000"}' | basenc --base64url -w0 | tr -d =)
capture error-continue-expired "$json" "$services?limit=1&continue=$expired"
capture error-list-exact-gone "$json" "$services?resourceVersion=1&resourceVersionMatch=Exact"
capture error-watch-too-old-protobuf "$proto$partial" "$widgets?$new&resourceVersion=1"
