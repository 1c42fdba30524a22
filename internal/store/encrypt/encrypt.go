// Package encrypt implements encryption at rest: a Store that encrypts the values
// of some resources in the underlying store, as an EncryptionConfiguration file
// says (aesgcm, aescbc, secretbox, identity, KMS). The format is upstream's:
//
//	k8s:enc:<provider>:<version>:<key name>:<sealed value>
//
// The storage key is authenticated data of a value, so that a value that was moved
// to another key cannot be decrypted. Run reloads the file.
//
// There are two reasons why a value cannot be decrypted. While a KMS plugin
// does not answer, reads of its values fail with store.ErrUnavailable and
// callers retry them. Otherwise the encryption key is not configured. Such a
// value is returned encrypted, so the API does not show it. Watches end when
// the configuration changes, so that all values are read again.
package encrypt

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/supervise"
)

const (
	prefix       = "/registry/"
	reloadPeriod = time.Minute
)

// Config is the configuration of a Store.
type Config struct {
	File string // path of an EncryptionConfiguration
	// Resources maps storage paths ("secrets") to resources.
	Resources map[string]schema.GroupResource
	ServerID  string // the API server's name in KMS metrics
}

// Store encrypts values that are written to the underlying store and decrypts
// values that are read from it.
type Store struct {
	store.Store
	config       Config
	hash         string
	transformers *encryptionconfig.DynamicTransformers
	closed       atomic.Bool // a value could not be decrypted because its key is not configured

	mu       sync.Mutex    // guards reloaded
	reloaded chan struct{} // closed when all values must be read again
}

// KMS is the name of the health check Check.
const KMS = "kms-providers"

// kmsPrefix is the prefix of values that a KMS plugin encrypted.
const kmsPrefix = "k8s:enc:kms:"

// Check returns an error if a configured KMS plugin is unhealthy.
func (e *Store) Check(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "/healthz/"+KMS, nil)
	if err != nil {
		return err
	}
	return e.transformers.Check(request)
}

// New reads the configuration and returns an error if it is invalid. The
// connections to KMS plugins are closed when ctx is done.
func New(ctx context.Context, s store.Store, c Config) (*Store, error) {
	loaded, cancel, err := load(ctx, c)
	if err != nil {
		return nil, err
	}
	e := &Store{Store: s, config: c, hash: loaded.EncryptionFileContentHash, reloaded: make(chan struct{})}
	e.transformers = encryptionconfig.NewDynamicTransformers(loaded.Transformers, loaded.HealthChecks[0], cancel, loaded.KMSCloseGracePeriod)
	return e, nil
}

func load(ctx context.Context, c Config) (*encryptionconfig.EncryptionConfiguration, context.CancelFunc, error) {
	ctx, cancel := context.WithCancel(ctx)
	loaded, err := encryptionconfig.LoadEncryptionConfig(ctx, c.File, true, c.ServerID)
	if err != nil {
		cancel()
		return nil, nil, fmt.Errorf("--encryption-provider-config %s: %w", c.File, err)
	}
	return loaded, cancel, nil
}

// Run reloads the file when it changes, until ctx is done. If the file is invalid,
// Run logs the error and keeps the previous configuration.
func (e *Store) Run(ctx context.Context) error {
	supervise.Every(ctx, reloadPeriod, func() {
		if err := e.reload(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot reload the encryption configuration, keeping the previous one")
		}
	})
	return nil
}

func (e *Store) reload(ctx context.Context) error {
	hash, err := encryptionconfig.GetEncryptionConfigHash(e.config.File)
	if err != nil || hash == e.hash {
		return err
	}
	loaded, cancel, err := load(ctx, e.config)
	if err != nil {
		return err
	}
	e.hash = loaded.EncryptionFileContentHash
	e.transformers.Set(loaded.Transformers, cancel, loaded.HealthChecks[0], loaded.KMSCloseGracePeriod)
	klog.FromContext(ctx).Info("Encryption configuration reloaded", "file", e.config.File)
	if e.closed.Swap(false) {
		e.mu.Lock()
		close(e.reloaded)
		e.reloaded = make(chan struct{})
		e.mu.Unlock()
	}
	return nil
}

// stale returns a channel that is closed when all values must be read again.
func (e *Store) stale() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reloaded
}

