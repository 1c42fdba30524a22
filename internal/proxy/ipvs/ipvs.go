// Package ipvs applies a proxy's Rules by IPVS, the kernel's virtual servers, as
// kube-proxy in the mode ipvs does: what ipvsadm lists and the interface kube-ipvs0 are
// kube-proxy's.
//
//	packet to an address of a Service, which kube-ipvs0 has
//	   └► nftables, table of the proxy: mark to masquerade, refuse, drop; or accept
//	        └► virtual server ─ scheduler ─► endpoint, its address translated
//	             └► nftables: masquerade what is marked or returns to its sender
//
//	Rules ──plan.go──► virtual servers, addresses ──what differs──► kernel (netlink.go, host.go)
//	  └──package nftables, with a Delivery──► table
//
// An endpoint that goes gets no new connections, and leaves its virtual server when its
// connections have ended.
package ipvs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/nftables"
)

// Config configures a Backend.
type Config struct {
	// NFTables are the settings of the table about what IPVS does not do. The name of the
	// table marks the interface as that of this proxy: a network namespace has one, so
	// that proxies with other names must not use it at the same time.
	NFTables nftables.Config
	// Scheduler is the name of a scheduler of the kernel, rr by default.
	Scheduler string
	// ExcludeCIDRs are ranges of addresses in which virtual servers that no Service needs
	// are those of others.
	ExcludeCIDRs []netip.Prefix
	// StrictARP keeps the node from answering ARP for addresses of other interfaces.
	StrictARP bool
	// SyncPeriod is the least time between two checks for what others have changed; 0
	// means that each call of Intact checks.
	SyncPeriod time.Duration
	Timeouts   Timeouts
}

// Timeouts are how long IPVS knows connections; 0 leaves the kernel's.
type Timeouts struct {
	TCP    time.Duration // idle ones
	TCPFin time.Duration // those that one side has closed
	UDP    time.Duration
}

// MostOfNamespace is proxy.Config.MostOfNamespace: each endpoint of a port takes a request
// of its own to the kernel.
const MostOfNamespace = 100_000

// defaultScheduler is round robin, as in kube-proxy.
const defaultScheduler = "rr"

// Backend is a proxy.Backend. One goroutine uses it.
type Backend struct {
	config  Config
	table   table
	host    host
	connect func() (kernel, error)

	// settings and rules are those of the last Apply.
	settings settings
	rules    proxy.Rules
	wanted   map[frontend]virtual
	// counts are how many ports of Services have each address, bound the addresses of the
	// interface.
	counts map[netip.Addr]int
	bound  map[netip.Addr]bool
	// held are the virtual servers that the kernel has, nil if they are unknown.
	held map[frontend]*held
	// retiring are those of them with endpoints that wait for their connections to end.
	retiring map[frontend]bool
	// checked is when the kernel was last compared with held.
	checked time.Time
}

// table is what package nftables does for a Backend.
type table interface {
	proxy.Backend
	Deliver(d nftables.Delivery)
}

// held is a virtual server in the kernel, with the weights of its endpoints: 1, or 0 for
// those that get no new connections.
type held struct {
	server
	weights map[netip.AddrPort]uint32
}

var _ proxy.Backend = (*Backend)(nil)

// New returns a backend. It changes nothing.
func New(c Config) *Backend {
	c.Scheduler = cmp.Or(c.Scheduler, defaultScheduler)
	netNS := c.NFTables.NetNS
	return &Backend{
		config: c, table: nftables.New(c.NFTables), host: namespace{netNS, c.NFTables.Log},
		connect: func() (kernel, error) { return connect(netNS) },
	}
}

// Available returns an error that says what is missing if the kernel has no IPVS. It
// loads the kernel's module if that is there.
func Available() error {
	return available(func() error {
		k, err := connect(0)
		if err == nil {
			k.close()
		}
		return err
	}, func() error { return exec.Command("modprobe", "ip_vs").Run() })
}

func available(find, load func() error) error {
	err := find()
	if errors.Is(err, unix.ENOENT) && load() == nil {
		err = find()
	}
	if err != nil {
		return fmt.Errorf("can't use the IPVS proxier: the kernel has no IPVS: modprobe ip_vs loads it where it is installed, and the mode nftables does without: %w", err)
	}
	return nil
}

