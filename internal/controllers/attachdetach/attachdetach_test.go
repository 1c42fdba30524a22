package attachdetach

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/csivolume"
)

const inUse = v1.UniqueVolumeName("kubernetes.io/csi/d.test^h")

func node(name string, ready v1.ConditionStatus) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{csivolume.ControllerManagedAttachAnnotation: "true"}},
		Status:     v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: ready}}},
	}
}

func pod(name, node string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1.PodSpec{NodeName: node}}
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
	return p
}

// bound is a claim and its volume with an access mode.
func bound(mode v1.PersistentVolumeAccessMode) []runtime.Object {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv1"}}
	pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{mode}
	pv.Spec.ClaimRef = &v1.ObjectReference{UID: "claim"}
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "d.test", VolumeHandle: "h"}
	return []runtime.Object{pv, &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "claim"}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv1"},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}}
}

// bench is a controller in a bubble of virtual time.
type bench struct {
	*testing.T
	*controllertest.Cluster
	metrics *prometheus.Registry
}

func run(t *testing.T, objects []runtime.Object, f func(b *bench), flags ...string) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t, controllertest.New(t, objects...), prometheus.NewRegistry()}
		b.Env.Metrics = b.metrics
		b.Cluster.Run(Descriptor(), flags...)
		synctest.Wait()
		f(b)
	})
}

