package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/coracle-io/coracle/internal/kubelet/csi"
	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// oneVolume is a persistent volume, and the claim that has it.
type oneVolume struct{ pv *v1.PersistentVolume }

func (o oneVolume) Claim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: "claim"},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: o.pv.Name}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}, nil
}

func (o oneVolume) PersistentVolume(context.Context, string) (*v1.PersistentVolume, error) {
	return o.pv, nil
}

func claimVolume(readOnly bool) v1.Volume {
	return v1.Volume{Name: "d", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c", ReadOnly: readOnly},
	}}
}

// A pod that was put on a node by its nodeName does not get the volume of another node,
// although there is a directory of the same path.
func TestVolumesOfOtherNodes(t *testing.T) {
	on := func(host string) *v1.VolumeNodeAffinity {
		return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{host}}},
		}}}}
	}
	alpha := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "alpha", Labels: map[string]string{v1.LabelHostname: "alpha"}}}
	for name, test := range map[string]struct {
		affinity *v1.VolumeNodeAffinity
		mode     v1.PersistentVolumeMode
		node     *v1.Node
		want     string
	}{
		"of this node":     {on("alpha"), v1.PersistentVolumeFilesystem, alpha, ""},
		"of any node":      {nil, v1.PersistentVolumeFilesystem, alpha, ""},
		"of another":       {on("beta"), v1.PersistentVolumeFilesystem, alpha, `MountVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms`},
		"device of other":  {on("beta"), v1.PersistentVolumeBlock, alpha, `MapVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms`},
		"node not known":   {on("alpha"), v1.PersistentVolumeFilesystem, nil, `MountVolume.NodeAffinity check failed for volume "pv" : the labels of the node are not known yet`},
		"nothing to check": {nil, v1.PersistentVolumeFilesystem, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			disk := &files.Memory{}
			if err := disk.MkdirAll("/mnt/disk", 0o755); err != nil {
				t.Fatal(err)
			}
			pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
			pv.Spec.ClaimRef, pv.Spec.Local = &v1.ObjectReference{UID: "claim"}, &v1.LocalVolumeSource{Path: "/mnt/disk"}
			pv.Spec.NodeAffinity, pv.Spec.VolumeMode = test.affinity, &test.mode
			v := &Manager{Root: "/k", FS: disk, Mounter: disk, Claims: oneVolume{pv}, Node: func() *v1.Node { return test.node }}
			pod := podWith(nil, claimVolume(false))
			got := ""
			if _, _, err := v.SetUp(t.Context(), pod, Facts{}); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			pv.Spec.NodeAffinity = on("beta") // what the pod has it keeps
			if _, _, err := v.SetUp(t.Context(), pod, Facts{}); (err == nil) != (test.want == "") {
				t.Errorf("once the affinity has changed: %v", err)
			}
		})
	}
}

