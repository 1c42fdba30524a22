package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/etcd"
	"github.com/coracle-io/coracle/internal/store/mem"
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
		options: o, log: logging.New(o.Log, o.LogLevels),
		apiReady: make(chan struct{}), ready: make(chan struct{}),
	}
	if err := c.parseArguments(); err != nil {
		return nil, err
	}
	var err error
	if c.keys, err = pki.Open(c.api.CertDir, clock.RealClock{}); err != nil {
		return nil, fmt.Errorf("open the cluster's keys: %w", err)
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

// Run runs the cluster until ctx ends or a part fails for good.
func (c *Cluster) Run(ctx context.Context) error {
	c.log.CaptureKlog()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := c.api.KeepKubeconfigs(c.log.Context(ctx, "pki"), c.keys, c.options.NodeName); err != nil {
		return fmt.Errorf("write the components' kubeconfigs: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	c.run(g, ctx, "pki", c.keys.Run)
	c.run(g, ctx, "settle", c.settle)
	if c.node != nil {
		c.run(g, ctx, "containerd", c.node.runRuntime)
	}
	s, err := c.openStore(g, ctx)
	if err != nil {
		cancel()
		return errors.Join(ignoreCanceled(err), ignoreCanceled(g.Wait())) // a part that failed canceled the rest
	}
	if err := c.start(g, ctx, s); err != nil {
		cancel()
		return errors.Join(ignoreCanceled(err), ignoreCanceled(g.Wait())) // a part that failed canceled the rest
	}
	return ignoreCanceled(g.Wait())
}

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// run starts one component, with a logger of its own. A component that ends
// with an error ends the cluster.
func (c *Cluster) run(g *errgroup.Group, ctx context.Context, name string, f func(context.Context) error) {
	g.Go(func() error {
		if err := f(c.log.Context(ctx, name)); err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
}

// openStore opens the store and looks after it in g.
func (c *Cluster) openStore(g *errgroup.Group, ctx context.Context) (store.Store, error) {
	switch {
	case c.options.InMemory:
		return mem.New(), nil
	case len(c.api.EtcdServers) > 0:
		external, err := c.api.Dial(c.log.Context(ctx, "etcd"))
		if err != nil {
			return nil, fmt.Errorf("reach etcd: %w", err)
		}
		c.run(g, ctx, "etcd", func(ctx context.Context) error {
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
	c.run(g, ctx, "etcd", embedded.Run)
	return embedded, nil
}

// start brings up the control plane on the store, and then the node.
func (c *Cluster) start(g *errgroup.Group, ctx context.Context, s store.Store) error {
	api, err := component.NewAPIServer(c.log.Context(ctx, "apiserver"), c.api, s, c.keys)
	if err != nil {
		return err
	}
	listener, err := c.api.Listen()
	if err != nil {
		return err
	}
	c.run(g, ctx, "apiserver", func(ctx context.Context) error { return api.Run(ctx, listener) })
	select {
	case <-api.Ready():
	case <-ctx.Done():
		return nil // g knows why
	}
	admin, err := api.Provider.As("kubernetes-admin", "system:masters", "system:authenticated")
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.kubernetes = admin.Kubernetes
	c.mu.Unlock()
	close(c.apiReady)
	c.options.Progress("API server answers at https://" + net.JoinHostPort("127.0.0.1", fmt.Sprint(c.api.SecurePort)))

	c.run(g, ctx, "controller-manager", func(ctx context.Context) error { return c.manager.RunWith(ctx, api.Provider) })
	c.run(g, ctx, "scheduler", func(ctx context.Context) error { return c.scheduler.RunWith(ctx, api.Provider) })
	if c.node == nil {
		close(c.ready)
		return nil
	}
	return c.node.start(g, ctx, api.Provider)
}
