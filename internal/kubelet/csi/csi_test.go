package csi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientfake "k8s.io/client-go/kubernetes/fake"
	events "k8s.io/client-go/tools/record"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/csivolume"
	"github.com/coracle-io/coracle/internal/kubelet/csi/csitest"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/pluginwatcher"
)

const (
	root       = "/var/lib/kubelet"
	nodeName   = "alpha"
	driverName = "dir.csi.test"
	podUID     = types.UID("11111111-1111-1111-1111-111111111111")
	otherUID   = types.UID("22222222-2222-2222-2222-222222222222")
)

// bench is a node with a driver, on a file system in memory.
type bench struct {
	*testing.T
	files  *files.Memory
	driver *csitest.Driver
	api    *clientfake.Clientset
	socket string
	events *events.FakeRecorder
	stop   func()

	mu    sync.Mutex // guards what follows
	node  *v1.Node
	woken []types.UID
}

// newBench starts a driver. objects are in the API.
func newBench(t *testing.T, objects ...runtime.Object) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi") // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node"}}
	b := &bench{
		T: t, files: &files.Memory{}, socket: filepath.Join(dir, "csi.sock"), events: events.NewFakeRecorder(100), node: node,
		api: clientfake.NewSimpleClientset(append(objects, node)...),
	}
	b.driver = &csitest.Driver{
		Name: driverName, NodeID: "node-1", Dir: "/data", FS: b.files, Mounter: b.files,
		Capabilities: []csipb.NodeServiceCapability_RPC_Type{csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME},
	}
	stop, err := b.driver.Serve(b.socket, filepath.Join(dir, "reg.sock"))
	if err != nil {
		t.Fatal(err)
	}
	b.stop = sync.OnceFunc(stop)
	t.Cleanup(func() { b.stop(); _ = os.RemoveAll(dir) })
	return b
}

// volumes returns the volumes of a kubelet that starts now, with its driver.
func (b *bench) volumes(fsys files.FS) *Volumes {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	shared := client.NewInformers(b.api)
	v := New(Config{
		Root: root, NodeName: nodeName, FS: fsys, Mounter: b.files, Recorder: b.events,
		Client: &client.Client{Kubernetes: b.api, Informers: shared},
		Secret: func(ctx context.Context, namespace, name string) (*v1.Secret, error) {
			return b.api.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		Token: func(_ context.Context, pod *v1.Pod, audience string, seconds int64) (string, time.Time, error) {
			return fmt.Sprint("token of ", pod.Name, " for ", audience), time.Unix(seconds, 0), nil
		},
		Node:   func() *v1.Node { b.mu.Lock(); defer b.mu.Unlock(); return b.node },
		Report: func() {},
		Wake:   func(uid types.UID) { b.mu.Lock(); defer b.mu.Unlock(); b.woken = append(b.woken, uid) },
	})
	var wg sync.WaitGroup
	wg.Go(func() { _ = shared.Run(ctx) })
	b.Cleanup(func() { cancel(); wg.Wait() })
	shared.WaitForCacheSync(ctx.Done())
	if err := v.Drivers().Register(ctx, b.plugin()); err != nil {
		b.Fatal(err)
	}
	return v
}

func (b *bench) plugin() pluginwatcher.Plugin {
	return pluginwatcher.Plugin{Name: driverName, Endpoint: b.socket, Versions: []string{"1.0.0"}}
}

func csiDriver(change ...func(s *storagev1.CSIDriverSpec)) *storagev1.CSIDriver {
	no := false
	d := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: storagev1.CSIDriverSpec{AttachRequired: &no}}
	for _, c := range change {
		c(&d.Spec)
	}
	return d
}

func pod(uid types.UID) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: uid}, Spec: v1.PodSpec{ServiceAccountName: "robot"}}
}

// persistent is a claim's volume.
func persistent(change ...func(pv *v1.PersistentVolume)) Source {
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv1"},
		Spec: v1.PersistentVolumeSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver: driverName, VolumeHandle: "vol-1", FSType: "ext4", VolumeAttributes: map[string]string{"tier": "fast"},
			}},
		},
	}
	for _, c := range change {
		c(pv)
	}
	return Source{
		Volume: &v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}},
		Claim:  &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}}, PV: pv,
	}
}

