package proxy

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

// permitter returns the rules of the state without the ports of this node that
// others have, and tells the pods and Services that do not get them. One goroutine
// uses it.
type permitter struct {
	state    *state
	nodeName string
	ports    Ports
	events   record.EventRecorder // nil is none

	// These are as in Config.
	clusterCIDRs []netip.Prefix
	reserved     []int
	neighbours   func() []int

	// asked are the last rules before anything was withheld, for node. seen is what was
	// around, and settled that this is still so, as far as is known.
	asked   Rules
	node    *localNode
	seen    surroundings
	settled bool
	claimed map[LocalPort]Claim
	idle    bool // the rules take no ports of the node, and none of an address
	// outside are the ports of asked that have frontends outside, blocked the wants that
	// have an obstacle.
	outside map[PortName]*ServicePort
	blocked []*want
	// lost has the ports of Services without what they lost, conflicts what has
	// been told.
	lost      map[PortName]*ServicePort
	conflicts map[conflict]bool
	failure   string // the last error of ports
}

// surroundings is what permission depends on beside the objects.
type surroundings struct {
	addresses  []netip.Addr
	neighbours []int
	obstacles  map[LocalPort]Obstacle
}

func (s surroundings) equal(o surroundings) bool {
	return slices.Equal(s.addresses, o.addresses) && slices.Equal(s.neighbours, o.neighbours) && maps.Equal(s.obstacles, o.obstacles)
}

// conflict is a port that a pod or a Service does not get. Without a port it is all
// of a Service that is too large.
type conflict struct {
	owner types.UID
	port  LocalPort
}

// owner is a pod or a Service.
type owner interface {
	metav1.Object
	runtime.Object
}

// rules returns the rules that the node may have. It looks at the node, and decides who has
// which of its ports, only if the ports that the rules would take differ from the last
// ones, or changed has found something else.
func (p *permitter) rules(ctx context.Context) Rules {
	if !p.settled || !p.ask() {
		p.settled = false // also after a panic
		err := p.look(&p.seen)
		p.ask()
		list := wants(p.asked, p.outside, p.node)
		p.claimed, p.idle = claimsOf(list), !p.takesPorts(p.asked)
		err = errors.Join(err, p.claim(&p.seen))
		p.blocked, p.settled = withObstacles(list, p.seen.obstacles), err == nil
		p.log(ctx, err)
	}
	rules, lost := withhold(p.asked, p.blocked, p.lost)
	p.lost = lost
	p.report(p.blocked)
	return rules
}

// ask makes p.asked what the state says of the node as it was seen last, and reports
// whether that would take the ports of the node as the former rules would.
func (p *permitter) ask() (same bool) {
	n := p.state.localNode(p.seen.addresses...)
	n.clusterCIDRs, n.reserved, n.neighbours = p.clusterCIDRs, p.reserved, p.seen.neighbours
	return p.follow(p.state.rules(n), n)
}

// follow makes p.asked, p.node and p.outside those of new rules, and reports whether these
// would take the ports of the node that the former ones would, in the same way.
func (p *permitter) follow(asked Rules, n *localNode) (same bool) {
	d := Compare(p.asked, asked)
	same = n.equal(p.node) && !d.Ranges && len(d.HostPorts) == 0
	if p.outside == nil {
		p.outside = map[PortName]*ServicePort{}
	}
	for _, name := range d.Services {
		before, now := p.outside[name], asked.Services.Get(name)
		switch {
		case now != nil && hasFrontendsOutside(now):
			p.outside[name] = now
			same = same && before != nil && before.HealthCheckNodePort == now.HealthCheckNodePort && isReachedOutside(before) == isReachedOutside(now) &&
				slices.EqualFunc(serviceWants(name, before, asked, n), serviceWants(name, now, asked, n), (*want).equal)
		case before != nil:
			delete(p.outside, name)
			same = false
		}
	}
	p.asked, p.node = asked, n
	return same
}

// look finds the node's addresses and the ports of other clusters.
func (p *permitter) look(s *surroundings) error {
	if p.neighbours != nil {
		s.neighbours = slices.Sorted(slices.Values(p.neighbours()))
	}
	addresses, err := p.ports.Addresses()
	s.addresses = slices.SortedFunc(slices.Values(addresses), netip.Addr.Compare)
	return err
}

// claim claims the ports that the rules would take.
func (p *permitter) claim(s *surroundings) (err error) {
	s.obstacles, err = p.ports.Claim(p.claimed)
	return err
}

// changed reports whether the last rules are no longer those that the node may
// have, although no object has changed.
func (p *permitter) changed(ctx context.Context) bool {
	if p.idle {
		return false
	}
	var now surroundings
	err := errors.Join(p.look(&now), p.claim(&now))
	p.log(ctx, err)
	if err != nil || now.equal(p.seen) {
		return false
	}
	p.settled = false
	return true
}

// log logs an error of ports once.
func (p *permitter) log(ctx context.Context, err error) {
	failure := ""
	if err != nil {
		failure = err.Error()
	}
	if failure != "" && failure != p.failure {
		klog.FromContext(ctx).Error(err, "Cannot find out which ports of the node programs have")
	}
	p.failure = failure
}

// mostTold is how many ports an owner is told of at a time. It may have declared tens of
// thousands that it does not get.
const mostTold = 10

// report writes an event for each port that its owner does not get, which has an obstacle,
// once.
func (p *permitter) report(list []*want) {
	conflicts, told := map[conflict]bool{}, map[types.UID]int{}
	for _, w := range list {
		if w.answered || p.events == nil {
			continue
		}
		owner := p.state.owner(w)
		if owner == nil {
			continue
		}
		c := conflict{owner.GetUID(), w.LocalPort}
		if !p.conflicts[c] && !conflicts[c] {
			reason := "PortConflict"
			if w.ofPod() {
				reason = "HostPortConflict"
			}
			if told[c.owner]++; told[c.owner] > mostTold {
				conflicts[c] = true
				continue
			}
			p.events.Eventf(owner, v1.EventTypeWarning, reason, "Can't open %v on node %s, skipping it: %s", w, p.nodeName, w.obstacle)
		}
		conflicts[c] = true
	}
	for _, service := range p.state.left() {
		c := conflict{owner: service.UID}
		if !p.conflicts[c] && p.events != nil {
			p.events.Eventf(service, v1.EventTypeWarning, "ServiceTooLarge", "Not served on node %s: the Services of the namespace have more than %d ports, endpoints of ports and external addresses", p.nodeName, p.state.mostOfNamespace)
		}
		conflicts[c] = true
	}
	p.conflicts = conflicts
}

// takesPorts reports whether rules take ports of this node, or would if it had
// another address.
func (p *permitter) takesPorts(rules Rules) bool {
	for _, port := range p.outside {
		if isReachedOutside(port) {
			return true
		}
	}
	return len(rules.HostPorts) > 0
}