// after waits, and lets everything settle.
func (b *bench) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// attached returns the nodes of the VolumeAttachments, and what the status of
// each node shows.
func (b *bench) attached() string {
	b.Helper()
	b.after(time.Second)
	list, err := b.Fake.StorageV1().VolumeAttachments().List(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	var out []string
	for _, a := range list.Items {
		out = append(out, "attachment "+a.Spec.NodeName)
	}
	nodes, err := b.Fake.CoreV1().Nodes().List(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range nodes.Items {
		for _, a := range n.Status.VolumesAttached {
			out = append(out, fmt.Sprint("shown ", n.Name, " ", a.Name))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (b *bench) want(what, want string) {
	b.Helper()
	if got := b.attached(); got != want {
		b.Errorf("%s: %q, want %q", what, got, want)
	}
}

// answer writes the status of the attachments, as the external attacher does.
func (b *bench) answer(change func(s *storagev1.VolumeAttachmentStatus)) {
	b.Helper()
	list, err := b.Fake.StorageV1().VolumeAttachments().List(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for i := range list.Items {
		change(&list.Items[i].Status)
		if _, err := b.Fake.StorageV1().VolumeAttachments().UpdateStatus(b.Context(), &list.Items[i], metav1.UpdateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func succeed(s *storagev1.VolumeAttachmentStatus) { s.Attached, s.AttachError = true, nil }

// change changes a node as its kubelet or an administrator does.
func (b *bench) change(name string, how func(n *v1.Node)) {
	b.Helper()
	nodes := v1.SchemeGroupVersion.WithResource("nodes")
	o, err := b.Fake.Tracker().Get(nodes, "", name) // also within a reactor
	if err != nil {
		b.Fatal(err)
	}
	n := o.DeepCopyObject().(*v1.Node)
	how(n)
	if err := b.Fake.Tracker().Update(nodes, n, ""); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) deletePod(name string) {
	b.Helper()
	if err := b.Fake.CoreV1().Pods("default").Delete(b.Context(), name, metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) createPod(p *v1.Pod) {
	b.Helper()
	if _, err := b.Fake.CoreV1().Pods("default").Create(b.Context(), p, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

const shown = "attachment a, shown a kubernetes.io/csi/d.test^h"

func TestVolumeIsAttachedWhileItIsNeededOrInUse(t *testing.T) {
	run(t, append(bound(v1.ReadWriteOnce), node("a", v1.ConditionTrue), pod("p", "a")), func(b *bench) {
		b.want("before the attacher", "attachment a")
		b.answer(func(s *storagev1.VolumeAttachmentStatus) {
			s.AttachError = &storagev1.VolumeError{Time: metav1.Now(), Message: "no room"}
		})
		b.after(time.Second)
		if events := b.DrainEvents(); !slices.Equal(events, []string{`Warning FailedAttachVolume AttachVolume.Attach failed for volume "pv1" : no room`}) {
			b.Errorf("events: %q", events)
		}
		b.answer(succeed)
		b.want("attached", shown)
		if events := b.DrainEvents(); !slices.Equal(events, []string{`Normal SuccessfulAttachVolume AttachVolume.Attach succeeded for volume "pv1" `}) {
			b.Errorf("events: %q", events)
		}
		b.change("a", func(n *v1.Node) { n.Status.VolumesInUse = []v1.UniqueVolumeName{inUse} })
		b.deletePod("p")
		b.after(time.Hour)
		b.want("in use on a healthy node", shown)
		b.change("a", func(n *v1.Node) { n.Status.VolumesInUse = nil })
		b.want("unmounted", "")
	})
}

func TestVolumeForOneNodeWaitsForTheOther(t *testing.T) {
	run(t, append(bound(v1.ReadWriteOnce), node("a", v1.ConditionTrue), node("b", v1.ConditionTrue), pod("p", "a")), func(b *bench) {
		b.answer(succeed)
		b.want("attached", shown)
		b.DrainEvents()
		b.createPod(pod("q", "b"))
		b.want("two pods", shown)
		if events := b.DrainEvents(); !slices.Equal(events, []string{`Warning FailedAttachVolume Waiting for detach for volume "pv1" Volume is already used by pod(s) p`}) {
			b.Errorf("events: %q", events)
		}
		b.deletePod("p")
		b.want("the first is gone", "attachment b")
	})
	run(t, append(bound(v1.ReadWriteMany), node("a", v1.ConditionTrue), node("b", v1.ConditionTrue), pod("p", "a"), pod("q", "b")), func(b *bench) {
		b.want("for many nodes", "attachment a, attachment b")
	})
}

// The attachments are read from the API server as long as the cache may lack one, and not
// for each volume.
func TestAttachmentsAreReadOnce(t *testing.T) {
	objects := []runtime.Object{node("a", v1.ConditionTrue)}
	for i := range 30 {
		both := bound(v1.ReadWriteOnce)
		pv, claim := both[0].(*v1.PersistentVolume), both[1].(*v1.PersistentVolumeClaim)
		pv.Name, pv.Spec.ClaimRef.UID, pv.Spec.CSI.VolumeHandle = fmt.Sprint("pv", i), types.UID(fmt.Sprint("claim", i)), fmt.Sprint("h", i)
		claim.Name, claim.UID, claim.Spec.VolumeName = fmt.Sprint("c", i), pv.Spec.ClaimRef.UID, pv.Name
		objects = append(objects, both...)
	}
	run(t, objects, func(b *bench) {
		for i := range 30 {
			p := pod(fmt.Sprint("p", i), "a")
			p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = fmt.Sprint("c", i)
			b.createPod(p)
			if b.after(time.Second); i == 0 {
				b.after(2 * doubtful) // requests of a controller before this one end
			}
		}
		lists := 0
		for _, action := range b.Fake.Actions() {
			if action.Matches("list", "volumeattachments") {
				lists++
			}
		}
		if lists > 5 { // that of the informer among them
			b.Errorf("the attachments were read %d times for 30 volumes", lists)
		}
		if got := strings.Count(b.attached(), "attachment a"); got != 30 {
			b.Errorf("%d volumes are attached", got)
		}
	})
}

// While the cache does not show an attachment, or the outcome of a request is not known, the
// API server is asked.
func TestAttachmentsThatTheCacheLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t)
		api := c.Fake.StorageV1().VolumeAttachments()
		a := &attachments{api: api, cache: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})}
		count := func(want int) {
			t.Helper()
			all, err := a.all(t.Context())
			if err != nil || len(all) != want {
				t.Errorf("%d attachments, %v; want %d", len(all), err, want)
			}
		}
		show := func(name string) {
			t.Helper()
			one, err := api.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.cache.Add(one); err != nil {
				t.Fatal(err)
			}
		}
		create := func(name string) {
			t.Helper()
			if err := a.create(t.Context(), &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
				t.Fatal(err)
			}
		}
		asked := func(want bool) {
			t.Helper()
			if n := len(c.Fake.Actions()); (n > 0) != want {
				t.Errorf("the API server is asked %d times", n)
			}
			c.Fake.ClearActions()
		}
		create("of-another-controller")
		count(1)
		show("of-another-controller")
		c.Fake.ClearActions()
		count(1)
		asked(true) // a request of that controller may still be carried out
		time.Sleep(2 * doubtful)
		count(1)
		asked(true)
		count(1)
		asked(false)
		create("own")
		c.Fake.ClearActions()
		count(2) // the cache does not show it
		asked(true)
		show("own")
		c.Fake.ClearActions()
		count(2)
		asked(false)
		c.Fake.PrependReactor("create", "volumeattachments", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("the answer was lost")
		})
		if err := a.create(t.Context(), &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "lost"}}); err == nil {
			t.Error("the answer was not lost")
		}
		if err := c.Fake.Tracker().Add(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "lost"}}); err != nil {
			t.Fatal(err)
		}
		count(3)
		time.Sleep(2 * doubtful)
		count(3) // also if the cache still lacks it
	})
}

// Two persistent volumes with one handle are one volume.
func TestVolumeWithTwoPersistentVolumes(t *testing.T) {
	objects := append(bound(v1.ReadWriteOnce), node("a", v1.ConditionTrue), node("b", v1.ConditionTrue), pod("p", "a"))
	second := bound(v1.ReadWriteOnce)
	pv, claim := second[0].(*v1.PersistentVolume), second[1].(*v1.PersistentVolumeClaim)
	pv.Name, pv.Spec.ClaimRef.UID = "pv2", "claim2"
	claim.Name, claim.UID, claim.Spec.VolumeName = "c2", "claim2", "pv2"
	run(t, append(objects, second...), func(b *bench) {
		b.answer(succeed)
		b.want("attached", shown)
		b.DrainEvents()
		q := pod("q", "b")
		q.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "c2"
		b.createPod(q)
		b.want("two pods", shown)
		if events := b.DrainEvents(); !slices.Equal(events, []string{`Warning FailedAttachVolume Waiting for detach for volume "pv2" Volume is already used by pod(s) p`}) {
			b.Errorf("events: %q", events)
		}
		b.deletePod("p")
		b.want("the first is gone", "attachment b")
	})
}

// A persistent volume that is created again with the name of a deleted one and
// another handle is another volume.
func TestPersistentVolumeWithTheNameOfAnother(t *testing.T) {
	recreate := func(b *bench) {
		b.Helper()
		pv := bound(v1.ReadWriteOnce)[0].(*v1.PersistentVolume)
		pv.Spec.CSI.VolumeHandle = "h2"
		if err := b.Fake.Tracker().Update(v1.SchemeGroupVersion.WithResource("persistentvolumes"), pv, ""); err != nil {
			b.Fatal(err)
		}
		b.after(time.Second)
	}
	objects := append(bound(v1.ReadWriteOnce), node("a", v1.ConditionTrue), node("b", v1.ConditionTrue), pod("p", "a"))
	run(t, objects, func(b *bench) {
		b.answer(succeed)
		b.want("attached", shown)
		b.change("a", func(n *v1.Node) { n.Status.VolumesInUse = []v1.UniqueVolumeName{inUse} })
		b.deletePod("p")
		recreate(b)
		b.DrainEvents()
		b.createPod(pod("q", "b"))
		b.want("the former volume is in use on another node", "attachment a, attachment b, shown a kubernetes.io/csi/d.test^h")
		if events := b.DrainEvents(); len(events) > 0 {
			b.Errorf("events: %q", events)
		}
		b.change("a", func(n *v1.Node) { n.Status.VolumesInUse = nil })
		b.want("the former volume is unmounted", "attachment b")
	})
	run(t, objects, func(b *bench) {
		b.want("before the attacher", "attachment a")
		b.deletePod("p")
		recreate(b)
		b.createPod(pod("q", "a"))
		b.want("the new volume is needed", "attachment a")
		b.answer(succeed)
		b.want("the former volume was never attached", "attachment a, shown a kubernetes.io/csi/d.test^h2")
	})
}

// TestEphemeralVolumeOfAnotherPod checks that a volume is not attached for a pod
// whose ephemeral volume has the name of a claim that was made for another.
func TestEphemeralVolumeOfAnotherPod(t *testing.T) {
	controls := true
	objects := bound(v1.ReadWriteOnce)
	claim := objects[1].(*v1.PersistentVolumeClaim)
	claim.Name, claim.OwnerReferences = "p-v", []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "owner", Controller: &controls}}
	other := pod("p", "a")
	other.UID, other.Spec.Volumes[0].VolumeSource = "other", v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}
	run(t, append(objects, node("a", v1.ConditionTrue), other), func(b *bench) { b.want("a pod that does not own the claim", "") })
	owner := other.DeepCopy()
	owner.UID = "owner"
	run(t, append(objects, node("a", v1.ConditionTrue), owner), func(b *bench) { b.want("the owner", "attachment a") })
}