// Apply implements proxy.Backend. New virtual servers and endpoints are there before
// packets are led to them, and virtual servers go after that.
func (b *Backend) Apply(rules proxy.Rules) error {
	done := false
	defer func() {
		if !done { // also after a panic
			b.forget()
		}
	}()
	err := b.apply(rules)
	done = err == nil
	return err
}

func (b *Backend) apply(rules proxy.Rules) error {
	k, err := b.connect()
	if err != nil {
		return err
	}
	defer k.close()
	s := b.settings
	if !b.known() {
		if s, err = b.prepare(k); err != nil {
			return err
		}
	}
	s.nodePorts = rules.NodePortRanges
	touched, addresses := b.follow(s, rules)
	if !b.known() {
		if b.held, err = b.read(k); err != nil {
			return err
		}
		b.retiring, b.checked = map[frontend]bool{}, time.Now()
		for f := range b.held {
			touched[f] = true
		}
	}
	gone, err := b.change(k, touched)
	if err != nil {
		return err
	}
	if err := b.bind(s, addresses); err != nil {
		return err
	}
	b.table.Deliver(nftables.Delivery{IPVS: true, NodeAddresses: s.node})
	if err := b.table.Apply(rules); err != nil {
		return err
	}
	for _, f := range gone {
		if err := k.remove(f); err != nil && !isMissing(err) {
			return err
		}
		delete(b.held, f)
		delete(b.retiring, f)
	}
	b.settings, b.rules = s, rules
	return nil
}

// known reports whether what the kernel has is known.
func (b *Backend) known() bool { return b.held != nil }

// forget makes the next Apply ask the kernel for everything, and for the addresses of the
// node.
func (b *Backend) forget() { b.held, b.retiring, b.wanted = nil, nil, nil }

// aliasPrefix begins the alias of the interface, before the name of its owner.
const aliasPrefix = "coracle:"

func (b *Backend) alias() string { return aliasPrefix + b.config.NFTables.Table }

// isOfOther reports whether an alias is that of another proxy. kube-proxy sets none.
func (b *Backend) isOfOther(alias string) bool {
	return strings.HasPrefix(alias, aliasPrefix) && alias != b.alias()
}

// prepare makes the interface, sets what IPVS needs of the kernel, and asks for the
// addresses of the node. It returns the settings without the ranges of node ports.
func (b *Backend) prepare(k kernel) (settings, error) {
	if err := b.setUp(k); err != nil {
		return settings{}, err
	}
	own, virtual, err := b.host.addresses()
	if err != nil {
		return settings{}, err
	}
	b.bound = map[netip.Addr]bool{}
	for _, a := range virtual {
		b.bound[a] = true
	}
	return settings{scheduler: b.config.Scheduler, node: own}, nil
}

// setUp makes the interface, and sets what IPVS needs of the kernel.
func (b *Backend) setUp(k kernel) error {
	alias, _, err := b.host.owner()
	if err != nil {
		return err
	}
	if b.isOfOther(alias) {
		other := strings.TrimPrefix(alias, aliasPrefix)
		return fmt.Errorf("the interface %s in this network namespace is that of the proxy %q: one proxy in the mode ipvs can use it, and the others the mode nftables; if that one is gone: coracle proxy --cleanup --nftables-table=%s",
			clusternames.VirtualLink, other, other)
	}
	if err := b.host.claim(b.alias()); err != nil {
		return err
	}
	for _, s := range b.kernelSettings() {
		if err := b.host.set(s.name, s.value); err != nil {
			return fmt.Errorf("setting %s: %w", s.name, err)
		}
	}
	if b.config.Timeouts != (Timeouts{}) {
		return k.setTimeouts(b.config.Timeouts)
	}
	return nil
}

// kernelSetting is a file below /proc/sys/net.
type kernelSetting struct{ name, value string }

// kernelSettings are kube-proxy's: connection tracking knows the connections of IPVS, so
// that they can be masqueraded, and a client of an endpoint that is gone gets another.
func (b *Backend) kernelSettings() []kernelSetting {
	list := []kernelSetting{
		{"ipv4/vs/conntrack", "1"}, {"ipv4/vs/expire_nodest_conn", "1"}, {"ipv4/vs/expire_quiescent_template", "1"}, {"ipv4/ip_forward", "1"},
	}
	if b.config.StrictARP {
		list = append(list, kernelSetting{"ipv4/conf/all/arp_ignore", "1"}, kernelSetting{"ipv4/conf/all/arp_announce", "2"})
	}
	return list
}

