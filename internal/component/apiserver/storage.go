package apiserver

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/encrypt"
	"github.com/coracle-io/coracle/internal/store/etcd"
	"github.com/coracle-io/coracle/internal/store/prefixed"
	"github.com/coracle-io/coracle/internal/tracing"
)

// StorageOptions say where and how objects are stored.
type StorageOptions struct {
	// Etcd is an external etcd cluster. It is for the caller to dial.
	Etcd etcd.Endpoints
	// EncryptionConfig is the file of an EncryptionConfiguration, or empty.
	EncryptionConfig string
	// EventTTL is how long an event is kept after a write; 0 is forever.
	EventTTL time.Duration

	Prefix             string
	Backend            string
	MediaType          string
	CompactionInterval time.Duration // 0 is never
	// GarbageCollector says that one runs, so that deletions may wait for it.
	GarbageCollector bool
}

func newStorageOptions() StorageOptions {
	return StorageOptions{EventTTL: time.Hour, Prefix: prefixed.Default, MediaType: runtime.ContentTypeProtobuf, CompactionInterval: 5 * time.Minute, GarbageCollector: true}
}

func (o *StorageOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.Etcd.URLs, "etcd-servers", o.Etcd.URLs, "URLs of an external etcd cluster")
	fs.StringVar(&o.Etcd.CAFile, "etcd-cafile", o.Etcd.CAFile, "authority of the etcd servers' certificates")
	fs.StringVar(&o.Etcd.CertFile, "etcd-certfile", o.Etcd.CertFile, "client certificate for etcd")
	fs.StringVar(&o.Etcd.KeyFile, "etcd-keyfile", o.Etcd.KeyFile, "key of --etcd-certfile")
	fs.StringVar(&o.EncryptionConfig, "encryption-provider-config", o.EncryptionConfig, "EncryptionConfiguration for stored objects")
	fs.Bool("encryption-provider-config-automatic-reload", true, "read --encryption-provider-config again when it changes; always on")
	fs.DurationVar(&o.EventTTL, "event-ttl", o.EventTTL, "how long an event is kept after it was written; 0 is forever")
	fs.StringVar(&o.Prefix, "etcd-prefix", o.Prefix, "prefix of the keys of all objects in etcd")
	fs.StringVar(&o.Backend, "storage-backend", o.Backend, "where objects are stored: only etcd3")
	fs.StringVar(&o.MediaType, "storage-media-type", o.MediaType, "how objects are stored: only "+runtime.ContentTypeProtobuf+"; custom resources are stored as JSON")
	fs.DurationVar(&o.CompactionInterval, "etcd-compaction-interval", o.CompactionInterval, "how long etcd keeps superseded revisions at least before compaction; 0 disables it")
	fs.BoolVar(&o.GarbageCollector, "enable-garbage-collector", o.GarbageCollector, "let deletions wait for the garbage collector where they ask for it; must have the value of the controller manager's flag")
	flagvalue.Is(fs, flagvalue.File, "etcd-cafile", "etcd-certfile", "etcd-keyfile", "encryption-provider-config")
	flagvalue.Is(fs, flagvalue.URL, "etcd-servers")
}

func (o *StorageOptions) validate() []error {
	var errs []error
	for _, server := range o.Etcd.URLs {
		if flagvalue.IsURL(server) != nil {
			errs = append(errs, fmt.Errorf("--etcd-servers=%s: want a URL such as https://10.0.0.1:2379", server))
		}
	}
	if o.Backend != "" && o.Backend != "etcd3" {
		errs = append(errs, fmt.Errorf("--storage-backend=%s invalid, allowed values: etcd3", o.Backend))
	}
	if o.MediaType != "" && o.MediaType != runtime.ContentTypeProtobuf {
		errs = append(errs, fmt.Errorf("--storage-media-type %q invalid, allowed values: %s", o.MediaType, runtime.ContentTypeProtobuf))
	}
	if o.EventTTL < 0 {
		errs = append(errs, fmt.Errorf("--event-ttl=%s: can not be negative", o.EventTTL))
	}
	if o.CompactionInterval < 0 {
		errs = append(errs, fmt.Errorf("--etcd-compaction-interval=%s: can not be negative", o.CompactionInterval))
	}
	return errs
}

// Dial connects to the etcd cluster of --etcd-servers. With --tracing-config-file, its
// calls are traced.
func (o *Options) Dial(ctx context.Context) (*etcd.External, error) {
	var options []grpc.DialOption
	if o.Tracing.ConfigFile != "" {
		options = append(options, tracing.DialOption())
	}
	return etcd.Dial(o.Storage.Etcd, klog.FromContext(ctx), options...)
}

// encrypted wraps a store with the encryption of --encryption-provider-config.
func (o *StorageOptions) encrypted(ctx context.Context, s store.Store, resources map[string]schema.GroupResource) (*encrypt.Store, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	e, err := encrypt.New(ctx, s, encrypt.Config{File: o.EncryptionConfig, Resources: resources, ServerID: host})
	if err != nil {
		return nil, fmt.Errorf("--encryption-provider-config: %w", err)
	}
	return e, nil
}