func inline() Source {
	return Source{Volume: &v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{
		Driver: driverName, VolumeAttributes: map[string]string{"size": "1"}, NodePublishSecretRef: &v1.LocalObjectReference{Name: "key"},
	}}}}
}

// unstage does what Run does, once.
func unstage(ctx context.Context, v *Volumes) error {
	staged, err := v.staged()
	for i := range staged {
		err = errors.Join(err, v.unstage(ctx, &staged[i]))
	}
	return err
}

// nothingLeft fails the test if something is mounted, or a directory of a volume
// is left.
func (b *bench) nothingLeft() {
	b.Helper()
	if mounts, _ := b.files.Below(root); len(mounts) > 0 {
		b.Errorf("still mounted: %q", mounts)
	}
	for _, dir := range []string{root + "/pods/" + string(podUID) + "/volumes/kubernetes.io~csi", root + "/plugins/kubernetes.io/csi/" + driverName} {
		if names, _ := b.files.ReadDir(dir); len(names) > 0 {
			b.Errorf("left in %s: %q", dir, names)
		}
	}
}

func TestPersistentVolumeIsStagedPublishedAndUndone(t *testing.T) {
	b := newBench(t, csiDriver())
	v := b.volumes(b.files)
	path, err := v.SetUp(t.Context(), pod(podUID), persistent())
	if err != nil {
		t.Fatal(err)
	}
	const staging = root + "/plugins/kubernetes.io/csi/" + driverName + "/"
	handle := sum("vol-1")
	if want := root + "/pods/" + string(podUID) + "/volumes/kubernetes.io~csi/pv1/mount"; path != want {
		t.Errorf("path %s, want %s", path, want)
	}
	stage := b.driver.Request("NodeStageVolume").(*csipb.NodeStageVolumeRequest)
	publish := b.driver.Request("NodePublishVolume").(*csipb.NodePublishVolumeRequest)
	if stage.GetStagingTargetPath() != staging+handle+"/globalmount" || publish.GetStagingTargetPath() != stage.GetStagingTargetPath() {
		t.Errorf("staged on %s, published from %s", stage.GetStagingTargetPath(), publish.GetStagingTargetPath())
	}
	if publish.GetVolumeContext()["tier"] != "fast" || publish.GetVolumeCapability().GetMount().GetFsType() != "ext4" ||
		publish.GetVolumeCapability().GetAccessMode().GetMode() != csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER {
		t.Errorf("publish request: %v", publish)
	}
	raw, _ := b.files.ReadFile(filepath.Dir(path)+"/vol_data.json", 1<<20)
	want := `{"specVolID":"pv1","volumeHandle":"vol-1","driverName":"dir.csi.test","nodeName":"alpha","attachmentID":"` +
		csivolume.AttachmentName("vol-1", driverName, nodeName) + `","volumeLifecycleMode":"Persistent"}`
	if string(raw) != want {
		t.Errorf("record %s, want %s", raw, want)
	}
	if raw, _ := b.files.ReadFile(staging+handle+"/vol_data.json", 1<<20); string(raw) != `{"volumeHandle":"vol-1","driverName":"dir.csi.test"}` {
		t.Errorf("stage record %s", raw)
	}
	if again, err := v.SetUp(t.Context(), pod(podUID), persistent()); err != nil || again != path {
		t.Errorf("again: %s, %v", again, err)
	}
	if calls := b.driver.Calls(); !slices.Equal(calls, []string{"NodeStageVolume", "NodePublishVolume"}) {
		t.Errorf("calls: %q", calls)
	}
	if _, err := v.SetUp(t.Context(), pod(otherUID), persistent()); err != nil {
		t.Fatal(err)
	}
	if err := v.TearDown(t.Context(), podUID); err != nil {
		t.Fatal(err)
	}
	if err := unstage(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	b.driver.Calls()
	if mounts, _ := b.files.Below(root); len(mounts) != 2 {
		t.Errorf("mounts of the other pod: %q", mounts)
	}
	if err := v.TearDown(t.Context(), otherUID); err != nil {
		t.Fatal(err)
	}
	if err := unstage(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if calls := b.driver.Calls(); !slices.Equal(calls, []string{"NodeUnpublishVolume", "NodeUnstageVolume"}) {
		t.Errorf("calls: %q", calls)
	}
	b.nothingLeft()
}

func TestInlineVolumeGetsWhatItsDriverAsksFor(t *testing.T) {
	yes, hour := true, int64(3600)
	b := newBench(t, csiDriver(func(s *storagev1.CSIDriverSpec) {
		s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
		s.PodInfoOnMount, s.TokenRequests = &yes, []storagev1.TokenRequest{{Audience: "vault", ExpirationSeconds: &hour}}
		s.RequiresRepublish = &yes
	}), &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "key"}, Data: map[string][]byte{"k": []byte("v")}})
	v := b.volumes(b.files)
	if _, err := v.SetUp(t.Context(), pod(podUID), inline()); err != nil {
		t.Fatal(err)
	}
	publish := b.driver.Request("NodePublishVolume").(*csipb.NodePublishVolumeRequest)
	got := fmt.Sprint(publish.GetVolumeContext(), publish.GetSecrets(), publish.GetStagingTargetPath() == "", len(publish.GetVolumeId()))
	want := `map[csi.storage.k8s.io/ephemeral:true csi.storage.k8s.io/pod.name:web csi.storage.k8s.io/pod.namespace:default ` +
		`csi.storage.k8s.io/pod.uid:` + string(podUID) + ` csi.storage.k8s.io/serviceAccount.name:robot ` +
		`csi.storage.k8s.io/serviceAccount.tokens:{"vault":{"token":"token of web for vault","expirationTimestamp":"1970-01-01T01:00:00Z"}} size:1] map[k:v] true 68`
	if got != want {
		t.Errorf("request:\n%s, want\n%s", got, want)
	}
	if _, err := v.SetUp(t.Context(), pod(podUID), inline()); err != nil {
		t.Fatal(err)
	}
	if calls := b.driver.Calls(); !slices.Equal(calls, []string{"NodePublishVolume", "NodePublishVolume"}) || b.driver.Mounts() != 1 {
		t.Errorf("calls: %q, %d mounts", calls, b.driver.Mounts())
	}
	if in := v.InUse(); len(in) > 0 {
		t.Errorf("in use: %q, inline volumes are not attached", in)
	}
	if err := v.TearDown(t.Context(), podUID); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
	none := newBench(t)
	if _, err := none.volumes(none.files).SetUp(t.Context(), pod(podUID), inline()); err == nil || !strings.Contains(err.Error(), `volume mode "Ephemeral" not supported by driver `+driverName+" (no CSIDriver object)") {
		t.Errorf("without an object: %v", err)
	}
}

