package explain

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/podgroup"
	"github.com/coracle-io/coracle/internal/scheduler/queue"
	"github.com/coracle-io/coracle/internal/supervise"
)

func gangs(t *testing.T) config.Configuration {
	t.Helper()
	features, err := feature.Parse([]string{"GenericWorkload=true"})
	if err != nil {
		t.Fatal(err)
	}
	return config.Configuration{Features: features}
}

func group(name string, minCount int32) *schedulingapi.PodGroup {
	g := &schedulingapi.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	g.Spec.SchedulingPolicy.Gang = &schedulingapi.GangSchedulingPolicy{MinCount: minCount}
	return g
}

func inGroup(name string) func(*v1.Pod) {
	return spec(func(s *v1.PodSpec) { s.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new(name)} })
}

func TestGangs(t *testing.T) {
	p := pod("p", inGroup("g"))
	ended := pod("x", inGroup("g"), on("a"), func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded })
	const few = "GangScheduling: waiting for minCount pods from a gang to appear in scheduling queue"
	for _, c := range []struct {
		name    string
		cluster []runtime.Object
		want    []string
	}{
		{"no group", nil, []string{`GangScheduling: waiting for pods's pod group "g" to appear in scheduling queue`}},
		{"too few pods", []runtime.Object{group("g", 2)}, []string{few}},
		{"enough pods", []runtime.Object{group("g", 2), pod("x", inGroup("g"))}, nil},
		{"one is on a node", []runtime.Object{group("g", 2), pod("x", inGroup("g"), on("a"))}, nil},
		{"one has ended", []runtime.Object{group("g", 2), ended}, []string{few}},
		{"one is of another group", []runtime.Object{group("g", 2), pod("x", inGroup("h"))}, []string{few}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := explained(t, Options{Configuration: gangs(t)}, p, append(c.cluster, node("a"), p)...)
			if got := obstacles(d); !slices.Equal(got, c.want) || (d.Node != "") != (c.want == nil) {
				t.Errorf("node %q, obstacles %q; want %q", d.Node, got, c.want)
			}
		})
	}
}

// The pods of a dry run are members of their gang before they are placed.
func TestDryRunOfGangs(t *testing.T) {
	for _, c := range []struct{ minCount, placed int }{{2, 2}, {3, 0}} {
		err := supervise.Run(t.Context(), func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			d, err := Dry(ctx, Options{
				Kubernetes: fake.NewSimpleClientset(group("g", int32(c.minCount))), Configuration: gangs(t), Cluster: &Cluster{Nodes: []*v1.Node{node("a")}},
			}, &Manifest{Pods: []*v1.Pod{pod("p", inGroup("g")), pod("q", inGroup("g"))}})
			if err == nil && d.Placed != c.placed {
				err = fmt.Errorf("%d are placed, want %d: %q", d.Placed, c.placed, obstacles(d.Pods[0]))
			}
			return err
		})
		if err != nil {
			t.Errorf("two pods, minCount %d: %v", c.minCount, err)
		}
	}
}

// A dry run does not place a part of a gang that the scheduler would not bind.
func TestDryRunOfPartsOfGangs(t *testing.T) {
	large := pod("large", inGroup("g"), requests("9", "1Gi"))
	for _, c := range []struct {
		name    string
		cluster []*v1.Pod
		pods    []*v1.Pod
		nodes   []string // of the pods
		why     string   // of the first
	}{
		{"too few get a node", nil, []*v1.Pod{pod("p", inGroup("g")), large, pod("alone")}, []string{"", "", "a"}, "only 1 of the 2 pods of pod group g would get a node, and its gang needs more"},
		{"enough get a node", nil, []*v1.Pod{pod("p", inGroup("g")), large, pod("q", inGroup("g"))}, []string{"a", "", "a"}, ""},
		{"one is on a node", []*v1.Pod{pod("x", inGroup("g"), on("a"))}, []*v1.Pod{pod("p", inGroup("g")), large}, []string{"a", ""}, ""},
	} {
		err := supervise.Run(t.Context(), func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			d, err := Dry(ctx, Options{
				Kubernetes: fake.NewSimpleClientset(group("g", 2)), Configuration: gangs(t), Cluster: &Cluster{Nodes: []*v1.Node{node("a")}, Pods: c.cluster},
			}, &Manifest{Pods: c.pods})
			if err != nil {
				return err
			}
			var nodes []string
			placed := 0
			for _, p := range d.Pods {
				if nodes = append(nodes, p.Node); p.Node != "" {
					placed++
				}
			}
			why := ""
			if r := d.Pods[0].Rejections; len(r) > 0 {
				why = r[0].Obstacles[0].Text
			}
			if !slices.Equal(nodes, c.nodes) || d.Placed != placed || why != c.why {
				t.Errorf("%s: nodes %q, %d placed, %q; want %q, %q", c.name, nodes, d.Placed, why, c.nodes, c.why)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Plugins use the fields of the Handle without checking whether they are set.
func TestHandleIsComplete(t *testing.T) {
	notHere := []string{
		"Filters", "WaitingPods", // profile.New sets them
		"Extenders", "Features", "Bound", "Preemptions", // nil has a meaning
	}
	e := &Explainer{nominator: queue.NewNominator(), groups: podGroups{podgroup.New(), framework.NewSnapshot()}}
	kube := fake.NewSimpleClientset()
	h := reflect.ValueOf(e.newHandle(Options{Kubernetes: kube}, client.NewInformers(kube), map[string]any{})).Elem()
	for i := range h.NumField() {
		name := h.Type().Field(i).Name
		switch h.Field(i).Kind() {
		case reflect.Interface, reflect.Map, reflect.Pointer: // functions are optional
			if h.Field(i).IsNil() && !slices.Contains(notHere, name) {
				t.Errorf("Handle.%s is nil", name)
			}
		default:
		}
	}
}
