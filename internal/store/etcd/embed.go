package etcd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
)

// Config is the configuration of an embedded etcd. Only Dir is required for a single
// member.
type Config struct {
	Dir       string // data directory; created if missing
	Socket    string // unix socket for etcdctl; "" means etcd.sock in Dir
	ClientURL string // additional URL to listen on, with TLS; may be empty

	// For a member of a Raft cluster:
	Name           string // of this member
	PeerURL        string // URL for the other members, which may differ at each start; "" means a single member
	InitialCluster string // "name=url,name=url"
	Existing       bool   // join a running cluster instead of creating one
	PeerTLS        TLSFiles
	// PeersAnywhere accepts members that connect from other addresses than those in
	// their certificates, as a machine with several addresses does. Any certificate of
	// PeerTLS.CA is enough then, which must be an authority of etcd alone.
	PeersAnywhere bool

	ClientTLS  TLSFiles // for ClientURL with https
	QuotaBytes int64    // 0 is 8 GiB
}

// TLSFiles are paths of PEM files. Peers and clients must have a certificate of CA.
type TLSFiles struct{ CA, Cert, Key string }

func (f TLSFiles) info() transport.TLSInfo {
	if f == (TLSFiles{}) {
		return transport.TLSInfo{}
	}
	return transport.TLSInfo{TrustedCAFile: f.CA, CertFile: f.Cert, KeyFile: f.Key, ClientCertAuth: true}
}

// Tuning. A single member elects itself after up to five ticks, which are short
// until then. As leader it has no peers that wait for heartbeats, so its ticks are
// slow to save power. Committed log entries are durable. The database may be written
// later.
const (
	electingTick        = 2 * time.Millisecond
	singleTick          = 500 * time.Millisecond
	singleElection      = 5 * singleTick // the minimum that etcd allows
	singleBatchInterval = 500 * time.Millisecond
	defaultQuota        = 8 << 30
	maxRequestBytes     = 8 << 20
	singleSnapshotCount = 5000                    // entries of the log until the next snapshot on disk
	singleCatchUp       = 10                      // entries that stay in memory: there are no followers, and an entry may have megabytes
	singlePeer          = "http://localhost:2380" // only a name: nothing listens there
)

// DefaultName is the name of a member without Config.Name.
const DefaultName = "coracle"

// Embedded is a store in an etcd server in this process.
type Embedded struct {
	*Store
	server   *embed.Etcd
	client   *clientv3.Client
	file     string // the database
	quota    int64
	quotaHit chan struct{} // the quota was hit
	fatal    fatal         // receives etcd's fatal error
	space    *spaceCheck
	single   bool // it is the only member
	peerURL  string
	network  network
}

// Embed starts etcd and returns when it is ready. The caller must call Run.
func Embed(ctx context.Context, config Config) (_ *Embedded, err error) {
	logger := klog.FromContext(ctx)
	ends := newFatal()
	ec, err := config.embed(logger, ends)
	if err != nil {
		return nil, err
	}
	if err := checkFiles(config); err != nil {
		return nil, err
	}
	network, err := config.listen(ctx, ec)
	if err != nil {
		return nil, fmt.Errorf("start etcd in %s: %w", config.Dir, err)
	}
	defer func() {
		if err != nil {
			network.close()
		}
	}()
	server, err := start(ec, ends)
	if err != nil {
		supervise.RecordPanic(ctx, err)
		return nil, fmt.Errorf("start etcd in %s: %w", config.Dir, addDiskFull(config.Dir, statDisk, err))
	}
	if err := os.Chmod(config.socket(), 0o700); err != nil {
		server.Close()
		return nil, fmt.Errorf("start etcd in %s: %w", config.Dir, err)
	}
	network.servePeers(server)
	e := &Embedded{server: server, file: databaseFile(config.Dir), quota: ec.QuotaBackendBytes, quotaHit: make(chan struct{}, 1), fatal: ends, single: config.PeerURL == "", peerURL: config.PeerURL}
	if err := e.lead(ctx, e.single); err != nil {
		return nil, fmt.Errorf("start etcd in %s: %w", config.Dir, err)
	}
	client := v3client.New(server.Server)
	e.space = newSpaceCheck(adapter.KvServerToKvClient(v3rpc.NewQuotaKVServer(server.Server)), config.Dir, statDisk)
	e.Store, e.client = newStore(e.space, client), client
	e.Store.full = func() {
		select {
		case e.quotaHit <- struct{}{}:
		default:
		}
	}
	network.serveClients(server, client)
	e.network = network
	return e, nil
}

