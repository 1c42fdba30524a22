#!/usr/bin/env bash
# Runs third-party clients against a control plane that it starts and removes:
# client-go, controller-runtime, an extension API server built with
# k8s.io/apiserver, Helm, python3-kubernetes and @kubernetes/client-node. First,
# a separate module tests the package cluster, which starts its own clusters.
#
#   run.sh CORACLE    CORACLE is the program to test
set -euo pipefail
coracle=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")"
work=$(mktemp -d)
name=clients-$$
finish() {
	"$coracle" down --yes --name="$name" >/dev/null || true
	rm -rf "$work"
}
trap finish EXIT
export KUBECONFIG=$work/kubeconfig

echo "== the library"
(cd library && go vet ./... && go test -count=1 -timeout=5m ./...)
echo "== setting up"
go build -C helm -buildvcs=false -o "$work/helm" helm.sh/helm/v4/cmd/helm
(cd node && npm ci --silent --no-audit --no-fund)
"$coracle" up --name="$name" --nodes=0 --data-dir="$work/data" --kubeconfig="$KUBECONFIG"

echo "== client-go"
(cd clientgo && go vet ./... && go test -count=1 -timeout=5m ./...)
echo "== controller-runtime"
(cd controllerruntime && go vet ./... && go test -count=1 -timeout=5m ./...)
echo "== an extension API server"
(cd extension && go vet ./... && go test -count=1 -timeout=5m ./...)
echo "== Helm"
helm/run.sh "$work/helm" "$coracle" kubectl
echo "== python3-kubernetes"
/usr/bin/python3 python/client.py
echo "== @kubernetes/client-node"
node --test --test-reporter=spec node/client.js
