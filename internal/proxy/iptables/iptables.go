// Package iptables applies a proxy's Rules by iptables-restore, as kube-proxy in the
// mode iptables does: chains, their names, and what leads to them are kube-proxy's.
//
//	first, after errors, each hour:  iptables-save ──► all chains, jumps, removal of stale chains ──► iptables-restore
//	after changes:                   the chains that differ ──────────────────────────────────────► iptables-restore
//	each period:                     are the canaries still there? ◄── iptables -S
//
// plan.go and service.go format rules, which tables.go compares with the former ones.
package iptables

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/netnamespace"
	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/conntrack"
)

// Config configures a Backend.
type Config struct {
	// Owner is a name that marks the rules. A network namespace has one set of them, so
	// that proxies with other names must not use it at the same time.
	Owner string
	// ClusterCIDRs are the ranges of pods, at most one of each family.
	ClusterCIDRs []netip.Prefix
	// Local says which connections are those of pods. Other connections to a cluster IP
	// are masqueraded.
	Local proxy.Local
	// MasqueradeAll masquerades all connections to cluster IPs.
	MasqueradeAll bool
	// Mark is the bit of the packet mark for packets to masquerade, 0x4000 by default.
	Mark uint32
	// SyncPeriod is the least time between two checks for rules that others have
	// removed; 0 means that each call of Intact checks.
	SyncPeriod time.Duration
	// Conntrack are the settings of connection tracking. They are applied in the
	// namespace of this process only, and what they change is logged to Log.
	Conntrack conntrack.Settings
	Log       klog.Logger
	// Metrics gets metrics of rules and of the flows that are deleted; nil is none.
	Metrics prometheus.Registerer
	// IPv6 adds the rules of IPv6.
	IPv6 bool
	// NetNS is the file descriptor of the network namespace to work in; 0 means the
	// namespace of this process.
	NetNS int
}

// Limits of a proxy with this backend.
const (
	// MostOfNamespace is proxy.Config.MostOfNamespace: each endpoint of a port is a
	// chain, and each change of one is a run of iptables-restore over its table.
	MostOfNamespace = 50_000
	// fullPeriod is how long rules are known without writing everything, as in upstream.
	fullPeriod = time.Hour
)

// masqueradeMark is the default of Config.Mark.
const masqueradeMark = 0x4000

// Backend is a proxy.Backend. One goroutine uses it.
type Backend struct {
	config Config
	run    runner
	rules  proxy.Rules
	// kernel has the tables that the kernel holds, by family. A family whose tables are
	// unknown is not there.
	kernel map[v1.IPFamily]*tables
	// lacks is what the kernel has turned out not to have, by family.
	lacks map[v1.IPFamily]lacks
	// written is when everything was last written, checked when the canaries were last
	// looked for.
	written, checked time.Time
	flows            *conntrack.Table
	datagrams        bool // rules for UDP differ from those that flows follows
	metrics          *metrics
}

var _ proxy.Backend = (*Backend)(nil)

// New returns a backend. It changes nothing.
func New(c Config) *Backend {
	c.Mark = cmp.Or(c.Mark, masqueradeMark)
	b := &Backend{config: c, run: execute(c.NetNS), kernel: map[v1.IPFamily]*tables{}, lacks: map[v1.IPFamily]lacks{}}
	b.flows = conntrack.New(conntrack.Config{Settings: c.Conntrack, Log: c.Log, Metrics: c.Metrics, IPv6: c.IPv6, NetNS: c.NetNS})
	b.metrics = newMetrics(c.Metrics, families(c.IPv6))
	return b
}

// Apply implements proxy.Backend. A family that cannot be applied does not keep the
// other from being applied.
func (b *Backend) Apply(rules proxy.Rules) error {
	known, d := b.known(), proxy.Compare(b.rules, rules)
	var errs []error
	for _, f := range families(b.config.IPv6) {
		if err := b.applyTo(f, rules, d); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.name, err))
		}
	}
	b.rules = rules
	b.datagrams = b.datagrams || !known || d.HasDatagrams()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	datagrams := b.datagrams
	b.datagrams = false
	return b.flows.Follow(rules, datagrams)
}

// known reports whether the tables of all families are known.
func (b *Backend) known() bool { return len(b.kernel) == len(families(b.config.IPv6)) }

// forget makes the next Apply write everything.
func (b *Backend) forget() {
	clear(b.kernel)
	clear(b.lacks)
}

// applyTo applies rules of a family, which differ from the former ones by d. If the
// kernel lacks what some Services need, it applies the rules of the others.
func (b *Backend) applyTo(f family, rules proxy.Rules, d proxy.Difference) error {
	s := b.config.settings(f.is4(), rules)
	s.lacks = b.lacks[f.name]
	former := b.kernel[f.name]
	if former != nil && former.settings != s {
		former = nil
	}
	delete(b.kernel, f.name) // until all is done
	next, all, err := b.plan(f, s, former, rules, d)
	if err != nil {
		return err
	}
	if err := b.restore(f, all.input()); err != nil {
		b.metrics.failed(f, former != nil)
		if now := s.lacks.learn(err); now != s.lacks {
			b.lacks[f.name] = now
			b.config.Log.Error(err, "The kernel lacks a match of iptables that some Services need; applying the rules of the others", "family", f.name)
			return b.applyTo(f, rules, d)
		}
		return err
	}
	changed := d.Services
	if former == nil {
		changed = nil
		for name := range rules.Services.All() {
			changed = append(changed, name)
		}
	}
	b.tell(f, s.lacks.without(f, rules, changed))
	if s.loopback {
		if err := b.setRouteLocalnet("1"); err != nil {
			return err
		}
	}
	if former == nil {
		b.written, b.checked = time.Now(), time.Now()
	}
	b.metrics.applied(f, next, all)
	b.kernel[f.name] = next
	return nil
}

