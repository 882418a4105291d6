//! The built-in kinds, a row each: names, scope, endpoints and habits as the real server has them.
//!
//! A row is data. What a kind does beyond it is in `strategy.rs`, what kubectl prints of it in `columns.rs`,
//! and the shape of its objects in `definitions.rs`, which must list the type of every row.

use std::sync::Arc;

use super::{Kind, Scale, Traits, columns};
use crate::schema::Node;
use crate::status::qualified;

const CORE: (&str, &str) = ("", "v1");
const ADMISSION: (&str, &str) = ("admissionregistration.k8s.io", "v1");
const APPS: (&str, &str) = ("apps", "v1");
const AUTHENTICATION: (&str, &str) = ("authentication.k8s.io", "v1");
const AUTHORIZATION: (&str, &str) = ("authorization.k8s.io", "v1");
const RBAC: (&str, &str) = ("rbac.authorization.k8s.io", "v1");

pub fn kinds() -> Vec<Kind> {
    vec![
        row(CORE, "configmaps", "io.k8s.api.core.v1.ConfigMap").short("cm"),
        row(CORE, "events", "io.k8s.api.core.v1.Event")
            .short("ev")
            .create_on_update()
            .selects(&INVOLVED_OBJECT)
            .selects(&["reason", "reportingComponent", "source", "type"]),
        row(CORE, "namespaces", "io.k8s.api.core.v1.Namespace")
            .cluster()
            .short("ns")
            .status()
            .with("finalize")
            .returns_deleted()
            .selects(&["status.phase"]),
        row(CORE, "nodes", "io.k8s.api.core.v1.Node")
            .cluster()
            .short("no")
            .status()
            .keeps_status_on_create()
            .selects(&["spec.unschedulable"]),
        row(CORE, "persistentvolumeclaims", "io.k8s.api.core.v1.PersistentVolumeClaim")
            .short("pvc")
            .status()
            .returns_deleted(),
        row(CORE, "persistentvolumes", "io.k8s.api.core.v1.PersistentVolume")
            .cluster()
            .short("pv")
            .status()
            .returns_deleted(),
        row(CORE, "pods", "io.k8s.api.core.v1.Pod")
            .short("po")
            .in_all()
            .status()
            .with("attach")
            .with("binding")
            .with("eviction")
            .with("exec")
            .with("log")
            .returns_deleted()
            .generation()
            .selects(&[
                "spec.hostNetwork",
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "status.nominatedNodeName",
                "status.phase",
                "status.podIP",
                "status.podIPs",
            ]),
        row(CORE, "secrets", "io.k8s.api.core.v1.Secret").selects(&["type"]),
        row(CORE, "serviceaccounts", "io.k8s.api.core.v1.ServiceAccount")
            .short("sa")
            .with("token")
            .returns_deleted(),
        row(CORE, "services", "io.k8s.api.core.v1.Service")
            .short("svc")
            .in_all()
            .status()
            .create_on_update()
            .returns_deleted()
            .selects(&["spec.clusterIP", "spec.type"]),
        row(("events.k8s.io", "v1"), "events", "io.k8s.api.events.v1.Event")
            .short("ev")
            .create_on_update()
            .stored_as("events", "v1")
            .selects(&REGARDING)
            .selects(&["reason", "reportingController", "type"]),
        row(("coordination.k8s.io", "v1"), "leases", "io.k8s.api.coordination.v1.Lease")
            .create_on_update()
            .conditional_update(),
        row(("discovery.k8s.io", "v1"), "endpointslices", "io.k8s.api.discovery.v1.EndpointSlice")
            .generation(),
        row(("policy", "v1"), "poddisruptionbudgets", "io.k8s.api.policy.v1.PodDisruptionBudget")
            .short("pdb")
            .status()
            .generation()
            .conditional_update(),
        row(APPS, "controllerrevisions", "io.k8s.api.apps.v1.ControllerRevision"),
        row(APPS, "daemonsets", "io.k8s.api.apps.v1.DaemonSet").short("ds").in_all().status().generation(),
        row(APPS, "deployments", "io.k8s.api.apps.v1.Deployment")
            .short("deploy")
            .in_all()
            .status()
            .scale()
            .generation(),
        row(APPS, "replicasets", "io.k8s.api.apps.v1.ReplicaSet")
            .short("rs")
            .in_all()
            .status()
            .scale()
            .generation(),
        row(
            ("apiextensions.k8s.io", "v1"),
            "customresourcedefinitions",
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
        )
        .cluster()
        .short("crd")
        .short("crds")
        .in_category("api-extensions")
        .status()
        .generation()
        .conditional_update(),
        row(
            ADMISSION,
            "mutatingwebhookconfigurations",
            "io.k8s.api.admissionregistration.v1.MutatingWebhookConfiguration",
        )
        .cluster()
        .in_category("api-extensions")
        .generation()
        .conditional_update(),
        row(
            ADMISSION,
            "validatingwebhookconfigurations",
            "io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration",
        )
        .cluster()
        .in_category("api-extensions")
        .generation()
        .conditional_update(),
        row(RBAC, "clusterrolebindings", "io.k8s.api.rbac.v1.ClusterRoleBinding")
            .cluster()
            .create_on_update(),
        row(RBAC, "clusterroles", "io.k8s.api.rbac.v1.ClusterRole").cluster().create_on_update(),
        row(RBAC, "rolebindings", "io.k8s.api.rbac.v1.RoleBinding").create_on_update(),
        row(RBAC, "roles", "io.k8s.api.rbac.v1.Role").create_on_update(),
        row(
            ("certificates.k8s.io", "v1"),
            "certificatesigningrequests",
            "io.k8s.api.certificates.v1.CertificateSigningRequest",
        )
        .cluster()
        .short("csr")
        .status()
        .with("approval")
        .selects(&["spec.signerName"]),
        row(("storage.k8s.io", "v1"), "storageclasses", "io.k8s.api.storage.v1.StorageClass")
            .cluster()
            .short("sc")
            .returns_deleted(),
        row(("scheduling.k8s.io", "v1"), "priorityclasses", "io.k8s.api.scheduling.v1.PriorityClass")
            .cluster()
            .short("pc")
            .generation(),
        row(AUTHENTICATION, "selfsubjectreviews", "io.k8s.api.authentication.v1.SelfSubjectReview").cluster(),
        row(AUTHENTICATION, "tokenreviews", "io.k8s.api.authentication.v1.TokenReview").cluster(),
        row(
            AUTHORIZATION,
            "localsubjectaccessreviews",
            "io.k8s.api.authorization.v1.LocalSubjectAccessReview",
        ),
        row(AUTHORIZATION, "selfsubjectaccessreviews", "io.k8s.api.authorization.v1.SelfSubjectAccessReview")
            .cluster(),
        row(AUTHORIZATION, "selfsubjectrulesreviews", "io.k8s.api.authorization.v1.SelfSubjectRulesReview")
            .cluster(),
        row(AUTHORIZATION, "subjectaccessreviews", "io.k8s.api.authorization.v1.SubjectAccessReview")
            .cluster(),
    ]
}

