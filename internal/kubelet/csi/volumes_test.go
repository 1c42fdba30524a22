package csi

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodsOfOneVolumeWithReadWriteOncePod(t *testing.T) {
	b := newBench(t, csiDriver())
	v := b.volumes(b.files)
	source := persistent(func(pv *v1.PersistentVolume) {
		pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	})
	if _, err := v.SetUp(t.Context(), pod(podUID), source); err != nil {
		t.Fatal(err)
	}
	if _, err := v.SetUp(t.Context(), pod(otherUID), source); err == nil || !strings.Contains(err.Error(), "volume uses the ReadWriteOncePod access mode and is already in use by another pod") {
		t.Errorf("error: %v", err)
	}
}

// A volume whose handle fits neither in the node's status nor in a record does not keep
// the node from reporting, or other volumes from being unmounted.
func TestHandleThatIsTooLong(t *testing.T) {
	b := newBench(t, csiDriver(func(s *storagev1.CSIDriverSpec) { s.AttachRequired = new(true) }))
	v := b.volumes(b.files)
	source := persistent(func(pv *v1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = strings.Repeat("x", maxRecord) })
	if _, err := v.SetUp(t.Context(), pod(podUID), source); err == nil || !strings.Contains(err.Error(), "more than 4096") {
		t.Errorf("error: %v", err)
	}
	if used := v.InUse(); len(used) > 0 {
		t.Errorf("the status of the node has %d volumes", len(used))
	}
}

func TestGroupOfVolume(t *testing.T) {
	group := int64(2000)
	for name, c := range map[string]struct {
		policy     storagev1.FSGroupPolicy
		change     func(pv *v1.PersistentVolume)
		capable    bool
		shared     bool
		mountGroup string
	}{
		"default":       {shared: true},
		"no type":       {change: func(pv *v1.PersistentVolume) { pv.Spec.CSI.FSType = "" }},
		"one pod":       {change: func(pv *v1.PersistentVolume) { pv.Spec.AccessModes[0] = v1.ReadWriteOncePod }, shared: true},
		"many writers":  {change: func(pv *v1.PersistentVolume) { pv.Spec.AccessModes[0] = v1.ReadWriteMany }},
		"read only":     {policy: storagev1.FileFSGroupPolicy, change: func(pv *v1.PersistentVolume) { pv.Spec.CSI.ReadOnly = true }},
		"file":          {policy: storagev1.FileFSGroupPolicy, change: func(pv *v1.PersistentVolume) { pv.Spec.CSI.FSType = "" }, shared: true},
		"none":          {policy: storagev1.NoneFSGroupPolicy},
		"by the driver": {policy: storagev1.FileFSGroupPolicy, capable: true, mountGroup: "2000"},
	} {
		b := newBench(t, csiDriver(func(s *storagev1.CSIDriverSpec) {
			if c.policy != "" {
				s.FSGroupPolicy = &c.policy
			}
		}))
		if c.capable {
			b.driver.Capabilities = append(b.driver.Capabilities, csipb.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
		}
		source := persistent()
		if c.change != nil {
			source = persistent(c.change)
		}
		p := pod(podUID)
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
		path, err := b.volumes(b.files).SetUp(t.Context(), p, source)
		if err != nil {
			t.Fatal(err)
		}
		if shared, _ := b.files.Shared(path, 2000, false); shared != c.shared {
			t.Errorf("%s: given to the group: %t", name, shared)
		}
		if got := b.driver.Request("NodePublishVolume").(*csipb.NodePublishVolumeRequest).GetVolumeCapability().GetMount().GetVolumeMountGroup(); got != c.mountGroup {
			t.Errorf("%s: the driver was told of group %q", name, got)
		}
	}
}

// What a driver writes when it publishes a volume again, such as a secret that was
// rotated, is given to the group of the pod, too.
func TestGroupOfVolumeThatIsPublishedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		policy storagev1.FSGroupPolicy
		want   fs.FileMode
	}{
		"by the kubelet": {storagev1.FileFSGroupPolicy, 0o660},
		"by nobody":      {storagev1.NoneFSGroupPolicy, 0o600},
	} {
		b := newBench(t, csiDriver(func(s *storagev1.CSIDriverSpec) {
			s.RequiresRepublish, s.FSGroupPolicy = new(true), &test.policy
		}))
		v, p := b.volumes(b.files), pod(podUID)
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(2000))}
		path, err := v.SetUp(t.Context(), p, persistent())
		if err != nil {
			t.Fatal(err)
		}
		b.driver.After = func(_ context.Context, method string, _ any) error {
			if method != "NodePublishVolume" {
				return nil
			}
			return b.files.WriteFile(path+"/key", []byte("rotated"), 0o600)
		}
		if _, err := v.SetUp(t.Context(), p, persistent()); err != nil {
			t.Fatal(err)
		}
		if mode, err := b.files.Stat(path + "/key"); err != nil || mode != test.want {
			t.Errorf("%s: the new file has mode %v (%v), want %v", name, mode, err, test.want)
		}
	}
}