// A volume for which the node has had no room for a while is no volume to wait for,
// if the scheduler learns of that. Other failures to attach it may pass.
func TestAttachmentLimit(t *testing.T) {
	for _, test := range []struct {
		code    codes.Code
		updates *int64 // the period in which the driver has CSINode updated
		want    bool
	}{
		{codes.ResourceExhausted, new(int64(10)), true},
		{codes.ResourceExhausted, nil, false},
		{codes.Internal, new(int64(10)), false},
	} {
		driver := csiDriver(func(s *storagev1.CSIDriverSpec) {
			s.AttachRequired, s.NodeAllocatableUpdatePeriodSeconds = new(true), test.updates
		})
		b := newBench(t, driver, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: csivolume.AttachmentName("vol-1", driverName, nodeName)},
			Status:     storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "no", ErrorCode: new(int32(test.code))}},
		})
		v := b.volumes(b.files)
		if _, err := v.SetUp(t.Context(), pod(podUID), persistent()); !errors.Is(err, ErrAttaching) {
			t.Errorf("%s, updates %t: %v at first", test.code, test.updates != nil, err)
		}
		v.mu.Lock()
		for _, w := range v.needs {
			w.since = w.since.Add(-attachPatience)
		}
		v.mu.Unlock()
		_, err := v.SetUp(t.Context(), pod(podUID), persistent())
		if got := errors.Is(err, ErrAttachmentLimit); got != test.want || errors.Is(err, ErrAttaching) {
			t.Errorf("%s, updates %t: %v", test.code, test.updates != nil, err)
		}
	}
}

