package servicelb

import (
	"net/netip"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/coracle-io/coracle/internal/addresspool"
)

// pools are the pools of addresses as the API has them. One goroutine uses it.
type pools struct {
	configs corelisters.ConfigMapLister
	ranges  []netip.Prefix
	events  record.EventRecorder

	seen   string // resource version of the ConfigMap that was read last
	parsed addresspool.Pools
	known  bool // parsed is from a ConfigMap without errors, or there was none
}

// read returns the pools. A ConfigMap with errors changes nothing: the pools stay, or
// are unknown if there were none before. The API server refuses such a ConfigMap,
// except for what depends on the ranges of the cluster.
func (p *pools) read() (parsed addresspool.Pools, known bool, err error) {
	config, err := p.configs.ConfigMaps(addresspool.Namespace).Get(addresspool.Name)
	if apierrors.IsNotFound(err) {
		p.seen, p.parsed, p.known = "", nil, true
		return nil, true, nil
	}
	if err != nil || config.ResourceVersion == p.seen {
		return p.parsed, p.known, err
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