// A pod may have a claim as several of its volumes. They are one mount.
func TestOneClaimAsTwoVolumes(t *testing.T) {
	b := newBench(t, csiDriver())
	v := b.volumes(b.files)
	paths := map[string]bool{}
	for _, name := range []string{"data", "again", "data"} {
		source := persistent()
		source.Volume.Name = name
		path, err := v.SetUp(t.Context(), pod(podUID), source)
		if err != nil {
			t.Fatal(err)
		}
		paths[path] = true
	}
	if calls := b.driver.Calls(); len(paths) != 1 || !slices.Equal(calls, []string{"NodeStageVolume", "NodePublishVolume"}) {
		t.Errorf("the volumes are at %v, the driver was called for %q", paths, calls)
	}
	if err := v.TearDown(t.Context(), podUID); err != nil {
		t.Fatal(err)
	}
	if calls := b.driver.Calls(); !slices.Equal(calls, []string{"NodeUnpublishVolume"}) {
		t.Errorf("at the end of the pod the driver was called for %q", calls)
	}
}

// The error about a driver that is not there names the volume and the step, as upstream.
func TestDriverThatIsNotRegistered(t *testing.T) {
	const missing = "driver name " + driverName + " not found in the list of registered CSI drivers"
	b := newBench(t, csiDriver(func(s *storagev1.CSIDriverSpec) {
		s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral}
	}))
	v := b.volumes(b.files)
	v.Drivers().Deregister(t.Context(), b.plugin())
	for want, source := range map[string]Source{
		`MountVolume.MountDevice failed for volume "pv1" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: `: persistent(),
		`MapVolume.SetUpDevice failed for volume "pv1" : kubernetes.io/csi: blockMapper.SetUpDevice failed to get CSI client: `:           blockVolume(),
		`MountVolume.SetUp failed for volume "scratch" : kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: `:                   inline(),
	} {
		if _, err := v.SetUp(t.Context(), pod(podUID), source); err == nil || err.Error() != want+missing {
			t.Errorf("%v, want %s%s", err, want, missing)
		}
	}
}

// A driver that refuses to publish a volume again leaves it as it is: containers have it,
// and would not see another mount.
func TestVolumeThatIsNotPublishedAgainStays(t *testing.T) {
	b := newBench(t, csiDriver(func(s *storagev1.CSIDriverSpec) { s.RequiresRepublish = new(true) }))
	v := b.volumes(b.files)
	path, err := v.SetUp(t.Context(), pod(podUID), persistent())
	if err != nil {
		t.Fatal(err)
	}
	fails := true
	b.driver.Before = func(_ context.Context, method string, _ any) error {
		if method == "NodePublishVolume" && fails {
			return status.Error(codes.InvalidArgument, "the token has expired")
		}
		return nil
	}
	if _, err := v.SetUp(t.Context(), pod(podUID), persistent()); err == nil || !strings.Contains(err.Error(), "the token has expired") {
		t.Errorf("the volume was published again: %v", err)
	}
	if points, _ := b.files.Below(path); v.Mounted(podUID, "pv1") != path || !slices.Equal(points, []string{path}) {
		t.Errorf("the volume is mounted on %q", points)
	}
	fails = false
	if again, err := v.SetUp(t.Context(), pod(podUID), persistent()); err != nil || again != path {
		t.Errorf("later: %q, %v", again, err)
	}
	if err := v.TearDown(t.Context(), podUID); err != nil {
		t.Error(err)
	}
}

