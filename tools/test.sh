#!/usr/bin/env bash
# Runs all tests in four parts: packages that need nothing of the machine, side
# by side; packages that use it (containers, network namespaces, nftables, whole
# clusters), one at a time; beside these, as they wait most of their time, attacks
# on clusters of their own; and at last the sessions that need the machine for
# themselves. What such tests left when they were killed earlier is removed first.
#
# A test that fails runs once more, if at most five fail. One that then passes is
# printed as FLAKY, with what it said at first: it is a bug to mend, but says
# nothing of the rest. TESTFLAGS are more flags of go test, such as -count=1.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
go=${GO:-go}
module=$($go list -m)
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
failed=()

# Packages that use the machine, by prefix.
machine="^$module/(cmd/coracle|cluster|internal/(containerd|doctor|host|httpserver|kubelet/(cgroup|csi|files)|l2announce|localvolume|networkpolicy|nodeaddress|podnet|processes|proxy|segment)|test/(script|sweep))(/|\$)"
mapfile -t packages < <($go list ./...)
mapfile -t alone < <(printf '%s\n' "${packages[@]}" | grep -E "$machine")
mapfile -t beside < <(printf '%s\n' "${packages[@]}" | grep -vE "$machine|/test/attack\$")

# part NAME FORMAT FLAG... -- PACKAGE...
part() {
	local name=$1 format=$2 begun=$SECONDS flags=()
	shift 2
	while [ "$1" != -- ]; do flags+=("$1"); shift; done
	shift
	echo "== $name: $# packages"
	bin/gotestsum --format "$format" --format-icons text --format-hide-empty-pkg --hide-summary skipped \
		--rerun-fails=1 --rerun-fails-max-failures=5 --rerun-fails-report "$work/$name.reruns" \
		--jsonfile-timing-events "$work/$name.json" --packages "$*" -- -vet=off "${flags[@]}" ${TESTFLAGS:-}
	local code=$?
	# PACKAGE.TEST: 2 runs, 1 failures
	[ ! -s "$work/$name.reruns" ] || sed -n 's/^\(.*\): \([0-9]*\) runs, 1 failures$/FLAKY \1: failed once in \2 runs/p' "$work/$name.reruns"
	echo "== $name took $((SECONDS - begun)) s"
	return $code
}

part beside pkgname -tags invariants -timeout 30m -- "${beside[@]}" || failed+=(beside)
# go builds at most as many packages at a time as it runs.
echo "== compiling the tests that use the machine"
$go list -export -test -tags invariants "${alone[@]}" >/dev/null && $go list -export -test ./test/attack >/dev/null || failed+=(compile)
echo "== removing what tests left that were killed"
$go run ./test/sweep || echo "what is left may let tests fail" >&2
part attack testname -timeout 90m -- ./test/attack >"$work/attack.log" 2>&1 &
attack=$!
# Sessions wait for most of their time.
part alone testname -p 1 -parallel 4 -tags invariants -timeout 90m -skip '^Test(Sessions|Guide)Alone$' -- "${alone[@]}" || failed+=(alone)
wait "$attack" || failed+=(attack)
cat "$work/attack.log"
# Clusters of another user may take the ports of any cluster that is stopped, and
# new ones those of a cluster that is removed and restored.
part last testname -tags invariants -timeout 30m -run '^Test(Sessions|Guide)Alone$' -- ./test/script || failed+=(last)

echo "== the slowest tests"
cat "$work"/*.json | bin/gotestsum tool slowest --threshold 5s --num 10
if [ ${#failed[@]} -ne 0 ]; then
	echo "failed: ${failed[*]}; what failed is above, at the end of its part" >&2
	exit 1
fi
