package volumebinding

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
)

// cycle is a plugin between Filter and PreBind, with informers that see only
// the changes that the test passes on.
type cycle struct {
	*testing.T
	*plugin
	handle *framework.Handle
	api    *fake.Clientset
}

func newCycle(t *testing.T, objects ...runtime.Object) *cycle {
	objects = append(append(classes(t), objects...), nodes(t)[0], nodes(t)[1])
	for _, obj := range objects {
		obj.(metav1.Object).SetResourceVersion("1")
	}
	made, h := plugintest.New(t, Factory(), nil, objects...)
	c := &cycle{T: t, plugin: made.(*plugin), handle: h, api: fake.NewSimpleClientset(objects...)}
	c.plugin.api = c.api
	c.api.PrependReactor("update", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		obj := a.(clienttesting.UpdateAction).GetObject().DeepCopyObject()
		obj.(metav1.Object).SetResourceVersion("2")
		return true, obj, c.api.Tracker().Update(a.GetResource(), obj, a.GetNamespace())
	})
	return c
}

// reserve runs a pod up to Reserve on n1.
func (c *cycle) reserve(name string, claims ...string) (*framework.CycleState, *framework.PodInfo) {
	c.Helper()
	state, info, snapshot := framework.NewCycleState(c.handle), framework.NewPodInfo(pod(name, claims...)), plugintest.Snapshot(nodes(c))
	_, s := c.PreFilter(c.Context(), state, info, snapshot)
	if s.IsSuccess() {
		s = c.Filter(c.Context(), state, info, snapshot.Node("n1"))
	}
	if s.IsSuccess() {
		s = c.Reserve(c.Context(), state, info, "n1")
	}
	if !s.IsSuccess() {
		c.Fatalf("%s: %s", name, s.Message())
	}
	return state, info
}

// see has the informers see a claim and a volume as the test changes them.
func (c *cycle) see(claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume, version string) {
	c.Helper()
	claim.ResourceVersion, pv.ResourceVersion = version, version
	plugintest.Set(c, c.handle.Informers, claim, pv)
}

func (c *cycle) written() (*v1.PersistentVolumeClaim, *v1.PersistentVolume) {
	c.Helper()
	claim, err := c.api.CoreV1().PersistentVolumeClaims("default").Get(c.Context(), "c", metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	pv, err := c.api.CoreV1().PersistentVolumes().Get(c.Context(), "v", metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return claim.DeepCopy(), pv.DeepCopy()
}

// The next pod sees the volumes and claims that are assumed for one pod, until
// they are taken back.
func TestAssumed(t *testing.T) {
	c := newCycle(t, open(t, "c", "local", ""), open(t, "d", "local", ""), open(t, "m", "made", ""), pvOf(t, "v", ""))
	ask := func(node string, claims ...string) string { return show(t, c.plugin, c.handle, node, claims...) }
	first, firstPod := c.reserve("first", "c", "m")
	for _, test := range []struct{ node, claim, want string }{
		{"n1", "c", "c=v"}, {"n1", "d", bindConflict}, {"n1", "m", "m+"}, {"n2", "m", bindConflict},
	} {
		if got := ask(test.node, test.claim); got != test.want {
			t.Errorf("%s on %s: %q, want %q", test.claim, test.node, got, test.want)
		}
	}
	c.Unreserve(t.Context(), first, firstPod, "n1")
	c.Unreserve(t.Context(), first, firstPod, "n1")
	if got := ask("n1", "d"); got != "d=v" {
		t.Errorf("after it was taken back: %q", got)
	}
	if got := ask("n2", "m"); got != "m+" {
		t.Errorf("after it was taken back: %q", got)
	}
	c.reserve("again", "c")
	taken := pvOf(t, "v", "claimRef: {namespace: default, name: d, uid: d}")
	taken.ResourceVersion = "2"
	plugintest.Set(t, c.handle.Informers, taken)
	if got := ask("n1", "c"); got != bindConflict {
		t.Errorf("after the API gave the volume to another claim: %q", got)
	}
}

func TestPreBind(t *testing.T) {
	for _, test := range []struct {
		name  string
		claim string // "local" binds the volume v, "made" provisions one
		// later changes the written objects as the informers see them after ten
		// seconds
		later func(c *cycle, claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume)
		err   string
		took  time.Duration // at least
	}{
		{"bound", "local", func(c *cycle, claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			c.see(bound(t, "c", "v"), pv, "3")
		}, "", 10 * time.Second},
		{"provisioned", "made", func(c *cycle, claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			done := bound(t, "c", "v")
			done.Annotations["volume.kubernetes.io/selected-node"] = claim.Annotations["volume.kubernetes.io/selected-node"]
			c.see(done, pv, "3")
		}, "", 10 * time.Second},
		{"never", "local", func(*cycle, *v1.PersistentVolumeClaim, *v1.PersistentVolume) {}, "binding volumes: context deadline exceeded", 10 * time.Minute},
		{"the provisioner gives up", "made", func(c *cycle, claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			claim.Annotations = map[string]string{"a": "b"}
			c.see(claim, pv, "3")
		}, `binding volumes: provisioning failed for PVC "c"`, 10 * time.Second},
		{"provisioned elsewhere", "made", func(c *cycle, claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			claim.Spec.VolumeName = "v"
			pv.Spec.NodeAffinity = pvOf(t, "v", onNode("n2")).Spec.NodeAffinity
			c.see(claim, pv, "3")
		}, `binding volumes: pv "v" node affinity doesn't match node "n1": no matching NodeSelectorTerms`, 10 * time.Second},
		{"the reference is taken back", "local", func(c *cycle, claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			pv.Spec.ClaimRef = nil
			c.see(claim, pv, "3")
		}, `binding volumes: ClaimRef got reset for pv "v"`, 10 * time.Second},
		{"the claim is gone", "local", func(c *cycle, claim *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			plugintest.Delete(c, c.handle.Informers, claim)
		}, `binding volumes: failed to check binding: persistentvolumeclaim "c" not found`, 10 * time.Second},
		{"the node is gone", "local", func(c *cycle, _ *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			plugintest.Delete(c, c.handle.Informers, nodes(t)[0])
		}, `binding volumes: failed to get node "n1": node "n1" not found`, 10 * time.Second},
		{"the pod is gone", "local", func(c *cycle, _ *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			c.isWanted = func(types.UID) bool { return false }
		}, `binding volumes: pod does not exist any more: pod "p" not found`, 10 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCycle(t, open(t, "c", test.claim, ""), pvOf(t, "v", ""))
				var failed []string
				c.observeError = func(operation string) { failed = append(failed, operation) }
				state, info := c.reserve("p", "c")
				result := make(chan *framework.Status, 1)
				began := time.Now()
				go func() { result <- c.PreBind(context.WithoutCancel(t.Context()), state, info, "n1") }()
				<-time.After(10 * time.Second)
				claim, pv := c.written()
				if test.claim == "local" && (pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != "c" || pv.Annotations["pv.kubernetes.io/bound-by-controller"] != "yes") {
					t.Errorf("written: %+v", pv)
				}
				if test.claim == "made" && claim.Annotations["volume.kubernetes.io/selected-node"] != "n1" {
					t.Errorf("written: %+v", claim)
				}
				test.later(c, claim, pv)
				s := <-result
				if took := time.Since(began); s.Message() != test.err || took < test.took || took > test.took+2*time.Second {
					t.Errorf("%q after %v, want %q after %v", s.Message(), took, test.err, test.took)
				}
				if want := test.err != ""; slices.Equal(failed, []string{"bind"}) != want {
					t.Errorf("the metrics know of failures %v", failed)
				}
			})
		})
	}
}

