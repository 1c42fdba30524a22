package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/etcd"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Cluster is a cluster in this process.
//
//	store ─┐                         ┌─ controllers
//	keys ──┼─► API server ─ ready ───┼─ scheduler
//	       │                         └─ node: kubelet, proxy, DNS ◄─ runtime
//	       └─ runtime (started at once, for it takes the longest)
type Cluster struct {
	options    Options
	log        *logging.Log
	keys       *pki.Directory
	admin      *pki.Certificate
	api        *component.APIServerFlags
	group      *supervise.Group
	servers    servers // the instances of the API server
	events     *events
	etcd       *component.Etcd
	manager    *component.ControllerManager
	scheduler  *component.Scheduler
	node       *node // nil without one
	apiReady   chan struct{}
	ready      chan struct{}
	mu         sync.Mutex // guards kubernetes
	kubernetes kubernetes.Interface
}

// New checks the options and prepares a cluster; nothing runs before Run.
func New(o Options) (*Cluster, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	c := &Cluster{
		options: o, log: logging.New(o.Log, o.LogLevels), events: newEvents(o.NodeName, o.WithoutNode),
		apiReady: make(chan struct{}), ready: make(chan struct{}),
	}
	c.group = supervise.NewGroup(supervise.Options{Context: c.log.Context, Changed: c.events.changed})
	if err := c.parseArguments(); err != nil {
		return nil, err
	}
	var err error
	if c.keys, err = pki.Open(c.api.CertDir, clock.RealClock{}); err != nil {
		return nil, fmt.Errorf("open the cluster's keys: %w", err)
	}
	if len(c.api.EtcdServers) == 0 {
		if err := c.etcd.UseKeys(c.keys); err != nil {
			return nil, err
		}
	}
	c.manager.Options.RootCA = c.keys.Cluster().PEM()
	if c.manager.Options.ServiceAccountKeyFile == "" {
		c.manager.Options.ServiceAccountKeyFile = c.keys.File("sa.key")
	}
	if signing := c.manager.Options; signing.ClusterSigningCertFile == "" && signing.ClusterSigningKeyFile == "" {
		signing.ClusterSigningCertFile = c.keys.File(pki.ClusterAuthority + ".crt")
		signing.ClusterSigningKeyFile = c.keys.File(pki.ClusterAuthority + ".key")
	}
	if err := c.serveWithOwnKeys("kube-controller-manager", &c.manager.Serving); err != nil {
		return nil, err
	}
	if err := c.serveWithOwnKeys("kube-scheduler", &c.scheduler.Serving); err != nil {
		return nil, err
	}
	if c.admin, err = c.keys.Issue(pki.Admin()); err != nil {
		return nil, err
	}
	if !o.WithoutNode {
		if c.node, err = newNode(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// serveWithOwnKeys lets a component serve with a certificate of the cluster,
// which stays valid, and trust the cluster's client certificates.
func (c *Cluster) serveWithOwnKeys(name string, s *component.Serving) error {
	certificate, err := c.keys.Issue(pki.Component(name))
	if err != nil {
		return err
	}
	s.GetCertificate, s.ClientCA = certificate.GetCertificate, c.keys.Cluster().VerifyOptions
	return nil
}

// APIReady is closed once the API server answers.
func (c *Cluster) APIReady() <-chan struct{} { return c.apiReady }

// Ready is closed once the node is Ready; without a node, once the API server
// answers.
func (c *Cluster) Ready() <-chan struct{} { return c.ready }

// AdminKubeconfig reaches the API server at a URL as cluster admin.
func (c *Cluster) AdminKubeconfig(server string) *clientcmdapi.Config {
	return pki.Kubeconfig{
		Cluster: c.options.Name, Server: server, User: c.options.Name, Authority: c.keys.Cluster(), Identity: c.admin, Embed: true,
	}.Config()
}

// Client is a client with a cluster admin's rights that needs no socket; nil
// before APIReady.
func (c *Cluster) Client() kubernetes.Interface {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kubernetes
}

// Status is how the cluster's components are, and a channel that is closed
// when that has changed.
func (c *Cluster) Status() (supervise.Status, <-chan struct{}) { return c.group.Status() }

// Run runs the cluster until ctx ends. It returns an error if the cluster
// cannot be started as it is configured, and for what only another process can
// mend; a component that fails later is started again.
func (c *Cluster) Run(ctx context.Context) error {
	c.log.CaptureKlog()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := c.api.KeepKubeconfigs(c.log.Context(ctx, "pki"), c.keys, c.options.NodeName); err != nil {
		return fmt.Errorf("write the components' kubeconfigs: %w", err)
	}
	c.group.Go(ctx, "pki", c.keys.Run)
	c.group.Go(ctx, "settle", c.settle)
	if c.node != nil && c.node.runtime != nil {
		c.group.Go(ctx, "containerd", c.node.runtime.Run)
	}
	s, err := c.openStore(ctx, cancel)
	if err == nil {
		err = c.start(ctx, s)
	}
	if err != nil {
		cancel(err)
	}
	<-ctx.Done()
	c.group.Wait()
	return ignoreCanceled(context.Cause(ctx))
}

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// openStore opens the store and looks after it. Only an etcd inside this
// process can end the cluster: what it holds on to when it fails is given
// back by the end of the process alone.
func (c *Cluster) openStore(ctx context.Context, end context.CancelCauseFunc) (store.Store, error) {
	switch {
	case c.options.InMemory:
		return mem.New(), nil
	case len(c.api.EtcdServers) > 0:
		external, err := c.api.Dial(c.log.Context(ctx, "etcd"))
		if err != nil {
			return nil, fmt.Errorf("reach etcd: %w", err)
		}
		c.group.Go(ctx, "etcd", func(ctx context.Context) error {
			<-ctx.Done()
			return external.Close()
		})
		return external, nil
	}
	if c.etcd.Shared() {
		c.options.Progress("waiting for enough members of the etcd cluster " + c.etcd.InitialCluster)
	}
	embedded, err := etcd.Embed(c.log.Context(ctx, "etcd"), c.etcd.Config)
	if err != nil {
		return nil, fmt.Errorf("start etcd in %s: %w", c.etcd.Dir, err)
	}
	c.options.Progress("etcd is up")
	c.group.Go(ctx, "etcd", func(ctx context.Context) error {
		err := embedded.Run(ctx)
		if err != nil {
			end(fmt.Errorf("etcd in %s: %w", c.etcd.Dir, err))
		}
		return err
	})
	return embedded, nil
}

// start brings up the control plane on the store, and then the node.
func (c *Cluster) start(ctx context.Context, s store.Store) error {
	if err := c.startAPIServer(ctx, s); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil // who ended it said why
	}
	close(c.apiReady)
	c.options.Progress("API server answers at https://" + net.JoinHostPort("127.0.0.1", fmt.Sprint(c.api.SecurePort)))
	c.group.Go(ctx, "events", func(ctx context.Context) error { return c.events.run(ctx, c.Client()) })
	c.group.Go(ctx, "controller-manager", c.servers.with(c.manager.RunWith))
	c.group.Go(ctx, "scheduler", c.servers.with(c.scheduler.RunWith))
	if c.node == nil {
		close(c.ready)
		return nil
	}
	c.node.start(ctx)
	return nil
}
