package podautoscaler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	autoscaling "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

var noon = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// aPod is a running and ready pod that has started an hour ago and requests a
// CPU.
func aPod(name string, change ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Labels: map[string]string{"app": "web"}}}
	p.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}}
	p.Status = v1.PodStatus{
		Phase: v1.PodRunning, StartTime: &metav1.Time{Time: noon.Add(-time.Hour)},
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-59 * time.Minute))}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func started(ago time.Duration) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Status.StartTime.Time = noon.Add(-ago) }
}

func readySince(ago time.Duration, status v1.ConditionStatus) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Status.Conditions[0].Status, p.Status.Conditions[0].LastTransitionTime.Time = status, noon.Add(-ago)
	}
}

func inPhase(phase v1.PodPhase) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.Phase = phase } }

func ending(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon} }

// pods returns pods. The first ones have the given samples, -1 for none.
func measuredPods(milli []int64, change ...func(*v1.Pod)) ([]*v1.Pod, samples) {
	var pods []*v1.Pod
	have := samples{}
	for i, m := range milli {
		name := fmt.Sprintf("p%d", i)
		var changes []func(*v1.Pod)
		if i < len(change) && change[i] != nil {
			changes = append(changes, change[i])
		}
		pods = append(pods, aPod(name, changes...))
		if m >= 0 {
			have[name] = sample{milli: m, at: noon.Add(-10 * time.Second), window: 15 * time.Second}
		}
	}
	return pods, have
}