func TestAccessModes(t *testing.T) {
	for mode, want := range map[v1.PersistentVolumeAccessMode][2]csipb.VolumeCapability_AccessMode_Mode{
		v1.ReadWriteOnce:    {csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		v1.ReadWriteOncePod: {csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csipb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		v1.ReadOnlyMany:     {csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
		v1.ReadWriteMany:    {csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
	} {
		m := &mount{source: persistent(func(pv *v1.PersistentVolume) { pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{mode} })}
		if got := m.accessMode(); got != want[0] {
			t.Errorf("%s: %s", mode, got)
		}
		m.capabilities = capabilities{csipb.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER: true}
		if got := m.accessMode(); got != want[1] {
			t.Errorf("%s of a driver that counts writers: %s", mode, got)
		}
	}
}

func TestExpandedVolumeIsExpandedOnTheNode(t *testing.T) {
	source := persistent(func(pv *v1.PersistentVolume) {
		pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("2Gi")}
	})
	source.Claim.Status.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	source.Claim.Status.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue}}
	b := newBench(t, csiDriver(), source.Claim)
	b.driver.Capabilities = append(b.driver.Capabilities, csipb.NodeServiceCapability_RPC_EXPAND_VOLUME)
	v := b.volumes(b.files)
	if _, err := v.SetUp(t.Context(), pod(podUID), source); err != nil {
		t.Fatal(err)
	}
	claim, err := b.api.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "c", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if size := claim.Status.Capacity[v1.ResourceStorage]; size.String() != "2Gi" || len(claim.Status.Conditions) > 0 {
		t.Errorf("status of the claim: %+v", claim.Status)
	}
	if r := b.driver.Request("NodeExpandVolume").(*csipb.NodeExpandVolumeRequest); r.GetCapacityRange().GetRequiredBytes() != 2<<30 {
		t.Errorf("request: %v", r)
	}
	if event := <-b.events.Events; !strings.HasPrefix(event, "Normal FileSystemResizeSuccessful MountVolume.NodeExpandVolume succeeded for volume") {
		t.Errorf("event: %s", event)
	}
}

// The driver says by its controller that the node has nothing to do.
func TestVolumeThatTheNodeNeedNotExpand(t *testing.T) {
	source := persistent(func(pv *v1.PersistentVolume) {
		pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("2Gi")}
	})
	source.Claim.Annotations = map[string]string{"volume.kubernetes.io/node-expansion-not-required": "true"}
	source.Claim.Status.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	b := newBench(t, csiDriver(), source.Claim)
	b.driver.Capabilities = append(b.driver.Capabilities, csipb.NodeServiceCapability_RPC_EXPAND_VOLUME)
	if _, err := b.volumes(b.files).SetUp(t.Context(), pod(podUID), source); err != nil {
		t.Fatal(err)
	}
	if calls := b.driver.Calls(); slices.Contains(calls, "NodeExpandVolume") {
		t.Errorf("calls: %q", calls)
	}
}

