// Package clientgo uses k8s.io/client-go against the cluster of $KUBECONFIG as
// programs built on it do: the typed, dynamic, metadata and scale clients,
// discovery and REST mappings, informers, apply configurations, events and
// leader election. It is a separate module, like the modules of programs that
// use client-go.
//
// It has tests only; test/clients/run.sh starts a cluster for them.
package clientgo
