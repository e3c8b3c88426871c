package main

import (
	"encoding/json"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The types of Koordinator's apis/slo/v1alpha1 (a7a1b76b), member by member: what its components decode a NodeMetric into.

type nodeMetricList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []nodeMetric `json:"items"`
}

type nodeMetric struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   nodeMetricSpec   `json:"spec,omitempty"`
	Status nodeMetricStatus `json:"status,omitempty"`
}

type nodeMetricSpec struct {
	CollectPolicy *nodeMetricCollectPolicy `json:"metricCollectPolicy,omitempty"`
}

type nodeMetricCollectPolicy struct {
	AggregateDurationSeconds *int64           `json:"aggregateDurationSeconds,omitempty"`
	ReportIntervalSeconds    *int64           `json:"reportIntervalSeconds,omitempty"`
	NodeAggregatePolicy      *aggregatePolicy `json:"nodeAggregatePolicy,omitempty"`
	NodeMemoryCollectPolicy  *string          `json:"nodeMemoryCollectPolicy,omitempty"`
}

type aggregatePolicy struct {
	Durations []metav1.Duration `json:"durations,omitempty"`
}

type nodeMetricStatus struct {
	UpdateTime            *metav1.Time                 `json:"updateTime,omitempty"`
	NodeMetric            *nodeMetricInfo              `json:"nodeMetric,omitempty"`
	PodsMetric            []*podMetricInfo             `json:"podsMetric,omitempty"`
	HostApplicationMetric []*hostApplicationMetricInfo `json:"hostApplicationMetric,omitempty"`
	ProdReclaimableMetric *predictedMetric             `json:"prodReclaimableMetric,omitempty"`
	ProdPeakMetric        *predictedMetric             `json:"prodPeakMetric,omitempty"`
}

type nodeMetricInfo struct {
	NodeUsage              resourceMap       `json:"nodeUsage,omitempty"`
	AggregatedNodeUsages   []aggregatedUsage `json:"aggregatedNodeUsages,omitempty"`
	SystemUsage            resourceMap       `json:"systemUsage,omitempty"`
	AggregatedSystemUsages []aggregatedUsage `json:"aggregatedSystemUsages,omitempty"`
	NUMAUsages             []numaUsage       `json:"numaUsages,omitempty"`
}

type aggregatedUsage struct {
	Usage    map[string]resourceMap `json:"usage,omitempty"`
	Duration metav1.Duration        `json:"duration,omitempty"`
}

type numaUsage struct {
	NUMANodeID  int32       `json:"numaNodeID"`
	NodeUsage   resourceMap `json:"nodeUsage,omitempty"`
	SystemUsage resourceMap `json:"systemUsage,omitempty"`
}

type resourceMap struct {
	corev1.ResourceList `json:"resources,omitempty"`
	Devices             []deviceInfo `json:"devices,omitempty"`
}

type deviceInfo struct {
	Type       string              `json:"type,omitempty"`
	Labels     map[string]string   `json:"labels,omitempty"`
	UUID       string              `json:"id,omitempty"`
	Minor      *int32              `json:"minor,omitempty"`
	ModuleID   *int32              `json:"moduleID,omitempty"`
	Health     bool                `json:"health"`
	Resources  corev1.ResourceList `json:"resources,omitempty"`
	Conditions []metav1.Condition  `json:"conditions,omitempty"`
}

type podMetricInfo struct {
	Name       string                `json:"name,omitempty"`
	Namespace  string                `json:"namespace,omitempty"`
	PodUsage   resourceMap           `json:"podUsage,omitempty"`
	Priority   string                `json:"priority,omitempty"`
	QoS        string                `json:"qos,omitempty"`
	Extensions *runtime.RawExtension `json:"extensions,omitempty"`
}

type hostApplicationMetricInfo struct {
	Name     string      `json:"name,omitempty"`
	Usage    resourceMap `json:"usage,omitempty"`
	Priority string      `json:"priority,omitempty"`
	QoS      string      `json:"qos,omitempty"`
}

type predictedMetric struct {
	Resource resourceMap `json:"resource,omitempty"`
}

// reread decodes a list of NodeMetrics as Koordinator's components do, and encodes what they know of it.
func reread(in io.Reader, out io.Writer) error {
	var list nodeMetricList
	if err := json.NewDecoder(in).Decode(&list); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(list)
}
