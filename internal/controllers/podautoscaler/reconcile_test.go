package podautoscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	autoscaling "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/feature"
)

// metricsFake has the same figures for all pods of an autoscaler.
type metricsFake struct {
	cpu      map[string]int64 // by pod
	object   int64
	queue    int64
	failures map[string]error // by method
}

func (m *metricsFake) resource(_ context.Context, _ v1.ResourceName, _ string, pods labels.Selector, _ string) (samples, error) {
	all := samples{}
	for name, milli := range m.cpu {
		if pods.Matches(labels.Set{"app": "web"}) {
			all[name] = sample{milli: milli, at: time.Now(), window: 15 * time.Second}
		}
	}
	return all, m.failures["resource"]
}

func (m *metricsFake) ofPods(string, labels.Selector, autoscaling.MetricIdentifier) (samples, error) {
	return nil, errors.New("unable to fetch metrics from custom metrics API: none")
}

func (m *metricsFake) ofObject(string, autoscaling.CrossVersionObjectReference, autoscaling.MetricIdentifier) (int64, error) {
	return m.object, m.failures["object"]
}

func (m *metricsFake) external(string, autoscaling.MetricIdentifier) (int64, error) {
	return m.queue, m.failures["external"]
}

// workshop is a controller with one target, web.
type workshop struct {
	*controllertest.Cluster
	t        *testing.T
	metrics  *metricsFake
	replicas int64
	selector string
	refuse   error // of updates of the Scale
	once     bool  // only the next update is refused
	counts   *counts
}

// newWorkshop runs the controller in a bubble.
func newWorkshop(t *testing.T, replicas int64, objects ...runtime.Object) *workshop {
	t.Helper()
	return newGatedWorkshop(t, "", replicas, objects...)
}

// newGatedWorkshop runs the controller with feature gates in a bubble.
func newGatedWorkshop(t *testing.T, gates string, replicas int64, objects ...runtime.Object) *workshop {
	t.Helper()
	w := &workshop{
		t: t, metrics: &metricsFake{cpu: map[string]int64{}, failures: map[string]error{}}, replicas: replicas, selector: "app=web", counts: newCounts(),
	}
	w.Cluster = controllertest.New(t, objects...)
	var err error
	if w.Env.Features, err = feature.Parse([]string{gates}); err != nil {
		t.Fatal(err)
	}
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	scale := func() *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": map[string]any{"name": "web", "namespace": "shop"},
			"spec": map[string]any{"replicas": w.replicas}, "status": map[string]any{"replicas": w.replicas, "selector": w.selector},
		}}
	}
	client.PrependReactor("get", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "scale" {
			return true, nil, fmt.Errorf("read %q", a.GetSubresource())
		}
		return true, scale(), nil
	})
	client.PrependReactor("update", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if refused := w.refuse; refused != nil {
			if w.once {
				w.refuse = nil
			}
			return true, nil, refused
		}
		var err error
		w.replicas, _, err = unstructured.NestedInt64(a.(clienttesting.UpdateAction).GetObject().(*unstructured.Unstructured).Object, "spec", "replicas")
		return true, scale(), err
	})
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "apps", Version: "v1"}})
	mapper.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, meta.RESTScopeNamespace)
	d := Descriptor()
	d.New = func(env *controller.Env) (controller.Controller, error) {
		return newController(env, defaultOptions(), w.counts, w.metrics, &targets{mapper, client}, func() {})
	}
	w.Run(d)
	synctest.Wait()
	return w
}

// anHPA scales web between 1 and 10 replicas by the CPU, at half of the
// requests.
func anHPA(name string, change ...func(*autoscaling.HorizontalPodAutoscaler)) *autoscaling.HorizontalPodAutoscaler {
	hpa := &autoscaling.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Generation: 7}}
	hpa.Spec = autoscaling.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscaling.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		MinReplicas:    new(int32(1)), MaxReplicas: 10,
		Metrics: []autoscaling.MetricSpec{{
			Type:     autoscaling.ResourceMetricSourceType,
			Resource: &autoscaling.ResourceMetricSource{Name: v1.ResourceCPU, Target: autoscaling.MetricTarget{Type: autoscaling.UtilizationMetricType, AverageUtilization: new(int32(50))}},
		}},
	}
	for _, c := range change {
		c(hpa)
	}
	return hpa
}