// Mount options have no effect on a directory of the host, which is not mounted. Errors
// name the persistent volume.
func TestMountOptionsOfADirectoryOfTheHost(t *testing.T) {
	const want = `MountVolume.MountOptionSupport check failed for volume "pv" : Mount options are not supported for this volume type`
	for name, test := range map[string]struct {
		change func(pv *v1.PersistentVolume)
		want   string
	}{
		"none":          {func(*v1.PersistentVolume) {}, ""},
		"a type":        {func(pv *v1.PersistentVolume) { pv.Spec.HostPath.Type = new(v1.HostPathSocket) }, `MountVolume.SetUp failed for volume "pv" : hostPath /mnt/disk doesn't exist`},
		"options":       {func(pv *v1.PersistentVolume) { pv.Spec.MountOptions = []string{"ro"} }, want},
		"an annotation": {func(pv *v1.PersistentVolume) { pv.Annotations = map[string]string{v1.MountOptionAnnotation: "ro"} }, want},
	} {
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
		pv.Spec.ClaimRef, pv.Spec.HostPath = &v1.ObjectReference{UID: "claim"}, &v1.HostPathVolumeSource{Path: "/mnt/disk"}
		test.change(pv)
		disk, got := &files.Memory{}, ""
		v := &Manager{Root: "/k", FS: disk, Mounter: disk, Claims: oneVolume{pv}}
		if _, _, err := v.SetUp(t.Context(), podWith(nil, claimVolume(false)), Facts{}); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// A local volume that is for one pod has no second one, until the first is gone.
func TestLocalVolumeForOnePod(t *testing.T) {
	const (
		first  = types.UID("11111111-1111-1111-1111-111111111111")
		second = types.UID("22222222-2222-2222-2222-222222222222")
		refuse = `MountVolume.SetUp failed for volume "pv" : volume uses the ReadWriteOncePod access mode and is already in use by another pod`
	)
	for mode, want := range map[v1.PersistentVolumeAccessMode]string{v1.ReadWriteOncePod: refuse, v1.ReadWriteOnce: ""} {
		disk := &files.Memory{}
		if err := disk.MkdirAll("/mnt/disk", 0o755); err != nil {
			t.Fatal(err)
		}
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
		pv.Spec.ClaimRef, pv.Spec.Local = &v1.ObjectReference{UID: "claim"}, &v1.LocalVolumeSource{Path: "/mnt/disk"}
		pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{mode}
		v := &Manager{Root: "/k", FS: disk, Mounter: disk, Claims: oneVolume{pv}}
		v.CSI = csi.New(csi.Config{Root: v.Root, FS: disk, Mounter: disk})
		setUp := func(uid types.UID) string {
			pod := podWith(nil, claimVolume(false))
			pod.UID = uid
			if _, _, err := v.SetUp(t.Context(), pod, Facts{}); err != nil {
				return err.Error()
			}
			return ""
		}
		for _, step := range []struct {
			pod  types.UID
			want string
		}{{first, ""}, {first, ""}, {second, want}} {
			if got := setUp(step.pod); got != step.want {
				t.Errorf("%s, pod %s: %q, want %q", mode, step.pod, got, step.want)
			}
		}
		if err := v.TearDown(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if got := setUp(second); got != "" {
			t.Errorf("%s, once the first pod is gone: %s", mode, got)
		}
	}
}

// heldDisk is a disk on which giving a volume to a group waits until it is released.
type heldDisk struct {
	files.Memory
	release chan struct{}
}

func (h *heldDisk) Share(string, int, bool, func()) error { <-h.release; return nil }

// Of two pods that are about to get a local volume for one pod, one waits for the other,
// and is refused.
func TestLocalVolumeForOneOfTwoPodsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &heldDisk{release: make(chan struct{})}
		if err := disk.MkdirAll("/mnt/disk", 0o755); err != nil {
			t.Fatal(err)
		}
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
		pv.Spec.ClaimRef, pv.Spec.Local = &v1.ObjectReference{UID: "claim"}, &v1.LocalVolumeSource{Path: "/mnt/disk"}
		pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
		v := &Manager{Root: "/k", FS: disk, Mounter: disk, Claims: oneVolume{pv}}
		begin := func(ctx context.Context, uid types.UID) <-chan error {
			pod := podWith(nil, claimVolume(false))
			pod.UID, pod.Spec.SecurityContext.FSGroup = uid, new(int64(1000))
			done := make(chan error, 1)
			go func() {
				_, _, err := v.SetUp(ctx, pod, Facts{})
				done <- err
			}()
			synctest.Wait()
			return done
		}
		first := begin(t.Context(), "11111111-1111-1111-1111-111111111111")
		second := begin(t.Context(), "22222222-2222-2222-2222-222222222222")
		ctx, cancel := context.WithCancel(t.Context())
		third := begin(ctx, "33333333-3333-3333-3333-333333333333")
		cancel() // the pod is deleted
		if err := <-third; !errors.Is(err, context.Canceled) {
			t.Errorf("a pod that ends while it waits: %v", err)
		}
		close(disk.release)
		if err := <-first; err != nil {
			t.Errorf("the first pod: %v", err)
		}
		if err := <-second; err == nil || !strings.Contains(err.Error(), "already in use by another pod") {
			t.Errorf("the second pod: %v", err)
		}
	})
}

