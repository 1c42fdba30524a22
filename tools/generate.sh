#!/usr/bin/env bash
# Generates all generated files. With --check, it fails if they are not up to date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

part() { sed -n "s/^\t$1 *= *\"\([0-9]*\)\"\$/\1/p" internal/version/version.go; }
version=v$(part major).$(part minor).$(part patch)
openapi=internal/apiserver/openapi
definitions=$openapi/generate/definitions
target=$openapi/documents
if [ "${1:-}" = --check ]; then
	target=$(mktemp -d)
	trap 'rm -rf "$target"' EXIT
fi

# The API packages of all resources, those that are off by default included.
mapfile -t packages < <(go list -deps ./internal/resource/... | grep '^k8s.io/api/')
mkdir -p "$definitions"
go tool openapi-gen --go-header-file /dev/null --report-filename /dev/null \
	--output-dir "$definitions" --output-pkg "github.com/coracle-io/coracle/$definitions" "${packages[@]}" \
	k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/version \
	k8s.io/apimachinery/pkg/api/resource k8s.io/apimachinery/pkg/util/intstr \
	k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1 k8s.io/kube-aggregator/pkg/apis/apiregistration/v1 \
	k8s.io/metrics/pkg/apis/metrics/v1beta1
[ "$target" = "$openapi/documents" ] && rm -rf "$target"
go run -tags openapigen "./$openapi/generate" "$version" "$target"

# The tables of what is served, whose tests compare them otherwise.
if [ "${1:-}" != --check ]; then
	go test ./internal/resource/all -run '^(TestNames|TestGroups|TestColumns)$' -count 1 -args -rewrite
fi

if [ "${1:-}" = --check ] && ! diff -r "$target" "$openapi/documents"; then
	echo "generated files are not current: run make generate and commit" >&2
	exit 1
fi