// forAnHour makes a pod run for an hour.
func forAnHour(p *v1.Pod) {
	p.Status.StartTime.Time = time.Now().Add(-time.Hour)
	p.Status.Conditions[0].LastTransitionTime.Time = time.Now().Add(-time.Hour)
}

// byQueue scales by an external metric, ten for each replica.
func byQueue(hpa *autoscaling.HorizontalPodAutoscaler) {
	hpa.Spec.Metrics = append(hpa.Spec.Metrics, autoscaling.MetricSpec{
		Type: autoscaling.ExternalMetricSourceType,
		External: &autoscaling.ExternalMetricSource{
			Metric: autoscaling.MetricIdentifier{Name: "queue"},
			Target: autoscaling.MetricTarget{Type: autoscaling.AverageValueMetricType, AverageValue: resource.NewQuantity(10, resource.DecimalSI)},
		},
	})
}

func toZero(hpa *autoscaling.HorizontalPodAutoscaler) {
	hpa.Spec.MinReplicas, hpa.Spec.Metrics = new(int32(0)), nil
	byQueue(hpa)
}

// conditions returns the conditions, and the figures of the status.
func (w *workshop) status(name string) string {
	w.t.Helper()
	hpa, err := w.Fake.AutoscalingV2().HorizontalPodAutoscalers("shop").Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	s := fmt.Sprintf("%d→%d", hpa.Status.CurrentReplicas, hpa.Status.DesiredReplicas)
	for _, c := range hpa.Status.Conditions {
		s += fmt.Sprintf(" %s=%s,%s", c.Type, c.Status, c.Reason)
		if c.Type == autoscaling.AbleToScale && (c.ObservedGeneration == nil || *c.ObservedGeneration != hpa.Generation) {
			s += ",of another generation"
		}
	}
	if hpa.Status.ObservedGeneration == nil || *hpa.Status.ObservedGeneration != hpa.Generation {
		s += " of another generation"
	}
	return s
}

func (w *workshop) events() (all []string) {
	for {
		select {
		case e := <-w.Events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

func (w *workshop) expect(what string, replicas int64, status string) {
	w.t.Helper()
	if w.replicas != replicas {
		w.t.Errorf("%s: %d replicas, want %d", what, w.replicas, replicas)
	}
	if got := w.status("web"); got != status {
		w.t.Errorf("%s:\n%s\nwant:\n%s", what, got, status)
	}
}

const period = 15*time.Second + time.Millisecond

// TestScalesOutAndIn follows the load of a Deployment.
func TestScalesOutAndIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkshop(t, 1, anHPA("web"), aPod("p0", forAnHour))
		w.expect("before there are metrics", 1, "1→0 AbleToScale=True,SucceededGetScale ScalingActive=False,FailedGetResourceMetric")
		w.metrics.cpu["p0"] = 1200
		time.Sleep(period)
		w.expect("under load", 3, "1→3 AbleToScale=True,SucceededRescale ScalingActive=True,ValidMetricFound ScalingLimited=False,DesiredWithinRange ScaledToZero=False,NotScaledToZero")
		got := w.events()
		want := []string{
			"Warning FailedGetResourceMetric failed to get cpu utilization: did not receive metrics for targeted pods (pods might be unready)",
			"Warning FailedComputeMetricsReplicas invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: failed to get cpu utilization: did not receive metrics for targeted pods (pods might be unready)",
			"Normal SuccessfulRescale New size: 3; reason: cpu resource utilization (percentage of request) above target",
		}
		if !slices.Equal(got, want) {
			t.Errorf("events:\n%s", strings.Join(got, "\n"))
		}
		w.metrics.cpu["p0"] = 10
		time.Sleep(4 * time.Minute)
		w.expect("soon after the load", 3, "3→3 AbleToScale=True,ScaleDownStabilized ScalingActive=True,ValidMetricFound ScalingLimited=False,DesiredWithinRange ScaledToZero=False,NotScaledToZero")
		time.Sleep(2 * time.Minute)
		w.expect("long after it", 1, "1→1 AbleToScale=True,ReadyForNewScale ScalingActive=True,ValidMetricFound ScalingLimited=False,DesiredWithinRange ScaledToZero=False,NotScaledToZero")
		w.refuse, w.metrics.cpu["p0"] = errors.New("no"), 1200
		time.Sleep(period)
		w.expect("when the Scale cannot be written", 1, "1→1 AbleToScale=False,FailedUpdateScale ScalingActive=True,ValidMetricFound ScalingLimited=False,DesiredWithinRange ScaledToZero=False,NotScaledToZero")
	})
}

