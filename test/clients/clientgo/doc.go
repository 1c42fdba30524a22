// Package clientgo uses k8s.io/client-go as programs built on it do, against
// the cluster of $KUBECONFIG: the typed, dynamic, metadata and scale clients,
// discovery and REST mappings, informers, apply configurations, events and
// leader election. It is a module of its own, as its users' are.
//
// It has tests only; test/clients/run.sh starts a cluster for them.
package clientgo