// TestUtilization reads as the rules of the autoscaler: desired = ceil(sum of
// the use / target), where pods that start or have no metrics hold it back.
func TestUtilization(t *testing.T) {
	young, unreadyYoung := started(time.Minute), func(p *v1.Pod) { started(time.Minute)(p); readySince(time.Minute, v1.ConditionFalse)(p) }
	for _, c := range []struct {
		what    string
		current int32
		target  int32 // percent of a CPU
		milli   []int64
		change  []func(*v1.Pod)
		want    string
	}{
		{"in proportion up", 3, 50, []int64{1000, 1000, 1000}, nil, "6 at 100%"},
		{"in proportion down", 4, 50, []int64{100, 100, 100, 100}, nil, "1 at 10%"},
		{"rounded up", 3, 50, []int64{600, 600, 600}, nil, "4 at 60%"},
		{"within the tolerance", 3, 50, []int64{550, 540, 530}, nil, "3 at 54%"},
		{"no metrics yet", 2, 50, []int64{-1, -1}, nil, "error: did not receive metrics for targeted pods (pods might be unready)"},
		{"no pods", 2, 50, nil, nil, "error: no pods returned by selector while calculating replica count"},
		{"a missing pod is busy before scaling down", 3, 50, []int64{100, 100, -1}, nil, "3 at 10%"},
		{"and at least at the target", 3, 200, []int64{100, 100, -1}, nil, "2 at 10%"},
		{"a missing pod is idle before scaling up", 3, 50, []int64{1000, 1000, -1}, nil, "4 at 100%"},
		{"missing pods never turn the direction", 3, 50, []int64{600, -1, -1}, nil, "3 at 60%"},
		{"a pending pod is idle before scaling up", 3, 50, []int64{1000, 1000, -1}, []func(*v1.Pod){nil, nil, inPhase(v1.PodPending)}, "4 at 100%"},
		{"and left out before scaling down", 3, 50, []int64{100, 100, -1}, []func(*v1.Pod){nil, nil, inPhase(v1.PodPending)}, "1 at 10%"},
		{"failed and ending pods are not there", 4, 50, []int64{1000, 1000, 1000, 1000}, []func(*v1.Pod){nil, nil, inPhase(v1.PodFailed), ending}, "4 at 100%"},
		{"a starting pod that is not ready yet is idle", 2, 50, []int64{1000, 2000}, []func(*v1.Pod){nil, unreadyYoung}, "2 at 100%"},
		{"a starting pod counts after one window of readiness", 2, 50, []int64{1000, 2000}, []func(*v1.Pod){nil, func(p *v1.Pod) { young(p); readySince(26*time.Second, v1.ConditionTrue)(p) }}, "6 at 150%"},
		{"and not before", 2, 50, []int64{1000, 2000}, []func(*v1.Pod){nil, func(p *v1.Pod) { young(p); readySince(24*time.Second, v1.ConditionTrue)(p) }}, "2 at 100%"},
		{"a pod that was never ready is idle", 2, 50, []int64{1000, 2000}, []func(*v1.Pod){nil, readySince(time.Hour-20*time.Second, v1.ConditionFalse)}, "2 at 100%"},
		{"a pod that is not ready any more counts", 2, 50, []int64{1000, 2000}, []func(*v1.Pod){nil, readySince(time.Minute, v1.ConditionFalse)}, "6 at 150%"},
	} {
		pods, have := measuredPods(c.milli, c.change...)
		requests, err := requestsOf(pods, v1.ResourceCPU, "")
		if err != nil {
			t.Fatal(err)
		}
		p := &metricReplicas{
			current: c.current, pods: pods, have: have, cpu: true, tolerance: tolerance{0.1, 0.1},
			readiness: readiness{now: noon, initialization: 5 * time.Minute, delay: 30 * time.Second},
			ratio:     utilization(requests, c.target),
			most:      func(pod string) int64 { return requests[pod] * int64(max(100, c.target)) / 100 },
		}
		replicas, show, err := p.replicas()
		got := fmt.Sprintf("%d at %d%%", replicas, show.utilization)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

// TestAverages computes replicas from metrics of pods that are not of their resources: the
// target is an average of 10, and pods that are starting count. A pod without a metric is at
// the target before replicas are removed, and at nothing before replicas are added.
func TestAverages(t *testing.T) {
	for _, c := range []struct {
		what    string
		current int32
		milli   []int64
		change  []func(*v1.Pod)
		want    string
	}{
		{"up", 3, []int64{20_000, 5_000, 14_000}, nil, "4 at 13000"},
		{"a pod that is starting", 3, []int64{40_000, 5_000, 15_000}, []func(*v1.Pod){nil, nil, func(p *v1.Pod) {
			started(time.Minute)(p)
			readySince(time.Minute, v1.ConditionFalse)(p)
		}}, "6 at 20000"},
		{"down", 5, []int64{6_000, 6_000, 6_000, 6_000, 6_000}, nil, "3 at 6000"},
		{"within the tolerance", 3, []int64{10_000, 10_500, 10_500}, nil, "3 at 10333"},
		{"without one of the metrics, before scaling down", 4, []int64{2_000, 2_000, 2_000, -1}, nil, "2 at 2000"},
		{"without one of the metrics, before scaling up", 3, []int64{30_000, 30_000, -1}, nil, "6 at 30000"},
		{"without one of the metrics, at the target", 3, []int64{10_000, 10_000, -1}, nil, "3 at 10000"},
		{"a pod that has not started, before scaling up", 3, []int64{30_000, 30_000, -1}, []func(*v1.Pod){nil, nil, inPhase(v1.PodPending)}, "6 at 30000"},
		{"a pod that has not started, before scaling down", 3, []int64{2_000, 2_000, -1}, []func(*v1.Pod){nil, nil, inPhase(v1.PodPending)}, "1 at 2000"},
		{"pods that have failed or end", 4, []int64{20_000, 20_000, 90_000, 90_000}, []func(*v1.Pod){nil, nil, inPhase(v1.PodFailed), ending}, "4 at 20000"},
	} {
		pods, have := measuredPods(c.milli, c.change...)
		p := &metricReplicas{
			current: c.current, pods: pods, have: have, tolerance: tolerance{0.1, 0.1},
			readiness: readiness{now: noon, initialization: 5 * time.Minute, delay: 30 * time.Second},
			ratio:     average(10_000), most: func(string) int64 { return 10_000 },
		}
		replicas, show, err := p.replicas()
		if got := fmt.Sprintf("%d at %d", replicas, show.milli); err != nil || got != c.want {
			t.Errorf("%s: %s, error %v, want %s", c.what, got, err, c.want)
		}
	}
}

// What pods have used that are gone says nothing about the use of the others.
func TestSamplesOfPodsThatAreGone(t *testing.T) {
	pods, have := measuredPods([]int64{1000, 1000})
	have["gone"] = sample{milli: 9000, at: noon, window: 15 * time.Second}
	requests, err := requestsOf(pods, v1.ResourceCPU, "")
	if err != nil {
		t.Fatal(err)
	}
	p := &metricReplicas{current: 2, pods: pods, have: have, cpu: true, tolerance: tolerance{0.1, 0.1}, readiness: readiness{now: noon}, ratio: utilization(requests, 50)}
	replicas, show, err := p.replicas()
	if err != nil || replicas != 4 || show.utilization != 100 {
		t.Errorf("%d replicas at %d%%, error %v, want 4 at 100%%", replicas, show.utilization, err)
	}
}

// TestToleranceOfADirection lets one direction be stricter.
func TestToleranceOfADirection(t *testing.T) {
	for _, c := range []struct {
		down, up, ratio float64
		want            bool
	}{
		{0.1, 0.1, 1.1, true},
		{0.1, 0.1, 0.9, true},
		{0.1, 0, 1.05, false},
		{0.1, 0, 0.95, true},
		{0, 0.2, 1.2, true},
		{0, 0.2, 0.99, false},
	} {
		if got := (tolerance{c.down, c.up}).includes(c.ratio); got != c.want {
			t.Errorf("%+v gave %v", c, got)
		}
	}
}

func TestRequests(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	requesting := func(name, cpu string) v1.Container {
		c := v1.Container{Name: name}
		if cpu != "" {
			c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
		}
		return c
	}
	p := aPod("p", func(p *v1.Pod) {
		p.Spec.Containers = []v1.Container{requesting("a", "100m"), requesting("b", "200m")}
		init, sidecar := requesting("init", ""), requesting("sidecar", "50m")
		sidecar.RestartPolicy = &always
		p.Spec.InitContainers = []v1.Container{init, sidecar}
	})
	without := aPod("q", func(p *v1.Pod) { p.Spec.Containers = []v1.Container{requesting("a", "100m"), requesting("b", "")} })
	whole := aPod("r", func(p *v1.Pod) {
		p.Spec.Containers = []v1.Container{requesting("a", "")}
		p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("700m")}}
	})
	for _, c := range []struct {
		pod       *v1.Pod
		container string
		want      string
	}{
		{p, "", "350 <nil>"},
		{p, "b", "200 <nil>"},
		{without, "", "0 missing request for cpu in container b of Pod q"},
		{without, "a", "100 <nil>"},
		{whole, "", "700 <nil>"},
	} {
		requests, err := requestsOf([]*v1.Pod{c.pod}, v1.ResourceCPU, c.container)
		if got := fmt.Sprint(requests[c.pod.Name], " ", err); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.pod.Name, c.container, got, c.want)
		}
	}
}