// A pod without open claims has nothing to prepare.
func TestNothingToBind(t *testing.T) {
	c := newCycle(t, bound(t, "c", "v"), pvOf(t, "v", ""))
	state, info := c.reserve("p", "c")
	if s := c.PreBindPreFlight(t.Context(), state, info, "n1"); !s.IsSkip() {
		t.Errorf("%s", s.Code())
	}
	if len(c.api.Actions()) > 0 {
		t.Errorf("wrote %v", c.api.Actions())
	}
}

// Two pods with one claim may both write its binding; the slower one accepts
// what it finds. Any other conflict ends the attempt.
func TestConflict(t *testing.T) {
	for name, test := range map[string]struct {
		class string
		found func(claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume)
		fine  bool
	}{
		"the same binding": {"local", func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: "c", UID: "c"}
		}, true},
		"another claim's": {"local", func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: "d", UID: "d"}
		}, false},
		"the same node": {"made", func(claim *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			claim.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "n1"}
		}, true},
		"another node": {"made", func(claim *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			claim.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "n2"}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCycle(t, open(t, "c", test.class, ""), pvOf(t, "v", ""))
			state, info := c.reserve("p", "c")
			claim, pv := c.written()
			test.found(claim, pv)
			for resource, obj := range map[string]runtime.Object{"persistentvolumeclaims": claim, "persistentvolumes": pv} {
				if err := c.api.Tracker().Update(v1.SchemeGroupVersion.WithResource(resource), obj, obj.(metav1.Object).GetNamespace()); err != nil {
					t.Fatal(err)
				}
			}
			c.api.PrependReactor("update", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), "x", errors.New("the object has been modified"))
			})
			done := bound(t, "c", "v")
			done.Annotations["volume.kubernetes.io/selected-node"] = "n1"
			c.see(done, pv, "3")
			s := c.PreBind(t.Context(), state, info, "n1")
			if fine := s.IsSuccess(); fine != test.fine {
				t.Errorf("%s: %s", s.Code(), s.Message())
			}
		})
	}
}

// A volume that was assumed for a pod of one profile is not available to pods
// of another.
func TestProfilesShareWhatIsAssumed(t *testing.T) {
	c := newCycle(t, pvOf(t, "v", ""), open(t, "c1", "local", ""), open(t, "c2", "local", ""))
	c.handle.Shared = map[string]any{}
	profiles := make([]*plugin, 2)
	for i := range profiles {
		made, err := Factory().New(t.Context(), Factory().DefaultArguments(), c.handle)
		if err != nil {
			t.Fatal(err)
		}
		profiles[i] = made.(*plugin)
	}
	c.plugin = profiles[0]
	c.reserve("p", "c1")
	second := profiles[1]
	state, info, snapshot := framework.NewCycleState(c.handle), framework.NewPodInfo(pod("q", "c2")), plugintest.Snapshot(nodes(t))
	if _, s := second.PreFilter(t.Context(), state, info, snapshot); !s.IsSuccess() {
		t.Fatal(s.Message())
	}
	if s := second.Filter(t.Context(), state, info, snapshot.Node("n1")); s.Message() != bindConflict {
		t.Errorf("the other profile says %q, want %q", s.Message(), bindConflict)
	}
}