// read asks the kernel for its virtual servers, without those of others.
func (b *Backend) read(k kernel) (map[frontend]*held, error) {
	list, err := k.list()
	if err != nil {
		return nil, err
	}
	all := map[frontend]*held{}
	for f, s := range list {
		if _, wanted := b.wanted[f]; !wanted && b.excludes(f) {
			continue
		}
		destinations, err := k.destinations(f)
		if err != nil {
			return nil, err
		}
		h := &held{server: s, weights: map[netip.AddrPort]uint32{}}
		for to, d := range destinations {
			h.weights[to] = d.weight
		}
		all[f] = h
	}
	return all, nil
}

// excludes reports whether a virtual server is somebody else's, if no Service needs it.
func (b *Backend) excludes(f frontend) bool {
	return slices.ContainsFunc(b.config.ExcludeCIDRs, func(p netip.Prefix) bool { return p.Contains(f.at.Addr()) })
}

// follow makes b.wanted and b.counts what the rules say, and returns the virtual servers
// and the addresses that may differ from the kernel's.
func (b *Backend) follow(s settings, rules proxy.Rules) (touched map[frontend]bool, addresses map[netip.Addr]bool) {
	touched, addresses = map[frontend]bool{}, map[netip.Addr]bool{}
	if b.wanted == nil || !b.settings.equal(s) {
		b.wanted, b.counts, b.rules = map[frontend]virtual{}, map[netip.Addr]int{}, proxy.Rules{}
		for f := range b.held {
			touched[f] = true
		}
		for a := range b.bound {
			addresses[a] = true
		}
	}
	count := func(p *proxy.ServicePort, n int) {
		for _, a := range addressesOf(p) {
			if b.counts[a] += n; b.counts[a] == 0 {
				delete(b.counts, a)
			}
			addresses[a] = true
		}
	}
	d := proxy.Compare(b.rules, rules)
	for _, name := range d.Services {
		if p := b.rules.Services.Get(name); p != nil {
			count(p, -1)
			for f := range s.servers(name, p) {
				delete(b.wanted, f)
				touched[f] = true
			}
		}
	}
	for _, name := range d.Services {
		if p := rules.Services.Get(name); p != nil {
			count(p, 1)
			for f, v := range s.servers(name, p) {
				b.wanted[f] = v
				touched[f] = true
			}
		}
	}
	return touched, addresses
}

// change makes virtual servers what is wanted, and returns those that are to go.
func (b *Backend) change(k kernel, touched map[frontend]bool) (gone []frontend, err error) {
	for _, f := range slices.SortedFunc(maps.Keys(touched), frontend.compare) {
		want, wanted := b.wanted[f]
		if wanted {
			if err := b.set(k, f, want); err != nil {
				return nil, err
			}
		} else if b.held[f] != nil {
			gone = append(gone, f)
		}
	}
	return gone, nil
}

// set makes a virtual server what is wanted.
func (b *Backend) set(k kernel, f frontend, want virtual) error {
	have := b.held[f]
	if have == nil || have.server != want.server {
		if err := k.put(f, want.server, have != nil); err != nil {
			return err
		}
		if have == nil {
			have = &held{weights: map[netip.AddrPort]uint32{}}
			b.held[f] = have
		}
		have.server = want.server
	}
	stay := map[netip.AddrPort]bool{}
	for _, e := range want.endpoints {
		stay[e] = true
		weight, exists := have.weights[e]
		if exists && weight == 1 {
			continue
		}
		if err := k.putDestination(f, e, 1, exists); err != nil {
			return err
		}
		have.weights[e] = 1
	}
	return b.retire(k, f, have, stay)
}

// retire takes new connections from the endpoints that do not stay. Those of TCP remain
// until their connections have ended.
func (b *Backend) retire(k kernel, f frontend, have *held, stay map[netip.AddrPort]bool) error {
	for e, weight := range have.weights {
		switch {
		case stay[e]:
			continue
		case f.protocol != v1.ProtocolTCP:
			if err := k.removeDestination(f, e); err != nil && !isMissing(err) {
				return err
			}
			delete(have.weights, e)
			continue
		case weight != 0:
			if err := k.putDestination(f, e, 0, true); err != nil {
				return err
			}
			have.weights[e] = 0
		}
		b.retiring[f] = true
	}
	if !b.retiring[f] {
		return nil
	}
	return b.finish(k, f)
}