func TestAttachedVolumeIsMountedOnceItIsInUseAndAttached(t *testing.T) {
	name := csivolume.AttachmentName("vol-1", driverName, nodeName)
	b := newBench(t, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"device": "/dev/x"}},
	})
	v := b.volumes(b.files)
	volume := v1.UniqueVolumeName("kubernetes.io/csi/" + driverName + "^vol-1")
	waits := func(reason string) {
		t.Helper()
		if _, err := v.SetUp(t.Context(), pod(podUID), persistent()); !errors.Is(err, ErrAttaching) || !strings.Contains(err.Error(), reason) {
			t.Fatalf("error %v, want %q", err, reason)
		}
		if calls := b.driver.Calls(); len(calls) > 0 {
			t.Fatalf("calls before the volume is attached: %q", calls)
		}
	}
	change := func(how func(s *v1.NodeStatus)) {
		b.mu.Lock()
		before := b.node
		b.node = before.DeepCopy()
		how(&b.node.Status)
		b.woken = nil
		after := b.node
		b.mu.Unlock()
		v.NodeChanged(before, after)
		if !slices.Equal(b.woken, []types.UID{podUID}) {
			t.Errorf("woken: %q", b.woken)
		}
	}
	waits("VolumesInUse")
	if in := v.InUse(); !slices.Equal(in, []v1.UniqueVolumeName{volume}) {
		t.Fatalf("in use: %q", in)
	}
	inUse := v.InUse()
	change(func(s *v1.NodeStatus) { s.VolumesInUse = inUse })
	waits("not attached according to node status")
	change(func(s *v1.NodeStatus) { s.VolumesAttached = []v1.AttachedVolume{{Name: volume}} })
	if _, err := v.SetUp(t.Context(), pod(podUID), persistent()); err != nil {
		t.Fatal(err)
	}
	if stage := b.driver.Request("NodeStageVolume").(*csipb.NodeStageVolumeRequest); stage.GetPublishContext()["device"] != "/dev/x" {
		t.Errorf("publish context: %v", stage.GetPublishContext())
	}
	if in := b.volumes(b.files).InUse(); !slices.Equal(in, []v1.UniqueVolumeName{volume}) {
		t.Errorf("in use after a restart: %q", in)
	}
	if err := v.TearDown(t.Context(), podUID); err != nil {
		t.Fatal(err)
	}
	if in := v.InUse(); len(in) != 1 {
		t.Errorf("in use while it is staged: %q", in)
	}
	if err := unstage(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if in := v.InUse(); len(in) != 0 {
		t.Errorf("in use at the end: %q", in)
	}
}

func TestNothingIsRemovedThatADriverLeft(t *testing.T) {
	b := newBench(t, csiDriver())
	v := b.volumes(b.files)
	path, err := v.SetUp(t.Context(), pod(podUID), persistent())
	if err != nil {
		t.Fatal(err)
	}
	// The driver says that it has unmounted the volume, and has written into the
	// directory below.
	b.driver.After = func(_ context.Context, method string, _ any) error {
		if method == "NodeUnpublishVolume" {
			return errors.Join(b.files.MkdirAll(path, 0o755), b.files.WriteFile(path+"/precious", []byte("data"), 0o600))
		}
		return nil
	}
	if err := v.TearDown(t.Context(), podUID); err == nil || !strings.Contains(err.Error(), "directory not empty") {
		t.Errorf("error: %v", err)
	}
	if raw, _ := b.files.ReadFile(path+"/precious", 100); string(raw) != "data" {
		t.Errorf("the data is %q", raw)
	}
	if err := b.files.Remove(path + "/precious"); err != nil {
		t.Fatal(err)
	}
	b.driver.After = nil
	if err := errors.Join(v.TearDown(t.Context(), podUID), unstage(t.Context(), v)); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
}