// TestScalesToZero and back, unless a user has set the replicas to zero.
func TestScalesToZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkshop(t, 1, anHPA("web", toZero), aPod("p0", forAnHour))
		time.Sleep(6*time.Minute + time.Second)
		w.expect("an empty queue", 0, "0→0 AbleToScale=True,ReadyForNewScale ScalingActive=True,ValidMetricFound ScalingLimited=False,DesiredWithinRange ScaledToZero=True,ScaledToZero")
		w.metrics.queue = 25_000
		time.Sleep(period)
		w.expect("25 in the queue", 3, "0→3 AbleToScale=True,SucceededRescale ScalingActive=True,ValidMetricFound ScalingLimited=False,DesiredWithinRange ScaledToZero=False,NotScaledToZero")
		w.replicas = 0
		time.Sleep(period)
		w.expect("paused by a user", 0, "0→0 AbleToScale=True,SucceededGetScale ScalingActive=False,ScalingDisabled ScalingLimited=False,DesiredWithinRange ScaledToZero=False,NotScaledToZero")
	})
}

// Without the feature an autoscaler whose minimum is zero removes the last replica, too,
// but then leaves its target alone, whatever its status says.
func TestScaleToZeroIsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGatedWorkshop(t, "HPAScaleToZero=false", 1, anHPA("web", toZero, func(hpa *autoscaling.HorizontalPodAutoscaler) {
			setScaledToZero(hpa, true)
		}), aPod("p0", forAnHour))
		time.Sleep(6*time.Minute + time.Second)
		w.metrics.queue = 25_000
		time.Sleep(period)
		w.expect("25 in the queue", 0, "0→0 AbleToScale=True,SucceededGetScale ScalingActive=False,ScalingDisabled ScalingLimited=False,DesiredWithinRange")
	})
}

// An autoscaler that was scaled to zero by a metric that needs no pods, and has only others
// now, leaves its target alone.
func TestNoMetricsWithoutPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkshop(t, 0, anHPA("web", func(hpa *autoscaling.HorizontalPodAutoscaler) {
			hpa.Spec.MinReplicas = new(int32(0))
			setScaledToZero(hpa, true)
		}))
		time.Sleep(period)
		w.expect("without pods", 0, "0→0 ScaledToZero=True,ScaledToZero AbleToScale=True,SucceededGetScale ScalingActive=False,ScalingDisabled")
	})
}

