//! Tables of the selectable fields of built-in kinds, after the conversion functions of `k8s.io/kubernetes/pkg/apis` 1.36
//! (which labels are taken), the strategies of `pkg/registry` (which values they stand for) and `k8s.io/api` (tags).

/// How the API server turns a field into text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Form {
    Text,
    Bool,
    Integer,
}

/// Where a field stands in either encoding.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Source {
    pub(crate) json: &'static [&'static str],
    pub(crate) protobuf: &'static [u64],
}

/// A field of a built-in kind.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BuiltIn {
    pub(crate) label: &'static str,
    pub(crate) form: Form,
    /// The first that is not empty counts.
    pub(crate) sources: &'static [Source],
}

/// The fields of one resource, in all its versions.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) group: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) fields: &'static [&'static BuiltIn],
    pub(crate) refusal: Refusal,
}

/// How the API server words its refusal of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    NotSupported,
    OnlyMetadata,
    Job,
    ResourceSlice,
}

impl Refusal {
    pub(crate) fn words(self, label: &str) -> String {
        match self {
            Self::NotSupported => format!("field label not supported: {label}"),
            Self::OnlyMetadata => {
                let label = crate::quoting::quoted(label);
                format!(
                    "{label} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                )
            }
            Self::Job => format!("field label {} not supported for Job", crate::quoting::quoted(label)),
            Self::ResourceSlice => {
                format!("field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {label}")
            }
        }
    }
}

/// The groups that the API server itself serves; their kinds without a table refuse labels in other words than custom
/// resources, whose groups may also end in `k8s.io`.
pub(crate) const BUILT_IN_GROUPS: &[&str] = &[
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

const fn text(label: &'static str, sources: &'static [Source]) -> BuiltIn {
    BuiltIn { label, form: Form::Text, sources }
}

const fn at(json: &'static [&'static str], protobuf: &'static [u64]) -> Source {
    Source { json, protobuf }
}

// Both are read from the object's key.
static NAME: BuiltIn = text("metadata.name", &[]);
static NAMESPACE: BuiltIn = text("metadata.namespace", &[]);

/// What every other kind has.
pub(crate) const METADATA: &[&BuiltIn] = &[&NAME, &NAMESPACE];

/// What of that a custom resource without namespaces has.
pub(crate) const NAME_ALONE: &[&BuiltIn] = &[&NAME];

static POD_NODE_NAME: BuiltIn = text("spec.nodeName", &[at(&["spec", "nodeName"], &[2, 10])]);
static POD_RESTART_POLICY: BuiltIn = text("spec.restartPolicy", &[at(&["spec", "restartPolicy"], &[2, 3])]);
static POD_SCHEDULER_NAME: BuiltIn = text("spec.schedulerName", &[at(&["spec", "schedulerName"], &[2, 19])]);
static POD_SERVICE_ACCOUNT_NAME: BuiltIn =
    text("spec.serviceAccountName", &[at(&["spec", "serviceAccountName"], &[2, 8])]);
static POD_HOST_NETWORK: BuiltIn = BuiltIn {
    label: "spec.hostNetwork",
    form: Form::Bool,
    sources: &[at(&["spec", "hostNetwork"], &[2, 11])],
};
static POD_PHASE: BuiltIn = text("status.phase", &[at(&["status", "phase"], &[3, 1])]);
// The internal type has only the list; one that was written with the single field alone is converted into it.
static POD_IP: BuiltIn = text(
    "status.podIP",
    &[at(&["status", "podIPs", "0", "ip"], &[3, 12, 1]), at(&["status", "podIP"], &[3, 6])],
);
// Taken by the conversion, but the strategy gives it no value: it is always empty.
static POD_IPS: BuiltIn = text("status.podIPs", &[]);
static POD_NOMINATED_NODE_NAME: BuiltIn =
    text("status.nominatedNodeName", &[at(&["status", "nominatedNodeName"], &[3, 11])]);

static NODE_UNSCHEDULABLE: BuiltIn = BuiltIn {
    label: "spec.unschedulable",
    form: Form::Bool,
    sources: &[at(&["spec", "unschedulable"], &[2, 4])],
};
static SERVICE_CLUSTER_IP: BuiltIn = text("spec.clusterIP", &[at(&["spec", "clusterIP"], &[2, 3])]);
static SERVICE_TYPE: BuiltIn = text("spec.type", &[at(&["spec", "type"], &[2, 4])]);
static SECRET_TYPE: BuiltIn = text("type", &[at(&["type"], &[3])]);
static NAMESPACE_PHASE: BuiltIn = text("status.phase", &[at(&["status", "phase"], &[3, 1])]);
static RC_REPLICAS: BuiltIn = BuiltIn {
    label: "status.replicas",
    form: Form::Integer,
    sources: &[at(&["status", "replicas"], &[3, 1])],
};
static JOB_SUCCESSFUL: BuiltIn = BuiltIn {
    label: "status.successful",
    form: Form::Integer,
    sources: &[at(&["status", "succeeded"], &[3, 5])],
};
static CSR_SIGNER_NAME: BuiltIn = text("spec.signerName", &[at(&["spec", "signerName"], &[2, 7])]);
static SIGNER_NAME: BuiltIn = text("spec.signerName", &[at(&["spec", "signerName"], &[2, 1])]);
static REQUEST_POD_NAME: BuiltIn = text("spec.podName", &[at(&["spec", "podName"], &[2, 2])]);
static REQUEST_NODE_NAME: BuiltIn = text("spec.nodeName", &[at(&["spec", "nodeName"], &[2, 6])]);
static SLICE_NODE_NAME: BuiltIn = text("spec.nodeName", &[at(&["spec", "nodeName"], &[2, 3])]);
static SLICE_DRIVER: BuiltIn = text("spec.driver", &[at(&["spec", "driver"], &[2, 1])]);

static EVENT_OBJECT: [BuiltIn; 7] = [
    text("involvedObject.kind", &[at(&["involvedObject", "kind"], &[2, 1])]),
    text("involvedObject.namespace", &[at(&["involvedObject", "namespace"], &[2, 2])]),
    text("involvedObject.name", &[at(&["involvedObject", "name"], &[2, 3])]),
    text("involvedObject.uid", &[at(&["involvedObject", "uid"], &[2, 4])]),
    text("involvedObject.apiVersion", &[at(&["involvedObject", "apiVersion"], &[2, 5])]),
    text("involvedObject.resourceVersion", &[at(&["involvedObject", "resourceVersion"], &[2, 6])]),
    text("involvedObject.fieldPath", &[at(&["involvedObject", "fieldPath"], &[2, 7])]),
];
static EVENT_REASON: BuiltIn = text("reason", &[at(&["reason"], &[3])]);
static EVENT_REPORTER: BuiltIn = text("reportingComponent", &[at(&["reportingComponent"], &[14])]);
static EVENT_SOURCE: BuiltIn =
    text("source", &[at(&["source", "component"], &[5, 1]), at(&["reportingComponent"], &[14])]);
static EVENT_TYPE: BuiltIn = text("type", &[at(&["type"], &[9])]);

static REGARDING: [BuiltIn; 7] = [
    text("regarding.kind", &[at(&["regarding", "kind"], &[8, 1])]),
    text("regarding.namespace", &[at(&["regarding", "namespace"], &[8, 2])]),
    text("regarding.name", &[at(&["regarding", "name"], &[8, 3])]),
    text("regarding.uid", &[at(&["regarding", "uid"], &[8, 4])]),
    text("regarding.apiVersion", &[at(&["regarding", "apiVersion"], &[8, 5])]),
    text("regarding.resourceVersion", &[at(&["regarding", "resourceVersion"], &[8, 6])]),
    text("regarding.fieldPath", &[at(&["regarding", "fieldPath"], &[8, 7])]),
];
static NEW_EVENT_REASON: BuiltIn = text("reason", &[at(&["reason"], &[7])]);
static NEW_EVENT_REPORTER: BuiltIn = text("reportingController", &[at(&["reportingController"], &[4])]);
static NEW_EVENT_TYPE: BuiltIn = text("type", &[at(&["type"], &[11])]);

const fn table(
    group: &'static str,
    resource: &'static str,
    fields: &'static [&'static BuiltIn],
    refusal: Refusal,
) -> Table {
    Table { group, resource, fields, refusal }
}

