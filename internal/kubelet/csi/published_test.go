package csi

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/hostpath"
)

// A driver that is told usual paths and mounts at them on the machine, as by nsenter, is
// told of: the pod would write to the disk of the node. What another kubelet has there is
// no fault of the driver.
func TestDriverThatMountsOnTheMachine(t *testing.T) {
	const staging = "/plugins/kubernetes.io/csi/" + driverName + "/"
	handle := sum("vol-1")
	for name, test := range map[string]struct {
		stages, inside, other, block bool
		want                         []string // in the error
	}{
		"staged":                                {stages: true, want: []string{"MountVolume.MountDevice failed", "at " + root + staging + handle + "/globalmount, and not at " + elsewhere + staging, "directory " + elsewhere + " in the place of " + root}},
		"published":                             {want: []string{"MountVolume.SetUp failed", "at " + root + "/pods/" + string(podUID) + "/volumes/kubernetes.io~csi/pv1/mount, and not at " + elsewhere + "/pods/"}},
		"in its pod":                            {stages: true, inside: true},
		"another kubelet":                       {stages: true, inside: true, other: true},
		"another kubelet, and nothing to stage": {stages: true, inside: true, other: true, block: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, csiDriver())
			paths := hostpath.New(elsewhere, hostpath.PodLogs, hostpath.LogLinks)
			if test.inside {
				seen := mountedAt{b.files, paths}
				b.driver.FS, b.driver.Mounter = seen, seen
			}
			if !test.stages {
				b.driver.Capabilities = nil
			}
			source := persistent()
			if test.block {
				source = blockVolume()
				b.driver.Place = func(_, target string) error { return b.files.WriteFile(paths.Real(target), nil, fs.ModeDevice|0o600) }
			}
			var others []string
			if test.other {
				others = []string{root + staging + handle + "/globalmount"}
				if err := b.files.Mount("/dev/x", others[0], "", nil); err != nil {
					t.Fatal(err)
				}
			}
			v := b.volumes(b.files)
			v.Root, v.Paths = elsewhere, paths
			plugin := b.plugin()
			plugin.Usual = true
			if err := v.Drivers().Register(t.Context(), plugin); err != nil {
				t.Fatal(err)
			}
			for range 2 { // it is tried again
				_, err := v.SetUp(t.Context(), pod(podUID), source)
				if (err != nil) != (len(test.want) > 0) {
					t.Fatalf("error %v", err)
				}
				for _, want := range test.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("error %v, want %q", err, want)
					}
				}
				if err != nil && test.stages {
					if err := unstage(t.Context(), v); err != nil {
						t.Fatal(err)
					}
				}
				if left, _ := b.files.Below(root); !slices.Equal(left, others) {
					t.Errorf("after error %v, mounted are %q", err, left)
				}
			}
			if err := errors.Join(v.TearDown(t.Context(), podUID), unstage(t.Context(), v)); err != nil {
				t.Error(err)
			}
			onMachine, err := b.files.Below(root)
			own, ownErr := b.files.Below(elsewhere)
			if err := errors.Join(err, ownErr); err != nil || !slices.Equal(onMachine, others) || len(own) > 0 {
				t.Errorf("still mounted are %q and %q (%v)", onMachine, own, err)
			}
			if n := len(b.events.Events); n > 0 {
				t.Errorf("%d events", n)
			}
		})
	}
}

// mountsNothing is the mounter of a driver whose mounts reach nobody.
type mountsNothing struct{ *files.Memory }

func (mountsNothing) Mount(string, string, string, []string) error { return nil }

// A pod is warned once of a volume that has neither a mount nor a file.
func TestVolumeThatIsNotMounted(t *testing.T) {
	for name, test := range map[string]struct {
		mounts bool
		after  func(b *bench, target string) error
		events int
	}{
		"mounted":      {mounts: true},
		"empty":        {events: 1},
		"no directory": {after: func(b *bench, target string) error { return b.files.Remove(target) }, events: 1},
		"a file":       {after: func(b *bench, target string) error { return b.files.WriteFile(target+"/key", []byte("secret"), 0o600) }},
		"a mount in it": {after: func(b *bench, target string) error {
			return errors.Join(b.files.MkdirAll(target+"/deep", 0o755), b.files.Mount("/dev/x", target+"/deep", "", nil))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, csiDriver())
			b.driver.Capabilities = nil
			if !test.mounts {
				b.driver.Mounter = mountsNothing{b.files}
			}
			b.driver.After = func(_ context.Context, _ string, request any) error {
				r, publishes := request.(*csipb.NodePublishVolumeRequest)
				if !publishes || test.after == nil {
					return nil
				}
				return test.after(b, r.GetTargetPath())
			}
			v := b.volumes(b.files)
			for range 2 {
				if _, err := v.SetUp(t.Context(), pod(podUID), persistent()); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(b.events.Events); n != test.events {
				t.Fatalf("%d events, want %d", n, test.events)
			}
			if test.events > 0 {
				want := "Warning VolumeNotMounted driver " + driverName + ` has published volume "pv1", but nothing is mounted at ` + root
				if event := <-b.events.Events; !strings.HasPrefix(event, want) {
					t.Errorf("event %q, want %q", event, want)
				}
			}
		})
	}
}
