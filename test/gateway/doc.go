// Package gateway runs the conformance suite of the Gateway API, a public module,
// against the cluster of $KUBECONFIG: the core of its profiles for HTTP and gRPC. It is
// a separate module, so that the program does not have the suite's dependencies.
//
// It has tests only; test/gateway/run.sh starts a cluster with the definitions of the
// Gateway API and the suite's images for them.
package gateway
