package main

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	schedulingPods    = 3000
	schedulingTimeout = 5 * time.Minute
)

// shape is a kind of pod for scheduling.
type shape struct {
	name, budget string
	change       func(spec *v1.PodSpec, selector *metav1.LabelSelector)
}

func shapes() []shape {
	return []shape{
		{"basic", "2,000/s", func(*v1.PodSpec, *metav1.LabelSelector) {}},
		{"affinity", "2,000/s, 1,500/s", func(spec *v1.PodSpec, selector *metav1.LabelSelector) {
			spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
				{LabelSelector: selector, TopologyKey: v1.LabelTopologyZone},
			}}}
		}},
		{"anti-affinity", "2,000/s, 1,500/s", func(spec *v1.PodSpec, selector *metav1.LabelSelector) {
			spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
				{LabelSelector: selector, TopologyKey: v1.LabelHostname},
			}}}
		}},
		{"spread", "2,000/s, 1,500/s", func(spec *v1.PodSpec, selector *metav1.LabelSelector) {
			spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: selector,
			}}
		}},
	}
}

// scheduling is a cluster with nodes that have no kubelets.
type scheduling struct {
	cluster *cluster
	client  kubernetes.Interface
	clients int // requests at a time
	nodes   int
	table   *table
}

// withNodes returns a part that measures with each number of nodes in turn.
func withNodes(measure func(*scheduling, context.Context) error) func(context.Context, *settings, *cluster, *table) error {
	return func(ctx context.Context, s *settings, c *cluster, t *table) error {
		config := rest.CopyConfig(c.config)
		config.QPS, config.ContentType = -1, runtime.ContentTypeProtobuf
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		for _, nodes := range s.nodes {
			b := &scheduling{cluster: c, client: client, clients: s.clients, nodes: nodes, table: t}
			if _, err := parallel(ctx, nodes, s.clients, b.makeNode); err != nil {
				return err
			}
			if err := measure(b, ctx); err != nil {
				return fmt.Errorf("%d nodes: %w", nodes, err)
			}
			if err := client.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "bench=nodes"}); err != nil {
				return err
			}
		}
		return nil
	}
}

// add prints a row with what the work cost the control plane.
func (b *scheduling) add(what, budget string, pods int, w work) {
	b.table.add(fmt.Sprintf("%d nodes: %s", b.nodes, what), budget, "%.0f/s, %.2f ms CPU each",
		float64(pods)/w.took.Seconds(), milliseconds(w.used)/float64(pods))
}

// measureScheduling measures pods that wait before the scheduler begins, from
// its first binding to the last, and pods of each shape that are created while
// it works, from the first create to the last binding.
func (b *scheduling) measureScheduling(ctx context.Context) error {
	w, err := b.drain(ctx)
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	b.add(fmt.Sprintf("schedule %d waiting pods", schedulingPods), "4,000/s", schedulingPods, w)
	for _, shape := range shapes() {
		w, err := b.schedule(ctx, shape)
		if err != nil {
			return fmt.Errorf("%s: %w", shape.name, err)
		}
		b.add("schedule pods as they are created, "+shape.name, shape.budget, schedulingPods, w)
	}
	return nil
}

// drain creates the pods while the bench holds the scheduler's lease.
func (b *scheduling) drain(ctx context.Context) (work, error) {
	namespace := fmt.Sprintf("bench-drain-%d", b.nodes)
	release, err := b.holdLease(ctx)
	if err != nil {
		return work{}, err
	}
	seen, err := b.follow(ctx, namespace)
	if err != nil {
		return work{}, err
	}
	defer seen.stop()
	if err := b.create(ctx, namespace, shapes()[0]); err != nil {
		return work{}, err
	}
	if err := release(ctx); err != nil {
		return work{}, err
	}
	if err := seen.until(ctx, 1, nil); err != nil {
		return work{}, err
	}
	first := len(seen.bound)
	w, err := b.cluster.spend(func() error { return seen.until(ctx, schedulingPods, nil) })
	if err != nil {
		return work{}, err
	}
	w.took = w.took * schedulingPods / time.Duration(schedulingPods-first)
	return w, b.deletePods(ctx, namespace)
}

func (b *scheduling) schedule(ctx context.Context, shape shape) (work, error) {
	namespace := fmt.Sprintf("bench-%s-%d", shape.name, b.nodes)
	seen, err := b.follow(ctx, namespace)
	if err != nil {
		return work{}, err
	}
	defer seen.stop()
	w, err := b.cluster.spend(func() error {
		created := make(chan error, 1)
		go func() { created <- b.create(ctx, namespace, shape) }()
		return seen.until(ctx, schedulingPods, created)
	})
	if err != nil {
		return work{}, err
	}
	return w, b.deletePods(ctx, namespace)
}

func (b *scheduling) create(ctx context.Context, namespace string, shape shape) error {
	_, err := parallel(ctx, schedulingPods, b.clients, func(ctx context.Context, i int) error {
		_, err := b.client.CoreV1().Pods(namespace).Create(ctx, schedulingPod(shape, i), metav1.CreateOptions{})
		return err
	})
	return err
}

func (b *scheduling) deletePods(ctx context.Context, namespace string) error {
	now := int64(0)
	return b.client.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
}

func schedulingPod(shape shape, i int) *v1.Pod {
	color := fmt.Sprintf("c%d", i%50)
	pod := benchPodOf(fmt.Sprintf("pod-%06d", i), "100m")
	pod.Labels = map[string]string{"color": color}
	shape.change(&pod.Spec, &metav1.LabelSelector{MatchLabels: map[string]string{"color": color}})
	return pod
}

// benchPodOf returns a pod without a grace period, which ends when it is
// deleted.
func benchPodOf(name, cpu string) *v1.Pod {
	now := int64(0)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: &now,
			Containers: []v1.Container{{
				Name: "main", Image: "example/app:1",
				Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
					v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("500Mi"),
				}},
			}},
		},
	}
}

// makeNode creates a node. The cluster has no node lifecycle controller, so
// that the node stays Ready.
func (b *scheduling) makeNode(ctx context.Context, i int) error {
	name := fmt.Sprintf("bench-node-%05d", i)
	capacity := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("32"), v1.ResourceMemory: resource.MustParse("256Gi"), v1.ResourcePods: resource.MustParse("110"),
	}
	node, err := b.client.CoreV1().Nodes().Create(ctx, &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"bench": "nodes", v1.LabelHostname: name, v1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3),
		}},
		Status: v1.NodeStatus{Capacity: capacity, Allocatable: capacity, Conditions: []v1.NodeCondition{{
			Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = b.client.CoreV1().Nodes().Patch(ctx, node.Name, "application/merge-patch+json", []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
	return err
}