func TestForce(t *testing.T) {
	taint := func(n *v1.Node) {
		n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: v1.TaintEffectNoExecute}}
	}
	for name, c := range map[string]struct {
		ready  v1.ConditionStatus
		flags  []string
		change func(b *bench)
		stays  time.Duration // at least
		goes   bool
	}{
		"unhealthy":           {ready: v1.ConditionUnknown, stays: 5 * time.Minute, goes: true},
		"healthy":             {ready: v1.ConditionTrue, stays: time.Hour},
		"never by force":      {ready: v1.ConditionFalse, flags: []string{"--disable-force-detach-on-timeout"}, stays: time.Hour},
		"without periodic":    {ready: v1.ConditionFalse, flags: []string{"--disable-attach-detach-reconcile-sync"}, stays: 5 * time.Minute, goes: true},
		"out of service":      {ready: v1.ConditionUnknown, change: func(b *bench) { b.change("a", taint) }, goes: true},
		"deleted with volume": {ready: v1.ConditionUnknown, change: func(b *bench) { deleteNode(b) }, stays: 5 * time.Minute, goes: true},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, append(bound(v1.ReadWriteOnce), node("a", c.ready), pod("p", "a")), func(b *bench) {
				b.answer(succeed)
				b.after(time.Second)
				b.change("a", func(n *v1.Node) { n.Status.VolumesInUse = []v1.UniqueVolumeName{inUse} })
				b.deletePod("p")
				if c.change != nil {
					synctest.Wait() // the fake's patches overwrite concurrent changes
					c.change(b)
				}
				b.after(c.stays)
				if got := b.attached(); c.stays > 0 && !strings.HasPrefix(got, "attachment a") {
					b.Errorf("after %v: %q", c.stays, got)
				}
				b.after(2 * time.Minute)
				if got := b.attached(); (got == "") != c.goes {
					b.Errorf("at the end: %q", got)
				}
				if n, err := testutil.GatherAndCount(b.metrics, "attach_detach_controller_attachdetach_controller_forced_detaches"); err != nil || (n == 1) != c.goes {
					b.Errorf("%d reasons of forced detaches, %v", n, err)
				}
			}, c.flags...)
		})
	}
}

