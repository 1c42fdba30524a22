package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
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

// controlPlane is the part of a cluster that nodes work for: store, API
// server, controllers and scheduler.
type controlPlane struct {
	*settings
	log       *logging.Log
	api       *apiserver.Flags
	etcd      *component.Etcd // nil: the objects are elsewhere
	manager   *component.ControllerManager
	scheduler *component.Scheduler
	group     *supervise.Group
	servers   servers         // the instances of the API server
	served    <-chan struct{} // closed once there is none any more; nil before the first
	events    *events
	ready     chan struct{}

	// What open makes.
	keys  *pki.Directory
	admin *pki.Certificate
	made  bool // the data directory, which close removes

	mu       sync.Mutex   // guards what follows
	listener net.Listener // of a free port, until an API server has taken it
	client   *reached     // nil before the API server has answered
}

// reached is how the API server is reached once it has answered.
type reached struct {
	kubernetes kubernetes.Interface
	config     *rest.Config // without a socket
}

// newControlPlane prepares a control plane; nothing is opened before run.
func newControlPlane(o *settings) (*controlPlane, error) {
	p := &controlPlane{
		settings: o, log: logging.New(o.Log, o.levels), events: newEvents(o.NodeName, o.Node == nil), ready: make(chan struct{}),
	}
	p.group = supervise.NewGroup(supervise.Options{Context: p.log.Context, Changed: p.events.changed})
	return p, p.parseArguments()
}

// open makes the data directory and opens the keys in it, and a free port if
// that is what is asked for. close must follow, after an error too.
func (p *controlPlane) open() (err error) {
	if p.temporary {
		if err := os.Mkdir(p.DataDir, 0o700); err != nil {
			return fmt.Errorf("make a temporary data directory: %w", err)
		}
		p.made = true
	}
	if p.etcd != nil {
		if err := lostKeys(p.etcd.Dir, p.api); err != nil {
			return err
		}
	}
	if p.keys, err = pki.Open(p.api.CertDir, clock.RealClock{}); err != nil {
		return fmt.Errorf("open the cluster's keys: %w", err)
	}
	if p.etcd != nil {
		if err := p.etcd.UseKeys(p.keys); err != nil {
			return err
		}
	}
	p.manager.RootCA = p.keys.Cluster().PEM()
	if tokens := &p.manager.Options.ServiceAccountTokens; tokens.PrivateKeyFile == "" {
		tokens.PrivateKeyFile = p.keys.File("sa.key")
	}
	if signing := &p.manager.Options.Signing; signing.CertFile == "" && signing.KeyFile == "" {
		signing.CertFile = p.keys.File(pki.ClusterAuthority + ".crt")
		signing.KeyFile = p.keys.File(pki.ClusterAuthority + ".key")
	}
	if err := p.serveWithOwnKeys("kube-controller-manager", &p.manager.Serving); err != nil {
		return err
	}
	if err := p.serveWithOwnKeys("kube-scheduler", &p.scheduler.Serving); err != nil {
		return err
	}
	if p.admin, err = p.keys.Issue(pki.Admin()); err != nil || p.InProcess || p.api.SecurePort != 0 {
		return err
	}
	p.listener, err = p.listen()
	return err
}

// close gives back what open has taken.
func (p *controlPlane) close() {
	if l := p.takeListener(); l != nil {
		_ = l.Close() // nobody has heard of it
	}
	if p.made {
		_ = os.RemoveAll(p.DataDir) // best effort: the system clears its temporary directory too
	}
}

// listen opens the API server's port. One that was free stays this cluster's.
func (p *controlPlane) listen() (net.Listener, error) {
	l, err := p.api.Listen()
	if err != nil {
		return nil, wrong("Ports.Secure", fmt.Sprint(p.api.SecurePort), "the port is taken, stop what listens there or choose another: %w", err)
	}
	if p.api.SecurePort == 0 {
		p.api.SecurePort = l.Addr().(*net.TCPAddr).Port
	}
	return l, nil
}

func (p *controlPlane) takeListener() net.Listener {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.listener
	p.listener = nil
	return l
}

