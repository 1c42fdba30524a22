package framework

// Topology divides the nodes into domains by the value of a label. Domains are
// numbered from 0 so that tables by domain are slices. The number of a value
// that no node has any more is reused.
type Topology struct {
	key     string
	numbers map[string]int
	names   []string // by number
	nodes   []int    // how many nodes each domain has, by number
	free    []int    // numbers without a value
	bySlot  []int32  // 1 + the domain of each node, by NodeInfo.Slot; 0 is none
}

// Domain returns the number of the node's domain, or -1 if the node has no
// such label.
func (t *Topology) Domain(n *NodeInfo) int {
	if n.Slot >= len(t.bySlot) {
		return -1
	}
	return int(t.bySlot[n.Slot]) - 1
}

// Size is greater than the number of every domain.
func (t *Topology) Size() int { return len(t.nodes) }

// Nodes returns how many nodes are in a domain, 0 if the number is not in use.
func (t *Topology) Nodes(domain int) int { return t.nodes[domain] }

// Key returns the label by which the nodes are divided.
func (t *Topology) Key() string { return t.key }

// Value returns the value of the label in a domain.
func (t *Topology) Value(domain int) string { return t.names[domain] }

// set takes the label of a node from its object and returns its domains before
// and after.
func (t *Topology) set(n *NodeInfo) (old, domain int) {
	old, domain = t.Domain(n), -1
	value, ok := "", false
	if n.Node != nil {
		value, ok = n.Node.Labels[t.key]
	}
	if old >= 0 && ok && t.names[old] == value {
		return old, old
	}
	if ok {
		domain = t.enter(value)
		for len(t.bySlot) <= n.Slot {
			t.bySlot = append(t.bySlot, 0)
		}
	}
	if old >= 0 {
		t.leave(old)
	}
	if n.Slot < len(t.bySlot) {
		t.bySlot[n.Slot] = int32(domain + 1)
	}
	return old, domain
}

// enter counts a node into the domain of a value, which may be new.
func (t *Topology) enter(value string) (domain int) {
	domain, ok := t.numbers[value]
	if !ok {
		if free := len(t.free); free > 0 {
			domain, t.free = t.free[free-1], t.free[:free-1]
			t.names[domain] = value
		} else {
			domain = len(t.nodes)
			t.nodes, t.names = append(t.nodes, 0), append(t.names, value)
		}
		t.numbers[value] = domain
	}
	t.nodes[domain]++
	return domain
}

func (t *Topology) leave(domain int) {
	if t.nodes[domain]--; t.nodes[domain] == 0 {
		delete(t.numbers, t.names[domain])
		t.names[domain] = ""
		t.free = append(t.free, domain)
	}
}

// Topology returns the division of the nodes by a label. It is valid until the
// cycle ends, and current in trials.
func (s *Snapshot) Topology(key string) *Topology {
	t, ok := s.topologies[key]
	if !ok {
		t = &Topology{key: key, numbers: map[string]int{}}
		for _, n := range s.nodes {
			t.set(n)
		}
		s.topologies[key] = t
	}
	return t
}

// relabeled updates the topologies, and what is counted by domain, after a
// node got or lost its object.
func (s *Snapshot) relabeled(n *NodeInfo) {
	for _, t := range s.topologies {
		if old, domain := t.set(n); old != domain && len(n.Pods) > 0 {
			s.index.move(n, t, old, domain)
		}
	}
}

// podCounts are numbers of pods by node, and by domain of the topologies that
// were asked for.
type podCounts struct {
	on      map[*NodeInfo]int64
	domains []*DomainCounts
}

// DomainCounts are numbers of pods by domain of a topology. They change with
// the snapshot.
type DomainCounts struct {
	*Topology
	counts []int64
	total  int64
}

// At returns the number of pods in a domain.
func (d *DomainCounts) At(domain int) int64 {
	if domain >= len(d.counts) {
		return 0
	}
	return d.counts[domain]
}

// On returns the number of pods in the domain of a node, 0 if it is in none.
func (d *DomainCounts) On(n *NodeInfo) int64 {
	if domain := d.Domain(n); domain >= 0 {
		return d.At(domain)
	}
	return 0
}

// Total is the sum over all domains.
func (d *DomainCounts) Total() int64 { return d.total }

func (d *DomainCounts) add(domain int, by int64) {
	if domain < 0 {
		return
	}
	for len(d.counts) <= domain {
		d.counts = append(d.counts, 0)
	}
	d.counts[domain] += by
	d.total += by
}

func (c *podCounts) add(n *NodeInfo, by int64) {
	if c.on[n] += by; c.on[n] == 0 {
		delete(c.on, n)
	}
	for _, d := range c.domains {
		d.add(d.Domain(n), by)
	}
}

// move takes the pods of a node from one domain to another.
func (c *podCounts) move(n *NodeInfo, t *Topology, from, to int) {
	for _, d := range c.domains {
		if d.Topology == t {
			d.add(from, -c.on[n])
			d.add(to, c.on[n])
		}
	}
}

// By returns the counts by domain of a topology. They stay current as long as
// the counts by node do.
func (c *podCounts) By(t *Topology) *DomainCounts {
	for _, d := range c.domains {
		if d.Topology == t {
			return d
		}
	}
	d := &DomainCounts{Topology: t, counts: make([]int64, t.Size())}
	for n, count := range c.on {
		d.add(t.Domain(n), count)
	}
	c.domains = append(c.domains, d)
	return d
}

// On is how many such pods are on a node.
func (c *podCounts) On(n *NodeInfo) int64 { return c.on[n] }

// NumNodes is how many nodes have such pods.
func (c *podCounts) NumNodes() int { return len(c.on) }
