package aggregator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
)

const (
	refreshTimeout = 10 * time.Second
	maxDocument    = 64 << 20
	// maxResources bounds the resources of a group version, since controllers
	// watch each of them.
	maxResources = 1000
)

// refresh fetches the server's discovery and OpenAPI documents if they have
// changed.
func (b *backend) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	log := klog.FromContext(ctx)
	version, err := b.describe(ctx)
	switch {
	case err != nil:
		log.Error(err, "Cannot read the discovery of an aggregated server", "apiService", b.name)
		b.markStale()
	case version != nil:
		if left := truncate(version); left > 0 {
			log.Error(nil, "An aggregated server lists too many resources, discovery omits the rest", "apiService", b.name, "limit", maxResources, "omitted", left)
		}
		version.Freshness = apidiscoveryv2.DiscoveryFreshnessCurrent
		b.setDescription(version)
	}
	if b.server.Documents == nil {
		return
	}
	if err := b.publish(ctx); err != nil {
		log.V(2).Info("Cannot read the OpenAPI of an aggregated server", "apiService", b.name, "err", err)
	}
}

// setDescription publishes a new discovery of the group version.
func (b *backend) setDescription(v *apidiscoveryv2.APIVersionDiscovery) {
	if have := b.discovered.Load(); have == nil || !equality.Semantic.DeepEqual(have, v) {
		b.discovered.Store(v)
		b.server.enqueue()
	}
}

// markStale marks the discovery as stale.
func (b *backend) markStale() {
	if have := b.discovered.Load(); have != nil {
		old := *have
		old.Freshness = apidiscoveryv2.DiscoveryFreshnessStale
		b.setDescription(&old)
	}
}

// clearDescription removes the discovery of the group version.
func (b *backend) clearDescription() {
	delete(b.tags, discoveryPath)
	if b.discovered.Swap(nil) != nil {
		b.server.enqueue()
	}
}

const discoveryPath = "/apis"

// describe returns the server's discovery of the group version.
func (b *backend) describe(ctx context.Context) (*apidiscoveryv2.APIVersionDiscovery, error) {
	answer, err := b.fetch(ctx, discoveryPath, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", aggregatorName, "system:masters")
	if err != nil {
		return nil, err
	}
	switch {
	case answer.code == http.StatusNotModified && b.discovered.Load() != nil:
		current := *b.discovered.Load()
		return &current, nil
	case answer.code == http.StatusServiceUnavailable:
		return nil, errors.New("the server responded with 503 Service Unavailable")
	case answer.code != http.StatusOK || !answer.isAggregated():
		delete(b.tags, discoveryPath)
		return b.describeLegacy(ctx)
	}
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(answer.body, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", discoveryPath, err)
	}
	for _, g := range list.Items {
		for _, v := range g.Versions {
			if g.Name == b.spec.Group && v.Version == b.spec.Version {
				return complete(&v), nil
			}
		}
	}
	return &apidiscoveryv2.APIVersionDiscovery{Version: b.spec.Version}, nil
}

// truncate removes the resources and subresources beyond maxResources, and
// returns their number.
func truncate(v *apidiscoveryv2.APIVersionDiscovery) (left int) {
	room := maxResources
	take := func(have int) int {
		taken := min(have, room)
		room -= taken
		left += have - taken
		return taken
	}
	v.Resources = slices.Clip(v.Resources[:take(len(v.Resources))])
	room = maxResources
	for i := range v.Resources {
		r := &v.Resources[i]
		r.Subresources = slices.Clip(r.Subresources[:take(len(r.Subresources))])
	}
	return left
}

// complete adds the empty kinds that clients expect of every resource.
func complete(v *apidiscoveryv2.APIVersionDiscovery) *apidiscoveryv2.APIVersionDiscovery {
	for i := range v.Resources {
		r := &v.Resources[i]
		if r.ResponseKind == nil {
			r.ResponseKind = &metav1.GroupVersionKind{}
		}
		for j := range r.Subresources {
			if sub := &r.Subresources[j]; sub.ResponseKind == nil {
				sub.ResponseKind = &metav1.GroupVersionKind{}
			}
		}
	}
	return v
}

// describeLegacy reads the unaggregated discovery document.
func (b *backend) describeLegacy(ctx context.Context) (*apidiscoveryv2.APIVersionDiscovery, error) {
	path := "/apis/" + b.groupVersion().String()
	if b.spec.Group == "" {
		path = "/api/" + b.spec.Version
	}
	answer, err := b.fetch(ctx, path, "application/json", aggregatorName)
	if err != nil {
		return nil, err
	}
	delete(b.tags, path)
	if answer.code != http.StatusOK {
		return nil, fmt.Errorf("%s: the server responded with %d", path, answer.code)
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(answer.body, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	resources, err := endpoints.ConvertGroupVersionIntoToDiscovery(list.APIResources)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &apidiscoveryv2.APIVersionDiscovery{Version: b.spec.Version, Resources: resources}, nil
}

// answer is a response of the server.
type answer struct {
	code int
	kind string // Content-Type
	body []byte
}

func (a *answer) isAggregated() bool {
	_, params, err := mime.ParseMediaType(a.kind)
	return err == nil && params["g"] == "apidiscovery.k8s.io" && params["v"] == "v2" && params["as"] == "APIGroupDiscoveryList"
}

// fetch fetches a document, conditionally if it was fetched before.
func (b *backend) fetch(ctx context.Context, path, accept, user string, groups ...string) (*answer, error) {
	u, err := b.server.resolve(b.spec.Service)
	if err != nil {
		return nil, err
	}
	u.Path = path
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	if tag := b.tags[path]; tag != "" {
		r.Header.Set("If-None-Match", tag)
	}
	transport.SetAuthProxyHeaders(r, user, "", groups, nil)
	response, err := b.client().Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxDocument))
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		b.tags[path] = response.Header.Get("Etag")
	}
	return &answer{code: response.StatusCode, kind: response.Header.Get("Content-Type"), body: body}, nil
}
