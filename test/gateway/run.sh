#!/usr/bin/env bash
# Runs the conformance suite of the Gateway API against a cluster that it starts and
# removes. The suite's echo server is built from its module, so that no registry is asked.
#
#   run.sh CORACLE [FLAG...]    CORACLE is the program to test; the flags are go test's and
#                               the suite's, such as -args -run-test=HTTPRouteWeight
#
# The cluster has the ports 80 and 443 of the machine, which the suite wants.
set -euo pipefail
coracle=$(realpath "$1")
shift
cd "$(dirname "${BASH_SOURCE[0]}")"
work=$(mktemp -d)
name=gateway-$$
finish() {
	"$coracle" down --yes --name="$name" >/dev/null || true
	chmod -R u+w "$work"
	rm -rf "$work"
}
trap finish EXIT
export KUBECONFIG=$work/kubeconfig CGO_ENABLED=0

# go.mod names the suite only: go adds what that requires to a copy.
cp go.mod "$work/gateway.mod"
module=(-mod=mod -modfile="$work/gateway.mod")
go build "${module[@]}" -o "$work/echo-basic" sigs.k8s.io/gateway-api/conformance/echo-basic
suite=$(go list "${module[@]}" -m -f '{{.Dir}}' sigs.k8s.io/gateway-api)
go build -C ../../bundle -o "$work/mkimage" ./mkimage
"$coracle" up --name="$name" --data-dir="$work/data" --kubeconfig="$KUBECONFIG"
grep -rhoE 'image: [^ ]*/echo-basic:[^ ]+' "$suite/conformance/base" | sort -u | while read -r _ image; do
	"$work/mkimage" -o "$work/echo.tar" -name "$image" -arch "$(go env GOARCH)" -entrypoint /echo-basic "/echo-basic=$work/echo-basic"
	"$coracle" image load --name="$name" "$work/echo.tar"
done
kubectl() { "$coracle" kubectl --kubeconfig="$KUBECONFIG" "$@"; }
for kind in gatewayclasses gateways httproutes grpcroutes referencegrants backendtlspolicies; do
	kubectl apply --server-side -f "$suite/config/crd/standard/gateway.networking.k8s.io_$kind.yaml"
done
kubectl wait --for=condition=Accepted gatewayclass/coracle --timeout=120s
go vet "${module[@]}" ./...
go test "${module[@]}" -count=1 -timeout=45m -v ./... "$@"
