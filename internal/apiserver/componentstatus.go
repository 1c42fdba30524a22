package apiserver

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/guard"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// componentStatuses answers upstream's deprecated list of components: the
// store and the parts of the control plane, as far as this server knows where
// they are.
func (q *request) componentStatuses() error {
	q.warnings.AddWarning("", "v1 ComponentStatus is deprecated in v1.19+")
	o, err := q.negotiate()
	if err != nil {
		return err
	}
	checks := q.server.componentChecks()
	if q.info.Verb == "list" {
		return q.sendPage(&page{entries: statuses(q.ctx, checks)}, o)
	}
	check, ok := checks[q.info.Name]
	if !ok {
		return apierrors.NewNotFound(q.endpoint.groupResource(), q.info.Name)
	}
	return q.sendEntry(http.StatusOK, componentStatus(q.ctx, q.info.Name, check), o)
}

// componentChecks are the checks of the components, by name.
func (s *Server) componentChecks() map[string]func(context.Context) error {
	checks := map[string]func(context.Context) error{"etcd-0": s.checkStore}
	for name, address := range s.Components {
		checks[name] = func(ctx context.Context) error { return askHealth(ctx, address) }
	}
	return checks
}

// statuses runs all checks at the same time.
func statuses(ctx context.Context, checks map[string]func(context.Context) error) []*watchcache.Entry {
	names := slices.Sorted(maps.Keys(checks))
	entries := make([]*watchcache.Entry, len(names))
	supervise.Each(len(names), func(i int) error {
		entries[i] = componentStatus(ctx, names[i], checks[names[i]])
		return nil
	})
	return entries
}

func componentStatus(ctx context.Context, name string, check func(context.Context) error) *watchcache.Entry {
	condition := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue, Message: "ok"}
	if err := guard.Call(ctx, "asking "+name, func() error { return check(ctx) }); err != nil {
		condition.Status, condition.Message = corev1.ConditionFalse, err.Error()
	}
	return unstored(&corev1.ComponentStatus{
		TypeMeta:   metav1.TypeMeta{Kind: "ComponentStatus", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Conditions: []corev1.ComponentCondition{condition},
	})
}

// healthTimeout is how long a component may take to say how it is.
const healthTimeout = 20 * time.Second

// askHealth asks a component at its address. Who answers there is not
// verified, as upstream does not: components serve with certificates that
// they sign themselves.
func askHealth(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/healthz", http.NoBody)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} //nolint:gosec // it only says ok
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
