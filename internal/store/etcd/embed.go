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

// Config of an etcd inside this process. Only Dir is needed for a single one.
type Config struct {
	Dir       string // data directory, made if missing
	Socket    string // unix socket for etcdctl; "" is etcd.sock in Dir
	ClientURL string // where else to listen, with TLS; "" is nowhere

	// For a member of a Raft cluster:
	Name           string // of this member
	PeerURL        string // where the other members reach this one; "" is a single member
	InitialCluster string // "name=url,name=url"
	Existing       bool   // join a running cluster instead of making one
	PeerTLS        TLSFiles

	ClientTLS  TLSFiles // for ClientURL with https
	QuotaBytes int64    // 0 is 8 GiB
}

// TLSFiles are PEM files. Peers and clients must have a certificate of CA.
type TLSFiles struct{ CA, Cert, Key string }

func (f TLSFiles) info() transport.TLSInfo {
	if f == (TLSFiles{}) {
		return transport.TLSInfo{}
	}
	return transport.TLSInfo{TrustedCAFile: f.CA, CertFile: f.Cert, KeyFile: f.Key, ClientCertAuth: true}
}

// Tuning. A single member elects itself after up to five ticks, which are short
// until then. Once it leads nobody waits for its heartbeats, and each tick wakes
// an idle process. What is committed to the log is durable; the database may
// follow later.
const (
	electingTick        = 2 * time.Millisecond
	singleTick          = 500 * time.Millisecond
	singleElection      = 5 * singleTick // etcd takes no less
	singleBatchInterval = 500 * time.Millisecond
	defaultQuota        = 8 << 30
	maxRequestBytes     = 8 << 20
	singleSnapshotCount = 5000                    // entries of the log until the next snapshot on disk
	singleCatchUp       = 10                      // entries that stay in memory: nobody catches up, and each may hold megabytes
	singlePeer          = "http://localhost:2380" // a name only: nothing listens
)

// DefaultName is what a member is called that was given no name.
const DefaultName = "coracle"

// Embedded is a store in an etcd that runs inside this process.
type Embedded struct {
	*Store
	server *embed.Etcd
	client *clientv3.Client
	file   string // the database
	quota  int64
	poke   chan struct{} // the quota was hit
	ends   fatal         // etcd cannot go on
	room   *room
	single bool // it has no other members
}

// Embed starts an etcd and returns once it can answer. Run must follow.
func Embed(ctx context.Context, config Config) (*Embedded, error) {
	logger := klog.FromContext(ctx)
	ends := newFatal()
	ec, err := config.embed(logger, ends)
	if err != nil {
		return nil, err
	}
	if err := checkFiles(config); err != nil {
		return nil, err
	}
	server, err := start(ec, ends)
	if err != nil {
		supervise.Note(ctx, err)
		return nil, fmt.Errorf("start etcd in %s: %w", config.Dir, becauseFull(config.Dir, statDisk, err))
	}
	if err := os.Chmod(config.socket(), 0o700); err != nil {
		server.Close()
		return nil, fmt.Errorf("start etcd in %s: %w", config.Dir, err)
	}
	e := &Embedded{server: server, file: databaseFile(config.Dir), quota: ec.QuotaBackendBytes, poke: make(chan struct{}, 1), ends: ends, single: config.PeerURL == ""}
	if err := e.lead(ctx, e.single); err != nil {
		return nil, fmt.Errorf("start etcd in %s: %w", config.Dir, err)
	}
	client := v3client.New(server.Server)
	e.room = newRoom(adapter.KvServerToKvClient(v3rpc.NewQuotaKVServer(server.Server)), config.Dir, statDisk)
	e.Store, e.client = newStore(e.room, client), client
	e.Store.full = func() {
		select {
		case e.poke <- struct{}{}:
		default:
		}
	}
	return e, nil
}

// lead waits until there is a leader, and stops an etcd that gets none.
func (e *Embedded) lead(ctx context.Context, single bool) error {
	err := e.elected(ctx, single)
	if err != nil {
		within(ctx.Err() == nil, func() {
			e.server.Server.Stop() // Close alone waits until it is ready
			e.server.Close()
		})
	}
	return err
}

