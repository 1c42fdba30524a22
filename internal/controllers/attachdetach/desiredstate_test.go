package attachdetach

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// A pod that is being deleted needs its volumes as long as any of its containers runs.
func TestPodThatEnds(t *testing.T) {
	running := []v1.ContainerStatus{{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
	waiting := []v1.ContainerStatus{{State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}}}
	ended := []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}}
	for name, test := range map[string]struct {
		status v1.PodStatus
		needs  bool
	}{
		"a container runs":      {v1.PodStatus{ContainerStatuses: running}, true},
		"one of two runs":       {v1.PodStatus{ContainerStatuses: slices.Concat(ended, running)}, true},
		"a sidecar runs":        {v1.PodStatus{InitContainerStatuses: running, ContainerStatuses: ended}, true},
		"a debugger runs":       {v1.PodStatus{ContainerStatuses: ended, EphemeralContainerStatuses: running}, true},
		"all have ended":        {v1.PodStatus{InitContainerStatuses: ended, ContainerStatuses: ended}, false},
		"one never began":       {v1.PodStatus{ContainerStatuses: slices.Concat(ended, waiting)}, false},
		"there is no status":    {v1.PodStatus{}, false},
		"it has failed already": {v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: running}, false},
	} {
		t.Run(name, func(t *testing.T) {
			ends := pod("p", "a")
			ends.DeletionTimestamp, ends.Status = new(metav1.Now()), test.status
			run(t, append(bound(v1.ReadWriteOnce), node("a", v1.ConditionTrue), ends), func(b *bench) {
				want := ""
				if test.needs {
					want = "attachment a"
				}
				b.want("the attachments", want)
			})
		})
	}
}

// A volume of several pods of a node is attached once, until the last of them is gone.
func TestVolumeOfSeveralPods(t *testing.T) {
	twice := pod("p", "a")
	again := twice.Spec.Volumes[0]
	again.Name = "again"
	twice.Spec.Volumes = append(twice.Spec.Volumes, again)
	run(t, append(bound(v1.ReadWriteOnce), node("a", v1.ConditionTrue), twice, pod("q", "a")), func(b *bench) {
		b.answer(succeed)
		b.want("attached", shown)
		if events := b.DrainEvents(); len(events) != 2 {
			b.Errorf("two pods have the events %q", events)
		}
		b.deletePod("p")
		b.want("one pod is left", shown)
		b.deletePod("q")
		b.want("no pod is left", "")
	})
}

// A pod that waits for a volume learns which pods of its namespace have it, and only how
// many of others.
func TestWhoHasTheVolume(t *testing.T) {
	foreign := pod("secret", "a")
	foreign.Namespace = "other"
	for name, test := range map[string]struct {
		users []runtime.Object
		gone  bool // the user p, before the node has unmounted the volume
		want  string
	}{
		"of the namespace": {[]runtime.Object{pod("p", "a"), pod("q", "a")}, false, "Volume is already used by pod(s) p, q"},
		"of another":       {[]runtime.Object{foreign}, false, "Volume is already used by 1 pod(s) in different namespaces"},
		"of both":          {[]runtime.Object{pod("p", "a"), foreign}, false, "Volume is already used by pod(s) p and 1 pod(s) in different namespaces"},
		"nobody any more":  {[]runtime.Object{pod("p", "a")}, true, "Volume is already exclusively attached to one node, waiting on detach before it can be attached to another node"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append(bound(v1.ReadWriteOnce), node("a", v1.ConditionTrue), node("b", v1.ConditionTrue))
			second := bound(v1.ReadWriteOnce) // the same volume, for the other namespace
			pv, claim := second[0].(*v1.PersistentVolume), second[1].(*v1.PersistentVolumeClaim)
			pv.Name, pv.Spec.ClaimRef.UID = "pv2", "claim2"
			claim.Namespace, claim.UID, claim.Spec.VolumeName = "other", "claim2", "pv2"
			run(t, slices.Concat(objects, second, test.users), func(b *bench) {
				b.answer(succeed)
				b.want("attached", shown)
				if test.gone {
					b.change("a", func(n *v1.Node) { n.Status.VolumesInUse = []v1.UniqueVolumeName{inUse} })
					b.deletePod("p")
					b.after(time.Second)
				}
				b.DrainEvents()
				b.createPod(pod("waits", "b"))
				b.want("while another node has it", shown)
				want := `Warning FailedAttachVolume Waiting for detach for volume "pv1" ` + test.want
				if events := b.DrainEvents(); len(events) != 1 || events[0] != want {
					b.Errorf("events %q, want %q", events, want)
				}
			})
		})
	}
}

// A volume whose attachment has failed may be attached all the same. Another node waits
// until the attachment is gone.
func TestVolumeThatMayBeAttached(t *testing.T) {
	run(t, append(bound(v1.ReadWriteOnce), node("a", v1.ConditionTrue), node("b", v1.ConditionTrue), pod("p", "a")), func(b *bench) {
		b.answer(func(s *storagev1.VolumeAttachmentStatus) {
			s.AttachError = &storagev1.VolumeError{Time: metav1.Now(), Message: "timed out"}
		})
		b.after(time.Second)
		b.DrainEvents()
		b.createPod(pod("q", "b"))
		b.want("it may be attached", "attachment a")
		if events := b.DrainEvents(); len(events) != 1 || events[0] != `Warning FailedAttachVolume Waiting for detach for volume "pv1" Volume is already used by pod(s) p` {
			b.Errorf("events: %q", events)
		}
		b.deletePod("p")
		b.want("the first pod is gone", "attachment b")
	})
}

// The time after which a volume is detached by force begins anew if a pod has needed the
// volume again.
func TestForceBeginsAnew(t *testing.T) {
	run(t, append(bound(v1.ReadWriteOnce), node("a", v1.ConditionUnknown), pod("p", "a")), func(b *bench) {
		b.answer(succeed)
		b.after(time.Second)
		b.change("a", func(n *v1.Node) { n.Status.VolumesInUse = []v1.UniqueVolumeName{inUse} })
		b.after(time.Second)
		b.deletePod("p")
		b.after(4 * time.Minute)
		b.createPod(pod("q", "a"))
		b.after(time.Minute)
		b.deletePod("q")
		b.after(4 * time.Minute)
		b.want("four minutes after the second pod", shown)
		b.after(3 * time.Minute)
		b.want("seven minutes after it", "")
	})
}

// A node is no longer out of service when its volume is to be detached for that.
func TestForceStopsOnceTheNodeIsBackInService(t *testing.T) {
	run(t, append(bound(v1.ReadWriteOnce), node("a", v1.ConditionUnknown), pod("p", "a")), func(b *bench) {
		b.answer(succeed)
		b.after(time.Second)
		b.change("a", func(n *v1.Node) {
			n.Status.VolumesInUse = []v1.UniqueVolumeName{inUse}
			n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeOutOfService, Effect: v1.TaintEffectNoExecute}}
		})
		b.after(time.Second)
		before := true
		b.Fake.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if before {
				before = false
				b.change("a", func(n *v1.Node) { n.Spec.Taints = nil })
			}
			return false, nil, nil
		})
		b.deletePod("p")
		b.after(5 * time.Minute)
		b.want("in service meanwhile", shown)
		if before {
			b.Error("the status of the node was not written before the volume is detached")
		}
		b.after(2 * time.Minute)
		b.want("not ready for seven minutes", "")
	})
}