// TestWholes computes replicas from metrics of objects and external ones.
func TestWholes(t *testing.T) {
	three, _ := measuredPods([]int64{-1, -1, -1})
	two, _ := measuredPods([]int64{-1, -1, -1}, readySince(time.Minute, v1.ConditionFalse))
	for _, c := range []struct {
		what         string
		milli        int64
		spec, status int32
		pods         []*v1.Pod
		value        int32 // for a value of 10
		average      string
	}{
		{"above", 40_000, 3, 3, three, 12, "4 13334"},
		{"only ready pods count", 40_000, 3, 3, two, 8, "4 13334"},
		{"below", 2_000, 3, 3, three, 1, "1 667"},
		{"zero", 0, 3, 3, three, 0, "0 0"},
		{"from zero", 25_000, 0, 0, nil, 3, "3 25000"},
		{"stays at zero", 0, 0, 0, nil, 0, "0 0"},
		{"within the tolerance", 10_500, 1, 1, three[:1], 1, "1 10500"},
	} {
		w := &objectReplicas{milli: c.milli, spec: c.spec, now: c.status, pods: c.pods, tolerance: tolerance{0.1, 0.1}}
		value, err := w.forValue(10_000)
		if err != nil || value != c.value {
			t.Errorf("%s: %d for a value, error %v, want %d", c.what, value, err, c.value)
		}
		replicas, share := w.forAverage(10_000)
		if got := fmt.Sprint(replicas, " ", share); got != c.average {
			t.Errorf("%s: %s for an average, want %s", c.what, got, c.average)
		}
	}
	if _, err := (&objectReplicas{milli: 1, spec: 1, tolerance: tolerance{0.1, 0.1}}).forValue(10); err == nil {
		t.Error("a workload without pods gave replicas")
	}
	if n := ceil(1e30); n != 1<<31-1 {
		t.Errorf("an enormous metric gives %d replicas", n)
	}
}

