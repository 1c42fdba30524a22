package iptables

import (
	"regexp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/proxy"
)

// lacks are the matches that the kernel does not have, of those that some Services need
// and others do not. One rule that the kernel refuses makes it refuse all.
type lacks struct {
	recent bool // xt_recent, for session affinity
	sctp   bool // xt_sctp
}

// refusedMatch matches what the programs say about a match that the kernel does not
// have: the variant nft in its warning, and the variant legacy.
var refusedMatch = regexp.MustCompile("Extension (\\w+) revision \\d+ not supported|Couldn't load match `(\\w+)'")

// learn adds what the error of a program says.
func (l lacks) learn(err error) lacks {
	for _, found := range refusedMatch.FindAllStringSubmatch(err.Error(), -1) {
		switch found[1] + found[2] {
		case "recent":
			l.recent = true
		case "sctp":
			l.sctp = true
		}
	}
	return l
}

// affinity reports whether the kernel lacks what a port's session affinity needs.
func (l lacks) affinity(p *proxy.ServicePort) bool {
	return l.recent && p.Affinity > 0 && len(p.Cluster)+len(p.Local) > 0
}

// protocol reports whether the kernel lacks what a protocol needs.
func (l lacks) protocol(p v1.Protocol) bool { return l.sctp && p == v1.ProtocolSCTP }

// without returns the ports of Services, of the given ones of a family, that are not
// served because of what the kernel lacks, in order.
func (l lacks) without(f family, rules proxy.Rules, names []proxy.PortName) (list []string) {
	if l == (lacks{}) {
		return nil
	}
	for _, name := range names {
		if p := rules.Services.Get(name); p != nil && name.Family == f.name && (l.affinity(p) || l.protocol(name.Protocol)) {
			list = append(list, name.Label())
		}
	}
	slices.Sort(list)
	return list
}

// mostTold is how many Services the log names at a time.
const mostTold = 10

// tell logs which ports of Services are not served.
func (b *Backend) tell(f family, left []string) {
	if len(left) == 0 {
		return
	}
	b.config.Log.Info("Services are not served because the kernel lacks a match of iptables (module xt_recent for session affinity, xt_sctp for SCTP); trying again within the hour",
		"family", f.name, "count", len(left), "services", left[:min(len(left), mostTold)])
}
