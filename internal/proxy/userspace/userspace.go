// Package userspace applies a proxy's Rules by a program that takes the connections
// itself: for each port of a Service it listens on a port of the node, to which the
// proxy's table of nftables redirects what is for the Service, and connects to an
// endpoint, round robin. kube-proxy had this mode until 1.25.
//
//	client ──► table of nftables: refuse, drop, or redirect ──► listener ──balancer──► endpoint
//	                                                  (of all endpoints, or of those on this node)
//
// An endpoint sees the node's address instead of the client's. Connections end with this
// process, and with their endpoint.
package userspace

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/nftables"
)

// MostOfNamespace is proxy.Config.MostOfNamespace: each port takes one or two sockets of
// this process.
const MostOfNamespace = 10_000

// mostTold is how many Services the log names at a time.
const mostTold = 10

// Backend is a proxy.Backend. One goroutine uses it.
type Backend struct {
	ctx       context.Context
	table     table
	netNS     int
	room      *room
	listeners map[target]*listener
	// rules are those of the last Apply, served their ports of Services, in which refused
	// ones, which are not served, have no endpoints.
	rules   proxy.Rules
	served  proxy.ServicePorts
	refused map[proxy.PortName]refusal
	// changed are the ports that have been tried since the table was last applied.
	changed map[proxy.PortName]bool
}

// table is what package nftables does for a Backend.
type table interface {
	proxy.Backend
	Deliver(d nftables.Delivery)
}

// target is what a listener is for: the endpoints of a port of a Service, or those of
// them on this node.
type target struct {
	name  proxy.PortName
	local bool
}

// refusal is what is served instead of a port of a Service, which stays the same as long as
// the Service does, and why.
type refusal struct {
	instead *proxy.ServicePort
	why     error
}

var _ proxy.Backend = (*Backend)(nil)

// errSCTP is why a port of SCTP is not served.
var errSCTP = errors.New("the mode userspace serves TCP and UDP, not SCTP")

// New returns a backend, given the settings of its table. It changes nothing. Its
// listeners belong to the component of ctx, and do not outlive it.
func New(ctx context.Context, c nftables.Config) *Backend {
	b := &Backend{ctx: ctx, table: nftables.New(c), netNS: c.NetNS, room: newRoom(), listeners: map[target]*listener{}}
	b.refused, b.changed = map[proxy.PortName]refusal{}, map[proxy.PortName]bool{}
	b.table.Deliver(nftables.Delivery{Port: b.port})
	return b
}

// port returns the port of the node for a port of a Service, 0 if there is none.
func (b *Backend) port(name proxy.PortName, local bool) uint16 {
	if l := b.listeners[target{name, local}]; l != nil {
		return l.port
	}
	return 0
}

// wanted returns the endpoints for which a port of a Service needs listeners.
func wanted(name proxy.PortName, p *proxy.ServicePort) map[target][]netip.AddrPort {
	all := map[target][]netip.AddrPort{}
	if len(p.Cluster) > 0 {
		all[target{name, false}] = p.Cluster
	}
	if (p.InternalLocal || p.ExternalLocal) && len(p.Local) > 0 {
		all[target{name, true}] = p.Local
	}
	return all
}

// Apply implements proxy.Backend. Listeners are there before connections are redirected
// to them, and go after that. A port of a Service for which no listener can be opened
// does not keep the others from being served, and is an error.
func (b *Backend) Apply(rules proxy.Rules) error {
	served, failure := b.listen(rules)
	if err := b.table.Apply(served); err != nil {
		return errors.Join(err, failure)
	}
	for name := range b.changed {
		var all map[target][]netip.AddrPort
		if p := served.Services.Get(name); p != nil {
			all = wanted(name, p)
		}
		for _, t := range []target{{name, false}, {name, true}} {
			if l := b.listeners[t]; l != nil && all[t] == nil {
				l.close()
				delete(b.listeners, t)
			}
		}
	}
	b.changed = map[proxy.PortName]bool{}
	return failure
}

// listen opens the listeners that rules need for what has changed or could not be served, and
// gives them their endpoints. It returns the rules in which what cannot be served has no
// endpoints.
func (b *Backend) listen(rules proxy.Rules) (served proxy.Rules, failure error) {
	due := map[proxy.PortName]bool{}
	for _, name := range proxy.Compare(b.rules, rules).Services {
		due[name] = true
		delete(b.refused, name)
	}
	for name, r := range b.refused {
		if !errors.Is(r.why, errSCTP) {
			due[name] = true
		}
	}
	var told []string
	for name := range due {
		b.changed[name] = true
		isNew, why := b.try(name, rules.Services.Get(name))
		if isNew {
			told = append(told, name.Label()+": "+why.Error())
		}
		if failure == nil && why != nil && !errors.Is(why, errSCTP) {
			failure = why
		}
	}
	if b.rules = rules; len(told) > 0 {
		slices.Sort(told)
		klog.FromContext(b.ctx).Info("Services are not served, and refuse their clients", "count", len(told), "services", told[:min(len(told), mostTold)])
	}
	served = rules
	served.Services = b.served
	return served, failure
}

// try makes b.served and b.refused what becomes of a port of a Service, nil if it is gone.
// It returns why the port is not served, and whether that is new.
func (b *Backend) try(name proxy.PortName, p *proxy.ServicePort) (isNew bool, why error) {
	if p == nil {
		b.served = b.served.Without(name)
		return false, nil
	}
	if why = b.serve(name, p); why == nil {
		delete(b.refused, name)
		b.served = b.served.With(name, p)
		return false, nil
	}
	r, again := b.refused[name]
	if !again {
		instead := *p
		instead.Cluster, instead.Local = nil, nil
		r.instead = &instead
	}
	isNew = !again || r.why.Error() != why.Error()
	r.why = why
	b.refused[name] = r
	b.served = b.served.With(name, r.instead)
	return isNew, why
}

// serve opens the listeners of a port of a Service, and gives them their endpoints.
func (b *Backend) serve(name proxy.PortName, p *proxy.ServicePort) error {
	all := wanted(name, p)
	if name.Protocol == v1.ProtocolSCTP && len(all) > 0 {
		return errSCTP
	}
	for t, endpoints := range all {
		l := b.listeners[t]
		if l == nil {
			var err error
			if l, err = listen(b.ctx, b.netNS, name.Label(), name.Protocol, name.Family, b.room); err != nil {
				return err
			}
			b.listeners[t] = l
		}
		l.set(endpoints, p.Affinity)
	}
	return nil
}

// Intact implements proxy.Backend.
func (b *Backend) Intact() (bool, error) { return b.table.Intact() }

// Remove implements proxy.Backend. It ends all connections.
func (b *Backend) Remove() error {
	err := b.table.Remove()
	b.close()
	return err
}

// close closes all listeners with their connections.
func (b *Backend) close() {
	for t, l := range b.listeners {
		l.close()
		delete(b.listeners, t)
	}
	b.rules, b.served, b.refused = proxy.Rules{}, proxy.ServicePorts{}, map[proxy.PortName]refusal{}
}