// Volumes are counted for each node that needs them or has them, and for each pod.
func TestVolumesAreCounted(t *testing.T) {
	run(t, append(bound(v1.ReadWriteMany), node("a", v1.ConditionTrue), node("b", v1.ConditionTrue), pod("p", "a"), pod("q", "b"), pod("r", "b")), func(b *bench) {
		b.after(time.Second)
		const total = "# HELP attachdetach_controller_total_volumes [ALPHA] Number of volumes in A/D Controller\n# TYPE attachdetach_controller_total_volumes gauge\n"
		const needed = `attachdetach_controller_total_volumes{plugin_name="kubernetes.io/csi:d.test",state="desired_state_of_world"} 2` + "\n"
		if err := testutil.GatherAndCompare(b.metrics, strings.NewReader(total+needed), "attachdetach_controller_total_volumes"); err != nil {
			b.Error(err)
		}
		b.answer(succeed)
		b.after(time.Second)
		const has = `attachdetach_controller_total_volumes{plugin_name="kubernetes.io/csi:d.test",state="actual_state_of_world"} 2` + "\n"
		if err := testutil.GatherAndCompare(b.metrics, strings.NewReader(total+has+needed), "attachdetach_controller_total_volumes"); err != nil {
			b.Error(err)
		}
		const used = "# HELP storage_count_attachable_volumes_in_use [ALPHA] Measure number of volumes in use\n# TYPE storage_count_attachable_volumes_in_use gauge\n" +
			`storage_count_attachable_volumes_in_use{node="a",volume_plugin="kubernetes.io/csi:d.test"} 1` + "\n" +
			`storage_count_attachable_volumes_in_use{node="b",volume_plugin="kubernetes.io/csi:d.test"} 2` + "\n"
		if err := testutil.GatherAndCompare(b.metrics, strings.NewReader(used), "storage_count_attachable_volumes_in_use"); err != nil {
			b.Error(err)
		}
	})
}

