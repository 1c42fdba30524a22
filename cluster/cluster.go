package cluster

import (
	"context"
	"errors"

	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/coracle-io/coracle/internal/store/etcd"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Cluster is a cluster in this process: a control plane, and a node that
// shares its memory.
//
//	store ─┐                         ┌─ controllers
//	keys ──┼─► API server ─ ready ───┼─ scheduler
//	       │                         └─ node: kubelet, proxy, DNS ◄─ runtime
//	       └─ runtime (started at once, for it takes the longest)
type Cluster struct {
	plane *ControlPlane
	node  *Node // nil without one
}

// New checks the options and prepares a cluster; nothing runs before Run.
func New(o Options) (*Cluster, error) {
	plane, err := NewControlPlane(o)
	if err != nil {
		return nil, err
	}
	c := &Cluster{plane: plane}
	if !o.WithoutNode {
		c.node, err = newNode(plane.options, plane.group, within{plane})
	}
	return c, err
}

// APIReady is closed once the API server answers.
func (c *Cluster) APIReady() <-chan struct{} { return c.plane.Ready() }

// Ready is closed once the node is Ready; without a node, once the API server
// answers.
func (c *Cluster) Ready() <-chan struct{} {
	if c.node != nil {
		return c.node.Ready()
	}
	return c.plane.Ready()
}

// AdminKubeconfig reaches the API server at a URL as cluster admin.
func (c *Cluster) AdminKubeconfig(server string) *clientcmdapi.Config {
	return c.plane.AdminKubeconfig(server)
}

// Client is a client with a cluster admin's rights that needs no socket; nil
// before APIReady.
func (c *Cluster) Client() kubernetes.Interface { return c.plane.Client() }

// Status is how the cluster's components are, and a channel that is closed
// when that has changed.
func (c *Cluster) Status() (supervise.Status, <-chan struct{}) { return c.plane.Status() }

// Run runs the cluster until ctx ends. It returns an error if the cluster
// cannot be started as it is configured, and for what only another process can
// mend; a component that fails later is started again.
func (c *Cluster) Run(ctx context.Context) error {
	if c.node == nil {
		return c.plane.Run(ctx)
	}
	return c.plane.run(ctx, c.node.start)
}

// InVain reports whether a start that failed fails each time that it is tried.
func InVain(err error) bool { return errors.Is(err, etcd.ErrDamaged) }

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
