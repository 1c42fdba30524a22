package etcd

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/store"
)

func TestDecide(t *testing.T) {
	const mb = 1 << 20
	for _, tt := range []struct {
		name  string
		sizes sizes
		want  action
	}{
		{"new", sizes{file: mb, used: mb, quota: 8192 * mb, quiet: true}, nothing},
		{"small and mostly free", sizes{file: 16 * mb, used: mb, quota: 8192 * mb, quiet: true}, nothing},
		{"larger and mostly free", sizes{file: 40 * mb, used: 5 * mb, quota: 8192 * mb, quiet: true}, defragment},
		{"mostly free under load", sizes{file: 40 * mb, used: 5 * mb, quota: 8192 * mb}, nothing},
		{"too large to defragment quickly", sizes{file: 900 * mb, used: 300 * mb, quota: 8192 * mb, quiet: true}, nothing},
		{"large and used", sizes{file: 4000 * mb, used: 3900 * mb, quota: 8192 * mb}, nothing},
		{"near the quota with free space", sizes{file: 7000 * mb, used: 6000 * mb, quota: 8192 * mb}, defragment},
		{"near the quota and used", sizes{file: 7000 * mb, used: 6900 * mb, quota: 8192 * mb}, nothing},
		{"alarm", sizes{file: 8192 * mb, used: 8192 * mb, quota: 8192 * mb, alarm: true}, reclaim},
	} {
		if got := decide(tt.sizes); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestLargerQuotaClearsTheAlarm checks that a full database without free space
// accepts writes again after a restart with a larger quota.
func TestLargerQuotaClearsTheAlarm(t *testing.T) {
	dir := t.TempDir()
	embedded := func(quota int64) *Embedded {
		t.Helper()
		e, err := Embed(t.Context(), Config{Dir: dir, QuotaBytes: quota})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	maintain := func(e *Embedded) {
		t.Helper()
		if err := e.maintainOnce(t.Context(), klog.Background(), false); err != nil {
			t.Fatal(err)
		}
	}
	small := embedded(8 << 20)
	value := make([]byte, 1<<20)
	var err error
	for i := 0; err == nil; i++ {
		_, err = small.Create(t.Context(), fmt.Sprintf("/registry/large-%d", i), value, 0)
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatal(err)
	}
	// Maintenance frees pages that single commits left, which more objects fill.
	for i := 0; err == nil || i < 2; i++ {
		maintain(small)
		if _, err = small.Create(t.Context(), fmt.Sprintf("/registry/more-%d", i), value, 0); err != nil && !errors.Is(err, store.ErrFull) {
			t.Fatal(err)
		}
		if i > 8 {
			t.Fatal("more was written than the quota allows")
		}
	}
	maintain(small)
	if _, err := small.Create(t.Context(), "/registry/large", value, 0); !errors.Is(err, store.ErrFull) {
		t.Fatalf("write to a full database: %v", err)
	}
	small.stop(func() {}, false)
	large := embedded(1 << 30)
	defer large.stop(func() {}, false)
	maintain(large)
	if _, err := large.Create(t.Context(), "/registry/large", value, 0); err != nil {
		t.Error(err)
	}
}

// A compaction reads pages of the database as writes do.
func TestRevisionsSince(t *testing.T) {
	released := revisions{current: 80_000, compacted: 100}
	for _, tt := range []struct {
		name string
		now  revisions
		want int64
	}{
		{"idle", revisions{80_010, 100}, 10},
		{"written", revisions{82_000, 100}, 2_000},
		{"compacted", revisions{80_010, 80_000}, 79_910},
	} {
		if got := tt.now.since(released); got != tt.want {
			t.Errorf("%s: %d revisions, want %d", tt.name, got, tt.want)
		}
	}
}