func deleteNode(b *bench) {
	b.Helper()
	if err := b.Fake.CoreV1().Nodes().Delete(b.Context(), "a", metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
}

// A node that was deleted after it had unmounted everything holds nothing.
func TestDeletedNodeWithoutVolumesInUse(t *testing.T) {
	run(t, append(bound(v1.ReadWriteOnce), node("a", v1.ConditionTrue), pod("p", "a")), func(b *bench) {
		b.answer(succeed)
		b.after(time.Second)
		deleteNode(b)
		b.deletePod("p")
		b.want("the node is gone", "")
	})
}

// The kubelet says that it uses the volume while the controller detaches it.
func TestVolumeThatIsMountedMeanwhileStays(t *testing.T) {
	run(t, append(bound(v1.ReadWriteOnce), node("a", v1.ConditionTrue), pod("p", "a")), func(b *bench) {
		b.answer(succeed)
		b.want("attached", shown)
		before := true
		b.Fake.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if before {
				before = false
				b.change("a", func(n *v1.Node) { n.Status.VolumesInUse = []v1.UniqueVolumeName{inUse} })
			}
			return false, nil, nil
		})
		b.deletePod("p")
		b.want("mounted meanwhile", shown)
		if before {
			b.Error("the status of the node was not written before the volume is detached")
		}
		b.change("a", func(n *v1.Node) { n.Status.VolumesInUse = nil })
		b.want("unmounted", "")
	})
}

// A volume is not detached before the status of its node no longer shows it, and no
// other node gets it before it is detached.
func TestVolumeStaysWhileRequestsFail(t *testing.T) {
	for verb, resource := range map[string]string{"patch": "nodes", "delete": "volumeattachments"} {
		t.Run(verb+" "+resource, func(t *testing.T) {
			run(t, append(bound(v1.ReadWriteOnce), node("a", v1.ConditionTrue), node("b", v1.ConditionTrue), pod("p", "a")), func(b *bench) {
				b.answer(succeed)
				b.want("attached", shown)
				fails := true
				b.Fake.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
					return fails, nil, apierrors.NewInternalError(errors.New("out of order"))
				})
				b.deletePod("p")
				b.createPod(pod("q", "b"))
				b.after(time.Hour)
				if got := b.attached(); !strings.HasPrefix(got, "attachment a") || strings.Contains(got, "attachment b") {
					b.Errorf("while requests fail: %q", got)
				}
				fails = false
				b.after(2 * time.Minute)
				b.want("repaired", "attachment b")
			})
		})
	}
}

