package containerd

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// sandboxID is an id of the form that sandboxes have.
func sandboxID(digit byte) string { return strings.Repeat(string(digit), 64) }

func TestStaleLeases(t *testing.T) {
	// Letters stand for the ids of sandboxes.
	ids := strings.NewReplacer("lives", sandboxID('a'), "gone", sandboxID('b'), "being-made", sandboxID('c'), "never-made", sandboxID('d'))
	all := parseLeases(ids.Replace(`ID                CREATED AT                LABELS
276780001-vWRM    2026-11-23T18:59:59Z      containerd.io/gc.expire=2026-11-24T18:59:59Z
276780002-vWRM    2026-11-23T20:00:00+01:00 containerd.io/gc.expire=2026-11-24T19:00:00Z
276780003-vWRM    2026-11-23T19:30:00Z      containerd.io/gc.expire=2026-11-24T19:30:00Z
lives             2026-11-23T18:00:00Z      -
gone              2026-11-23T18:00:00Z      -
being-made        2026-11-23T19:55:00Z      -
never-made        2026-11-23T19:30:00Z      -
of-somebody-else  2026-11-23T18:00:00Z      -
`))
	started := time.Date(2026, 11, 23, 19, 0, 0, 5e8, time.UTC)
	l := &leases{started: started}
	l.note([]lease{all[0], all[1], all[3]}, started) // the others have been made since
	l.note(all, started.Add(30*time.Minute))
	l.seen[sandboxID('c')] = sighting{at: started.Add(55 * time.Minute)}
	got := l.stale(all, map[string]bool{sandboxID('a'): true}, started.Add(time.Hour))
	if want := []string{"276780001-vWRM", sandboxID('b'), sandboxID('d')}; !slices.Equal(got, want) {
		t.Errorf("stale leases %q, want %q", got, want)
	}
}

// The clock is set while containerd runs: neither the lease of a pull nor that
// of a sandbox that is being made is taken for an older one.
func TestLeasesAfterAChangeOfTheClock(t *testing.T) {
	started := time.Now()
	l := &leases{started: started}
	l.note(nil, started)
	pull := lease{id: "276780001-vWRM", created: started.Add(-time.Hour), expires: true} // by a clock set back since
	sandbox := lease{id: sandboxID('a'), created: started.Add(-time.Hour)}               // by a clock that was set forward
	all := []lease{pull, sandbox}
	l.note(all, started.Add(time.Minute))
	if got := l.stale(all, nil, started.Add(2*time.Minute)); len(got) > 0 {
		t.Errorf("leases of operations under way are stale: %q", got)
	}
	if got := l.stale(all, nil, started.Add(time.Minute+leasePeriod)); !slices.Equal(got, []string{sandbox.id}) {
		t.Errorf("later are stale: %q", got)
	}
	l.note(nil, started)
	l.note(all, started.Add(time.Hour))
	if got := l.stale(all, nil, started.Add(time.Hour)); len(got) > 0 {
		t.Errorf("leases that are new again are stale: %q", got)
	}
}

// The clock was set back before containerd started: a lease of the future is one
// of an earlier containerd.
func TestLeasesOfTheFuture(t *testing.T) {
	started := time.Date(2026, 11, 23, 19, 0, 0, 5e8, time.UTC)
	earlier := lease{id: "276780001-vWRM", created: started.Add(time.Hour).Truncate(time.Second), expires: true}
	pull := lease{id: "276780002-vWRM", created: started.Truncate(time.Second), expires: true}
	later := lease{id: "276780003-vWRM", created: started.Add(time.Hour), expires: true} // made after the first look
	l := &leases{started: started}
	l.note([]lease{earlier, pull}, started.Add(100*time.Millisecond))
	all := []lease{earlier, pull, later}
	l.note(all, started.Add(time.Minute))
	if got := l.stale(all, nil, started.Add(2*time.Minute)); !slices.Equal(got, []string{earlier.id}) {
		t.Errorf("stale leases %q, want %q", got, earlier.id)
	}
}

// ctr stops at a lease that is missing. The leases after it are removed, too.
func TestMissingLeaseKeepsNoOther(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	// The leases are files in a directory.
	script := `#!/bin/sh
while [ "$1" != rm ]; do shift; done
shift 2
cd "` + dir + `/leases" || exit 2
for id; do
	rm "$id" 2>/dev/null || { echo "lease \"$id\": not found" >&2; exit 1; }
done
`
	if err := os.WriteFile(filepath.Join(dir, "bin", "ctr"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	held := filepath.Join(dir, "leases")
	if err := os.Mkdir(held, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"first", "last"} {
		if err := os.WriteFile(filepath.Join(held, id), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := &leases{runtime: &Runtime{config: Config{BundleDir: dir}}}
	if err := l.remove(t.Context(), []string{"first", "gone", "last"}); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(held); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// TestStaleLeasesAreRemoved kills containerd. The next one removes the leases
// that were held for operations, but not the leases of sandboxes that exist.
func TestStaleLeasesAreRemoved(t *testing.T) {
	r := testRuntime(t)
	stop := runUntilReady(t, r)
	defer stop()
	startPod(t, r)
	before, err := (&leases{runtime: r}).list(t.Context())
	if err != nil || len(before) != 1 {
		t.Fatalf("leases of one sandbox: %v, %v", before, err)
	}
	for expires, id := range map[string]string{"24h": "276780001-vWRM", "0": sandboxID('0')} {
		if output, err := r.ctr(t.Context(), "leases", "create", "--expires", expires, "--id", id).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
	}
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for made := time.Now(); time.Since(made.Truncate(time.Second)) < 2*time.Second; { // leases have full seconds
		<-poll.C
	}
	kill(t, r)
	for deadline := time.Now().Add(3 * time.Minute); ; <-poll.C {
		after, err := (&leases{runtime: r}).list(t.Context())
		if err == nil && slices.Equal(after, before) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("leases %v, %v, want %v", after, err, before)
		}
	}
}
