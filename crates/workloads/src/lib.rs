//! The controllers that a lab's cluster needs and that kube-controller-manager and kube-scheduler bring elsewhere.