// Nothing is decided while the cache lacks the last status that was written, unless that
// is off.
func TestStaleAutoscaler(t *testing.T) {
	for gates, want := range map[string]int64{"": 1, "StaleControllerConsistencyHPA=false": 3} {
		synctest.Test(t, func(t *testing.T) {
			w := newGatedWorkshop(t, gates, 1, aPod("p0", forAnHour))
			w.Fake.PrependReactor("update", "horizontalpodautoscalers", func(a clienttesting.Action) (bool, runtime.Object, error) {
				written := a.(clienttesting.UpdateAction).GetObject().(*autoscaling.HorizontalPodAutoscaler).DeepCopy()
				written.ResourceVersion = "1000000" // which the cache never shows
				return true, written, nil
			})
			if _, err := w.Fake.AutoscalingV2().HorizontalPodAutoscalers("shop").Create(t.Context(), anHPA("web"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // for the first status, which says that there are no metrics
			w.metrics.cpu["p0"] = 1200
			time.Sleep(2 * period)
			if w.replicas != want {
				t.Errorf("%q: %d replicas, want %d", gates, w.replicas, want)
			}
			if skips := testutil.ToFloat64(w.counts.skips.WithLabelValues("autoscaling", "horizontalpodautoscalers")); (skips > 0) != (gates == "") {
				t.Errorf("%q: %v skips are counted", gates, skips)
			}
		})
	}
}

// TestZeroOfAUser distinguishes zero replicas that a user has set from zero
// replicas that the controller has set, also after the controller has scaled to
// zero once.
func TestZeroOfAUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkshop(t, 1, anHPA("web", toZero), aPod("p0", forAnHour))
		time.Sleep(6*time.Minute + time.Second)
		w.replicas, w.metrics.queue = 1, 5_000
		time.Sleep(period)
		w.expect("a replica that a user has added", 1, "1→1 AbleToScale=True,ReadyForNewScale ScalingActive=True,ValidMetricFound ScalingLimited=False,DesiredWithinRange ScaledToZero=False,NotScaledToZero")
		w.replicas = 0
		time.Sleep(period)
		w.expect("paused by a user", 0, "0→0 AbleToScale=True,SucceededGetScale ScalingActive=False,ScalingDisabled ScalingLimited=False,DesiredWithinRange ScaledToZero=False,NotScaledToZero")
	})
}

// TestZeroBelowTheMinimum leaves zero replicas when the minimum is raised and the
// metrics can be read, also if the status that told whose zero it is could not be
// written.
func TestZeroBelowTheMinimum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkshop(t, 1, anHPA("web", toZero), aPod("p0", forAnHour))
		lost := 0
		w.Fake.PrependReactor("update", "horizontalpodautoscalers", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetSubresource() != "status" || w.replicas != 0 || lost > 0 {
				return false, nil, nil
			}
			lost++
			return true, nil, errors.New("connection lost")
		})
		time.Sleep(6*time.Minute + time.Second)
		w.expect("an empty queue", 0, "0→0 AbleToScale=True,ReadyForNewScale ScalingActive=True,ValidMetricFound ScalingLimited=False,DesiredWithinRange ScaledToZero=True,ScaledToZero")
		if lost != 1 {
			t.Errorf("%d updates of the status were lost, want one", lost)
		}
		hpas := w.Fake.AutoscalingV2().HorizontalPodAutoscalers("shop")
		hpa, err := hpas.Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		hpa.Spec.MinReplicas = new(int32(1))
		w.metrics.failures["external"] = errors.New("none")
		if _, err := hpas.Update(t.Context(), hpa, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(period)
		w.expect("a minimum of 1 without metrics", 0, "0→0 AbleToScale=True,SucceededGetScale ScalingActive=False,FailedGetExternalMetric ScalingLimited=False,DesiredWithinRange ScaledToZero=True,ScaledToZero")
		w.metrics.failures["external"] = nil
		time.Sleep(period)
		w.expect("a minimum of 1", 1, "0→1 AbleToScale=True,SucceededRescale ScalingActive=True,ValidMetricFound ScalingLimited=True,TooFewReplicas ScaledToZero=False,NotScaledToZero")
		if all := w.events(); !slices.Contains(all, "Normal SuccessfulRescale New size: 1; reason: Current number of replicas below Spec.MinReplicas") {
			t.Errorf("events: %q", all)
		}
	})
}

