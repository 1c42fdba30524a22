#!/usr/bin/env bash
# Runs the whole suite again and again under conditions that must not matter, and
# prints a table of runs, failures and flaky tests, for docs/testing.md.
#
#   tools/test-hard.sh                     all conditions; it takes hours
#   tools/test-hard.sh plain=1 busy=1      how often which
#
# plain    nothing else runs
# busy     beside two loops that only compute and a writer of the same disk
# killed   after a run all of whose processes were killed at a random moment
# one      on one thread (GOMAXPROCS=1), in random order
# beside   beside a running cluster, which must be as it was
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ "$(id -u)" = 0 ] || { echo "test-hard needs root" >&2; exit 1; }
logs=$(mktemp -d "${TMPDIR:-/tmp}/test-hard.XXXXXX")
declare -A runs=([plain]=5 [busy]=3 [killed]=3 [one]=1 [beside]=1)
if [ $# -ne 0 ]; then
	runs=()
	for choice in "$@"; do runs[${choice%%=*}]=${choice##*=}; done
fi
load=()
trap 'kill "${load[@]}" 2>/dev/null; wait' EXIT

# suite LOG [VARIABLE=VALUE...]: one run of all tests, without cached results.
suite() {
	local log=$1
	shift
	env "$@" TESTFLAGS="-count=1 ${TESTFLAGS:-}" tools/test.sh >"$log" 2>&1
}

# The members of this control group are all processes that a run starts: daemons
# leave the session and the process group, but not the group. Containers have
# groups of their own, which a killed run leaves behind.
group=$(awk '$3 ~ /^cgroup2?$/ && $2 ~ /(pids|unified|cgroup)$/ { print $2; exit }' /proc/mounts)/test-hard

interrupted() {
	mkdir -p "$group"
	(echo "$BASHPID" >"$group/cgroup.procs" && suite "$1") &
	sleep $((RANDOM % 600 + 10))
	for _ in $(seq 20); do
		xargs -r kill -9 <"$group/cgroup.procs" 2>/dev/null
	done
	wait $!
	rmdir "$group"
}

condition() {
	local log=$2
	case $1 in
	plain) suite "$log" ;;
	busy)
		for _ in 1 2; do (while :; do :; done) & load+=($!); done
		(while :; do dd if=/dev/zero of="$logs/busy" bs=1M count=512 conv=fsync; done 2>/dev/null) & load+=($!)
		suite "$log"
		local code=$?
		kill "${load[@]}" && wait "${load[@]}" 2>/dev/null
		load=() && rm -f "$logs/busy"
		return $code
		;;
	killed) interrupted "$log.interrupted"; suite "$log" ;;
	one) TESTFLAGS="-shuffle=on" suite "$log" GOMAXPROCS=1 ;;
	beside)
		local kubeconfig=$logs/kubeconfig before
		KUBECONFIG=$kubeconfig bin/coracle up --name=test-hard --data-dir="$logs/cluster" >/dev/null || return 1
		before=$(KUBECONFIG=$kubeconfig bin/coracle kubectl get pods,nodes -A -o jsonpath='{.items[*].metadata.uid}')
		suite "$log"
		local code=$?
		[ "$before" = "$(KUBECONFIG=$kubeconfig bin/coracle kubectl get pods,nodes -A -o jsonpath='{.items[*].metadata.uid}')" ] || code=1
		bin/coracle down --yes --name=test-hard >/dev/null
		return $code
		;;
	*) echo "unknown condition $1" >&2; return 2 ;;
	esac
}

failed=0
echo "| condition | runs | failed | flaky |"
echo "|---|---|---|---|"
for name in plain busy killed one beside; do
	bad=0
	[ "${runs[$name]:-0}" -gt 0 ] || continue
	for i in $(seq "${runs[$name]}"); do
		condition "$name" "$logs/$name-$i" || bad=$((bad + 1))
	done
	flaky=$(sed -n 's/^FLAKY \(.*\): failed.*/\1/p' "$logs/$name-"* | sort | uniq -c | awk '{print $2 " (" $1 ")"}' | paste -sd, -)
	echo "| $name | ${runs[$name]} | $bad | ${flaky:-none} |"
	failed=$((failed + bad))
done
echo "logs: $logs" >&2
[ "$failed" = 0 ]
