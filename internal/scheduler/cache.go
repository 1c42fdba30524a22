package scheduler

import (
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// clusterCache is the cluster as the scheduler sees it: nodes, the pods on them and
// the pods that it has chosen a node for but whose binding is under way
// (assumed). A decision is made under the lock, on the live state, so nothing
// is ever copied for it.
type clusterCache struct {
	mu      sync.Mutex // guards everything below
	cluster framework.Cluster
	nodes   map[string]*framework.Node // also those known only by their pods
	pods    map[types.UID]placed
}

type placed struct {
	pod     *framework.Pod
	node    string
	assumed bool
}

func newCache(selectors func(*v1.Pod) []framework.Matcher) *clusterCache {
	c := &clusterCache{
		cluster: framework.Cluster{
			ByName: map[string]*framework.Node{}, Namespaces: map[string]map[string]string{},
			Images: map[string]framework.Image{}, Selectors: selectors,
		},
		nodes: map[string]*framework.Node{},
		pods:  map[types.UID]placed{},
	}
	c.cluster.Census = framework.NewCensus(maps.Values(c.nodes))
	return c
}

// size counts the nodes, the pods on them and the assumed ones among those.
func (c *clusterCache) size() (nodes, pods, assumed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pods {
		if p.assumed {
			assumed++
		}
	}
	return len(c.cluster.Nodes), len(c.pods), assumed
}

func (c *clusterCache) node(name string) *framework.Node {
	n, ok := c.nodes[name]
	if !ok {
		n = framework.NewNode(name)
		c.nodes[name] = n
	}
	return n
}

func (c *clusterCache) setNode(node *v1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.node(node.Name)
	if n.Node == nil || !maps.Equal(n.Node.Labels, node.Labels) {
		c.cluster.ForgetDomains()
	}
	if n.Node == nil {
		c.cluster.Nodes = append(c.cluster.Nodes, n)
		c.cluster.ByName[node.Name] = n
	} else {
		c.countImages(n.Node, -1)
	}
	n.SetNode(node)
	c.countImages(node, 1)
}

func (c *clusterCache) deleteNode(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.nodes[name]
	if !ok || n.Node == nil {
		return
	}
	c.cluster.ForgetDomains()
	c.countImages(n.Node, -1)
	n.Node = nil
	delete(c.cluster.ByName, name)
	c.cluster.Nodes = slices.DeleteFunc(c.cluster.Nodes, func(o *framework.Node) bool { return o == n })
	if len(n.Pods) == 0 {
		delete(c.nodes, name)
	}
}

func (c *clusterCache) countImages(node *v1.Node, sign int) {
	for i := range node.Status.Images {
		for _, name := range node.Status.Images[i].Names {
			image := c.cluster.Images[name]
			image.Nodes += sign
			image.Size = node.Status.Images[i].SizeBytes
			if image.Nodes == 0 {
				delete(c.cluster.Images, name)
			} else {
				c.cluster.Images[name] = image
			}
		}
	}
}

// setPod takes the state of an assigned pod from the API; it confirms what
// was assumed.
func (c *clusterCache) setPod(pod *v1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if podutil.IsFinished(pod) {
		c.remove(pod.UID)
		return
	}
	c.place(framework.NewPod(pod), pod.Spec.NodeName, false)
}

func (c *clusterCache) deletePod(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(uid)
}

// holds reports whether the pod has a node, known or assumed.
func (c *clusterCache) holds(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.pods[uid]
	return ok
}

// forget takes back an assumption whose binding failed.
func (c *clusterCache) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pods[uid].assumed {
		c.remove(uid)
	}
}

func (c *clusterCache) setNamespace(name string, labels map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !maps.Equal(c.cluster.Namespaces[name], labels) {
		c.cluster.Census.Forget()
	}
	c.cluster.Namespaces[name] = labels
}

func (c *clusterCache) deleteNamespace(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.cluster.Namespaces, name)
	c.cluster.Census.Forget()
}

// place and remove are called with the lock held.
func (c *clusterCache) place(pod *framework.Pod, node string, assumed bool) {
	c.remove(pod.Pod.UID)
	n := c.node(node)
	n.AddPod(pod)
	c.pods[pod.Pod.UID] = placed{pod, node, assumed}
	c.cluster.Census.Count(n, pod, 1)
}

func (c *clusterCache) remove(uid types.UID) {
	p, ok := c.pods[uid]
	if !ok {
		return
	}
	delete(c.pods, uid)
	n := c.nodes[p.node]
	n.RemovePod(uid)
	c.cluster.Census.Count(n, p.pod, -1)
	if n.Node == nil && len(n.Pods) == 0 {
		delete(c.nodes, p.node)
	}
}