// mountLog is a machine that tells what was mounted.
type mountLog struct {
	files.Memory
	mounts []string
	broken bool // nobody knows what is mounted
}

func (m *mountLog) IsMountPoint(path string) (bool, error) {
	if m.broken {
		return false, errors.New("input/output error")
	}
	return m.Memory.IsMountPoint(path)
}

func (m *mountLog) Mount(source, target, fstype string, options []string) error {
	m.mounts = append(m.mounts, source+" on "+target+" "+strings.Join(options, ","))
	return m.Memory.Mount(source, target, fstype, options)
}

// A local volume with mount options is mounted with them for each pod, also by the next
// kubelet and after a reboot, and its data stays when the pod ends.
func TestMountOptionsOfALocalVolume(t *testing.T) {
	const (
		uid    = types.UID("11111111-1111-1111-1111-111111111111")
		target = "/k/pods/" + string(uid) + "/volumes/kubernetes.io~local-volume/pv"
		bind   = "/mnt/disk on " + target + " bind"
		option = "none on " + target + " bind,remount,ro,noexec"
	)
	disk := &mountLog{}
	if err := errors.Join(disk.MkdirAll("/mnt/disk", 0o755), disk.WriteFile("/mnt/disk/file", []byte("data"), 0o644)); err != nil {
		t.Fatal(err)
	}
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.ClaimRef, pv.Spec.Local = &v1.ObjectReference{UID: "claim"}, &v1.LocalVolumeSource{Path: "/mnt/disk"}
	pv.Spec.MountOptions = []string{"ro,noexec"}
	start := func() *Manager {
		return &Manager{Root: "/k", FS: disk, Mounter: disk, Claims: oneVolume{pv}, CSI: csi.New(csi.Config{Root: "/k", FS: disk, Mounter: disk})}
	}
	pod := podWith(nil, claimVolume(false))
	pod.UID = uid
	for _, step := range []struct {
		name string
		want []string
	}{
		{"first", []string{bind, option}}, {"the next kubelet", []string{option}}, {"after a reboot", []string{bind, option}},
	} {
		if step.name == "after a reboot" {
			if err := disk.Unmount(target); err != nil {
				t.Fatal(err)
			}
		}
		disk.mounts = nil
		v := start()
		paths, _, err := v.SetUp(t.Context(), pod, Facts{})
		if err != nil || paths["d"] != target || !slices.Equal(disk.mounts, step.want) {
			t.Errorf("%s: the volume is at %q (%v), mounted were %q, want %q", step.name, paths["d"], err, disk.mounts, step.want)
		}
		if mounts, err := v.Mounts(pod, &pod.Spec.Containers[0], paths, nil); err != nil || len(mounts) != 1 || !mounts[0].GetReadonly() {
			t.Errorf("%s: the container has %v, %v", step.name, mounts, err)
		}
	}
	disk.mounts, disk.broken = nil, true
	if _, _, err := start().SetUp(t.Context(), pod, Facts{}); err == nil || len(disk.mounts) > 0 {
		t.Errorf("it is not known what is mounted (%v), and mounted were %q", err, disk.mounts)
	}
	disk.broken = false
	if err := start().TearDown(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	if left, err := disk.Below("/k"); err != nil || len(left) > 0 {
		t.Errorf("still mounted: %q, %v", left, err)
	}
	if raw, err := disk.ReadFile("/mnt/disk/file", 10); err != nil || string(raw) != "data" {
		t.Errorf("the data is %q, %v", raw, err)
	}
}

// The same on the machine's own disk and mounts: the container cannot write, and the end
// of the pod leaves no mount and all of the data.
func TestMountOptionsOnTheMachine(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	const uid = types.UID("11111111-1111-1111-1111-111111111111")
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "file"), []byte("data"), 0o644); err != nil {
		t.Fatal(err)
	}
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.ClaimRef, pv.Spec.Local = &v1.ObjectReference{UID: "claim"}, &v1.LocalVolumeSource{Path: data}
	pv.Spec.MountOptions = []string{"ro", "noatime", "discard"}
	v := &Manager{Root: t.TempDir(), FS: files.OS{}, Mounter: files.OS{}, Claims: oneVolume{pv}}
	v.CSI = csi.New(csi.Config{Root: v.Root, FS: v.FS, Mounter: v.Mounter})
	end := func() {
		if err := v.TearDown(context.Background(), uid); err != nil {
			t.Error(err)
		}
	}
	defer end() // also after a failure
	pod := podWith(nil, claimVolume(false))
	pod.UID = uid
	for range 2 {
		paths, outdated, err := v.SetUp(t.Context(), pod, Facts{})
		if err != nil || len(outdated) > 0 {
			t.Fatal(err, outdated)
		}
		if mounts, err := v.Mounter.Below(v.Root); err != nil || !slices.Equal(mounts, []string{paths["d"]}) {
			t.Errorf("mounted are %q (%v), want %s", mounts, err, paths["d"])
		}
		if err := os.WriteFile(filepath.Join(paths["d"], "new"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
			t.Errorf("writing to the volume: %v", err)
		}
	}
	end()
	if mounts, err := v.Mounter.Below(v.Root); err != nil || len(mounts) > 0 {
		t.Errorf("still mounted: %q, %v", mounts, err)
	}
	if raw, err := os.ReadFile(filepath.Join(data, "file")); err != nil || string(raw) != "data" {
		t.Errorf("the data is %q, %v", raw, err)
	}
	if _, err := os.Stat(v.PodDir(uid)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the pod: %v", err)
	}
}

