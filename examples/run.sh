#!/usr/bin/env bash
# Runs the example on a cluster of this machine, and says what to try next.
#
#   run.sh [NAME]    the cluster, coracle unless said otherwise
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
name=${1:-coracle}
coracle="$(cd .. && pwd)/bin/coracle"
# The cluster's own context, whichever is current and wherever it was written.
kubeconfig=$("$coracle" status --name="$name" --output=json | sed -n 's/.*"kubeconfig":"\([^"]*\)".*/\1/p')
if command -v kubectl >/dev/null; then kubectl=(kubectl); else kubectl=("$coracle" kubectl); fi
kubectl+=(--kubeconfig="$kubeconfig" --context="$name")

"${kubectl[@]}" apply -f frontend-controller.yaml
for _ in $(seq 120); do
	ready=$("${kubectl[@]}" get rc frontend -o 'jsonpath={.status.readyReplicas}')
	[ "${ready:-0}" = 3 ] && break
	sleep 0.25
done
if [ "${ready:-0}" != 3 ]; then
	"${kubectl[@]}" get pods,events
	echo "The example's pods are not ready: see the events above." >&2
	exit 1
fi
"${kubectl[@]}" get rc,pods,svc,endpoints,nodes -o wide
pod=$("${kubectl[@]}" get pods -l app=frontend -o 'jsonpath={.items[0].metadata.name}')
image=$("${kubectl[@]}" get rc frontend -o 'jsonpath={.spec.template.spec.containers[0].image}')
say="kubectl --context=$name"
if [ "$kubeconfig" != "$HOME/.kube/config" ]; then say+=" --kubeconfig=$kubeconfig"; fi
if [ "${kubectl[0]}" = "$coracle" ]; then say="bin/coracle $say"; fi
cat <<EOT

Try next:
  $say logs $pod
  $say exec -it $pod -- sh
  $say exec $pod -- wget -qO- http://frontend
  $say scale rc frontend --replicas=5
  $say create deployment web --image=$image
  bin/coracle status --name=$name
  bin/coracle down --name=$name
EOT
