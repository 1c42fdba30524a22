package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/etcd"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/supervise"
)

// ControlPlane is the part of a cluster that nodes work for: store, API
// server, controllers and scheduler.
type ControlPlane struct {
	options    *Options
	log        *logging.Log
	keys       *pki.Directory
	admin      *pki.Certificate
	api        *apiserver.Flags
	etcd       *component.Etcd
	manager    *component.ControllerManager
	scheduler  *component.Scheduler
	group      *supervise.Group
	servers    servers // the instances of the API server
	events     *events
	ready      chan struct{}
	mu         sync.Mutex // guards kubernetes
	kubernetes kubernetes.Interface
}

// NewControlPlane checks the options and prepares a control plane; nothing
// runs before Run.
func NewControlPlane(o Options) (*ControlPlane, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	p := &ControlPlane{
		options: &o, log: logging.New(o.Log, o.LogLevels), events: newEvents(o.NodeName, o.WithoutNode), ready: make(chan struct{}),
	}
	p.group = supervise.NewGroup(supervise.Options{Context: p.log.Context, Changed: p.events.changed})
	if err := p.parseArguments(); err != nil {
		return nil, err
	}
	if len(p.api.EtcdServers) == 0 && !o.InMemory {
		if err := lostKeys(p.etcd.Dir, p.api); err != nil {
			return nil, err
		}
	}
	var err error
	if p.keys, err = pki.Open(p.api.CertDir, clock.RealClock{}); err != nil {
		return nil, fmt.Errorf("open the cluster's keys: %w", err)
	}
	if len(p.api.EtcdServers) == 0 {
		if err := p.etcd.UseKeys(p.keys); err != nil {
			return nil, err
		}
	}
	p.manager.Options.RootCA = p.keys.Cluster().PEM()
	if p.manager.Options.ServiceAccountKeyFile == "" {
		p.manager.Options.ServiceAccountKeyFile = p.keys.File("sa.key")
	}
	if signing := p.manager.Options; signing.ClusterSigningCertFile == "" && signing.ClusterSigningKeyFile == "" {
		signing.ClusterSigningCertFile = p.keys.File(pki.ClusterAuthority + ".crt")
		signing.ClusterSigningKeyFile = p.keys.File(pki.ClusterAuthority + ".key")
	}
	if err := p.serveWithOwnKeys("kube-controller-manager", &p.manager.Serving); err != nil {
		return nil, err
	}
	if err := p.serveWithOwnKeys("kube-scheduler", &p.scheduler.Serving); err != nil {
		return nil, err
	}
	p.admin, err = p.keys.Issue(pki.Admin())
	return p, err
}

// Prepare makes the keys of a cluster, and writes the files by which a node in
// another process reaches it. What is there already is kept.
func Prepare(o Options) error {
	p, err := NewControlPlane(o)
	if err != nil {
		return err
	}
	return p.keepNode()
}

// NodeDir is where the node of a data directory has its files.
func NodeDir(dataDir string) string { return filepath.Join(dataDir, "node") }

func (p *ControlPlane) keepNode() error {
	if p.options.WithoutNode {
		return nil
	}
	if err := p.api.KeepNode(p.keys, NodeDir(p.options.DataDir), p.options.NodeName); err != nil {
		return fmt.Errorf("write the node's files: %w", err)
	}
	return nil
}

// serveWithOwnKeys lets a component serve with a certificate of the cluster,
// which stays valid, and trust the cluster's client certificates.
func (p *ControlPlane) serveWithOwnKeys(name string, s *base.Serving) error {
	certificate, err := p.keys.Issue(pki.Component(name))
	if err != nil {
		return err
	}
	s.GetCertificate, s.ClientCA = certificate.GetCertificate, p.keys.Cluster().VerifyOptions
	return nil
}

// Ready is closed once the API server answers.
func (p *ControlPlane) Ready() <-chan struct{} { return p.ready }

// AdminKubeconfig reaches the API server at a URL as cluster admin.
func (p *ControlPlane) AdminKubeconfig(server string) *clientcmdapi.Config {
	return pki.Kubeconfig{
		Cluster: p.options.Name, Server: server, User: p.options.Name, Authority: p.keys.Cluster(), Identity: p.admin, Embed: true,
	}.Config()
}

// AdminKubeconfig reaches the API server of a cluster at a URL as cluster admin,
// by the keys that the cluster has made. Nothing is written.
func AdminKubeconfig(o Options, server string) (*clientcmdapi.Config, error) {
	api := apiserver.NewFlags()
	api.CertDir = keysDir(&o)
	if err := parse("apiserver", api.AddFlags, o.APIServerArgs); err != nil {
		return nil, err
	}
	authority, admin, err := pki.ReadAdmin(api.CertDir)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's keys: %w", err)
	}
	return pki.Kubeconfig{Cluster: o.Name, Server: server, User: o.Name, Authority: authority, Identity: admin, Embed: true}.Config(), nil
}

// keysDir is where a cluster's keys are unless an argument says otherwise.
func keysDir(o *Options) string { return filepath.Join(o.DataDir, "pki") }

// Client is a client with a cluster admin's rights that needs no socket; nil
// before Ready.
func (p *ControlPlane) Client() kubernetes.Interface {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kubernetes
}

