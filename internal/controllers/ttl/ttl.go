// Package ttl is the TTL controller. It annotates nodes with how long their kubelets may use
// cached secrets and config maps, which is longer in a larger cluster.
package ttl

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/internal/controller"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Name:           "ttl-controller",
		Aliases:        []string{"ttl"},
		ServiceAccount: "ttl-controller",
		EventSource:    "ttl-controller",
		New:            newController,
	}
}

// workers is the number of nodes that are synced concurrently.
const workers = 5

// boundary is a TTL and the numbers of nodes for which it stays. The ranges overlap, so that
// the TTL does not change with every node.
type boundary struct {
	min, max int
	ttl      time.Duration
}

func boundaries() []boundary {
	return []boundary{
		{0, 100, 0},
		{90, 500, 15 * time.Second},
		{450, 1000, 30 * time.Second},
		{900, 2000, time.Minute},
		{1800, 10000, 5 * time.Minute},
	}
}

type nodes struct {
	env   *controller.Env
	kube  kubernetes.Interface
	queue *controller.Queue[string]

	mu    sync.Mutex // guards the following
	names map[string]bool
	step  int // index in boundaries
}

func newController(env *controller.Env) (controller.Controller, error) {
	c := &nodes{env: env, kube: env.Client.Kubernetes, names: map[string]bool{}}
	c.queue = controller.NewQueue(env.Queues, "ttl", controller.Existing[string](env.Client.Informers.Core().V1().Nodes().Informer(), c.sync))
	return c, nil
}

// Run implements controller.Controller.
func (c *nodes) Run(ctx context.Context) error {
	return controller.Serve(ctx, []controller.Source{
		controller.On(c.env.Client.Informers.Core().V1().Nodes().Informer(), c.nodeChanged),
	}, c.queue.Workers(workers))
}

// nodeChanged enqueues a node, and all nodes if the TTL has changed.
func (c *nodes) nodeChanged(old, new *v1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if new == nil {
		delete(c.names, old.Name)
	} else {
		c.names[new.Name] = true
		c.queue.Add(new.Name)
	}
	before := c.step
	for all := boundaries(); ; {
		switch n := len(c.names); {
		case n > all[c.step].max && c.step < len(all)-1:
			c.step++
			continue
		case n < all[c.step].min:
			c.step--
			continue
		}
		break
	}
	if c.step == before {
		return
	}
	for name := range c.names {
		c.queue.Add(name)
	}
}

func (c *nodes) sync(ctx context.Context, node *v1.Node) error {
	c.mu.Lock()
	seconds := strconv.Itoa(int(boundaries()[c.step].ttl.Seconds()))
	c.mu.Unlock()
	if node.Annotations[v1.ObjectTTLAnnotationKey] == seconds {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": node.UID, "annotations": map[string]string{v1.ObjectTTLAnnotationKey: seconds},
	}})
	if err != nil {
		return err
	}
	_, err = c.kube.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return controller.IgnoreNotFound(err)
}