// finish removes the endpoints of a virtual server whose last connections have ended.
func (b *Backend) finish(k kernel, f frontend) error {
	now, err := k.destinations(f)
	if err != nil {
		return err
	}
	have, waits := b.held[f], false
	for e, weight := range have.weights {
		if weight != 0 {
			continue
		}
		if now[e].connections > 0 {
			waits = true
			continue
		}
		if err := k.removeDestination(f, e); err != nil && !isMissing(err) {
			return err
		}
		delete(have.weights, e)
	}
	if !waits {
		delete(b.retiring, f)
	}
	return nil
}

// bind gives the interface those of some addresses that Services have, without the node's
// own ones, and takes the others from it.
func (b *Backend) bind(s settings, addresses map[netip.Addr]bool) error {
	var added, removed []netip.Addr
	for _, a := range slices.SortedFunc(maps.Keys(addresses), netip.Addr.Compare) {
		switch wanted := b.counts[a] > 0 && !slices.Contains(s.node, a); {
		case wanted && !b.bound[a]:
			added = append(added, a)
			b.bound[a] = true
		case !wanted && b.bound[a]:
			removed = append(removed, a)
			delete(b.bound, a)
		}
	}
	return errors.Join(b.host.add(added), b.host.remove(removed))
}

// Intact implements proxy.Backend. It also removes endpoints whose last connections have
// ended. What others have changed in IPVS it looks for each SyncPeriod.
func (b *Backend) Intact() (bool, error) {
	if !b.known() {
		return true, nil
	}
	intact, err := b.check()
	if err != nil || !intact {
		b.forget()
	}
	return intact, err
}

func (b *Backend) check() (bool, error) {
	if intact, err := b.table.Intact(); err != nil || !intact {
		return false, err
	}
	due := time.Since(b.checked) >= b.config.SyncPeriod
	if !due && len(b.retiring) == 0 {
		return true, nil
	}
	k, err := b.connect()
	if err != nil {
		return false, err
	}
	defer k.close()
	for f := range maps.Clone(b.retiring) {
		if err := b.finish(k, f); err != nil {
			return false, err
		}
	}
	if !due {
		return true, nil
	}
	b.checked = time.Now()
	return b.same(k)
}

// same reports whether the kernel still has what Apply wrote, and the node the addresses
// that it had.
func (b *Backend) same(k kernel) (bool, error) {
	alias, exists, err := b.host.owner()
	if err != nil || !exists || alias != b.alias() {
		return false, err
	}
	own, bound, err := b.host.addresses()
	if err != nil || !slices.Equal(own, b.settings.node) || !slices.Equal(bound, b.settings.addresses(b.rules)) {
		return false, err
	}
	list, err := b.read(k)
	if err != nil {
		return false, err
	}
	return maps.EqualFunc(list, b.held, func(now, then *held) bool {
		return now.server == then.server && maps.Equal(now.weights, then.weights)
	}), nil
}

// Remove implements proxy.Backend. It removes what kube-proxy has left, too, but not what
// is a proxy's with another name.
func (b *Backend) Remove() error {
	return errors.Join(b.remove(func(alias string) bool { return !b.isOfOther(alias) }), b.table.Remove())
}

// RemoveOwn removes the interface and the virtual servers of a proxy with this name only,
// and leaves its table of nftables, which other modes have, too.
func (b *Backend) RemoveOwn() error {
	return b.remove(func(alias string) bool { return alias == b.alias() })
}

// remove removes the interface, if it may be removed, and the virtual servers. Without
// the interface there are none of a proxy.
func (b *Backend) remove(may func(alias string) bool) error {
	b.forget()
	alias, exists, err := b.host.owner()
	if err != nil || !exists || !may(alias) {
		return err
	}
	k, err := b.connect()
	if errors.Is(err, unix.ENOENT) { // the module is not loaded any more
		return b.host.discard()
	}
	if err != nil {
		return err
	}
	defer k.close()
	list, err := b.read(k)
	if err != nil {
		return err
	}
	for f := range list {
		if err := k.remove(f); err != nil && !isMissing(err) {
			return err
		}
	}
	return b.host.discard()
}

// Owners returns the name of the proxy whose interface is there, if one says its name. It
// leaves out what it cannot find out.
func (b *Backend) Owners() []string {
	alias, _, err := b.host.owner()
	name, named := strings.CutPrefix(alias, aliasPrefix)
	if err != nil || !named {
		return nil
	}
	return []string{name}
}