/// Every resource with fields of its own; all others have [`METADATA`].
pub(crate) static TABLES: &[Table] = &[
    table(
        "",
        "pods",
        &[
            &NAME,
            &NAMESPACE,
            &POD_NODE_NAME,
            &POD_RESTART_POLICY,
            &POD_SCHEDULER_NAME,
            &POD_SERVICE_ACCOUNT_NAME,
            &POD_HOST_NETWORK,
            &POD_PHASE,
            &POD_IP,
            &POD_IPS,
            &POD_NOMINATED_NODE_NAME,
        ],
        Refusal::NotSupported,
    ),
    table("", "nodes", &[&NAME, &NODE_UNSCHEDULABLE], Refusal::NotSupported),
    table("", "services", &[&NAME, &NAMESPACE, &SERVICE_CLUSTER_IP, &SERVICE_TYPE], Refusal::NotSupported),
    table("", "secrets", &[&NAME, &NAMESPACE, &SECRET_TYPE], Refusal::NotSupported),
    table("", "namespaces", &[&NAME, &NAMESPACE_PHASE], Refusal::NotSupported),
    table("", "replicationcontrollers", &[&NAME, &NAMESPACE, &RC_REPLICAS], Refusal::NotSupported),
    table(
        "",
        "events",
        &[
            &NAME,
            &NAMESPACE,
            &EVENT_OBJECT[0],
            &EVENT_OBJECT[1],
            &EVENT_OBJECT[2],
            &EVENT_OBJECT[3],
            &EVENT_OBJECT[4],
            &EVENT_OBJECT[5],
            &EVENT_OBJECT[6],
            &EVENT_REASON,
            &EVENT_REPORTER,
            &EVENT_SOURCE,
            &EVENT_TYPE,
        ],
        Refusal::NotSupported,
    ),
    table(
        "events.k8s.io",
        "events",
        &[
            &NAME,
            &NAMESPACE,
            &REGARDING[0],
            &REGARDING[1],
            &REGARDING[2],
            &REGARDING[3],
            &REGARDING[4],
            &REGARDING[5],
            &REGARDING[6],
            &NEW_EVENT_REASON,
            &NEW_EVENT_REPORTER,
            &NEW_EVENT_TYPE,
        ],
        Refusal::NotSupported,
    ),
    table("batch", "jobs", &[&NAME, &NAMESPACE, &JOB_SUCCESSFUL], Refusal::Job),
    table(
        "certificates.k8s.io",
        "certificatesigningrequests",
        &[&NAME, &CSR_SIGNER_NAME],
        Refusal::NotSupported,
    ),
    table("certificates.k8s.io", "clustertrustbundles", &[&NAME, &SIGNER_NAME], Refusal::NotSupported),
    table(
        "certificates.k8s.io",
        "podcertificaterequests",
        &[&NAME, &SIGNER_NAME, &REQUEST_POD_NAME, &REQUEST_NODE_NAME],
        Refusal::NotSupported,
    ),
    table(
        "resource.k8s.io",
        "resourceslices",
        &[&NAME, &SLICE_NODE_NAME, &SLICE_DRIVER],
        Refusal::ResourceSlice,
    ),
];