// Prepare makes the keys of a cluster in its data directory and, for a node that
// runs apart, the files by which it reaches the API server. It keeps what exists.
// Call it before the processes of the cluster start.
func Prepare(o Options) error {
	settings, err := complete(o)
	if err != nil {
		return err
	}
	p, err := newControlPlane(settings)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.open(); err != nil {
		return err
	}
	return p.keepNode()
}

// keepFiles writes the files by which others reach the API server. Nobody looks
// for them in a temporary directory.
func (p *controlPlane) keepFiles(ctx context.Context) error {
	if p.temporary {
		return nil
	}
	if err := p.api.KeepKubeconfigs(ctx, p.keys, p.NodeName); err != nil {
		return fmt.Errorf("write the components' kubeconfigs: %w", err)
	}
	return p.keepNode()
}

// nodeDir is where a node that runs apart has its files.
func nodeDir(dataDir string) string { return filepath.Join(dataDir, "node") }

func (p *controlPlane) keepNode() error {
	if p.Node == nil || !p.Node.Apart {
		return nil
	}
	if err := p.api.KeepNode(p.keys, nodeDir(p.DataDir), p.NodeName); err != nil {
		return fmt.Errorf("write the node's files: %w", err)
	}
	return nil
}

// serveWithOwnKeys lets a component serve with a certificate of the cluster,
// which stays valid, and trust the cluster's client certificates.
func (p *controlPlane) serveWithOwnKeys(name string, s *base.Serving) error {
	certificate, err := p.keys.Issue(pki.Component(name))
	if err != nil {
		return err
	}
	s.GetCertificate, s.ClientCA = certificate.GetCertificate, p.keys.Cluster().VerifyOptions
	return nil
}

// adminKubeconfig is Cluster.AdminKubeconfig.
func (p *controlPlane) adminKubeconfig(server string) *clientcmdapi.Config {
	if p.reached() == nil {
		return nil
	}
	return pki.Kubeconfig{
		Cluster: p.Name, Server: server, User: p.Name, Authority: p.keys.Cluster(), Identity: p.admin, Embed: true,
	}.Config()
}

// AdminKubeconfig is Cluster.AdminKubeconfig for a cluster that another process
// runs. It reads the keys in the data directory and writes nothing.
func AdminKubeconfig(o Options, server string) (*clientcmdapi.Config, error) {
	settings, err := complete(o)
	if err != nil {
		return nil, err
	}
	api := apiserver.NewFlags()
	api.CertDir = settings.keysDir()
	if err := settings.set("APIServerArgs", api.AddFlags); err != nil {
		return nil, err
	}
	authority, admin, err := pki.ReadAdmin(api.CertDir)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's keys: %w", err)
	}
	return pki.Kubeconfig{Cluster: settings.Name, Server: server, User: settings.Name, Authority: authority, Identity: admin, Embed: true}.Config(), nil
}

// keysDir is where a cluster's keys are unless an argument says otherwise.
func (o *settings) keysDir() string { return filepath.Join(o.DataDir, "pki") }

// Client is Cluster.Client.
func (p *controlPlane) Client() kubernetes.Interface {
	if r := p.reached(); r != nil {
		return r.kubernetes
	}
	return nil
}

func (p *controlPlane) reached() *reached {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.client
}

// url is Cluster.URL.
func (p *controlPlane) url() string {
	if p.reached() == nil || p.InProcess {
		return ""
	}
	host := p.api.BindAddress
	switch {
	case host.Equal(net.IPv4zero):
		host = net.IPv4(127, 0, 0, 1)
	case host.IsUnspecified():
		host = net.IPv6loopback
	}
	return "https://" + net.JoinHostPort(host.String(), strconv.Itoa(p.api.SecurePort))
}

// config is Cluster.Config.
func (p *controlPlane) config() *rest.Config {
	r := p.reached()
	switch {
	case r == nil:
		return nil
	case p.InProcess:
		config := rest.CopyConfig(r.config)
		config.ContentConfig = rest.ContentConfig{} // custom resources have no protobuf
		return config
	}
	certificate, key := p.admin.PEM()
	return &rest.Config{
		Host: p.url(), QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: p.keys.Cluster().PEM(), CertData: certificate, KeyData: key},
	}
}