// plan returns the tables of a family, and the changes that lead to them. The former
// tables are not to be used any more: they may be those that it returns.
func (b *Backend) plan(f family, s settings, former *tables, rules proxy.Rules, d proxy.Difference) (*tables, changes, error) {
	if former != nil {
		return former, former.follow(rules, d), nil
	}
	existing, err := b.save(f)
	if err != nil {
		return nil, nil, err
	}
	if existing.isOfOther(s.owner) {
		other := strings.TrimPrefix(existing.owner, ownerPrefix)
		return nil, nil, fmt.Errorf("the rules of iptables in this network namespace are those of the proxy %q: one proxy in the mode iptables can use it, and the others the mode nftables; if that one is gone: coracle proxy --cleanup --nftables-table=%s",
			other, other)
	}
	next := newTables(s, rules)
	return next, next.replacing(existing), nil
}

// Intact implements proxy.Backend. Each SyncPeriod, it looks whether the canary of each
// table is still there, which goes when another program flushes the table. After an
// hour, nothing is taken for known any more.
func (b *Backend) Intact() (bool, error) {
	now := time.Now()
	switch {
	case !b.known():
		return true, nil
	case now.Sub(b.written) >= fullPeriod:
		b.forget()
		return false, nil
	case now.Sub(b.checked) < b.config.SyncPeriod:
		return true, nil
	}
	b.checked = now
	for _, f := range families(b.config.IPv6) {
		for _, table := range []string{mangle, nat, filter} {
			intact, err := b.hasCanary(f, table)
			if err != nil {
				return false, err
			}
			if !intact {
				b.forget()
				return false, nil
			}
		}
	}
	return true, nil
}

// hasCanary reports whether the canary of a table is there, with the rule that marks it.
func (b *Backend) hasCanary(f family, table string) (bool, error) {
	list, err := b.run(f.program(""), []string{"-w", lockSeconds, "-t", table, "-S", canary}, nil)
	if isNotThere(err) {
		return false, nil
	}
	return err == nil && parseSaved(list).owner == ownerPrefix+b.config.Owner, err
}

// save asks for the rules of a family.
func (b *Backend) save(f family) (*saved, error) {
	text, err := b.run(f.program("-save"), nil, nil)
	if err != nil {
		return nil, err
	}
	return parseSaved(text), nil
}

// restore makes changes, and leaves all else as it is.
func (b *Backend) restore(f family, input []byte) error {
	switch {
	case len(input) == 0:
		return nil
	case len(input) > mostInput:
		return fmt.Errorf("the rules would take %d bytes, more than %d", len(input), mostInput)
	}
	_, err := b.run(f.program("-restore"), []string{"-w", lockSeconds, "--noflush"}, input)
	return withLine(err, input)
}

// setRouteLocalnet says whether the kernel routes loopback addresses to other
// interfaces. Without that, nothing else than the node itself can answer them.
func (b *Backend) setRouteLocalnet(value string) error {
	const file = "/proc/sys/net/ipv4/conf/all/route_localnet"
	return netnamespace.Do(b.config.NetNS, func() error {
		raw, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(raw)) == value {
			return err
		}
		b.config.Log.Info("Changing route_localnet, on which node ports at loopback addresses depend; --iptables-localhost-nodeports=false does without", "value", value)
		if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
			return fmt.Errorf("node ports at loopback addresses, without which --iptables-localhost-nodeports=false does: %w", err)
		}
		return nil
	})
}

// Remove implements proxy.Backend. It removes what kube-proxy has left, too, but not
// the rules of a proxy with another name. Without the programs there is nothing.
func (b *Backend) Remove() error {
	return b.remove(func(s *saved) bool { return !s.isOfOther(ownerPrefix + b.config.Owner) })
}

// RemoveOwn removes the rules of a proxy with this name only.
func (b *Backend) RemoveOwn() error {
	return b.remove(func(s *saved) bool { return s.owner == ownerPrefix+b.config.Owner })
}

// remove removes the rules of each family that may be removed. It removes those of IPv6
// even if IPv6 is off, because an earlier process may have added them.
func (b *Backend) remove(may func(*saved) bool) error {
	b.forget()
	var errs []error
	for _, f := range usable() {
		if err := b.removeOf(f, may); err != nil {
			errs = append(errs, fmt.Errorf("removing the rules of iptables for %s: %w", f.name, err))
		}
	}
	return errors.Join(errs...)
}

// Owners returns the names of the proxies whose rules are there, at most one for each
// family. Without the programs there is none, and it leaves out what it cannot find out.
func (b *Backend) Owners() (list []string) {
	for _, f := range usable() {
		if existing, err := b.save(f); err == nil && existing.owner != "" {
			list = append(list, strings.TrimPrefix(existing.owner, ownerPrefix))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// usable returns the families whose programs are there and work. Without IPv6 in the
// kernel, those of IPv6 fail.
func usable() []family {
	return slices.DeleteFunc(families(true), func(f family) bool { return f.missing() != "" || !f.is4() && !nft.KernelHasIPv6() })
}

func (b *Backend) removeOf(f family, may func(*saved) bool) error {
	existing, err := b.save(f)
	if err != nil || !may(existing) {
		return err
	}
	if f.is4() && existing.guards() { // otherwise it was not set, or not by us
		if err := b.setRouteLocalnet("0"); err != nil {
			return err
		}
	}
	return b.restore(f, existing.removing().input())
}

// isOfOther reports whether the rules are marked as those of another owner.
func (s *saved) isOfOther(owner string) bool { return s.owner != "" && s.owner != owner }
