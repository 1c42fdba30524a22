package csi

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/files/looptest"
)

// blockVolume is a claim's volume that is a block device.
func blockVolume() Source {
	return persistent(func(pv *v1.PersistentVolume) {
		mode := v1.PersistentVolumeBlock
		pv.Spec.VolumeMode, pv.Spec.CSI.FSType, pv.Spec.MountOptions = &mode, "", []string{"noatime"}
	})
}

// A block volume is staged and published as such, known to the next kubelet
// without its driver, and undone.
func TestBlockVolume(t *testing.T) {
	b := newBench(t, csiDriver())
	b.driver.Place = func(_, target string) error { return b.files.WriteFile(target, nil, fs.ModeDevice|0o600) }
	v := b.volumes(b.files)
	p, group := pod(podUID), int64(2000)
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	path, err := v.SetUp(t.Context(), p, blockVolume())
	if err != nil {
		t.Fatal(err)
	}
	if mode, err := b.files.Stat(path); err != nil || mode != fs.ModeDevice|0o600 {
		t.Errorf("at %s is %v, %v", path, mode, err)
	}
	staged := b.driver.Request("NodeStageVolume").(*csipb.NodeStageVolumeRequest)
	published := b.driver.Request("NodePublishVolume").(*csipb.NodePublishVolumeRequest)
	for name, c := range map[string]*csipb.VolumeCapability{"staged": staged.GetVolumeCapability(), "published": published.GetVolumeCapability()} {
		if c.GetBlock() == nil || c.GetMount() != nil || c.GetAccessMode().GetMode() != csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER {
			t.Errorf("%s as %v", name, c)
		}
	}
	if mode, err := b.files.Stat(staged.GetStagingTargetPath()); err != nil || !mode.IsDir() || published.GetStagingTargetPath() != staged.GetStagingTargetPath() {
		t.Errorf("staged at %s: %v, %v", staged.GetStagingTargetPath(), mode, err)
	}
	b.driver.Calls()
	v = b.volumes(b.files)
	if again, err := v.SetUp(t.Context(), p, blockVolume()); err != nil || again != path || len(b.driver.Calls()) > 0 {
		t.Errorf("the next kubelet has %q, %v", again, err)
	}
	if err := errors.Join(v.TearDown(t.Context(), podUID), unstage(t.Context(), v)); err != nil {
		t.Error(err)
	}
	if calls := b.driver.Calls(); !slices.Equal(calls, []string{"NodeUnpublishVolume", "NodeUnstageVolume"}) {
		t.Errorf("the driver was called for %q", calls)
	}
	b.nothingLeft()
}

// A driver that publishes something else than a block device is not believed.
func TestBlockVolumeWithoutADevice(t *testing.T) {
	b := newBench(t, csiDriver())
	for want, place := range map[string]func(volume, target string) error{
		"the driver has published no block device":       func(string, string) error { return nil },
		"the driver has not published a block device at": func(_, target string) error { return b.files.WriteFile(target, nil, 0o600) },
	} {
		b.driver.Place = place
		v := b.volumes(b.files)
		if _, err := v.SetUp(t.Context(), pod(podUID), blockVolume()); err == nil || !strings.HasPrefix(err.Error(), "MapVolume.MapPodDevice failed for volume \"pv1\" : "+want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if err := errors.Join(v.TearDown(t.Context(), podUID), unstage(t.Context(), v)); err != nil {
			t.Error(err)
		}
		b.nothingLeft()
	}
}

// The steps of a block volume have names of their own, and so has the event about them.
func TestStepsOfBlockVolumes(t *testing.T) {
	for method, want := range map[string][2]string{
		"NodeStageVolume":   {"MountVolume.MountDevice", "MapVolume.SetUpDevice"},
		"NodePublishVolume": {"MountVolume.SetUp", "MapVolume.MapPodDevice"},
	} {
		b := newBench(t, csiDriver())
		b.driver.Before = func(_ context.Context, called string, _ any) error {
			if called == method {
				return status.Error(codes.Internal, "no")
			}
			return nil
		}
		v := b.volumes(b.files)
		for i, source := range []Source{persistent(), blockVolume()} {
			_, err := v.SetUp(t.Context(), pod(podUID), source)
			failure := new(Failure)
			if !errors.As(err, &failure) || failure.Step != want[i] || failure.Reason() != []string{"FailedMount", "FailedMapVolume"}[i] {
				t.Errorf("%s: %v, want %s", method, err, want[i])
			}
		}
	}
}

// TestRealBlockVolume bind-mounts a loop device, as drivers do, and finds it
// after a restart of the kubelet.
func TestRealBlockVolume(t *testing.T) {
	loop := looptest.New(t)
	t.Cleanup(loop.Detach)
	b := newBench(t, csiDriver())
	host := files.OS{}
	b.driver.FS, b.driver.Mounter = host, host
	b.driver.Place = func(_, target string) error {
		return errors.Join(host.WriteFile(target, nil, 0o600), host.Mount(loop.Path, target, "", []string{"bind"}))
	}
	root := t.TempDir()
	start := func() *Volumes {
		v := b.volumes(host)
		v.Root, v.Mounter = root, host
		return v
	}
	v := start()
	t.Cleanup(func() {
		points, _ := host.Below(root)
		for _, point := range points {
			_ = host.Unmount(point)
		}
	})
	path, err := v.SetUp(t.Context(), pod(podUID), blockVolume())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("content"), 0); err != nil {
		t.Error(err)
	}
	if content, err := os.ReadFile(loop.Path); err != nil || !strings.HasPrefix(string(content), "content") {
		t.Errorf("the device has %.10q, %v", content, err)
	}
	v = start()
	if again := v.Mounted(podUID, "pv1"); again != path {
		t.Errorf("the next kubelet has %q, want %q", again, path)
	}
	if err := errors.Join(v.TearDown(t.Context(), podUID), unstage(t.Context(), v)); err != nil {
		t.Error(err)
	}
	if points, err := host.Below(root); err != nil || len(points) > 0 {
		t.Errorf("still mounted are %q, %v", points, err)
	}
}