func TestPodWhoseVolumeWasRefusedDoesNotNeedTheDriver(t *testing.T) {
	b := newBench(t, csiDriver())
	v := b.volumes(b.files)
	b.driver.Before = func(_ context.Context, method string, _ any) error {
		if method == "NodePublishVolume" {
			return status.Error(codes.InvalidArgument, "bad\nattribute "+strings.Repeat("x", 5000))
		}
		return nil
	}
	_, err := v.SetUp(t.Context(), pod(podUID), persistent())
	if failure := new(Failure); !errors.As(err, &failure) || !strings.HasPrefix(err.Error(), `MountVolume.SetUp failed for volume "pv1" : rpc error: code = InvalidArgument desc = bad attribute xxx`) || len(err.Error()) > 2000 {
		t.Errorf("error: %v", err)
	}
	v.Drivers().Deregister(t.Context(), b.plugin())
	if err := v.TearDown(t.Context(), podUID); err != nil {
		t.Errorf("the end of the pod: %v", err)
	}
	if err := unstage(t.Context(), v); err == nil {
		t.Error("the volume was unstaged without its driver")
	}
	if err := v.Drivers().Register(t.Context(), b.plugin()); err != nil {
		t.Fatal(err)
	}
	if err := unstage(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
}

// A driver that did not answer may still publish the volume, whatever it says to
// other requests.
func TestVolumeThatMayBePublishedIsNotForgotten(t *testing.T) {
	source := persistent(func(pv *v1.PersistentVolume) {
		pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("2Gi")}
	})
	b := newBench(t, csiDriver(), source.Claim)
	b.driver.Capabilities = append(b.driver.Capabilities, csipb.NodeServiceCapability_RPC_EXPAND_VOLUME)
	v := b.volumes(b.files)
	for _, c := range []struct {
		method string
		code   codes.Code
	}{{"NodePublishVolume", codes.Unavailable}, {"NodeStageVolume", codes.InvalidArgument}, {"NodeExpandVolume", codes.InvalidArgument}} {
		b.driver.Before = func(_ context.Context, method string, _ any) error {
			if method == c.method {
				return status.Error(c.code, "no")
			}
			return nil
		}
		if _, err := v.SetUp(t.Context(), pod(podUID), source); err == nil {
			t.Fatalf("%s did not fail", c.method)
		}
		if all, err := v.ofPod(podUID); err != nil || len(all) != 1 || all[0].err != nil {
			t.Errorf("after the failure of %s the pod has %+v: %v", c.method, all, err)
		}
	}
}

// What an earlier kubelet asked a driver for may still be published, although the driver
// refuses the volume now. It is unpublished when its pod ends.
func TestVolumeOfAnEarlierKubeletIsNotForgotten(t *testing.T) {
	b, code := newBench(t, csiDriver()), codes.Unavailable
	b.driver.Before = func(_ context.Context, method string, _ any) error {
		if method == "NodePublishVolume" {
			return status.Error(code, "no")
		}
		return nil
	}
	if _, err := b.volumes(b.files).SetUp(t.Context(), pod(podUID), persistent()); err == nil {
		t.Fatal("the volume was published")
	}
	code = codes.InvalidArgument
	v := b.volumes(b.files)
	for range 2 {
		if _, err := v.SetUp(t.Context(), pod(podUID), persistent()); err == nil {
			t.Fatal("the volume was published")
		}
		if all, err := v.ofPod(podUID); err != nil || len(all) != 1 || all[0].err != nil {
			t.Errorf("after the driver has refused it, the pod has %+v: %v", all, err)
		}
	}
	b.driver.Calls()
	if err := v.TearDown(t.Context(), podUID); err != nil {
		t.Fatal(err)
	}
	if calls := b.driver.Calls(); !slices.Equal(calls, []string{"NodeUnpublishVolume"}) {
		t.Errorf("at the end of the pod the driver got %q", calls)
	}
}

