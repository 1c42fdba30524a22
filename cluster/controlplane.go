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

	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/controllers/certificates"
	"github.com/coracle-io/coracle/internal/host/tree"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/manifests"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/etcd"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/supervise"
)

// controlPlane is the part of a cluster without its node: store, API server,
// controllers and scheduler.
type controlPlane struct {
	*planeConfiguration
	log           *logging.Log
	group         *supervise.Group
	servers       servers         // the instances of the API server
	apiServerDone <-chan struct{} // closed when the API server has ended; nil before its start
	events        *events
	ready         chan struct{}

	// What open creates:
	keys  *pki.Directory
	admin *pki.Certificate
	made  bool // open made the data directory, and close removes it

	mu       sync.Mutex   // guards what follows
	listener net.Listener // of a free port, until an API server has taken it
	client   *reached     // nil before the API server has answered
}

// reached is how clients reach the API server, once it answers.
type reached struct {
	kubernetes kubernetes.Interface
	config     *rest.Config // without a socket
}

// newControlPlane returns a control plane that does not run. It opens nothing.
func newControlPlane(c *planeConfiguration) *controlPlane {
	p := &controlPlane{
		planeConfiguration: c, log: logging.New(c.settings.Log, c.settings.parsed.levels), events: newEvents(c.settings.NodeName, c.settings.Node == nil), ready: make(chan struct{}),
	}
	p.group = supervise.NewGroup(supervise.Options{Context: p.log.Context, Changed: p.events.changed})
	return p
}