// TestRunUnstagesWhatNoPodHas includes a volume whose driver is deregistered
// and registered again after the pods have ended.
func TestRunUnstagesWhatNoPodHas(t *testing.T) {
	b := newBench(t, csiDriver())
	v := b.volumes(b.files)
	unstaged := make(chan struct{}, 1)
	b.driver.After = func(_ context.Context, method string, _ any) error {
		if method == "NodeUnstageVolume" {
			unstaged <- struct{}{}
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); v.Run(ctx) }()
	defer func() { cancel(); <-done }()
	for _, away := range []bool{false, true} {
		if _, err := v.SetUp(ctx, pod(podUID), persistent()); err != nil {
			t.Fatal(err)
		}
		other := pod(otherUID)
		if _, err := v.SetUp(ctx, other, persistent()); err != nil {
			t.Fatal(err)
		}
		if err := v.TearDown(ctx, podUID); err != nil {
			t.Fatal(err)
		}
		if err := v.TearDown(ctx, otherUID); err != nil {
			t.Fatal(err)
		}
		if away {
			v.Drivers().Deregister(ctx, b.plugin())
			if err := v.Drivers().Register(ctx, b.plugin()); err != nil {
				t.Fatal(err)
			}
		}
		<-unstaged
	}
	cancel()
	<-done
	if mounts, _ := b.files.Below(root); len(mounts) > 0 {
		t.Errorf("still mounted: %q", mounts)
	}
}

// A record that lies in the directory of another volume has no driver called, which would
// undo what is staged in its own, and nothing is unmounted for it.
func TestRecordInTheDirectoryOfAnotherVolume(t *testing.T) {
	b := newBench(t, csiDriver())
	v := b.volumes(b.files)
	if _, err := v.SetUp(t.Context(), pod(podUID), persistent()); err != nil {
		t.Fatal(err)
	}
	other := v.stageDir(driverName, "vol-2")
	raw, err := b.files.ReadFile(v.stageDir(driverName, "vol-1")+"/"+recordName, maxRecord)
	err = errors.Join(err, b.files.MkdirAll(other+"/"+stagingName, 0o750), b.files.Replace(other+"/"+recordName, raw, 0o644),
		b.files.Mount("/data/vol-2", other+"/"+stagingName, "", nil), v.TearDown(t.Context(), podUID))
	if err != nil {
		t.Fatal(err)
	}
	b.driver.Calls()
	if err := unstage(t.Context(), v); err == nil || !strings.Contains(err.Error(), other+"/"+recordName+" is missing or damaged") {
		t.Errorf("error: %v", err)
	}
	if calls := b.driver.Calls(); !slices.Equal(calls, []string{"NodeUnstageVolume"}) {
		t.Errorf("the driver was called for %q", calls)
	}
	if mounts, _ := b.files.Below(root); !slices.Equal(mounts, []string{other + "/" + stagingName}) {
		t.Errorf("mounted are %q", mounts)
	}
}

// A driver was replaced by a version that stages nothing. It knows no call that would
// unstage what the earlier version has staged.
func TestDriverThatStagesNoLonger(t *testing.T) {
	b := newBench(t, csiDriver())
	v := b.volumes(b.files)
	if _, err := v.SetUp(t.Context(), pod(podUID), persistent()); err != nil {
		t.Fatal(err)
	}
	if err := v.TearDown(t.Context(), podUID); err != nil {
		t.Fatal(err)
	}
	b.driver.Calls()
	b.driver.Capabilities = nil
	if err := unstage(t.Context(), v); err != nil {
		t.Error(err)
	}
	if calls := b.driver.Calls(); len(calls) > 0 {
		t.Errorf("calls: %q", calls)
	}
	b.nothingLeft()
}

