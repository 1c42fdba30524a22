package csi

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coracle-io/coracle/internal/kubelet/files/filestest"
)

// TestKilledAtEachStep kills the kubelet after each change of the disk, and
// before and after each call to the driver, while it mounts and unmounts.
func TestKilledAtEachStep(t *testing.T) {
	for _, mounts := range []bool{true, false} {
		for steps := 0; ; steps++ {
			if finished := killAfter(t, steps, mounts); finished {
				if steps < 8 {
					t.Errorf("only %d steps", steps)
				}
				break
			}
		}
	}
}

// killAfter kills a kubelet after a number of steps, starts another, and returns
// whether the first had finished. The next kubelet mounts, or only unmounts.
func killAfter(t *testing.T, steps int, mounts bool) (finished bool) {
	b := newBench(t, csiDriver())
	defer b.stop()
	if err := b.files.MkdirAll("/data/vol-1", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := b.files.WriteFile("/data/vol-1/precious", []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	first := filestest.NewFailAfter(b.files, steps)
	killed := func(context.Context, string, any) error {
		if first.Step() != nil {
			return status.Error(codes.Unavailable, "killed")
		}
		return nil
	}
	v := b.volumes(first)
	b.driver.Before, b.driver.After = killed, killed
	live := func(v *Volumes) error {
		if _, err := v.SetUp(t.Context(), pod(podUID), persistent()); err != nil {
			return err
		}
		if err := v.TearDown(t.Context(), podUID); err != nil {
			return err
		}
		return unstage(t.Context(), v)
	}
	finished = live(v) == nil
	b.driver.Before, b.driver.After = nil, nil
	next := b.volumes(b.files)
	if mounts {
		path, err := next.SetUp(t.Context(), pod(podUID), persistent())
		if err != nil {
			t.Fatalf("killed after %d steps: %v", steps, err)
		}
		if points, _ := b.files.Below(path); len(points) != 1 {
			t.Errorf("killed after %d steps: mounted %q", steps, points)
		}
	}
	if err := next.TearDown(t.Context(), podUID); err != nil {
		t.Errorf("killed after %d steps: %v", steps, err)
	}
	if err := unstage(t.Context(), next); err != nil {
		t.Errorf("killed after %d steps: %v", steps, err)
	}
	if raw, err := b.files.ReadFile("/data/vol-1/precious", 100); err != nil || string(raw) != "data" {
		t.Fatalf("killed after %d steps: the data is %q: %v", steps, raw, err)
	}
	b.nothingLeft()
	if t.Failed() {
		t.Fatalf("killed after %d steps", steps)
	}
	return finished
}