// transformer returns the transformer for a key, or nil if the key belongs to no
// known resource.
func (e *Store) transformer(key string) value.Transformer {
	path, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return nil
	}
	// Storage paths have one part, or two ("apiextensions.k8s.io/customresourcedefinitions").
	first, rest, _ := strings.Cut(path, "/")
	second, _, _ := strings.Cut(rest, "/")
	for _, candidate := range []string{first + "/" + second, first} {
		if gr, ok := e.config.Resources[candidate]; ok {
			return e.transformers.TransformerForResource(gr)
		}
	}
	if strings.Contains(first, ".") { // a custom resource: its group has a dot, and comes first
		return e.transformers.TransformerForResource(schema.GroupResource{Group: first, Resource: second})
	}
	return nil
}

func (e *Store) seal(ctx context.Context, key string, plain []byte) ([]byte, error) {
	t := e.transformer(key)
	if t == nil {
		return plain, nil
	}
	sealed, err := t.TransformToStorage(ctx, plain, value.DefaultContext(key))
	if err != nil {
		return nil, fmt.Errorf("encrypting %s: %w", key, err)
	}
	return sealed, nil
}

// open decrypts a value. outdated reports whether seal would use another provider
// or key now.
func (e *Store) open(ctx context.Context, key string, sealed []byte) (plain []byte, outdated bool, err error) {
	t := e.transformer(key)
	if t == nil || sealed == nil {
		return sealed, false, nil
	}
	plain, outdated, err = t.TransformFromStorage(ctx, sealed, value.DefaultContext(key))
	if err == nil {
		return plain, outdated, nil
	}
	if bytes.HasPrefix(sealed, []byte(kmsPrefix)) && e.Check(ctx) != nil {
		return nil, false, fmt.Errorf("%w: decrypting %s: %w", store.ErrUnavailable, key, err)
	}
	e.closed.Store(true)
	klog.FromContext(ctx).Error(err, "Cannot decrypt a value: none of the keys in --encryption-provider-config matches", "key", key)
	return sealed, false, nil
}

// Get implements store.Store.
func (e *Store) Get(ctx context.Context, key string) (store.KeyValue, error) {
	kv, err := e.Store.Get(ctx, key)
	if err != nil {
		return kv, err
	}
	kv.Value, kv.Outdated, err = e.open(ctx, key, kv.Value)
	return kv, err
}

// List implements store.Store.
func (e *Store) List(ctx context.Context, prefix string, opts store.ListOptions) (store.Page, error) {
	page, err := e.Store.List(ctx, prefix, opts)
	if err != nil {
		return page, err
	}
	items := make([]store.KeyValue, len(page.Items))
	for i, kv := range page.Items {
		if kv.Value, kv.Outdated, err = e.open(ctx, kv.Key, kv.Value); err != nil {
			return store.Page{}, err
		}
		items[i] = kv
	}
	page.Items = items
	return page, nil
}

// Create implements store.Store.
func (e *Store) Create(ctx context.Context, key string, plain []byte, ttl time.Duration) (int64, error) {
	sealed, err := e.seal(ctx, key, plain)
	if err != nil {
		return 0, err
	}
	return e.Store.Create(ctx, key, sealed, ttl)
}

// Update implements store.Store.
func (e *Store) Update(ctx context.Context, key string, plain []byte, revision int64, ttl time.Duration) (int64, error) {
	sealed, err := e.seal(ctx, key, plain)
	if err != nil {
		return 0, err
	}
	return e.Store.Update(ctx, key, sealed, revision, ttl)
}

// Watch implements store.Store. A value of a KMS plugin that does not answer
// ends it, and so does a new configuration that may decrypt other values.
func (e *Store) Watch(ctx context.Context, prefix string, after int64) <-chan store.Batch {
	ctx, cancel := context.WithCancel(ctx)
	stale := e.stale()
	sealed := e.Store.Watch(ctx, prefix, after)
	out := make(chan store.Batch)
	go func() {
		defer close(out)
		defer func() {
			cancel()
			for range sealed {
			}
		}()
		for {
			var opened store.Batch
			select {
			case batch, ok := <-sealed:
				if !ok {
					return
				}
				opened = e.openBatch(ctx, batch)
			case <-stale:
				opened = store.Batch{Err: store.ErrCompacted}
			}
			select {
			case out <- opened:
			case <-ctx.Done():
				return
			}
			if opened.Err != nil {
				return
			}
		}
	}()
	return out
}

func (e *Store) openBatch(ctx context.Context, b store.Batch) store.Batch {
	events := make([]store.Event, len(b.Events))
	for i, event := range b.Events {
		var err error
		if event.Value, _, err = e.open(ctx, event.Key, event.Value); err != nil {
			return store.Batch{Err: err}
		}
		events[i] = event
	}
	b.Events = events
	return b
}