// A volume that a pod's goroutine is staging looks like a volume whose record
// is lost until its record is written. It is not discarded.
func TestVolumeThatIsBeingStagedIsNotDiscarded(t *testing.T) {
	b := newBench(t, csiDriver())
	v := b.volumes(b.files)
	var early placed
	b.driver.Before = func(_ context.Context, method string, _ any) error {
		if method != "NodeStageVolume" {
			return nil
		}
		staged, err := v.staged()
		if err != nil || len(staged) != 1 {
			t.Errorf("staged: %v, %v", staged, err)
			return nil
		}
		early = placed{dir: staged[0].dir, err: errNoRecord} // as the search found it
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := v.unstage(ctx, &early); !errors.Is(err, context.Canceled) {
			t.Errorf("the volume was discarded while it was being staged: %v", err)
		}
		return nil
	}
	path, err := v.SetUp(t.Context(), pod(podUID), persistent())
	if err != nil {
		t.Fatal(err)
	}
	if err := v.unstage(t.Context(), &early); err != nil {
		t.Error(err)
	}
	if again := v.Mounted(podUID, "pv1"); again != path {
		t.Errorf("the pod has %q, want %q", again, path)
	}
}

// A driver that works on a volume is not interrupted when its pod is to end, or the
// kubelet: it may be in the middle of making a file system. What it answers counts.
func TestDriversAreNotInterrupted(t *testing.T) {
	b := newBench(t, csiDriver())
	v := b.volumes(b.files)
	ending := func(method string, do func(ctx context.Context) error) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		b.driver.Before = func(_ context.Context, called string, _ any) error {
			if called == method {
				cancel()
			}
			return nil
		}
		return do(ctx)
	}
	setUp := func(ctx context.Context) error {
		_, err := v.SetUp(ctx, pod(podUID), persistent())
		return err
	}
	tearDown := func(ctx context.Context) error { return v.TearDown(ctx, podUID) }
	// The volume is staged, and then not published any more.
	if err := ending("NodeStageVolume", setUp); !errors.Is(err, context.Canceled) {
		t.Errorf("while it is staged: %v", err)
	}
	for _, step := range []struct {
		method string
		do     func(ctx context.Context) error
	}{{"NodePublishVolume", setUp}, {"NodeUnpublishVolume", tearDown}, {"NodeUnstageVolume", func(ctx context.Context) error { return unstage(ctx, v) }}} {
		if err := ending(step.method, step.do); err != nil {
			t.Errorf("%s: %v", step.method, err)
		}
	}
	b.nothingLeft()
	ctx, cancel := context.WithCancel(t.Context())
	if err := callWhole(ctx, endpoint{socket: "/nowhere"}, func(ctx context.Context, _ csipb.NodeClient) error { cancel(); return ctx.Err() }); err != nil {
		t.Errorf("a call is interrupted: %v", err)
	}
	if err := callWhole(ctx, endpoint{socket: "/nowhere"}, func(context.Context, csipb.NodeClient) error { t.Error("a call begins after the end"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a call after the end: %v", err)
	}
}

// A driver that takes long to bring a mounted volume up to date does not hold up the pod,
// and is not interrupted. The volume is not unmounted meanwhile.
func TestLongRefresh(t *testing.T) {
	b := newBench(t, csiDriver(func(s *storagev1.CSIDriverSpec) { s.RequiresRepublish = new(true) }))
	v := b.volumes(b.files)
	if _, err := v.SetUp(t.Context(), pod(podUID), persistent()); err != nil {
		t.Fatal(err)
	}
	b.driver.Calls()
	ctx, cancel := context.WithCancel(t.Context())
	finish := make(chan struct{})
	b.driver.Before = func(_ context.Context, method string, _ any) error {
		if method == "NodePublishVolume" {
			cancel()
			<-finish
		}
		return nil
	}
	if _, err := v.SetUp(ctx, pod(podUID), persistent()); !errors.Is(err, context.Canceled) {
		t.Errorf("while the driver works: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- v.TearDown(t.Context(), podUID) }()
	close(finish)
	if err := errors.Join(<-ended, unstage(t.Context(), v)); err != nil {
		t.Error(err)
	}
	if calls := b.driver.Calls(); !slices.Equal(calls, []string{"NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"}) {
		t.Errorf("calls %q", calls)
	}
	b.nothingLeft()
}
