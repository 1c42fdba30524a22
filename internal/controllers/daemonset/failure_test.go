package daemonset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

func podOn(node, hash string, phase v1.PodPhase) *v1.Pod {
	p := newPod(setOf(), *metav1.NewControllerRef(setOf(), kind), hash, node)
	p.Name = "agent-" + node
	p.UID = types.UID(p.Name)
	p.Spec.NodeName = node
	p.Status.Phase = phase
	return p
}

// A finished pod that a finalizer holds does not keep its node without a pod.
func TestFinishedPodHeldByFinalizer(t *testing.T) {
	for _, phase := range []v1.PodPhase{v1.PodFailed, v1.PodSucceeded} {
		held := podOn("a", "1", phase)
		held.DeletionTimestamp, held.Finalizers = &metav1.Time{Time: time.Unix(900, 0)}, []string{"example.com/hold"}
		s := snapshot{set: setOf(), nodes: []*v1.Node{nodeOfDisk("a", "fast")}, pods: []*v1.Pod{held}, hash: "1", now: time.Unix(1000, 0)}
		if next := manage(s); !slices.Equal(next.create, []string{"a"}) || len(next.delete) != 0 {
			t.Errorf("%s: creates %v, deletes %d", phase, next.create, len(next.delete))
		}
		if st, _ := status(s); st.CurrentNumberScheduled != 0 {
			t.Errorf("%s: it counts as scheduled", phase)
		}
	}
}

// A pod that fails again and again on one node does not stop the roll-out on the others.
func TestFailingPodDuringRollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := setOf()
		set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.FromInt32(2))
		c := controllertest.New(t, set, nodeOfDisk("a", "fast"), nodeOfDisk("b", "fast"), nodeOfDisk("c", "fast"))
		c.Run(Descriptor())
		setImage := func(image string) {
			set, err := c.Fake.AppsV1().DaemonSets("default").Get(t.Context(), "agent", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			set.Spec.Template.Spec.Containers = []v1.Container{{Name: "c", Image: image}}
			if _, err := c.Fake.AppsV1().DaemonSets("default").Update(t.Context(), set, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		// run acts as the kubelets: pods on node a fail, the others become ready.
		run := func() {
			synctest.Wait()
			for _, p := range c.Pods("default") {
				switch {
				case p.Status.Phase != "":
				case nodeOf(&p) == "a":
					p.Status.Phase = v1.PodFailed
					if _, err := c.Fake.CoreV1().Pods("default").UpdateStatus(t.Context(), &p, metav1.UpdateOptions{}); err != nil {
						t.Fatal(err)
					}
				default:
					c.SetReady("default", p.Name, time.Now())
				}
			}
			synctest.Wait()
		}
		for range 60 { // the back-off of node a grows
			run()
			time.Sleep(time.Second)
		}
		setImage("two")
		for range 10 {
			run()
		}
		var got []string
		for _, p := range c.Pods("default") {
			if nodeOf(&p) != "a" && len(p.Spec.Containers) > 0 {
				got = append(got, fmt.Sprint(nodeOf(&p), "=", p.Spec.Containers[0].Image))
			}
		}
		if slices.Sort(got); strings.Join(got, " ") != "b=two c=two" {
			t.Errorf("after the roll-out: %v", got)
		}
		if n := countEvents(c, "Warning FailedDaemonPod"); n < 3 || n > 10 {
			t.Errorf("%d events about the failed pod", n)
		}
	})
}

func countEvents(c *controllertest.Cluster, prefix string) (n int) {
	for _, e := range c.DrainEvents() {
		if strings.HasPrefix(e, prefix) {
			n++
		}
	}
	return n
}

// A pod that has succeeded is replaced, and an event says so.
func TestSucceededPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := podOn("a", "1", v1.PodSucceeded)
		c := controllertest.New(t, setOf(), nodeOfDisk("a", "fast"))
		set, err := c.Fake.AppsV1().DaemonSets("default").Get(t.Context(), "agent", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		done.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, kind)}
		if _, err := c.Fake.CoreV1().Pods("default").Create(t.Context(), done, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.Run(Descriptor())
		controllertest.Eventually(t, func() string {
			var out []string
			for _, p := range c.Pods("default") {
				out = append(out, fmt.Sprint(p.Name == "agent-a", p.Labels[apps.ControllerRevisionHashLabelKey] != "1"))
			}
			return strings.Join(out, " ")
		}, "false true")
		if n := countEvents(c, "Normal SucceededDaemonPod Found succeeded daemon pod default/agent-a on node a, will try to delete it"); n != 1 {
			t.Errorf("%d events about the pod", n)
		}
	})
}

// A sync replaces only so many pods. The failed pods that it leaves to the next one are not in
// back-off: the next one replaces them at once.
func TestMoreFailedPodsThanOneSyncReplaces(t *testing.T) {
	before := watch.DefaultChanSize
	watch.DefaultChanSize = 10 * burst // a watch of the fake panics when it is full
	t.Cleanup(func() { watch.DefaultChanSize = before })
	synctest.Test(t, func(t *testing.T) {
		set := setOf()
		set.UID, set.Status.ObservedGeneration = "agent", set.Generation
		objects := []runtime.Object{set}
		for i := range burst + 10 {
			node := fmt.Sprintf("n%03d", i)
			p := podOn(node, "1", v1.PodFailed)
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, kind)}
			objects = append(objects, nodeOfDisk(node, "fast"), p)
		}
		c := controllertest.New(t, objects...)
		c.Run(Descriptor())
		synctest.Wait()
		failed := 0
		for _, p := range c.Pods("default") {
			if p.Status.Phase == v1.PodFailed {
				failed++
			}
		}
		if failed != 0 {
			t.Errorf("%d failed pods wait", failed)
		}
		if n := countEvents(c, "Warning FailedDaemonPod"); n != burst+10 {
			t.Errorf("%d events about failed pods, want %d", n, burst+10)
		}
	})
}
