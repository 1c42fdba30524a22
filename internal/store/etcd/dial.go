package etcd

import (
	"context"
	"crypto/tls"
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

// Endpoints holds the addresses of an external etcd cluster and the credentials
// for it. The files are PEM. All three are empty for plain HTTP, and with TLS.
type Endpoints struct {
	URLs     []string // see --etcd-servers
	CAFile   string   // see --etcd-cafile
	CertFile string   // see --etcd-certfile
	KeyFile  string   // see --etcd-keyfile
	TLS      *tls.Config
}

// Timeouts of the connection to an external etcd, with upstream's values.
const (
	dialTimeout      = 20 * time.Second
	keepAliveTime    = 30 * time.Second
	keepAliveTimeout = 10 * time.Second
)

// External is a store in an external etcd cluster.
type External struct {
	*Store
	client *clientv3.Client
}

// Size returns the size of one member's database file in bytes.
func (e *External) Size(ctx context.Context) (int64, error) {
	status, err := e.client.Status(ctx, e.client.Endpoints()[0])
	if err != nil {
		return 0, err
	}
	return status.DbSize, nil
}

// Dial connects to an external etcd cluster, with further options of gRPC. It does
// not wait for a connection: calls to the store wait until the cluster answers.
func Dial(e Endpoints, logger klog.Logger, options ...grpc.DialOption) (*External, error) {
	if len(e.URLs) == 0 {
		return nil, fmt.Errorf("etcd: no endpoints given, set --etcd-servers")
	}
	config := clientv3.Config{
		Endpoints:            e.URLs,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		MaxCallSendMsgSize:   math.MaxInt32,
		DialOptions:          append([]grpc.DialOption{grpc.WithUserAgent("coracle-apiserver")}, options...),
		Logger:               zapLogger(logger),
		TLS:                  e.TLS,
	}
	if e.CAFile != "" || e.CertFile != "" || e.KeyFile != "" {
		info := transport.TLSInfo{TrustedCAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile}
		made, err := info.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("etcd: TLS files %q, %q, %q: %w", e.CAFile, e.CertFile, e.KeyFile, err)
		}
		config.TLS = made
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("etcd: connect to %v: %w", e.URLs, err)
	}
	return &External{Store: newStore(clientv3.RetryKVClient(client), client), client: client}, nil
}

const (
	// checkExternalInterval is the time between two checks of the cluster.
	checkExternalInterval = 5 * time.Second
	// checkExternalTimeout limits one check.
	checkExternalTimeout = 3 * time.Second
)

// Run reports the condition Unreachable while the cluster does not answer, until
// ctx is done.
func (e *External) Run(ctx context.Context) error {
	supervise.Repeat(ctx, checkExternalInterval, func() { supervise.Report(ctx, "Unreachable", e.check(ctx)) })
	return nil
}

// check returns an error if the cluster does not answer.
func (e *External) check(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, checkExternalTimeout)
	defer cancel()
	if _, err := e.CurrentRevision(bounded); err != nil && ctx.Err() == nil {
		return fmt.Errorf("etcd at %s does not answer: %w", strings.Join(e.client.Endpoints(), ","), err)
	}
	return nil
}

// Close closes the connection.
func (e *External) Close() error { return e.client.Close() }
