{{- define "isthmus.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Start of all names; short enough for every suffix below in 63 characters. */}}
{{- define "isthmus.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "isthmus.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "isthmus.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "isthmus.manager" -}}{{ include "isthmus.fullname" . }}-manager{{- end -}}
{{- define "isthmus.webhook" -}}{{ include "isthmus.fullname" . }}-webhook{{- end -}}
{{- define "isthmus.nodeMetric" -}}{{ include "isthmus.fullname" . }}-node-metric{{- end -}}
{{- define "isthmus.crds" -}}{{ include "isthmus.fullname" . }}-crds{{- end -}}
{{- define "isthmus.caSecret" -}}{{ include "isthmus.webhook" . }}-ca{{- end -}}
{{- define "isthmus.servingSecret" -}}{{ include "isthmus.webhook" . }}-serving{{- end -}}

{{- define "isthmus.selectorLabels" -}}
app.kubernetes.io/name: {{ include "isthmus.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: manager
{{- end -}}

{{- define "isthmus.labels" -}}
{{ include "isthmus.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: isthmus
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "isthmus.image" -}}
{{- with .Values.image -}}
{{- $tag := .tag | default $.Chart.AppVersion -}}
{{- if .registry -}}{{ .registry }}/{{- end -}}{{ .repository }}:{{ $tag }}
{{- end -}}
{{- end -}}

{{- define "isthmus.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "isthmus.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Where the manager's pods, and the one that applies the CRDs, may run. */}}
{{- define "isthmus.nodeAffinity" -}}
{{- $gateways := .Values.edgeHub.gatewayNodes -}}
{{- with .Values.placement -}}
{{- if or .avoidEdgeWorkers .avoidHostNetworkPools (and .avoidGateways $gateways) -}}
nodeAffinity:
  {{- if and .avoidGateways $gateways }}
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 50
      preference:
        matchFields:
          {{- range $gateways }}
          - {key: metadata.name, operator: NotIn, values: [{{ . | quote }}]}
          {{- end }}
  {{- end }}
  {{- if or .avoidEdgeWorkers .avoidHostNetworkPools }}
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions:
          {{- if .avoidEdgeWorkers }}
          - {key: openyurt.io/is-edge-worker, operator: NotIn, values: ["true"]}
          {{- end }}
          {{- if .avoidHostNetworkPools }}
          - {key: nodepool.openyurt.io/hostnetwork, operator: NotIn, values: ["true"]}
          - {key: nodepool.openyurt.io/host-network, operator: NotIn, values: ["true"]}
          - {key: nodepool.openyurt.io/network-mode, operator: NotIn, values: [node-network-mode]}
          {{- end }}
  {{- end }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "isthmus.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "isthmus.clientConfig" -}}
clientConfig:
  service:
    name: {{ include "isthmus.webhook" .root }}
    namespace: {{ .root.Release.Namespace }}
    port: 443
    path: {{ .path }}
admissionReviewVersions: [v1]
sideEffects: None
matchPolicy: Equivalent
timeoutSeconds: {{ .root.Values.webhook.timeoutSeconds }}
{{- end -}}

{{- define "isthmus.podWebhook" -}}
{{ include "isthmus.clientConfig" (dict "root" . "path" "/mutate-core-openyurt-io-v1-pod") }}
# A later webhook may add containers or move the pod.
reinvocationPolicy: IfNeeded
rules:
  - apiGroups: [""]
    apiVersions: [v1]
    resources: [pods]
    operations: [CREATE]
    scope: Namespaced
{{- with .Values.webhook.namespaceSelector }}
namespaceSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "isthmus.crdsMetadata" -}}
labels:
  {{- include "isthmus.labels" .root | replace "component: manager" "component: crds" | nindent 2 }}
annotations:
  helm.sh/hook: pre-install,pre-upgrade
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{- define "isthmus.resources" -}}
{{- $resources := deepCopy .resources -}}
{{- if hasKey $resources "limits" -}}
{{- $_ := set $resources "limits" (merge (default dict $resources.limits) (dict "memory" .memory)) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{- /* An APIService takes a whole version of its group: what a CRD serves in it would be seen no more. */ -}}
{{- define "isthmus.refuseHidden" -}}
{{- $version := .version -}}
{{- range .crds -}}
{{- $crd := dig "metadata" "name" "" . -}}
{{- range dig "spec" "versions" list . -}}
{{- if and .served (eq .name $version) -}}
{{- $other := ternary "v1beta1" "v1alpha1" (eq $version "v1alpha1") -}}
{{- fail (printf "CRD %s serves slo.koordinator.sh/%s, which nodeMetrics.apiVersion=%s would hide: set nodeMetrics.apiVersion=%s, or, if nobody uses it, remove it with its objects (kubectl delete crd %s)" $crd $version $version $other $crd) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Nodes, pools and webhooks are the cluster's: two releases would both lead, and undo each other's work. */ -}}
{{- define "isthmus.refuseSecond" -}}
{{- $release := .release -}}
{{- range .roles -}}
{{- $other := dig "metadata" "annotations" "meta.helm.sh/release-name" "" . -}}
{{- $namespace := dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" . -}}
{{- if and (eq (dig "metadata" "labels" "app.kubernetes.io/part-of" "" .) "isthmus") $other (ne (printf "%s/%s" $namespace $other) (printf "%s/%s" $release.Namespace $release.Name)) -}}
{{- fail (printf "release %s in namespace %s is Isthmus already, and a cluster has room for one: upgrade it (helm upgrade %s --namespace %s ...), or remove it first (helm uninstall %s --namespace %s)" $other $namespace $other $namespace $other $namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "isthmus.refuseEqualPorts" -}}
{{- $taken := dict -}}
{{- $ports := dict "ports.metrics" .Values.ports.metrics "ports.health" .Values.ports.health "ports.webhook" .Values.ports.webhook -}}
{{- if .Values.nodeMetrics.enabled -}}
{{- $_ := set $ports "nodeMetrics.ports.api" .Values.nodeMetrics.ports.api -}}
{{- $_ := set $ports "nodeMetrics.ports.report" .Values.nodeMetrics.ports.report -}}
{{- end -}}
{{- range $key := keys $ports | sortAlpha -}}
{{- $port := get $ports $key | int | toString -}}
{{- if hasKey $taken $port -}}
{{- fail (printf "%s and %s are both %s: the manager listens on each, so give one of them another port" (get $taken $port) $key $port) -}}
{{- end -}}
{{- $_ := set $taken $port $key -}}
{{- end -}}
{{- end -}}

{{- /* As the manager itself asks for, which would say so when the upgrade is done. */ -}}
{{- define "isthmus.refuseTiming" -}}
{{- $unit := dict "ms" 1 "s" 1000 "m" 60000 -}}
{{- $of := dict -}}
{{- range $key, $value := .Values.leaderElection -}}
{{- $_ := set $of $key (mul (regexFind "^[0-9]+" $value) (get $unit (regexFind "[a-z]+$" $value))) -}}
{{- end -}}
{{- if ge (mul 10 $of.renewDeadline) (mul 9 $of.leaseDuration) -}}
{{- fail (printf "leaderElection.renewDeadline=%s must be below nine tenths of leaderElection.leaseDuration=%s" .Values.leaderElection.renewDeadline .Values.leaderElection.leaseDuration) -}}
{{- end -}}
{{- if gt (mul 2 $of.retryPeriod) $of.renewDeadline -}}
{{- fail (printf "leaderElection.retryPeriod=%s must be at most half of leaderElection.renewDeadline=%s" .Values.leaderElection.retryPeriod .Values.leaderElection.renewDeadline) -}}
{{- end -}}
{{- end -}}
