package simnode_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/cluster/clustertest"
	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/simnode"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// run runs a cluster with simulated nodes in virtual time.
func run(t *testing.T, o cluster.SimulatedNodes, f func(ctx context.Context, t *testing.T, c kubernetes.Interface)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.Start(t, cluster.Options{InProcess: true, Simulated: &o})
		f(t.Context(), t, c.Client())
	})
}

// until waits for a condition, in virtual time.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !condition(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within ten minutes: %s", what)
		}
	}
}

func pod(name string, annotations map[string]string, change ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "example.com/app:1"}}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func get(ctx context.Context, t *testing.T, c kubernetes.Interface, name string) *v1.Pod {
	t.Helper()
	p, err := c.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return p
}

func create(ctx context.Context, t *testing.T, c kubernetes.Interface, p *v1.Pod) {
	t.Helper()
	if _, err := c.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func ready(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// A pod is scheduled to a simulated node, runs there, is ready and has an
// address of the node's range. It goes away when it is deleted.
func TestPodRuns(t *testing.T) {
	run(t, cluster.SimulatedNodes{Count: 1}, func(ctx context.Context, t *testing.T, c kubernetes.Interface) {
		create(ctx, t, c, pod("web", nil, func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{
				{Name: "disk", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/data"}}},
				{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			}
			main := &p.Spec.Containers[0]
			main.VolumeMounts = []v1.VolumeMount{{Name: "disk", MountPath: "/data"}, {Name: "scratch", MountPath: "/scratch", SubPath: "a/b"}}
			main.LivenessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(80)}}}
			p.Spec.InitContainers = []v1.Container{{Name: "first", Image: "example.com/first:1"}}
		}))
		until(t, "the pod is ready", func() bool { return ready(get(ctx, t, c, "web")) })
		p := get(ctx, t, c, "web")
		if p.Status.Phase != v1.PodRunning || p.Spec.NodeName != "sim-0" || p.Status.PodIP == "" {
			t.Errorf("the pod: %s on %s with %q", p.Status.Phase, p.Spec.NodeName, p.Status.PodIP)
		}
		time.Sleep(time.Minute)
		if n := get(ctx, t, c, "web").Status.ContainerStatuses[0].RestartCount; n != 0 {
			t.Errorf("the container was restarted %d times", n)
		}
		if err := c.CoreV1().Pods("default").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		until(t, "the pod is gone", func() bool { return get(ctx, t, c, "web") == nil })
	})
}

// Pods start, become ready, end and crash when their annotations say so.
func TestAnnotations(t *testing.T) {
	run(t, cluster.SimulatedNodes{Count: 1}, func(ctx context.Context, t *testing.T, c kubernetes.Interface) {
		began := time.Now()
		create(ctx, t, c, pod("slow", map[string]string{simnode.AnnotationStartAfter: "10s", simnode.AnnotationReadyAfter: "20s"}))
		never := func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }
		create(ctx, t, c, pod("ends", map[string]string{simnode.AnnotationRunFor: "5s"}, never))
		create(ctx, t, c, pod("fails", map[string]string{simnode.AnnotationExitCode: "3"}, never))
		create(ctx, t, c, pod("crashes", map[string]string{simnode.AnnotationRunFor: "1s", simnode.AnnotationExitCode: "1"}))
		create(ctx, t, c, pod("wrong", map[string]string{simnode.AnnotationRunFor: "soon"}, never))
		create(ctx, t, c, pod("probed", map[string]string{simnode.AnnotationReadyAfter: "20s"}, func(p *v1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = &v1.Probe{PeriodSeconds: 1, ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(80)}}}
		}))
		until(t, "slow runs", func() bool { return get(ctx, t, c, "slow").Status.Phase == v1.PodRunning })
		if d := time.Since(began); d < 10*time.Second || d > 15*time.Second || ready(get(ctx, t, c, "slow")) {
			t.Errorf("it ran after %v", d)
		}
		for _, name := range []string{"probed", "slow"} {
			until(t, name+" is ready", func() bool { return ready(get(ctx, t, c, name)) })
		}
		if d := time.Since(began); d < 30*time.Second || d > 35*time.Second {
			t.Errorf("it was ready after %v", d)
		}
		for name, want := range map[string]string{"ends": "Succeeded 0", "fails": "Failed 3", "wrong": "Failed 128"} {
			p := get(ctx, t, c, name)
			ended := p.Status.ContainerStatuses[0].State.Terminated
			if ended == nil || fmt.Sprint(p.Status.Phase, " ", ended.ExitCode) != want {
				t.Errorf("pod %s: %+v, want %s", name, p.Status, want)
			}
		}
		if n := get(ctx, t, c, "crashes").Status.ContainerStatuses[0].RestartCount; n < 2 {
			t.Errorf("the crashing container was restarted %d times", n)
		}
	})
}