// lead waits for a leader. It stops etcd on an error.
func (e *Embedded) lead(ctx context.Context, single bool) error {
	err := e.elected(ctx, single)
	if err != nil {
		closeWithTimeout(ctx.Err() == nil, func() {
			e.server.Server.Stop() // Close alone would wait until etcd is ready
			e.server.Close()
		})
	}
	return err
}

// elected waits for a leader and reports what it waits for. A single member elects
// itself.
func (e *Embedded) elected(ctx context.Context, single bool) error {
	if single {
		if err := setTick(e.server.Server, electingTick); err != nil {
			return err
		}
	}
	waiting, cancel := context.WithCancel(ctx)
	var background supervise.WaitGroup
	background.Go(waiting, func() { reportLeader(waiting, e.server.Server.ReadyNotify(), e.checkReady) })
	defer background.Wait()
	defer cancel()
	telling, stop := context.WithCancel(waiting)
	defer stop()
	// The others send a snapshot to the URL that they know. A member that has moved may
	// never be ready without it. Only a start that succeeds waits for the goroutine: a failed
	// etcd may hold the lock of its members.
	var teller supervise.WaitGroup
	if !single {
		teller.Go(telling, func() { e.keepPeerURL(telling) })
	}
	select {
	case <-e.server.Server.ReadyNotify():
		stop()
		teller.Wait()
		background.Wait()
	case err := <-e.server.Err():
		return e.explained(err)
	case err := <-e.fatal:
		return err
	case <-e.server.Server.StopNotify():
		return e.explained(errStopped)
	case <-ctx.Done():
		return fmt.Errorf("not ready: %w", ctx.Err())
	}
	if single {
		return setTick(e.server.Server, singleTick)
	}
	return nil
}

// embed returns the configuration of etcd.
func (c Config) embed(logger klog.Logger, ends fatal) (*embed.Config, error) {
	if c.Dir == "" {
		return nil, errors.New("etcd: no data directory given")
	}
	ec := embed.NewConfig()
	ec.Dir = c.Dir
	ec.Name = c.Name
	if ec.Name == "" {
		ec.Name = DefaultName
	}
	ec.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapLogger(logger, ends.options()...))
	ec.EnableGRPCGateway = false
	ec.MaxRequestBytes = maxRequestBytes
	ec.QuotaBackendBytes = c.QuotaBytes
	if ec.QuotaBackendBytes == 0 {
		ec.QuotaBackendBytes = defaultQuota
	}
	if err := c.listenForClients(ec); err != nil {
		return nil, err
	}
	if c.PeerURL == "" {
		return c.single(ec)
	}
	if err := setURLs(&ec.ListenPeerUrls, &ec.AdvertisePeerUrls, c.PeerURL); err != nil {
		return nil, err
	}
	ec.ListenPeerUrls = nil // Config.listen
	ec.PeerTLSInfo = c.PeerTLS.info()
	ec.PeerTLSInfo.SkipClientSANVerify = c.PeersAnywhere
	ec.InitialCluster = c.InitialCluster
	if c.Existing {
		ec.ClusterState = embed.ClusterStateFlagExisting
	}
	return ec, nil
}

// listenForClients sets the client URLs: a unix socket that only this user can open,
// where etcd listens, and optionally a TCP address that requires client certificates,
// where Config.listen does.
func (c Config) listenForClients(ec *embed.Config) error {
	if err := makeSocketDir(filepath.Dir(c.socket())); err != nil {
		return fmt.Errorf("etcd: create the directory of the socket: %w", err)
	}
	if err := setURLs(&ec.ListenClientUrls, &ec.AdvertiseClientUrls, "unix://"+c.socket()); err != nil {
		return err
	}
	if c.ClientURL == "" {
		return nil
	}
	u, err := url.Parse(c.ClientURL)
	if err != nil {
		return fmt.Errorf("etcd: listen on %q: %w", c.ClientURL, err)
	}
	ec.AdvertiseClientUrls = []url.URL{*u}
	ec.ClientTLSInfo = c.ClientTLS.info()
	return nil
}

// makeSocketDir makes a directory that only this user can enter. Other users may
// pass through its parents, which also contain the containers' root directories.
func makeSocketDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chmod(dir, 0o700)
}

func (c Config) socket() string {
	if c.Socket != "" {
		return c.Socket
	}
	return filepath.Join(c.Dir, "etcd.sock")
}

