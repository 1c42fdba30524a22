#!/usr/bin/env bash
# Runs the example on the cluster of the current context, and says what to try next.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
if command -v kubectl >/dev/null; then kubectl=kubectl; else kubectl="$(cd .. && pwd)/bin/coracle kubectl"; fi

$kubectl apply -f frontend-controller.yaml
for _ in $(seq 120); do
	ready=$($kubectl get rc frontend -o 'jsonpath={.status.readyReplicas}')
	[ "${ready:-0}" = 3 ] && break
	sleep 0.25
done
if [ "${ready:-0}" != 3 ]; then
	$kubectl get pods,events
	echo "The example's pods are not ready: see the events above." >&2
	exit 1
fi
$kubectl get rc,pods,svc,endpoints,nodes -o wide
pod=$($kubectl get pods -l app=frontend -o 'jsonpath={.items[0].metadata.name}')
cat <<EOF

Try next:
  $kubectl logs $pod
  $kubectl exec -it $pod -- sh
  $kubectl exec $pod -- wget -qO- http://frontend
  $kubectl scale rc frontend --replicas=5
  $kubectl create deployment web --image=$($kubectl get rc frontend -o 'jsonpath={.spec.template.spec.containers[0].image}')
  bin/coracle status
  make down
EOF
