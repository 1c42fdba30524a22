package cluster

import (
	"context"
	"errors"
	"sync/atomic"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/coracle-io/coracle/internal/store/etcd"
)

// Cluster is a cluster in this process: a control plane, and a node that
// shares its memory.
//
//	store ─┐                         ┌─ controllers
//	keys ──┼─► API server ─ ready ───┼─ scheduler
//	       │                         └─ node: kubelet, proxy, DNS ◄─ runtime
//	       └─ runtime (started at once, for it takes the longest)
//
// Its methods may be called by several goroutines.
type Cluster struct {
	plane *controlPlane
	node  *Node // nil without one in this process
	ran   atomic.Bool
}

// New checks the options and returns a cluster that does not run yet. It writes
// no files and starts nothing.
//
// Errors in a field are a *FieldError, or several that are joined. Errors in the
// meaning of arguments name upstream's flag.
func New(o Options) (*Cluster, error) {
	settings, err := complete(o)
	if err != nil {
		return nil, err
	}
	if settings.joined() {
		return nil, wrong("Node.Joined", settings.Node.Joined.Server, "the control plane is on another machine: use NewNode")
	}
	configuration, err := configurePlane(settings)
	if err != nil {
		return nil, err
	}
	c := &Cluster{plane: newControlPlane(configuration)}
	if o.Node != nil && !o.Node.SeparateProcess {
		c.node, err = newNode(configuration, c.plane.group, inProcessAccess{c.plane})
	}
	return c, err
}

// Run runs the cluster until ctx ends, and then returns nil. A second call
// returns an error. When Run returns, all of its goroutines have ended and a
// temporary data directory is removed. Containers keep running.
//
// Run returns an error if the cluster cannot start with these options, if an
// embedded etcd fails, and as ControlPlaneOptions.FollowAddress says. A component
// that fails later is restarted.
//
// A failed etcd may never answer or end. Run then returns within about a second.
// Requests that wait for etcd end with their own deadlines, and then a temporary
// data directory is removed. What etcd itself holds is released when the process
// ends.
func (c *Cluster) Run(ctx context.Context) error {
	if c.ran.Swap(true) {
		return errRanBefore
	}
	if c.node == nil {
		return c.plane.Run(ctx)
	}
	defer c.node.encryption.stop()
	return c.plane.run(ctx, c.node.start)
}

// APIReady returns a channel that is closed once the API server answers. It is
// never closed if Run fails before.
func (c *Cluster) APIReady() <-chan struct{} { return c.plane.ready }

// Ready returns a channel that is closed once the node of this process is Ready
// or, without such a node, once the API server answers. It is never closed if
// Run fails before.
func (c *Cluster) Ready() <-chan struct{} {
	if c.node != nil {
		return c.node.Ready()
	}
	return c.plane.ready
}

// Client returns a client with the rights of a cluster admin. Its requests take
// the usual path through the API server, but no socket. Client returns nil before
// APIReady. Requests fail after Run has returned.
func (c *Cluster) Client() kubernetes.Interface { return c.plane.Client() }

// Config returns a new configuration for clients with the rights of a cluster
// admin: HTTPS to URL, without a rate limit. Its certificate is valid for four
// months at least. With Options.InProcess its Transport passes requests on
// without a socket. Config returns nil before APIReady.
func (c *Cluster) Config() *rest.Config { return c.plane.config() }

// URL returns the address of the API server for clients on this machine, such
// as https://127.0.0.1:40321. It returns "" before APIReady, and with
// Options.InProcess.
func (c *Cluster) URL() string { return c.plane.url() }

// AdminKubeconfig returns a kubeconfig with the rights of a cluster admin for
// the API server at the URL server, which is Cluster.URL or another address of
// the same API server. It contains the key and certificates, valid for four
// months at least. AdminKubeconfig returns nil before APIReady.
func (c *Cluster) AdminKubeconfig(server string) *clientcmdapi.Config {
	return c.plane.adminKubeconfig(server)
}

// Status returns the state of the cluster's components, and a channel that is
// closed when the state changes.
func (c *Cluster) Status() (Status, <-chan struct{}) { return status(c.plane.group) }

// ErrDamaged is wrapped by the error of Run if the data of the embedded etcd is
// damaged, so that every start fails.
var ErrDamaged = etcd.ErrDamaged

// errRanBefore is the error of a second Run.
var errRanBefore = errors.New("a cluster or node runs once: make another one with New or NewNode")
