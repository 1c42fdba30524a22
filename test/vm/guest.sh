#!/bin/sh
# The checks inside the virtual machine. Each prints a line that begins with ok
# or FAILED. The last line is "ok everything" if all checks succeeded. Programs
# start slowly under emulation, so control groups are read from their files and
# kubectl is run rarely.
failed=
groups=/sys/fs/cgroup

kubectl() { coracle kubectl --request-timeout=5m "$@"; }

# check NAME WANT GOT
check() {
	if [ "$2" = "$3" ]; then
		echo "ok $1: $3"
	else
		echo "FAILED $1: $3, want $2"
		failed=yes
	fi
}

# await NAME WANT COMMAND...: repeats the command until its output is WANT, then checks it
await() {
	name=$1 want=$2
	shift 2
	for _ in $(seq 150); do
		got=$("$@" 2>&1)
		[ "$got" = "$want" ] && break
		sleep 2
	done
	check "$name" "$want" "$got"
}

# with VALUE: the pod's group with VALUE in memory.max
with() {
	for group in $(find $groups -type d -name 'pod*'); do
		[ "$(cat "$group/memory.max")" = "$1" ] && echo "$group"
	done
}

# of GROUP: the container in a pod's group other than the sandbox
of() {
	for container in "$1"/*/; do
		[ "$(cat "$container/memory.max")" != max ] && echo "$container"
	done
}

# The packet suite of the proxy mode ipvs, in network namespaces. A test that is
# skipped is no success.
if (cd /root && ./ipvs.test -test.v -test.timeout=20m -test.run='^(TestPackets|TestInterface|TestKernelSettings)$') >/tmp/ipvs.log 2>&1; then
	for test in TestPackets TestInterface TestKernelSettings; do
		check "$test of the mode ipvs" PASS "$(sed -n "s/^--- \(.*\): $test .*/\1/p" /tmp/ipvs.log)"
	done
else
	echo 'FAILED packets of the mode ipvs'
	failed=yes
	tail -80 /tmp/ipvs.log
fi

echo "control groups: $(grep -w $groups /proc/mounts | cut -d' ' -f3), $(cat $groups/cgroup.controllers)"
coracle up --foreground --data-dir=/var/lib/coracle --bundle=/opt/bundle --timeout=30m >/tmp/coracle.log 2>&1 &
up=$!
tail -f /tmp/coracle.log &
until grep -q '^coracle: ready' /tmp/coracle.log; do
	[ -d /proc/$up ] || break
	sleep 1
done
kill %2
kubectl create -f /root/pods.yaml
kubectl wait --for=condition=Ready pod/fixed pod/loose --timeout=15m && echo 'ok pods run' || failed=yes

fixed=$(with 67108864) loose=$(find $groups -type d -path '*burstable/pod*' | while read -r g; do [ "$(cat "$g/memory.max")" = max ] && echo "$g"; done | head -1)
container=$(of "$fixed")
echo "groups: $fixed $loose"
check "the pod's memory" 67108864 "$(cat "$fixed/memory.max")"
check "the pod's CPU" '10000 100000' "$(cat "$fixed/cpu.max")"
check "the container's memory" 67108864 "$(cat "$container/memory.max")"
check "the container's CPU" '10000 100000' "$(cat "$container/cpu.max")"
check 'without a limit of memory' 'max' "$(cat "$loose/memory.max")"
check 'without a limit of CPU' 'max 100000' "$(cat "$loose/cpu.max")"
check "the pod's share of the CPU" 20 "$(cat "$loose/cpu.weight")"
check 'the share of all burstable pods' 20 "$(cat "$loose/../cpu.weight")"
check 'the share of best effort pods' 1 "$(cat "$loose/../../besteffort/cpu.weight")"

kubectl patch pod fixed --subresource=resize -p '{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"200m","memory":"96Mi"},"limits":{"cpu":"200m","memory":"96Mi"}}}]}}'
await "the resized container's memory" 100663296 cat "$container/memory.max"
await "the resized container's CPU" '20000 100000' cat "$container/cpu.max"
await "the resized pod's memory" 100663296 cat "$fixed/memory.max"

kubectl wait '--for=jsonpath={.status.phase}=Failed' pod/hungry --timeout=15m
check 'out of memory' 'OOMKilled 137' "$(kubectl get pod hungry -o 'jsonpath={.status.containerStatuses[0].state.terminated.reason} {.status.containerStatuses[0].state.terminated.exitCode}')"
kubectl get --raw /api/v1/nodes/vm/proxy/metrics/cadvisor >/tmp/metrics
for metric in container_memory_working_set_bytes container_memory_usage_bytes container_cpu_usage_seconds_total container_threads; do
	check "$metric" counted "$(grep "^$metric{container=\"main\".*pod=\"fixed\"" /tmp/metrics | grep -vq ' 0$' && echo counted)"
done
check 'memory of the machine' counted "$(grep '^container_memory_working_set_bytes{container="",id="/",' /tmp/metrics | grep -vq ' 0$' && echo counted)"
kubectl delete pod fixed loose hungry --grace-period=1 --wait=false
await 'no groups are left' '' find $groups -type d -name 'pod*'

[ -z "$failed" ] && echo 'ok everything' && exit
kubectl get events -A
kubectl describe pods
tail -40 /tmp/coracle.log
