// Package controllerruntime uses sigs.k8s.io/controller-runtime as programs
// built on it do, against the cluster of $KUBECONFIG: its clients, caches,
// managers with leader election, admission webhooks and the controller of a
// custom resource. It is a module of its own so that nobody who builds the
// project builds the library.
//
// It has tests only; test/clients/run.sh starts a cluster for them.
package controllerruntime