// Run is Cluster.Run without a node.
func (p *controlPlane) Run(ctx context.Context) error { return p.run(ctx, func(context.Context) {}) }

// run is Run with others in the group, which beside starts. They end with the
// control plane, whatever ends that.
func (p *controlPlane) run(caller context.Context, beside func(context.Context)) error {
	ctx, cancel := context.WithCancelCause(caller)
	defer cancel(nil)
	defer p.close()
	if err := p.open(); err != nil {
		return err
	}
	if err := p.keepFiles(p.log.Context(ctx, "pki")); err != nil {
		return err
	}
	beside(ctx)
	p.group.Go(ctx, "pki", p.keys.Run)
	// Requests that the API server finishes still need the store.
	stored, endStore := context.WithCancel(context.WithoutCancel(ctx))
	defer endStore()
	s, err := p.openStore(ctx, stored, func(err error) {
		cancel(err)
		endStore()
	})
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
	if p.served != nil {
		<-p.served
	}
	endStore()
	p.group.Wait()
	if closer, ok := s.(io.Closer); ok {
		_ = closer.Close() // what it would tell nobody waits for any more
	}
	if caller.Err() != nil && errors.Is(context.Cause(ctx), context.Cause(caller)) {
		return nil
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
func (p *controlPlane) waitBriefly(ctx context.Context) {
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

// openStore opens the store, unless ctx ends before, and looks after it until
// stored ends. Only an etcd inside this
// process can end the control plane: what it holds on to when it fails is
// given back by the end of the process alone.
func (p *controlPlane) openStore(ctx, stored context.Context, end func(error)) (store.Store, error) {
	switch {
	case len(p.api.EtcdServers) > 0:
		external, err := p.api.Dial(p.log.Context(ctx, "etcd"))
		if err != nil {
			return nil, fmt.Errorf("reach etcd: %w", err)
		}
		p.group.Go(stored, "etcd", external.Run)
		return external, nil
	case p.etcd == nil:
		return mem.New(), nil
	}
	if p.etcd.Shared() {
		p.Progress("waiting for enough members of the etcd cluster " + p.etcd.InitialCluster)
	}
	var embedded *etcd.Embedded
	opened := make(chan error, 1)
	p.group.Go(stored, "etcd", func(ctx context.Context) error {
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
	p.Progress("etcd is up")
	return embedded, nil
}

// shared reports whether other processes may have the same objects.
func (p *controlPlane) shared() bool {
	return len(p.api.EtcdServers) > 0 || p.etcd != nil && p.etcd.Shared()
}

// checkServiceRange refuses a store that other servers share whose Services have
// their addresses from another range: both would give them away.
func (p *controlPlane) checkServiceRange(ctx context.Context) error {
	if !p.shared() {
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
		return wrong("ServiceCIDR", p.ServiceCIDR, "the Services stored in this etcd have their addresses from %s: start with %s, as all servers of one etcd", first[0], strings.Join(first, ","))
	}
	return nil
}

// start brings up the API server on the store, and then what works with it.
func (p *controlPlane) start(ctx context.Context, s store.Store) error {
	if err := p.startAPIServer(ctx, s); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil // who ended it said why
	}
	if err := p.checkServiceRange(ctx); err != nil {
		return err
	}
	if p.InProcess {
		p.Progress("API server answers")
	} else {
		p.Progress("API server answers at https://" + net.JoinHostPort("127.0.0.1", fmt.Sprint(p.api.SecurePort)))
	}
	close(p.ready)
	p.group.Go(ctx, "events", func(ctx context.Context) error { return p.events.run(ctx, p.Client()) })
	p.group.Go(ctx, "controller-manager", p.servers.with(p.manager.RunWith))
	p.group.Go(ctx, "scheduler", p.servers.with(p.scheduler.RunWith))
	return nil
}