const INVOLVED_OBJECT: [&str; 7] = [
    "involvedObject.apiVersion",
    "involvedObject.fieldPath",
    "involvedObject.kind",
    "involvedObject.name",
    "involvedObject.namespace",
    "involvedObject.resourceVersion",
    "involvedObject.uid",
];

const REGARDING: [&str; 7] = [
    "regarding.apiVersion",
    "regarding.fieldPath",
    "regarding.kind",
    "regarding.name",
    "regarding.namespace",
    "regarding.resourceVersion",
    "regarding.uid",
];

/// A namespaced kind of the most usual habits; the last part of the definition's name is the kind's.
fn row((group, version): (&str, &str), plural: &str, definition: &'static str) -> Kind {
    let kind = definition.rsplit('.').next().unwrap_or(definition);
    let mut row = Kind {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        list_kind: format!("{kind}List"),
        plural: plural.into(),
        singular: kind.to_lowercase(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: true,
        storage: Arc::from(qualified(plural, group)),
        storage_api_version: String::new(),
        schema: Node::Named(definition),
        columns: columns::of(plural),
        selectable_fields: Vec::new(),
        status: false,
        scale: None,
        subresources: Vec::new(),
        traits: Traits { unconditional_update: true, ..Traits::default() },
        custom: None,
    };
    row.storage_api_version = row.api_version();
    row
}

/// Words in which the rows are written.
impl Kind {
    fn cluster(mut self) -> Self {
        self.namespaced = false;
        self
    }

    fn short(mut self, name: &str) -> Self {
        self.short_names.push(name.into());
        self
    }

    fn in_category(mut self, name: &str) -> Self {
        self.categories.push(name.into());
        self
    }

    fn in_all(self) -> Self {
        self.in_category("all")
    }

    fn stored_as(mut self, storage: &str, api_version: &str) -> Self {
        self.storage = Arc::from(storage);
        self.storage_api_version = api_version.into();
        self
    }

    fn selects(mut self, fields: &[&str]) -> Self {
        self.selectable_fields.extend(fields.iter().map(|&field| field.to_owned()));
        self
    }

    fn status(mut self) -> Self {
        self.status = true;
        self
    }

    fn with(mut self, subresource: &'static str) -> Self {
        self.subresources.push(subresource);
        self
    }

    fn scale(mut self) -> Self {
        self.scale = Some(Scale {
            spec_replicas: ".spec.replicas".into(),
            status_replicas: ".status.replicas".into(),
            selector: Some(".spec.selector".into()),
        });
        self
    }

    fn create_on_update(mut self) -> Self {
        self.traits.create_on_update = true;
        self
    }

    fn conditional_update(mut self) -> Self {
        self.traits.unconditional_update = false;
        self
    }

    fn returns_deleted(mut self) -> Self {
        self.traits.returns_deleted = true;
        self
    }

    fn generation(mut self) -> Self {
        self.traits.generation = true;
        self
    }

    fn keeps_status_on_create(mut self) -> Self {
        self.traits.keeps_status_on_create = true;
        self
    }
}