func TestFinalErrors(t *testing.T) {
	for err, want := range map[error]bool{
		nil:                                                 false,
		errors.New("not of a call"):                         false,
		status.Error(codes.Canceled, ""):                    false,
		status.Error(codes.Aborted, "busy"):                 false,
		status.Error(codes.Unavailable, ""):                 false,
		status.Error(codes.Internal, "no"):                  true,
		status.Error(codes.NotFound, "no"):                  true,
		status.Error(codes.OutOfRange, "no"):                true,
		status.Error(codes.Unimplemented, ""):               true,
		status.Error(codes.DeadlineExceeded, ""):            false,
		status.Error(codes.ResourceExhausted, "later"):      false,
		status.Error(codes.InvalidArgument, "no attribute"): true,
	} {
		if got := isFinal(err); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}

// A mounted volume without a readable record stays in use, also after a restart,
// and keeps no other pod from its volumes.
func TestDamagedRecord(t *testing.T) {
	b := newBench(t, csiDriver())
	v := b.volumes(b.files)
	path, err := v.SetUp(t.Context(), pod(podUID), persistent())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.files.Replace(filepath.Dir(path)+"/vol_data.json", []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	next := b.volumes(b.files)
	before := []v1.UniqueVolumeName{csivolume.UniqueName("gone.test", "vol-0")}
	b.mu.Lock()
	node := b.node.DeepCopy()
	node.Status.VolumesInUse = before
	b.node = nil
	b.mu.Unlock()
	if in := next.InUse(); len(in) > 0 {
		t.Errorf("in use before the node is known: %q", in)
	}
	b.mu.Lock()
	b.node = node
	b.mu.Unlock()
	for range 2 {
		if in := next.InUse(); !slices.Equal(in, before) {
			t.Errorf("in use: %q, want %q", in, before)
		}
	}
	second := func(pv *v1.PersistentVolume) { pv.Name, pv.Spec.CSI.VolumeHandle = "pv2", "vol-2" }
	if _, err := next.SetUp(t.Context(), pod(otherUID), persistent(second)); err != nil {
		t.Errorf("another volume of another pod: %v", err)
	}
	once := func(pv *v1.PersistentVolume) {
		pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	}
	if _, err := next.SetUp(t.Context(), pod(otherUID), persistent(once)); !errors.Is(err, errNoRecord) {
		t.Errorf("a volume for one pod: %v", err)
	}
	if err := b.files.Remove(root + "/pods/" + string(podUID) + "/plugins/kubernetes.io~csi/pv1/ready"); err != nil {
		t.Fatal(err)
	}
	if _, err := next.SetUp(t.Context(), pod(podUID), persistent()); !errors.Is(err, errNoRecord) {
		t.Errorf("the pod's own volume: %v", err)
	}
}

func TestMountedVolumeOutlivesItsDriver(t *testing.T) {
	b := newBench(t, csiDriver())
	v := b.volumes(b.files)
	path, err := v.SetUp(t.Context(), pod(podUID), persistent())
	if err != nil {
		t.Fatal(err)
	}
	v.Drivers().Deregister(t.Context(), b.plugin())
	if again, err := v.SetUp(t.Context(), pod(podUID), persistent()); err != nil || again != path {
		t.Errorf("path %q: %v", again, err)
	}
	if err := v.TearDown(t.Context(), podUID); err == nil || !strings.Contains(err.Error(), "driver name "+driverName+" not found in the list of registered CSI drivers") {
		t.Errorf("the end of the pod without the driver: %v", err)
	}
	if v.Mounted(podUID, "pv1") != path {
		t.Error("the volume is no longer mounted")
	}
	// After a reboot nothing is mounted, even if the records on the disk say so.
	if err := b.files.Unmount(path); err != nil {
		t.Fatal(err)
	}
	if v.Mounted(podUID, "pv1") != "" {
		t.Error("a volume counts as mounted that is not")
	}
}