// Status is how the components are, and a channel that is closed when that has
// changed.
func (p *ControlPlane) Status() (supervise.Status, <-chan struct{}) { return p.group.Status() }

// Run runs the control plane until ctx ends. It returns an error if it cannot
// be started as it is configured, and for what only another process can mend;
// a component that fails later is started again.
func (p *ControlPlane) Run(ctx context.Context) error { return p.run(ctx, func(context.Context) {}) }

// run is Run with others in the group, which beside starts. They end with the
// control plane, whatever ends that.
func (p *ControlPlane) run(ctx context.Context, beside func(context.Context)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := p.api.KeepKubeconfigs(p.log.Context(ctx, "pki"), p.keys, p.options.NodeName); err != nil {
		return fmt.Errorf("write the components' kubeconfigs: %w", err)
	}
	if err := p.keepNode(); err != nil {
		return err
	}
	beside(ctx)
	p.group.Go(ctx, "pki", p.keys.Run)
	s, err := p.openStore(ctx, cancel)
	if err == nil {
		err = p.start(ctx, s)
	}
	if err != nil {
		cancel(err)
	}
	<-ctx.Done()
	if lost := (*lostStore)(nil); errors.As(context.Cause(ctx), &lost) {
		p.waitBriefly(ctx)
		return lost
	}
	p.group.Wait()
	if closer, ok := s.(io.Closer); ok {
		_ = closer.Close() // what it would tell nobody waits for any more
	}
	return ignoreCanceled(context.Cause(ctx))
}

// lostStore is that the store is gone for good.
type lostStore struct{ error }

func (l *lostStore) Unwrap() error { return l.error }

// lostPatience is how long the components may take to end without a store. The
// requests that wait for its answer would take as long as their clients like.
const lostPatience = 300 * time.Millisecond

// waitBriefly waits for the components for lostPatience. The end of the
// process ends those that are left.
func (p *ControlPlane) waitBriefly(ctx context.Context) {
	ended := make(chan struct{})
	supervise.Go(ctx, func() {
		defer close(ended)
		p.group.Wait()
	})
	select {
	case <-ended:
	case <-time.After(lostPatience):
	}
}

// openStore opens the store and looks after it. Only an etcd inside this
// process can end the control plane: what it holds on to when it fails is
// given back by the end of the process alone.
func (p *ControlPlane) openStore(ctx context.Context, end context.CancelCauseFunc) (store.Store, error) {
	switch {
	case p.options.InMemory:
		return mem.New(), nil
	case len(p.api.EtcdServers) > 0:
		external, err := p.api.Dial(p.log.Context(ctx, "etcd"))
		if err != nil {
			return nil, fmt.Errorf("reach etcd: %w", err)
		}
		p.group.Go(ctx, "etcd", external.Run)
		return external, nil
	}
	if p.etcd.Shared() {
		p.options.Progress("waiting for enough members of the etcd cluster " + p.etcd.InitialCluster)
	}
	var embedded *etcd.Embedded
	opened := make(chan error, 1)
	p.group.Go(ctx, "etcd", func(ctx context.Context) error {
		if embedded == nil {
			var err error
			embedded, err = etcd.Embed(ctx, p.etcd.Config)
			opened <- err
			if err != nil {
				<-ctx.Done() // whoever waits for the store ends all
				return nil
			}
		}
		err := embedded.Run(ctx)
		if err != nil {
			end(&lostStore{fmt.Errorf("etcd in %s: %w", p.etcd.Dir, err)})
		}
		return err
	})
	select {
	case err := <-opened:
		if err != nil {
			return nil, err
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p.options.Progress("etcd is up")
	return embedded, nil
}

// checkServiceRange refuses a store that other servers share whose Services have
// their addresses from another range: both would give them away.
func (p *ControlPlane) checkServiceRange(ctx context.Context) error {
	if len(p.api.EtcdServers) == 0 && !p.etcd.Shared() {
		return nil
	}
	stored, err := p.Client().NetworkingV1().ServiceCIDRs().Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the range of Services that is stored: %w", err)
	}
	own, err := p.api.ServiceRanges()
	if err != nil {
		return err
	}
	if first := stored.Spec.CIDRs; len(first) > 0 && first[0] != own[0].String() { // a second one may have come later
		return fmt.Errorf("--service-cidr=%s: the Services stored in this etcd have their addresses from %s: start with --service-cidr=%s, as all servers of one etcd", p.options.ServiceCIDR, first[0], strings.Join(first, ","))
	}
	return nil
}

// start brings up the API server on the store, and then what works with it.
func (p *ControlPlane) start(ctx context.Context, s store.Store) error {
	if err := p.startAPIServer(ctx, s); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil // who ended it said why
	}
	if err := p.checkServiceRange(ctx); err != nil {
		return err
	}
	p.options.Progress("API server answers at https://" + net.JoinHostPort("127.0.0.1", fmt.Sprint(p.api.SecurePort)))
	close(p.ready)
	p.group.Go(ctx, "events", func(ctx context.Context) error { return p.events.run(ctx, p.Client()) })
	p.group.Go(ctx, "controller-manager", p.servers.with(p.manager.RunWith))
	p.group.Go(ctx, "scheduler", p.servers.with(p.scheduler.RunWith))
	return nil
}