// The use of memory is shown in binary units, as in the targets of users.
func TestMemoryIsShownInBinaryUnits(t *testing.T) {
	pods, _ := measuredPods([]int64{-1, -1})
	w := &workload{namespace: "shop", spec: 2, status: 2, selector: labels.Everything(), pods: pods, tolerance: tolerance{0.1, 0.1}}
	for _, c := range []struct {
		resource v1.ResourceName
		milli    int64
		want     string
	}{
		{v1.ResourceMemory, 71_421_952_000, "69748Ki"},
		{v1.ResourceMemory, 71_421_952_500, "71421952500m"},
		{v1.ResourceCPU, 1_024_000, "1024"},
	} {
		p, failed := w.propose(t.Context(), &metricsFake{cpu: map[string]int64{"p0": c.milli, "p1": c.milli}}, &autoscaling.MetricSpec{
			Type: autoscaling.ResourceMetricSourceType,
			Resource: &autoscaling.ResourceMetricSource{Name: c.resource, Target: autoscaling.MetricTarget{
				Type: autoscaling.AverageValueMetricType, AverageValue: resource.NewMilliQuantity(c.milli, resource.BinarySI),
			}},
		})
		if failed != nil {
			t.Fatal(failed)
		}
		if got := p.status.Resource.Current.AverageValue.String(); got != c.want {
			t.Errorf("%s of %d m is shown as %s, want %s", c.resource, c.milli, got, c.want)
		}
	}
}

// The message about an object metric that cannot be read ends with the reason.
func TestObjectMetricThatFails(t *testing.T) {
	w := &workload{namespace: "shop"}
	_, err := w.ofObject(&metricsFake{failures: map[string]error{"object": errors.New("no such metric")}}, &autoscaling.ObjectMetricSource{
		DescribedObject: autoscaling.CrossVersionObjectReference{Kind: "Ingress", Name: "front"}, Metric: autoscaling.MetricIdentifier{Name: "hits"},
	})
	if want := "unable to get metric hits on Ingress shop/front: no such metric"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// The type of a target with two kinds of values decides which one counts.
func TestTargetWithBothValues(t *testing.T) {
	w := &workload{namespace: "shop"}
	for kind, want := range map[autoscaling.MetricTargetType]int32{autoscaling.ValueMetricType: 2, autoscaling.AverageValueMetricType: 3} {
		replicas, _, err := w.ofWhole(6000, autoscaling.MetricTarget{
			Type: kind, Value: resource.NewQuantity(3, resource.DecimalSI), AverageValue: resource.NewQuantity(2, resource.DecimalSI),
		})
		if err != nil || replicas != want {
			t.Errorf("type %s: %d replicas and error %v, want %d", kind, replicas, err, want)
		}
	}
}

// The samples of a pod that started in the future, because the clock was set back, count while it
// is ready.
func TestStartAfterTheClockIsSetBack(t *testing.T) {
	r := readiness{now: noon, initialization: 5 * time.Minute, delay: 30 * time.Second}
	s := sample{milli: 100, at: noon.Add(-10 * time.Second), window: 15 * time.Second}
	for _, c := range []struct {
		started, ready time.Duration // ago
		status         v1.ConditionStatus
		want           bool
	}{
		{-time.Hour, -59 * time.Minute, v1.ConditionTrue, false},
		{-time.Hour, -59 * time.Minute, v1.ConditionFalse, true},
		{-time.Minute, -time.Minute, v1.ConditionTrue, true}, // the clock of its node may be ahead
		{time.Minute, time.Minute, v1.ConditionTrue, false},
	} {
		if got := r.starts(aPod("p", started(c.started), readySince(c.ready, c.status)), s); got != c.want {
			t.Errorf("started %v ago, %s since %v: starts %t", c.started, c.status, c.ready, got)
		}
	}
}
