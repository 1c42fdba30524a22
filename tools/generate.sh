#!/usr/bin/env bash
# Makes every generated file. With --check it only says whether they are current.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$(sed -n 's/.*gitVersion *= *"\(v[0-9.]*\).*/\1/p' internal/version/version.go)
openapi=internal/apiserver/openapi
definitions=$openapi/generate/definitions
target=$openapi/documents
if [ "${1:-}" = --check ]; then
	target=$(mktemp -d)
	trap 'rm -rf "$target"' EXIT
fi

packages=()
for p in admissionregistration/v1 apps/v1 authentication/v1 authorization/v1 autoscaling/v1 autoscaling/v2 batch/v1 \
	certificates/v1 coordination/v1 core/v1 discovery/v1 events/v1 flowcontrol/v1 networking/v1 node/v1 policy/v1 \
	rbac/v1 resource/v1 scheduling/v1 scheduling/v1alpha3 storage/v1 storagemigration/v1 \
	admissionregistration/v1alpha1 admissionregistration/v1beta1 apiserverinternal/v1alpha1 certificates/v1beta1 \
	coordination/v1alpha2 coordination/v1beta1 lifecycle/v1alpha1 resource/v1alpha3 resource/v1beta1 resource/v1beta2 \
	scheduling/v1beta1 storagemigration/v1beta1; do
	packages+=("k8s.io/api/$p")
done
mkdir -p "$definitions"
go tool openapi-gen --go-header-file /dev/null --report-filename /dev/null \
	--output-dir "$definitions" --output-pkg "github.com/coracle-io/coracle/$definitions" "${packages[@]}" \
	k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/version \
	k8s.io/apimachinery/pkg/api/resource k8s.io/apimachinery/pkg/util/intstr \
	k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1 k8s.io/kube-aggregator/pkg/apis/apiregistration/v1
[ "$target" = "$openapi/documents" ] && rm -rf "$target"
go run -tags openapigen "./$openapi/generate" "$version" "$target"

if [ "${1:-}" = --check ] && ! diff -r "$target" "$openapi/documents"; then
	echo "generated files are not current: run make generate and commit" >&2
	exit 1
fi
