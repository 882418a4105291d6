//! Objects of the cluster, read straight from its API server: tests look often, and a kubectl for every look would take the processors
//! from the guests. What a person would type is typed with kubectl.

use serde_json::Value;
use testkit::Objects;

use crate::installation::Installation;

/// The kinds of objects that tests look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    AddressAllocation,
    CertificateSigningRequest,
    Event,
    IpamClaim,
    KubeVirt,
    Migration,
    NetworkAttachmentDefinition,
    Node,
    Pod,
    Setting,
    Vmi,
}

impl Kind {
    /// The path of the API that lists the objects of a namespace; kinds without namespaces ignore it.
    fn path(self, namespace: &str) -> String {
        let (group, plural) = match self {
            Self::AddressAllocation => return "/apis/godwit.dev/v1alpha1/addressallocations".to_owned(),
            Self::CertificateSigningRequest => {
                return "/apis/certificates.k8s.io/v1/certificatesigningrequests".to_owned();
            }
            Self::Node => return "/api/v1/nodes".to_owned(),
            Self::Setting => return "/apis/harvesterhci.io/v1beta1/settings".to_owned(),
            Self::Event => ("api/v1", "events"),
            Self::IpamClaim => ("apis/k8s.cni.cncf.io/v1alpha1", "ipamclaims"),
            Self::KubeVirt => ("apis/kubevirt.io/v1", "kubevirts"),
            Self::Migration => ("apis/kubevirt.io/v1", "virtualmachineinstancemigrations"),
            Self::NetworkAttachmentDefinition => {
                ("apis/k8s.cni.cncf.io/v1", "network-attachment-definitions")
            }
            Self::Pod => ("api/v1", "pods"),
            Self::Vmi => ("apis/kubevirt.io/v1", "virtualmachineinstances"),
        };
        format!("/{group}/namespaces/{namespace}/{plural}")
    }
}

/// The namespace in which tests have their VMs.
pub const VMS: &str = "default";
/// The namespace of the installation.
pub const KUBEVIRT: &str = "kubevirt";

impl Installation {
    /// An object; null if there is none of that name.
    pub fn object(&self, kind: Kind, namespace: &str, name: &str) -> Value {
        self.api().get(&format!("{}/{name}", kind.path(namespace))).unwrap_or_default()
    }

    /// All objects of a kind in a namespace.
    pub fn objects(&self, kind: Kind, namespace: &str) -> Vec<Value> {
        self.api().list(&kind.path(namespace))
    }

    /// Those of them that have a label, `name=value`, and fields, `path=value,…`.
    pub fn selected(&self, kind: Kind, namespace: &str, label: &str, fields: &str) -> Vec<Value> {
        self.api().list(&format!("{}?labelSelector={label}&fieldSelector={fields}", kind.path(namespace)))
    }

    fn api(&self) -> &Objects {
        self.objects.get_or_init(|| Objects::of(self.kubeconfig()))
    }
}

/// A text in an object, such as `/metadata/name`; empty if there is none.
pub fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}
