package etcd

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
)

// Endpoints says where an external etcd cluster is and who we are to it. The
// files are PEM; all three are empty for plain HTTP.
type Endpoints struct {
	URLs     []string // as --etcd-servers
	CAFile   string   // as --etcd-cafile
	CertFile string   // as --etcd-certfile
	KeyFile  string   // as --etcd-keyfile
}

// Timings of the connection to an external etcd, as upstream's.
const (
	dialTimeout      = 20 * time.Second
	keepAliveTime    = 30 * time.Second
	keepAliveTimeout = 10 * time.Second
)

// External is a store in an etcd cluster that others run.
type External struct {
	*Store
	client *clientv3.Client
}

// Size is how many bytes the database file of one of the members takes.
func (e *External) Size(ctx context.Context) (int64, error) {
	status, err := e.client.Status(ctx, e.client.Endpoints()[0])
	if err != nil {
		return 0, err
	}
	return status.DbSize, nil
}

// Dial connects to an external etcd cluster. It returns at once: a cluster
// that is not there yet is waited for by the calls to the store.
func Dial(e Endpoints, logger klog.Logger) (*External, error) {
	if len(e.URLs) == 0 {
		return nil, fmt.Errorf("etcd: no endpoints given, set --etcd-servers")
	}
	config := clientv3.Config{
		Endpoints:            e.URLs,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		MaxCallSendMsgSize:   math.MaxInt32,
		DialOptions:          []grpc.DialOption{grpc.WithUserAgent("coracle-apiserver")},
		Logger:               zapLogger(logger),
	}
	if e.CAFile != "" || e.CertFile != "" || e.KeyFile != "" {
		info := transport.TLSInfo{TrustedCAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile}
		tls, err := info.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("etcd: TLS files %q, %q, %q: %w", e.CAFile, e.CertFile, e.KeyFile, err)
		}
		config.TLS = tls
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("etcd: connect to %v: %w", e.URLs, err)
	}
	return &External{Store: newStore(clientv3.RetryKVClient(client), client), client: client}, nil
}

// How often the cluster is asked whether it answers, and how long it may take.
const (
	askEvery    = 5 * time.Second
	askPatience = 3 * time.Second
)

// Run reports, until ctx ends, whether the cluster answers.
func (e *External) Run(ctx context.Context) error {
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		supervise.Report(ctx, "Unreachable", e.ask(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (e *External) ask(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	if _, err := e.CurrentRevision(bounded); err != nil && ctx.Err() == nil {
		return fmt.Errorf("etcd at %s does not answer: %w", strings.Join(e.client.Endpoints(), ","), err)
	}
	return nil
}

// Close ends the connection.
func (e *External) Close() error { return e.client.Close() }
