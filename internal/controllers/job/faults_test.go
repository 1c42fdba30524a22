package job

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// faults is a cluster with a Job whose watch events come late and whose writes fail at random.
type faults struct {
	*controllertest.Cluster
	*controllertest.Faults
	t *testing.T
	// fates holds how each pod must be counted that has lost its finalizer: as succeeded or
	// failed, or not at all ("") if the controller has deleted it.
	fates map[types.UID]v1.PodPhase
}

func (f *faults) stored() []v1.Pod {
	o, err := f.Fake.Tracker().List(v1.SchemeGroupVersion.WithResource("pods"), v1.SchemeGroupVersion.WithKind("Pod"), "default")
	if err != nil {
		f.t.Error(err)
		return nil
	}
	return o.(*v1.PodList).Items
}

// released records the fate of a pod when its finalizer is removed.
func (f *faults) released(action clienttesting.Action) (bool, runtime.Object, error) {
	for _, p := range f.stored() {
		if p.Name != action.(clienttesting.PatchAction).GetName() || !tracked(&p) {
			continue
		}
		switch {
		case p.Status.Phase == v1.PodSucceeded:
			f.fates[p.UID] = v1.PodSucceeded
		case p.Status.Phase == v1.PodFailed, p.DeletionTimestamp != nil:
			f.fates[p.UID] = v1.PodFailed
		}
	}
	return false, nil, nil
}

// created checks that an index has one active pod, and none once it has succeeded.
func (f *faults) created(action clienttesting.Action) (bool, runtime.Object, error) {
	index := indexOf(action.(clienttesting.CreateAction).GetObject().(*v1.Pod))
	for _, p := range f.stored() {
		active := p.Status.Phase == "" && p.DeletionTimestamp == nil
		if index >= 0 && indexOf(&p) == index && (active || p.Status.Phase == v1.PodSucceeded) {
			f.t.Errorf("a second pod of index %d beside %s, which is %q", index, p.Name, p.Status.Phase)
		}
	}
	return false, nil, nil
}

// byController reports whether a write is one of the controller.
func byController(action clienttesting.Action) bool {
	return action.GetVerb() == "create" || action.GetVerb() == "patch" || action.GetVerb() == "update" && action.GetResource().Resource == "jobs" && action.GetSubresource() != ""
}

// kubelet ends pods, and users delete some.
func (f *faults) kubelet() {
	for _, p := range f.stored() {
		if p.Status.Phase != "" {
			continue
		}
		switch n := f.Below(12); {
		case n < 3 && p.DeletionTimestamp == nil:
			p.Status.Phase = v1.PodSucceeded
		case n < 5 || p.DeletionTimestamp != nil: // a pod that is being deleted counts as failed
			p.Status.Phase = v1.PodFailed
		case n == 5:
			if err := f.Fake.CoreV1().Pods("default").Delete(f.t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
				f.t.Error(err)
			}
			continue
		}
		p.ResourceVersion = ""
		if p.Status.Phase != "" {
			if _, err := f.Fake.CoreV1().Pods("default").UpdateStatus(f.t.Context(), &p, metav1.UpdateOptions{}); err != nil {
				f.t.Error(err)
			}
		}
	}
}

func (f *faults) job() *batch.Job {
	o, err := f.Fake.Tracker().Get(batch.SchemeGroupVersion.WithResource("jobs"), "default", "work")
	if err != nil {
		f.t.Fatal(err)
	}
	return o.(*batch.Job).DeepCopy()
}

func (f *faults) change(change func(*batch.JobSpec)) {
	j := f.job()
	change(&j.Spec)
	j.ResourceVersion = ""
	if _, err := f.Fake.BatchV1().Jobs("default").Update(f.t.Context(), j, metav1.UpdateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// A Job whose pods fail and are deleted, which is suspended and resumed while events come late and
// writes fail, counts each pod once and has one pod for each index.
func TestCountsUnderFaults(t *testing.T) {
	for seed := range uint64(4) {
		mode := []batch.CompletionMode{batch.NonIndexedCompletion, batch.IndexedCompletion}[seed%2]
		t.Run(fmt.Sprint("seed ", seed, " ", mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &faults{Cluster: controllertest.New(t, jobOf(5, 12, 1000, mode)), t: t, fates: map[types.UID]v1.PodPhase{}}
				f.Fake.PrependReactor("create", "pods", f.created)
				f.Faults = f.Fault(seed, byController)
				f.Fake.PrependReactor("patch", "pods", f.released)
				f.Run(Descriptor())
				for range 100 {
					time.Sleep(700 * time.Millisecond)
					synctest.Wait()
					f.kubelet()
					switch f.Below(20) {
					case 0:
						f.change(func(j *batch.JobSpec) { j.Suspend = new(true) })
					case 1, 2:
						f.change(func(j *batch.JobSpec) { j.Suspend = new(false) })
					case 3:
						f.change(func(j *batch.JobSpec) { j.Parallelism = new(int32(f.Below(6))) })
					}
				}
				f.change(func(j *batch.JobSpec) { j.Suspend, j.Parallelism = new(false), new(int32(5)) })
				for range 1000 {
					if time.Sleep(30 * time.Second); finished(f.job()) {
						break
					}
					synctest.Wait()
					f.kubelet()
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				counted := map[v1.PodPhase]int32{}
				for _, fate := range f.fates {
					counted[fate]++
				}
				st := f.job().Status
				if !finished(f.job()) || st.Succeeded < 12 || st.Failed != counted[v1.PodFailed] || mode == batch.NonIndexedCompletion && st.Succeeded != counted[v1.PodSucceeded] {
					t.Errorf("%d succeeded and %d failed, want %v; %v", st.Succeeded, st.Failed, counted, st)
				}
				for _, p := range f.stored() {
					if tracked(&p) || p.Status.Phase == "" {
						t.Errorf("in the end pod %s is %q with finalizers %v", p.Name, p.Status.Phase, p.Finalizers)
					}
				}
			})
		})
	}
}
