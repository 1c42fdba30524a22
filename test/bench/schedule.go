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
	schedulingNodes = 1000
	schedulingPods  = 3000
)

// shape is a kind of pod whose scheduling is measured.
type shape struct {
	name, budget string
	change       func(spec *v1.PodSpec, selector *metav1.LabelSelector)
}

func shapes() []shape {
	return []shape{
		{"basic", "4,000/s", func(*v1.PodSpec, *metav1.LabelSelector) {}},
		{"affinity", "2,000/s", func(spec *v1.PodSpec, selector *metav1.LabelSelector) {
			spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
				{LabelSelector: selector, TopologyKey: v1.LabelTopologyZone},
			}}}
		}},
		{"spread", "2,000/s", func(spec *v1.PodSpec, selector *metav1.LabelSelector) {
			spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: selector,
			}}
		}},
	}
}

// measureScheduling binds pods to nodes that nobody serves, and counts from
// the first create to the last binding: what a user waits for.
func measureScheduling(ctx context.Context, s *settings, c *cluster, t *table) error {
	config := rest.CopyConfig(c.config)
	config.QPS, config.ContentType = -1, runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if _, err := parallel(ctx, schedulingNodes, s.clients, func(ctx context.Context, i int) error { return makeNode(ctx, client, i) }); err != nil {
		return err
	}
	for _, shape := range shapes() {
		rate, err := schedule(ctx, s, client, shape)
		if err != nil {
			return fmt.Errorf("%s: %w", shape.name, err)
		}
		t.add(fmt.Sprintf("schedule %d pods on %d nodes, %s, with creates", schedulingPods, schedulingNodes, shape.name), shape.budget, "%.0f/s", rate)
	}
	return client.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "bench=nodes"})
}

func schedule(ctx context.Context, s *settings, client kubernetes.Interface, shape shape) (perSecond float64, err error) {
	namespace := "bench-" + shape.name
	if err := makeNamespace(ctx, client, namespace); err != nil {
		return 0, err
	}
	w, err := client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName!="})
	if err != nil {
		return 0, err
	}
	defer w.Stop()
	began := time.Now()
	created := make(chan error, 1)
	go func() {
		_, err := parallel(ctx, schedulingPods, s.clients, func(ctx context.Context, i int) error {
			_, err := client.CoreV1().Pods(namespace).Create(ctx, schedulingPod(shape, i), metav1.CreateOptions{})
			return err
		})
		created <- err
	}()
	bound := map[string]bool{}
	patience := time.After(5 * time.Minute)
	for len(bound) < schedulingPods {
		select {
		case event, open := <-w.ResultChan():
			if !open {
				return 0, fmt.Errorf("the watch ended with %d pods bound", len(bound))
			}
			if pod, ok := event.Object.(*v1.Pod); ok {
				bound[pod.Name] = true
			}
		case err := <-created:
			if err != nil {
				return 0, err
			}
			created = nil
		case <-patience:
			return 0, fmt.Errorf("only %d of %d pods are bound", len(bound), schedulingPods)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	took := time.Since(began)
	now := int64(0)
	return schedulingPods / took.Seconds(), client.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
}

func schedulingPod(shape shape, i int) *v1.Pod {
	color := fmt.Sprintf("c%d", i%50)
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%06d", i), Labels: map[string]string{"color": color}},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "main", Image: "example/app:1",
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
				v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("500Mi"),
			}},
		}}},
	}
	shape.change(&pod.Spec, &metav1.LabelSelector{MatchLabels: map[string]string{"color": color}})
	return pod
}

// makeNode makes a node that is Ready and stays so: without a kubelet the
// node lifecycle controller gives it some time before it says otherwise.
func makeNode(ctx context.Context, client kubernetes.Interface, i int) error {
	name := fmt.Sprintf("bench-node-%05d", i)
	capacity := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("32"), v1.ResourceMemory: resource.MustParse("256Gi"), v1.ResourcePods: resource.MustParse("110"),
	}
	node, err := client.CoreV1().Nodes().Create(ctx, &v1.Node{
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
	_, err = client.CoreV1().Nodes().Patch(ctx, node.Name, "application/merge-patch+json", []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
	return err
}
