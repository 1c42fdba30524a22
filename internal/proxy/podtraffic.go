package proxy

import "net/netip"

// Local says by what the connections of pods are recognized, as kube-proxy's
// detectLocalMode. The zero value means by the ranges of all pods. At most one field
// is set.
type Local struct {
	// NodeRanges means by the ranges of this node's pods, Rules.PodCIDRs.
	NodeRanges bool
	// Bridge is the interface by which they arrive, InterfacePrefix what the name of
	// that interface begins with.
	Bridge          string
	InterfacePrefix string
}

// PodTraffic recognizes the connections of pods in one family: by a range of their
// addresses, or by the interface by which they arrive. The zero value recognizes none.
type PodTraffic struct {
	Range netip.Prefix
	// Interface is the name of the interface, or with IsPrefix what it begins with.
	Interface string
	IsPrefix  bool
}

// Of returns what recognizes the connections of pods in a family. clusterCIDRs are the
// ranges of all pods. Without a range of the family, it recognizes none.
func (l Local) Of(is4 bool, clusterCIDRs []netip.Prefix, rules Rules) PodTraffic {
	ranges := clusterCIDRs
	switch {
	case l.Bridge != "":
		return PodTraffic{Interface: l.Bridge}
	case l.InterfacePrefix != "":
		return PodTraffic{Interface: l.InterfacePrefix, IsPrefix: true}
	case l.NodeRanges:
		ranges = rules.PodCIDRs
	}
	for _, p := range ranges {
		if p.Addr().Is4() == is4 {
			return PodTraffic{Range: p}
		}
	}
	return PodTraffic{}
}