// single tunes etcd for a single member.
func (c Config) single(ec *embed.Config) (*embed.Config, error) {
	if err := setURLs(&ec.ListenPeerUrls, &ec.AdvertisePeerUrls, singlePeer); err != nil {
		return nil, err
	}
	ec.ListenPeerUrls = nil
	ec.InitialCluster = ec.Name + "=" + singlePeer
	ec.TickMs = uint(singleTick.Milliseconds())
	ec.ElectionMs = uint(singleElection.Milliseconds())
	ec.BackendBatchInterval = singleBatchInterval
	ec.SnapshotCount = singleSnapshotCount
	ec.SnapshotCatchUpEntries = singleCatchUp
	ec.PreVote = false
	return ec, nil
}

func setURLs(listen, advertise *[]url.URL, text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return fmt.Errorf("etcd: listen on %q: %w", text, err)
	}
	*listen, *advertise = []url.URL{*u}, []url.URL{*u}
	return nil
}

// Run maintains etcd until ctx is done, then stops it. It returns an error if etcd
// stopped by itself.
func (e *Embedded) Run(ctx context.Context) error {
	maintenance, cancel := context.WithCancel(ctx)
	var background supervise.WaitGroup
	background.Go(maintenance, func() { e.maintain(maintenance) })
	background.Go(maintenance, func() { e.space.report(maintenance) })
	background.Go(maintenance, func() { reportDataGone(maintenance, e.space.dir) })
	if !e.single { // a single member is always the leader
		background.Go(maintenance, func() { reportLeader(maintenance, nil, e.checkLeader) })
		background.Go(maintenance, func() { e.gainVote(maintenance) })
		background.Go(maintenance, func() { e.keepPeerURL(maintenance) })
	}
	err := e.wait(ctx)
	cancel()
	e.stop(background.Wait, err != nil)
	return err
}

// wait waits until ctx is done and returns nil, or returns why etcd stopped.
func (e *Embedded) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-e.server.Err():
		return e.explained(fmt.Errorf("%w: %w", errStopped, err))
	case err := <-e.fatal:
		return fmt.Errorf("etcd failed: %w", err)
	case <-e.server.Server.StopNotify():
		return e.explained(errStopped)
	}
}

// errStopped is the error of an etcd that has stopped without a reason.
var errStopped = errors.New("etcd stopped")

// explained returns the error with which etcd has ended, and what it means if the
// server has stopped by itself, which gives no reason: so end members that the others
// have removed.
func (e *Embedded) explained(err error) error {
	select {
	case cause := <-e.fatal: // with which it has stopped
		return fmt.Errorf("etcd failed: %w", cause)
	default:
	}
	select {
	case <-e.server.Server.StoppingNotify():
	default:
		return err
	}
	if e.single {
		return err
	}
	return fmt.Errorf("%w: if the other members have removed this one (coracle etcdctl member list on another server), remove it here with coracle down, and join again", err)
}

// failedCloseTimeout is how long a failed etcd may take to stop. If it failed
// while it held a lock, it never stops. The process then ends soon, because
// nothing works without its store.
const failedCloseTimeout = 300 * time.Millisecond

// stop stops etcd after its background goroutines, which may wait for a failed etcd.
func (e *Embedded) stop(wait func(), failed bool) {
	closeWithTimeout(failed, func() {
		if !failed {
			wait()
		}
		// Close the watches before the server, so that they end without an error.
		_ = e.client.Close()
		e.network.closeClients()
		e.server.Close() // hands over to another member before it ends
		e.network.peers.close()
	})
}

// closeWithTimeout waits until closing returns, or for failedCloseTimeout if etcd
// failed.
func closeWithTimeout(failed bool, closing func()) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		closing()
	}()
	var late <-chan time.Time
	if failed {
		late = time.After(failedCloseTimeout)
	}
	select {
	case <-closed:
	case <-late:
	}
}

// start starts etcd. Fatal errors, such as a damaged log, and panics are returned as
// errors.
func start(ec *embed.Config, ends fatal) (*embed.Etcd, error) {
	type result struct {
		server *embed.Etcd
		err    error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		r.err = supervise.Call(func() (err error) {
			r.server, err = embed.StartEtcd(ec)
			return err
		})
		done <- r
	}()
	select {
	case r := <-done:
		return r.server, r.err
	case err := <-ends:
		return nil, err
	}
}