// open creates the data directory, opens the keys in it, and listens on a free
// port if the options ask for one. The caller must call close, also after an
// error.
func (p *controlPlane) open() (err error) {
	if p.settings.parsed.temporary {
		if err := os.Mkdir(p.settings.DataDir, 0o700); err != nil {
			return fmt.Errorf("make a temporary data directory: %w", err)
		}
		p.made = true
	}
	if p.etcd != nil {
		if err := checkKeys(p.etcd.Dir, p.api); err != nil {
			return err
		}
	}
	if p.keys, err = pki.Open(p.api.Serving.CertDir, clock.RealClock{}); err != nil {
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
	if signing := &p.manager.Options.Signing; !signing.HasAuthority() {
		signing.Authority = certificates.Authority{CertFile: p.keys.File(pki.ClusterAuthority + ".crt"), KeyFile: p.keys.File(pki.ClusterAuthority + ".key")}
	}
	if err := p.serveWithOwnKeys("kube-controller-manager", &p.manager.Serving); err != nil {
		return err
	}
	if err := p.serveWithOwnKeys("kube-scheduler", &p.scheduler.Serving); err != nil {
		return err
	}
	if p.admin, err = p.keys.Issue(pki.Admin()); err != nil || p.settings.InProcess || p.api.Serving.Port != 0 {
		return err
	}
	p.listener, err = p.listen()
	return err
}

// close releases what open has taken.
func (p *controlPlane) close() {
	if l := p.takeListener(); l != nil {
		_ = l.Close() // it is unused
	}
	if p.made {
		_ = os.RemoveAll(p.settings.DataDir) // best effort: it is a temporary directory
	}
}

// listen opens the API server's port. A free port that was chosen once remains
// this cluster's.
func (p *controlPlane) listen() (net.Listener, error) {
	l, err := p.api.Listen()
	if err != nil {
		return nil, wrong("Ports.Secure", fmt.Sprint(p.api.Serving.Port), "the port is taken, stop what listens there or choose another: %w", err)
	}
	if p.api.Serving.Port == 0 {
		p.api.Serving.Port = l.Addr().(*net.TCPAddr).Port
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

// Prepare creates the keys of a cluster in its data directory and, for a node
// in a process of its own, the files with which it reaches the API server. It
// keeps existing ones. Call it before the processes of the cluster start. It does
// nothing for a node that has joined.
func Prepare(o Options) error {
	settings, err := complete(o)
	if err != nil || settings.joined() {
		return err
	}
	configuration, err := configurePlane(settings)
	if err != nil {
		return err
	}
	p := newControlPlane(configuration)
	defer p.close()
	if err := p.open(); err != nil {
		return err
	}
	return p.keepNode()
}

// keepFiles writes the files with which other processes reach the API server.
// It does nothing for a temporary data directory.
func (p *controlPlane) keepFiles(ctx context.Context) error {
	if p.settings.parsed.temporary {
		return nil
	}
	if err := p.api.KeepKubeconfigs(ctx, p.keys, p.settings.NodeName); err != nil {
		return fmt.Errorf("write the components' kubeconfigs: %w", err)
	}
	return p.keepNode()
}

// nodeDir returns the directory of the files of a node in a process of its own.
func nodeDir(dataDir string) string { return filepath.Join(dataDir, "node") }

func (p *controlPlane) keepNode() error {
	if p.settings.Node == nil || !p.settings.Node.SeparateProcess {
		return nil
	}
	if err := p.api.KeepNode(p.keys, nodeDir(p.settings.DataDir), p.settings.NodeName); err != nil {
		return fmt.Errorf("write the node's files: %w", err)
	}
	for _, number := range p.settings.NodeNumbers()[1:] {
		if err := p.keepFurtherNode(number, p.settings.NameOfNode(number)); err != nil {
			return err
		}
	}
	return nil
}

// keepFurtherNode writes the files of a further node.
func (p *controlPlane) keepFurtherNode(number int, name string) error {
	of := p.settings.node(number)
	if err := p.api.KeepFurtherNode(p.keys, nodeDir(of.DataDir), name, of.nodeAddresses()); err != nil {
		return fmt.Errorf("write the files of node %s: %w", name, err)
	}
	return nil
}

// runKeys renews the keys until ctx ends, also those of further nodes that are added
// meanwhile, and no more those of nodes that are removed.
func (p *controlPlane) runKeys(ctx context.Context) error {
	if p.settings.several() && p.settings.Node.Present != nil {
		known := map[int]string{} // those whose files keepNode has written
		for _, number := range p.settings.NodeNumbers()[1:] {
			known[number] = p.settings.NameOfNode(number)
		}
		supervise.Go(ctx, func() {
			supervise.Every(ctx, networkPeriod, func() { supervise.Report(ctx, "FurtherNodes", p.followNodes(known)) })
		})
	}
	return p.keys.Run(ctx)
}

// furtherNodes returns the names of the further nodes that there are, by number.
func (p *controlPlane) furtherNodes() map[int]string {
	further := map[int]string{}
	for number, name := range p.settings.present() {
		if number > 1 {
			further[number] = name
		}
	}
	return further
}

// followNodes writes the files of further nodes that are not among the known ones,
// forgets those of nodes that are gone, and changes known accordingly. It removes what it
// has written for a node that was removed meanwhile: no key of such a node is left.
func (p *controlPlane) followNodes(known map[int]string) error {
	var errs []error
	for number, name := range p.furtherNodes() {
		if known[number] == name {
			continue
		}
		err := p.keepFurtherNode(number, name)
		if err == nil {
			known[number] = name
		}
		if there := p.settings.Node.Present(); len(there) > 0 && there[number] == "" {
			err = errors.Join(err, tree.Remove(nodeDir(p.settings.node(number).DataDir)))
		}
		errs = append(errs, err)
	}
	now := p.furtherNodes()
	for number := range known {
		if now[number] == "" {
			p.keys.Forget(nodeDir(p.settings.node(number).DataDir))
			delete(known, number)
		}
	}
	return errors.Join(errs...)
}

// serveWithOwnKeys lets a component serve with a certificate of the cluster,
// which is renewed, and accept the cluster's client certificates.
func (p *controlPlane) serveWithOwnKeys(name string, s *base.Serving) error {
	certificate, err := p.keys.Issue(pki.Component(name))
	if err != nil {
		return err
	}
	s.GetCertificate, s.ClientCA = certificate.GetCertificate, p.keys.Cluster().VerifyOptions
	return nil
}

// adminKubeconfig implements Cluster.AdminKubeconfig.
func (p *controlPlane) adminKubeconfig(server string) *clientcmdapi.Config {
	if p.reached() == nil {
		return nil
	}
	return pki.Kubeconfig{
		Cluster: p.settings.Name, Server: server, User: p.settings.Name, Authority: p.keys.Cluster(), Identity: p.admin, Embed: true,
	}.Config()
}

// AdminKubeconfig is Cluster.AdminKubeconfig for a cluster that another process
// runs. It reads the keys in the data directory and writes nothing.
func AdminKubeconfig(o Options, server string) (*clientcmdapi.Config, error) {
	settings, err := complete(o)
	if err != nil {
		return nil, err
	}
	api := apiserver.NewOptions()
	api.Serving.CertDir = settings.keysDir()
	if err := settings.set("APIServerArgs", api.AddFlags); err != nil {
		return nil, err
	}
	authority, admin, err := pki.ReadAdmin(api.Serving.CertDir)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's keys: %w", err)
	}
	return pki.Kubeconfig{Cluster: settings.Name, Server: server, User: settings.Name, Authority: authority, Identity: admin, Embed: true}.Config(), nil
}

// keysDir returns the directory of the cluster's keys.
func (o *settings) keysDir() string { return filepath.Join(o.DataDir, "pki") }

// Client implements Cluster.Client.
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

// url implements Cluster.URL.
func (p *controlPlane) url() string {
	if p.reached() == nil || p.settings.InProcess {
		return ""
	}
	host := p.api.Serving.BindAddress
	switch {
	case host.Equal(net.IPv4zero):
		host = net.IPv4(127, 0, 0, 1)
	case host.IsUnspecified():
		host = net.IPv6loopback
	}
	return "https://" + net.JoinHostPort(host.String(), strconv.Itoa(p.api.Serving.Port))
}

// config implements Cluster.Config.
func (p *controlPlane) config() *rest.Config {
	r := p.reached()
	switch {
	case r == nil:
		return nil
	case p.settings.InProcess:
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

// Run implements Cluster.Run for a cluster without a node in this process.
func (p *controlPlane) Run(ctx context.Context) error { return p.run(ctx, func(context.Context) {}) }

// run runs the control plane and what startNode starts in its group. Both end
// together.
func (p *controlPlane) run(ctx context.Context, startNode func(context.Context)) error {
	if err := p.open(); err != nil {
		p.close()
		return err
	}
	err := p.serve(ctx, startNode)
	if lost := (*lostStore)(nil); !errors.As(err, &lost) {
		p.close()
		return err
	}
	select {
	case <-p.closeLater(ctx):
	case <-time.After(lostStoreTimeout):
	}
	return err
}

// serve runs what open has prepared. All components have ended when it returns,
// unless the error is a lostStore.
func (p *controlPlane) serve(caller context.Context, startNode func(context.Context)) error {
	ctx, cancel := context.WithCancelCause(caller)
	defer cancel(nil)
	if err := p.fixAddress(); err != nil {
		return err
	}
	if err := p.keepFiles(p.log.Context(ctx, "pki")); err != nil {
		return err
	}
	startNode(ctx)
	p.group.Go(ctx, "pki", p.runKeys)
	// Requests in progress still need the store.
	stored, endStore := context.WithCancel(context.WithoutCancel(ctx))
	defer endStore()
	s, err := p.openStore(ctx, stored, func(err error) {
		cancel(err)
		endStore()
	})
	if err == nil {
		err = p.start(ctx, s)
	}
	if err == nil {
		p.keepAddress(ctx, s, cancel)
	} else {
		cancel(err)
	}
	<-ctx.Done()
	if lost := (*lostStore)(nil); errors.As(context.Cause(ctx), &lost) {
		return lost
	}
	if p.apiServerDone != nil {
		<-p.apiServerDone
	}
	endStore()
	p.group.Wait()
	if closer, ok := s.(io.Closer); ok {
		_ = closer.Close() // its error is of no use any more
	}
	if caller.Err() != nil && errors.Is(context.Cause(ctx), context.Cause(caller)) {
		return nil
	}
	return supervise.IgnoreCanceled(context.Cause(ctx))
}

// lostStore is the error of a store that has failed permanently.
type lostStore struct{ error }

func (l *lostStore) Unwrap() error { return l.error }

// lostStoreTimeout is how long run waits for the components to end without a
// store. Requests that wait for the store take as long as their clients wait.
const lostStoreTimeout = 300 * time.Millisecond

// closeLater calls close once all components have ended. The channel is closed
// after that.
func (p *controlPlane) closeLater(ctx context.Context) (closed <-chan struct{}) {
	done := make(chan struct{})
	supervise.Go(ctx, func() {
		defer close(done)
		p.group.Wait()
		p.close()
	})
	return done
}

// openStore opens the store and runs it until stored ends; it gives up when ctx
// ends. Only a failed embedded etcd ends the control plane: the end of the
// process alone releases what it holds.
func (p *controlPlane) openStore(ctx, stored context.Context, end func(error)) (store.Store, error) {
	switch {
	case len(p.api.Storage.Etcd.URLs) > 0:
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
		p.settings.Progress("waiting for enough members of the etcd cluster " + p.etcd.InitialCluster)
	}
	var embedded *etcd.Embedded
	opened := make(chan error, 1)
	p.group.Go(stored, "etcd", func(ctx context.Context) error {
		if embedded == nil {
			var err error
			embedded, err = etcd.Embed(ctx, p.etcd.Config)
			opened <- err
			if err != nil {
				<-ctx.Done() // the callers end when ctx ends
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
	p.settings.Progress("etcd is up")
	return embedded, nil
}

// shared reports whether other processes may use the same objects.
func (p *planeConfiguration) shared() bool {
	return len(p.api.Storage.Etcd.URLs) > 0 || p.etcd != nil && p.etcd.Shared()
}

// mayHaveNodes reports whether Services may get addresses of nodes: this machine has one,
// or other servers of the cluster may have some, whose controllers wait while those here
// lead.
func (p *planeConfiguration) mayHaveNodes() bool {
	return p.settings.Node != nil || p.etcd != nil && p.etcd.Shared()
}

// checkServiceRange returns an error if the store is shared with servers that
// have another Service range: both would allocate addresses.
func (p *controlPlane) checkServiceRange(ctx context.Context) error {
	if !p.shared() {
		return nil
	}
	stored, err := p.Client().NetworkingV1().ServiceCIDRs().Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the range of Services that is stored: %w", err)
	}
	own, err := p.api.Services.Ranges()
	if err != nil {
		return err
	}
	if first := stored.Spec.CIDRs; len(first) > 0 && first[0] != own[0].String() { // a second range may have been added later
		return wrong("ServiceCIDR", p.settings.ServiceCIDR, "the Services stored in this etcd have their addresses from %s: start with %s, like all servers of one etcd", first[0], strings.Join(first, ","))
	}
	return nil
}

// start starts the API server on the store, and then the components that use
// it.
func (p *controlPlane) start(ctx context.Context, s store.Store) error {
	if err := p.startAPIServer(ctx, s); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil // the reason was reported
	}
	if err := p.checkServiceRange(ctx); err != nil {
		return err
	}
	if p.settings.InProcess {
		p.settings.Progress("API server answers")
	} else {
		p.settings.Progress("API server answers at https://" + net.JoinHostPort("127.0.0.1", fmt.Sprint(p.api.Serving.Port)))
	}
	close(p.ready)
	p.group.Go(ctx, "events", func(ctx context.Context) error { return p.events.run(ctx, p.Client()) })
	p.group.Go(ctx, "controller-manager", p.servers.with(p.manager.RunWith))
	if !p.settings.ControlPlane.NoScheduler {
		p.group.Go(ctx, schedulerName, p.servers.with(p.scheduler.RunWith))
	}
	if !p.settings.parsed.temporary {
		p.group.Go(ctx, "node-join", func(ctx context.Context) error { return p.publishNetwork(ctx, s) })
	}
	if len(p.settings.ControlPlane.Manifests) > 0 {
		applier := &manifests.Applier{Directories: p.settings.ControlPlane.Manifests}
		p.group.Go(ctx, "manifests", p.servers.with(applier.RunWith))
	}
	if len(p.simulated) > 0 {
		p.group.Go(ctx, "simulated-nodes", p.servers.with(p.simulated.RunWith))
	}
	return nil
}