// Nodes have the size, the labels and the zones that are asked for.
func TestNodes(t *testing.T) {
	o := cluster.SimulatedNodes{Count: 5, Resources: map[string]string{"cpu": "4", "pods": "20"}, Labels: map[string]string{"pool": "blue"}, Zones: []string{"a", "b"}}
	run(t, o, func(ctx context.Context, t *testing.T, c kubernetes.Interface) {
		var list *v1.NodeList
		until(t, "five nodes", func() bool {
			var err error
			if list, err = c.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "pool=blue"}); err != nil {
				t.Fatal(err)
			}
			return len(list.Items) == 5
		})
		zones, addresses := map[string]int{}, map[string]bool{}
		for _, n := range list.Items {
			zones[n.Labels[v1.LabelTopologyZone]]++
			addresses[n.Status.Addresses[0].Address] = true
			if cpu, pods := n.Status.Capacity.Cpu().String(), n.Status.Allocatable.Pods().String(); cpu != "4" || pods != "20" {
				t.Errorf("node %s has %s CPUs and room for %s pods", n.Name, cpu, pods)
			}
		}
		if zones["a"] != 3 || zones["b"] != 2 || len(addresses) != 5 {
			t.Errorf("zones %v, addresses %v", zones, addresses)
		}
	})
}

// The metrics of pods and nodes have the usage of containers that the
// annotations set.
func TestMetrics(t *testing.T) {
	run(t, cluster.SimulatedNodes{Count: 2}, func(ctx context.Context, t *testing.T, c kubernetes.Interface) {
		create(ctx, t, c, pod("busy", map[string]string{simnode.AnnotationCPU: "250m", simnode.AnnotationMemory: "64Mi"}))
		usage := func(path string) string {
			raw, err := c.Discovery().RESTClient().Get().SetHeader("Accept", "application/json").AbsPath("/apis/metrics.k8s.io/v1beta1/" + path).DoRaw(ctx)
			if err != nil {
				return err.Error()
			}
			return string(raw)
		}
		time.Sleep(time.Minute) // two samples
		if got := usage("namespaces/default/pods/busy"); !strings.Contains(got, `"usage":{"cpu":"250m","memory":"64Mi"}`) {
			t.Errorf("the pod's metrics: %s", got)
		}
		node := get(ctx, t, c, "busy").Spec.NodeName
		if got := usage("nodes/" + node); !strings.Contains(got, `"cpu":"250m"`) {
			t.Errorf("the node's metrics: %s", got)
		}
		patch := `{"metadata":{"annotations":{"` + simnode.AnnotationCPU + `":"2"}}}`
		if _, err := c.CoreV1().Pods("default").Patch(ctx, "busy", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		until(t, "the changed metrics", func() bool { return strings.Contains(usage("namespaces/default/pods/busy"), `"cpu":"2"`) })
		_, err := c.CoreV1().Pods("default").GetLogs("busy", &v1.PodLogOptions{}).DoRaw(ctx)
		if !apierrors.IsBadRequest(err) {
			t.Errorf("logs: %v", err)
		}
	})
}