// elected waits until there is a leader, which a single member becomes at once,
// and reports what it waits for.
func (e *Embedded) elected(ctx context.Context, single bool) error {
	if single {
		if err := setTick(e.server.Server, electingTick); err != nil {
			return err
		}
	}
	waiting, cancel := context.WithCancel(ctx)
	var beside supervise.WaitGroup
	beside.Go(waiting, func() { reportLeader(waiting, e.server.Server.ReadyNotify(), e.unready) })
	defer beside.Wait()
	defer cancel()
	select {
	case <-e.server.Server.ReadyNotify():
		beside.Wait()
	case err := <-e.server.Err():
		return err
	case err := <-e.ends:
		return err
	case <-ctx.Done():
		return fmt.Errorf("not ready: %w", ctx.Err())
	}
	if single {
		return setTick(e.server.Server, singleTick)
	}
	return nil
}

// embed turns a Config into etcd's own.
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
	ec.PeerTLSInfo = c.PeerTLS.info()
	ec.InitialCluster = c.InitialCluster
	if c.Existing {
		ec.ClusterState = embed.ClusterStateFlagExisting
	}
	return ec, nil
}

// listenForClients listens on a unix socket that nobody else can open, and on
// TCP only with TLS, which clients need a certificate for.
func (c Config) listenForClients(ec *embed.Config) error {
	if err := makeSocketFolder(filepath.Dir(c.socket())); err != nil {
		return fmt.Errorf("etcd: make the folder of the socket: %w", err)
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
	ec.ListenClientUrls = append(ec.ListenClientUrls, *u)
	ec.AdvertiseClientUrls = []url.URL{*u}
	ec.ClientTLSInfo = c.ClientTLS.info()
	return nil
}

// makeSocketFolder makes a folder that nobody else can enter. Those above it
// may be passed through by others: containers' root directories are there too.
func makeSocketFolder(dir string) error {
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

// single tunes for a cluster of one.
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

// Run looks after the etcd until ctx ends, and stops it then. It returns an
// error if the etcd stopped by itself.
func (e *Embedded) Run(ctx context.Context) error {
	maintenance, cancel := context.WithCancel(ctx)
	var beside supervise.WaitGroup
	beside.Go(maintenance, func() { e.maintain(maintenance) })
	beside.Go(maintenance, func() { e.room.report(maintenance) })
	beside.Go(maintenance, func() { reportPlace(maintenance, e.room.dir) })
	if !e.single { // which leads always
		beside.Go(maintenance, func() { reportLeader(maintenance, nil, e.leaderless) })
	}
	err := e.lives(ctx)
	cancel()
	e.stop(beside.Wait, err != nil)
	return err
}

// lives returns when ctx ends, or with the reason why etcd did.
func (e *Embedded) lives(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-e.server.Err():
		return fmt.Errorf("etcd stopped: %w", err)
	case err := <-e.ends:
		return fmt.Errorf("etcd cannot go on: %w", err)
	case <-e.server.Server.StopNotify():
		return errors.New("etcd stopped")
	}
}

// closePatience is how long an etcd that failed may take to stop. One that
// failed while it held a lock never does, and is left to the end of the
// process, which is near: nothing works without its store.
const closePatience = 300 * time.Millisecond

// stop stops the etcd once those beside it have ended, who may be waiting for
// an answer of one that failed.
func (e *Embedded) stop(beside func(), failed bool) {
	within(failed, func() {
		if !failed {
			beside()
		}
		// The watches go before the server, so that they end without an error.
		_ = e.client.Close()
		e.server.Close()
	})
}

// within waits until closing is done, and if the etcd failed, no longer than
// closePatience.
func within(failed bool, closing func()) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		closing()
	}()
	var late <-chan time.Time
	if failed {
		late = time.After(closePatience)
	}
	select {
	case <-closed:
	case <-late:
	}
}

// start starts an etcd. What it finds fatal, such as a damaged log, is an
// error, and so is a panic.
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