// The node is healthy again when its volume is to be detached by force.
func TestForceStopsOnceTheNodeIsHealthy(t *testing.T) {
	heal := func(n *v1.Node) { n.Status.Conditions[0].Status = v1.ConditionTrue }
	objects := append(bound(v1.ReadWriteOnce), node("a", v1.ConditionUnknown), pod("p", "a"))
	run(t, objects, func(b *bench) {
		b.answer(succeed)
		b.after(time.Second)
		b.change("a", func(n *v1.Node) { n.Status.VolumesInUse = []v1.UniqueVolumeName{inUse} })
		b.after(time.Second)
		before := true
		b.Fake.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if before {
				before = false
				b.change("a", heal)
			}
			return false, nil, nil
		})
		b.deletePod("p")
		b.after(time.Hour)
		b.want("healthy meanwhile", shown)
		if before {
			b.Error("the status of the node was not written before the volume is detached")
		}
	})
	run(t, objects, func(b *bench) {
		b.answer(succeed)
		b.after(time.Second)
		b.change("a", func(n *v1.Node) { n.Status.VolumesInUse = []v1.UniqueVolumeName{inUse} })
		b.after(time.Second)
		back := node("a", v1.ConditionTrue)
		back.Status.VolumesInUse = []v1.UniqueVolumeName{inUse}
		b.Fake.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, back, nil })
		b.deletePod("p")
		deleteNode(b)
		b.after(time.Hour)
		b.want("created again", "attachment a")
	})
}

func TestWhatIsNotAttached(t *testing.T) {
	no, name := false, "pv1"
	objects := append(bound(v1.ReadWriteOnce), node("a", v1.ConditionTrue), pod("p", "a"),
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d.test"}, Spec: storagev1.CSIDriverSpec{AttachRequired: &no}},
		&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "another's"}, Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "d.test", NodeName: "other", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name},
		}})
	run(t, objects, func(b *bench) { b.want("a driver that attaches nothing", "attachment other") })
	unmanaged := node("a", v1.ConditionTrue)
	unmanaged.Annotations = nil
	run(t, append(bound(v1.ReadWriteOnce), unmanaged, pod("p", "a")), func(b *bench) { b.want("a node without the annotation", "") })
	run(t, append(bound(v1.ReadWriteOnce), node("a", v1.ConditionTrue), pod("p", "a")), func(b *bench) {
		b.answer(succeed)
		b.want("attached", shown)
		b.change("a", func(n *v1.Node) { n.Annotations = nil })
		b.want("no longer managed", shown)
		b.deletePod("p")
		b.want("no longer managed or needed", shown)
		b.change("a", func(n *v1.Node) {
			n.Annotations = map[string]string{csivolume.ControllerManagedAttachAnnotation: "true"}
		})
		b.want("managed again", "")
	})
	finished := pod("p", "a")
	finished.Status.Phase = v1.PodSucceeded
	run(t, append(bound(v1.ReadWriteOnce), node("a", v1.ConditionTrue), finished), func(b *bench) { b.want("a finished pod", "") })
}

// A driver whose volumes need no longer be attached keeps no attachments.
func TestDriverThatNeedsNoAttachmentsAnyMore(t *testing.T) {
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d.test"}, Spec: storagev1.CSIDriverSpec{AttachRequired: new(true)}}
	run(t, append(bound(v1.ReadWriteOnce), node("a", v1.ConditionTrue), pod("p", "a"), driver), func(b *bench) {
		b.after(time.Second)
		b.answer(succeed)
		b.want("required", "attachment a, shown a kubernetes.io/csi/d.test^h")
		next := driver.DeepCopy()
		next.ResourceVersion = ""
		next.Spec.AttachRequired = new(false)
		if err := b.Fake.Tracker().Update(storagev1.SchemeGroupVersion.WithResource("csidrivers"), next, ""); err != nil {
			b.Fatal(err)
		}
		b.want("not required any more", "")
	})
}
