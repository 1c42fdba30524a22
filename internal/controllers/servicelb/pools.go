package servicelb

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"github.com/coracle-io/coracle/internal/addresspool"
)

// pools are the pools of addresses as the API has them. One goroutine uses it.
type pools struct {
	kube   kubernetes.Interface
	ranges []netip.Prefix
	events record.EventRecorder
	// stale says that the ConfigMap may have changed since it was read. Handlers of
	// informers set it.
	stale atomic.Bool

	seen   string // resource version of the ConfigMap that was read last
	parsed addresspool.Pools
	known  bool // parsed is from a ConfigMap without errors, or there was none
}

// read returns the pools, from the API server if they may have changed, or if somebody
// has to be known to come after them. A ConfigMap with errors changes nothing: the pools
// stay, or are unknown if there were none before. The API server refuses such a
// ConfigMap, except for what depends on the ranges of the cluster.
func (p *pools) read(ctx context.Context, late bool) (parsed addresspool.Pools, known bool, err error) {
	if stale := p.stale.Swap(false); !stale && !late {
		return p.parsed, p.known, nil
	}
	config, err := p.kube.CoreV1().ConfigMaps(addresspool.Namespace).Get(ctx, addresspool.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		p.seen, p.parsed, p.known = "", nil, true
		return nil, true, nil
	case err != nil:
		p.stale.Store(true)
		return nil, false, fmt.Errorf("reading the address pools: %w", err)
	case config.ResourceVersion == p.seen:
		return p.parsed, p.known, nil
	}
	p.seen = config.ResourceVersion
	parsed, errs := addresspool.Parse(config.Data, p.ranges...)
	if len(errs) > 0 {
		p.events.Eventf(config, v1.EventTypeWarning, "InvalidAddressPools", "The address pools stay as they were: %.800s", errs.ToAggregate())
		return p.parsed, p.known, nil
	}
	p.parsed, p.known = parsed, true
	return p.parsed, true, nil
}
