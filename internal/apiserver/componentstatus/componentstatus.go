// Package componentstatus implements the deprecated resource componentstatuses:
// the health of the store and of the components whose addresses the server
// knows.
package componentstatus

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/recovery"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Checks are health checks of components by name.
type Checks map[string]func(context.Context) error

// NewChecks returns checks of the store and of components, given the addresses
// (host:port) of their health endpoints by name.
func NewChecks(store func(context.Context) error, addresses map[string]string) Checks {
	checks := Checks{"etcd-0": store}
	for name, address := range addresses {
		checks[name] = func(ctx context.Context) error { return askHealth(ctx, address) }
	}
	return checks
}

// List runs all checks concurrently.
func (c Checks) List(ctx context.Context) []*watchcache.Entry {
	names := slices.Sorted(maps.Keys(c))
	entries := make([]*watchcache.Entry, len(names))
	supervise.ForEach(len(names), func(i int) error {
		entries[i] = componentStatus(ctx, names[i], c[names[i]])
		return nil
	})
	return entries
}

// Get runs the check of one component. It returns false if there is none.
func (c Checks) Get(ctx context.Context, name string) (*watchcache.Entry, bool) {
	check, ok := c[name]
	if !ok {
		return nil, false
	}
	return componentStatus(ctx, name, check), true
}

func componentStatus(ctx context.Context, name string, check func(context.Context) error) *watchcache.Entry {
	condition := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue, Message: "ok"}
	if err := recovery.Call(ctx, "asking "+name, func() error { return check(ctx) }); err != nil {
		condition.Status, condition.Message = corev1.ConditionFalse, err.Error()
	}
	return registry.Unstored(&corev1.ComponentStatus{
		TypeMeta:   metav1.TypeMeta{Kind: "ComponentStatus", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Conditions: []corev1.ComponentCondition{condition},
	})
}

// healthTimeout bounds a health check of a component.
const healthTimeout = 20 * time.Second

// askHealth requests /healthz of a component. It does not verify the certificate,
// as upstream, because components serve with self-signed certificates.
func askHealth(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/healthz", http.NoBody)
	if err != nil {
		return err
	}
	transport := &http.Transport{ //nolint:gosec // it only says ok
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, MaxResponseHeaderBytes: httpserver.MaxAnswerHeaderBytes,
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("Get %q: %w", r.URL.String(), err) //nolint:staticcheck // upstream's words
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 10<<10))
	if err != nil {
		return err
	}
	if answer.StatusCode < http.StatusOK || answer.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("HTTP probe failed with statuscode: %d", answer.StatusCode)
	}
	if string(body) != "ok" {
		return fmt.Errorf("%s", body)
	}
	return nil
}