// grouped is a disk with one volume, which belongs to a group.
type grouped struct {
	files.Memory
	gid int
}

func (g *grouped) Share(_ string, gid int, _ bool, _ func()) error { g.gid = gid; return nil }
func (g *grouped) Group(string) (int, error)                       { return g.gid, nil }

// A local volume belongs to the group of the first pod that has it, which another pod
// does not take from it, until no pod has it. A pod that only reads changes nothing.
func TestGroupOfASharedLocalVolume(t *testing.T) {
	const (
		first  = types.UID("11111111-1111-1111-1111-111111111111")
		second = types.UID("22222222-2222-2222-2222-222222222222")
	)
	disk, recorder := &grouped{}, record.NewFakeRecorder(10)
	if err := disk.MkdirAll("/mnt/disk", 0o755); err != nil {
		t.Fatal(err)
	}
	v := &Manager{Root: "/k", FS: disk, Mounter: disk, Claims: &api{path: "/mnt/disk"}, Recorder: recorder}
	v.CSI = csi.New(csi.Config{Root: v.Root, FS: disk, Mounter: disk})
	for _, step := range []struct {
		name     string
		ends     types.UID // before
		pod      types.UID
		group    int64
		readOnly bool
		want     int
		event    string
	}{
		{"the first pod", "", first, 1000, false, 1000, ""},
		{"another with its group", "", second, 1000, false, 1000, ""},
		{"another with another group", second, second, 2000, false, 1000,
			"Warning AlreadyMountedVolume The requested fsGroup is 2000, but the volume pv has GID 1000. The volume may not be shareable."},
		{"the same again", "", second, 2000, false, 1000, ""},
		{"the other is left, and has been set up", first, second, 2000, false, 1000, ""},
		{"one that only reads", second, first, 3000, true, 1000, ""},
		{"one alone", first, second, 2000, false, 2000, ""},
	} {
		if step.ends != "" {
			if err := v.TearDown(t.Context(), step.ends); err != nil {
				t.Fatal(step.name, err)
			}
		}
		pod := podWith(nil, claimVolume(step.readOnly))
		pod.UID, pod.Spec.SecurityContext.FSGroup = step.pod, &step.group
		if _, _, err := v.SetUp(t.Context(), pod, Facts{}); err != nil {
			t.Fatal(step.name, err)
		}
		event := ""
		select {
		case event = <-recorder.Events:
		default:
		}
		if disk.gid != step.want || event != step.event {
			t.Errorf("%s: group %d, event %q; want %d, %q", step.name, disk.gid, event, step.want, step.event)
		}
	}
}
