#!/usr/bin/env bash
# Installs, upgrades, rolls back and uninstalls the chart as a user of Helm
# does, and checks the objects in the cluster after each step.
#
#   run.sh HELM KUBECTL...   the commands to use; the cluster is that of $KUBECONFIG
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
helm_program=$1
shift
kubectl_program=("$@")
namespace=helm-$$
work=$(mktemp -d)
export HELM_CACHE_HOME=$work/cache HELM_CONFIG_HOME=$work/config HELM_DATA_HOME=$work/data

helm() { "$helm_program" --namespace "$namespace" "$@"; }
kubectl() { "${kubectl_program[@]}" --namespace "$namespace" "$@"; }
finish() {
	"${kubectl_program[@]}" delete namespace "$namespace" --wait=false --ignore-not-found >/dev/null || true
	rm -rf "$work"
}
trap finish EXIT

passed=0
# expect WHAT WANT GOT: checks that two values are equal.
expect() {
	if [ "$2" != "$3" ]; then
		printf 'FAIL helm: %s\n  want: %s\n  got:  %s\n' "$1" "$2" "$3" >&2
		exit 1
	fi
	passed=$((passed + 1))
	echo "ok helm: $1"
}
greeting() { kubectl get configmap greeter -o 'jsonpath={.data.greeting}'; }
revisions() { kubectl get secrets -l owner=helm -o 'jsonpath={range .items[*]}{.type}{" "}{end}'; }

helm lint --strict --quiet chart
helm install greeter chart --create-namespace --dry-run=server >"$work/dry-run"
expect "a dry run on the server stores nothing" "" "$(kubectl get deployments -o name)"

helm install greeter chart --create-namespace >"$work/notes"
expect "install says its notes" "greeter says hello." "$(tail -n 1 "$work/notes")"
expect "install stores the release" "helm.sh/release.v1 " "$(revisions)"
expect "install writes the settings" hello "$(greeting)"
expect "the hook has run" 1 "$(kubectl get configmap greeter-before -o 'jsonpath={.data.revision}')"
expect "objects have their owner's mark" Helm \
	"$(kubectl get deployment greeter -o 'jsonpath={.metadata.labels.app\.kubernetes\.io/managed-by}')"
expect "install again is refused" "cannot reuse a name that is still in use" \
	"$(helm install greeter chart 2>&1 >/dev/null | grep -o 'cannot reuse a name that is still in use' | head -n 1)"

helm upgrade greeter chart --set greeting=bye,budget=true,replicas=0 --wait --timeout 60s >/dev/null
expect "upgrade changes the settings" bye "$(greeting)"
expect "upgrade adds an object" poddisruptionbudget.policy/greeter "$(kubectl get poddisruptionbudgets -o name)"
expect "upgrade scales" 0 "$(kubectl get deployment greeter -o 'jsonpath={.spec.replicas}')"
expect "list shows the release" "greeter 2 deployed greeter-1.0.0" \
	"$(helm list --no-headers | awk '{print $1, $3, $8, $9}')"

expect "a value outside the schema is refused" "/replicas" \
	"$(helm upgrade greeter chart --set replicas=-1 2>&1 >/dev/null | grep -o /replicas | head -n 1)"
expect "a refused upgrade changes nothing" bye "$(greeting)"

helm rollback greeter 1 >/dev/null
expect "rollback restores the settings" hello "$(greeting)"
expect "rollback restores the scale" 1 "$(kubectl get deployment greeter -o 'jsonpath={.spec.replicas}')"
expect "rollback takes the added object away" "" "$(kubectl get poddisruptionbudgets -o name)"
expect "history has every revision" "superseded superseded deployed" \
	"$(helm history greeter -o yaml | awk '/status:/ {printf "%s%s", sep, $2; sep=" "}')"
expect "status lists the objects" 1 "$(helm status greeter | grep -c '^==> v1/Deployment')"

helm uninstall greeter --wait --cascade foreground --timeout 60s >/dev/null
expect "uninstall takes the objects away" "" \
	"$(kubectl get deployments,replicasets,pods,services,serviceaccounts,roles,rolebindings \
		-l app.kubernetes.io/instance=greeter -o name)"
expect "uninstall takes the releases away" "" "$(revisions)"
expect "list is empty" "" "$(helm list --no-headers)"
echo "helm: $passed passed, 0 failed"
