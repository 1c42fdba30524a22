// Package controllerruntime uses sigs.k8s.io/controller-runtime against the
// cluster of $KUBECONFIG as programs built on it do: its clients, caches,
// managers with leader election, admission webhooks and a controller of a
// custom resource. It is a separate module, so that building the project does
// not build the library.
//
// It has tests only; test/clients/run.sh starts a cluster for them.
package controllerruntime