// TestSeveralMetrics takes the most, and removes no replicas while one fails. It adds some
// all the same.
func TestSeveralMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkshop(t, 2, anHPA("web", byQueue), aPod("p0", forAnHour), aPod("p1", forAnHour))
		w.metrics.cpu["p0"], w.metrics.cpu["p1"], w.metrics.queue = 100, 100, 40_000
		time.Sleep(period)
		w.expect("the queue asks for four", 4, "2→4 AbleToScale=True,SucceededRescale ScalingActive=True,ValidMetricFound ScalingLimited=False,DesiredWithinRange ScaledToZero=False,NotScaledToZero")
		w.metrics.failures["external"] = errors.New("unable to fetch metrics from external metrics API: none")
		time.Sleep(6 * time.Minute)
		w.expect("one metric fails", 4, "4→4 AbleToScale=True,SucceededGetScale ScalingActive=False,FailedGetExternalMetric ScalingLimited=False,DesiredWithinRange ScaledToZero=False,NotScaledToZero")
		w.metrics.cpu["p0"], w.metrics.cpu["p1"] = 1500, 1500
		time.Sleep(period)
		w.expect("the other one asks for more", 6, "4→6 AbleToScale=True,SucceededRescale ScalingActive=True,ValidMetricFound ScalingLimited=False,DesiredWithinRange ScaledToZero=False,NotScaledToZero")
	})
}

// TestBounds checks the replicas without a metric.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		what     string
		have     int64
		selector string
		want     int64
		said     string // among the events and the conditions
	}{
		{"above the maximum", 12, "app=web", 10, "SuccessfulRescale New size: 10; reason: Current number of replicas above Spec.MaxReplicas"},
		{"below the minimum", 1, "app=web", 2, "SuccessfulRescale New size: 2; reason: Current number of replicas below Spec.MinReplicas"},
		{"set to zero", 0, "app=web", 0, "ScalingActive=False,ScalingDisabled"},
		{"without a selector", 3, "", 3, "ScalingActive=False,InvalidSelector"},
		{"with a wrong selector", 3, "a b", 3, "ScalingActive=False,InvalidSelector"},
		{"with a selector that takes long", 3, "app in (" + strings.Repeat("x,", maxSelector/2) + "web)", 3, "ScalingActive=False,InvalidSelector"},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorkshop(t, c.have, anHPA("web", func(hpa *autoscaling.HorizontalPodAutoscaler) { hpa.Spec.MinReplicas = new(int32(2)) }))
				w.selector = c.selector
				time.Sleep(period)
				if w.replicas != c.want {
					t.Errorf("%d replicas, want %d", w.replicas, c.want)
				}
				if got := strings.Join(w.events(), "\n") + "\n" + w.status("web"); !strings.Contains(got, c.said) {
					t.Errorf("%s\nwant %s", got, c.said)
				}
			})
		})
	}
}

// TestFailedMetrics leaves the replicas, and says which kind of metric has failed.
func TestFailedMetrics(t *testing.T) {
	half, ten := autoscaling.MetricTarget{Type: autoscaling.UtilizationMetricType, AverageUtilization: new(int32(50))}, resource.NewQuantity(10, resource.DecimalSI)
	for reason, spec := range map[string]autoscaling.MetricSpec{
		"FailedGetResourceMetric": {
			Type: autoscaling.ResourceMetricSourceType, Resource: &autoscaling.ResourceMetricSource{Name: v1.ResourceCPU, Target: half},
		},
		"FailedGetContainerResourceMetric": {
			Type:              autoscaling.ContainerResourceMetricSourceType,
			ContainerResource: &autoscaling.ContainerResourceMetricSource{Name: v1.ResourceCPU, Container: "main", Target: half},
		},
		"FailedGetPodsMetric": {Type: autoscaling.PodsMetricSourceType, Pods: &autoscaling.PodsMetricSource{
			Metric: autoscaling.MetricIdentifier{Name: "hits"}, Target: autoscaling.MetricTarget{Type: autoscaling.AverageValueMetricType, AverageValue: ten},
		}},
		"FailedGetObjectMetric": {Type: autoscaling.ObjectMetricSourceType, Object: &autoscaling.ObjectMetricSource{
			DescribedObject: autoscaling.CrossVersionObjectReference{Kind: "Ingress", Name: "front"},
			Metric:          autoscaling.MetricIdentifier{Name: "hits"}, Target: autoscaling.MetricTarget{Type: autoscaling.ValueMetricType, Value: ten},
		}},
		"FailedGetExternalMetric": {Type: autoscaling.ExternalMetricSourceType, External: &autoscaling.ExternalMetricSource{
			Metric: autoscaling.MetricIdentifier{Name: "queue"}, Target: autoscaling.MetricTarget{Type: autoscaling.ValueMetricType, Value: ten},
		}},
		"InvalidMetricSourceType": {Type: "Boats"},
	} {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorkshop(t, 3, anHPA("web", func(hpa *autoscaling.HorizontalPodAutoscaler) { hpa.Spec.Metrics = []autoscaling.MetricSpec{spec} }))
				for _, method := range []string{"resource", "object", "external"} {
					w.metrics.failures[method] = errors.New("none")
				}
				time.Sleep(period)
				w.expect("a metric that fails", 3, "3→0 AbleToScale=True,SucceededGetScale ScalingActive=False,"+reason)
			})
		})
	}
}

// A target that changes while it is scaled is scaled all the same, without a warning.
func TestConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkshop(t, 12, anHPA("web"))
		w.events()
		w.replicas, w.once = 12, true
		w.refuse = apierrors.NewConflict(schema.GroupResource{Group: "apps", Resource: "deployments"}, "web", errors.New("it has changed"))
		time.Sleep(period + time.Second)
		synctest.Wait()
		if w.replicas != 10 {
			t.Errorf("%d replicas, want 10", w.replicas)
		}
		if said := strings.Join(w.events(), "\n"); strings.Contains(said, "FailedRescale") || !strings.Contains(said, "SuccessfulRescale New size: 10") {
			t.Errorf("events:\n%s", said)
		}
	})
}

// TestAmbiguous refuses pods that two autoscalers select.
func TestAmbiguous(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkshop(t, 1, anHPA("web"), anHPA("web-too"), aPod("p0", forAnHour))
		time.Sleep(period)
		w.expect("two autoscalers", 1, "1→0 AbleToScale=True,SucceededGetScale ScalingActive=False,AmbiguousSelector")
		if all := strings.Join(w.events(), "\n"); !strings.Contains(all, "Warning AmbiguousSelector pods by selector app=web are controlled by multiple HPAs: [shop/web shop/web-too]") {
			t.Errorf("events:\n%s", all)
		}
		if err := w.Fake.AutoscalingV2().HorizontalPodAutoscalers("shop").Delete(t.Context(), "web-too", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.metrics.cpu["p0"] = 500
		time.Sleep(period)
		if got := w.status("web"); strings.Contains(got, "AmbiguousSelector") {
			t.Errorf("after one is deleted: %s", got)
		}
	})
}

// TestManyShareATarget checks that the status of each of very many autoscalers of one target
// does not name them all.
func TestManyShareATarget(t *testing.T) {
	var all []controller.Key
	for i := range 10_000 {
		all = append(all, controller.Key{Namespace: "shop", Name: fmt.Sprint("web-", i)})
	}
	if got, want := ambiguous("app=web", all[:2]), "pods by selector app=web are controlled by multiple HPAs: [shop/web-0 shop/web-1]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := ambiguous(strings.Repeat("a,", maxSelector/2), all); len(got) > 2<<10 || !strings.HasSuffix(got, "shop/web-9] and others") {
		t.Errorf("a message of %d bytes ends with %s", len(got), got[len(got)-min(len(got), 100):])
	}
}

// TestUnknownTargets reports what cannot be scaled.
func TestUnknownTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkshop(t, 1, anHPA("web", func(hpa *autoscaling.HorizontalPodAutoscaler) { hpa.Spec.ScaleTargetRef.Kind = "Boat" }))
		time.Sleep(period)
		w.expect("an unknown kind", 1, "0→0 AbleToScale=False,FailedGetScale")
		if all := w.events(); len(all) == 0 || !strings.HasPrefix(all[0], "Warning FailedGetScale no matches for ") {
			t.Errorf("events: %q", all)
		}
	})
}
