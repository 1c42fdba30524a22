package servicelb

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/addresspool"
	"github.com/coracle-io/coracle/internal/controller"
)

// parsePools returns pools of the texts, by their names.
func parsePools(t *testing.T, data map[string]string) addresspool.Pools {
	t.Helper()
	pools, errs := addresspool.Parse(data)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return pools
}

// with sets annotations of a Service: KEY=VALUE.
func with(s *v1.Service, annotations ...string) *v1.Service {
	s.Annotations = map[string]string{}
	for _, a := range annotations {
		key, value, _ := strings.Cut(a, "=")
		s.Annotations["coracle.io/"+key] = value
	}
	return s
}

func local(s *v1.Service, app string) *v1.Service {
	s.Spec.ExternalTrafficPolicy, s.Spec.Selector = v1.ServiceExternalTrafficPolicyLocal, map[string]string{"app": app}
	return s
}

func policy(s *v1.Service, p v1.IPFamilyPolicy) *v1.Service {
	s.Spec.IPFamilyPolicy = &p
	return s
}

func ipv6(s *v1.Service) *v1.Service {
	s.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol}
	return s
}

func asking(s *v1.Service, address string) *v1.Service {
	s.Spec.LoadBalancerIP = address
	return s
}

// holding returns a Service that has addresses.
func holding(s *v1.Service, addresses ...string) service {
	out := service{Service: s}
	for _, a := range addresses {
		out.held = append(out.held, netip.MustParseAddr(a))
	}
	return out
}

// allocation is what allocate decides for Services: their addresses, what they lose
// and why, and the problem.
type allocation struct {
	services []service
	others   map[string]string
	want     map[string]string
}

func (c allocation) check(t *testing.T, name string) {
	t.Helper()
	pools := map[string]string{
		"a":    "addresses: [192.0.2.10-192.0.2.12]",
		"b":    "{addresses: [198.51.100.0/30], avoidBuggyIPs: true, namespaces: [x]}",
		"six":  `addresses: ["2001:db8::10-2001:db8::11"]`,
		"wish": `{addresses: [203.0.113.1-203.0.113.9, "2001:db8:1::/64"], autoAssign: false}`,
		"y":    `{addresses: [203.0.113.16/28], namespaces: ["y"]}`,
	}
	others := map[netip.Addr]string{}
	for a, why := range c.others {
		others[netip.MustParseAddr(a)] = why
	}
	got := map[string]string{}
	for key, a := range allocate(c.services, parsePools(t, pools), others) {
		text := a.String()
		for _, line := range a.released {
			text += " -" + line
		}
		if a.problem != "" {
			text += " !" + a.problem
		}
		got[key.String()] = text
	}
	if diff := cmp.Diff(c.want, got); diff != "" {
		t.Errorf("%s (-want +got)\n%s", name, diff)
	}
}

func TestAllocate(t *testing.T) {
	web := func(ports ...int32) *v1.Service { return balancerService("x", "web", 5, ports...) }
	for name, c := range map[string]allocation{
		"the lowest":        {[]service{holding(web(80))}, nil, map[string]string{"x/web": "192.0.2.10"}},
		"both families":     {[]service{holding(dual(web(80)))}, nil, map[string]string{"x/web": "192.0.2.10, 2001:db8::10"}},
		"IPv6 first":        {[]service{holding(ipv6(web(80)))}, nil, map[string]string{"x/web": "2001:db8::10"}},
		"what it has":       {[]service{holding(web(80), "192.0.2.12")}, nil, map[string]string{"x/web": "192.0.2.12"}},
		"the next, by age":  {[]service{holding(balancerService("x", "young", 1, 80)), holding(balancerService("x", "old", 9, 80))}, nil, map[string]string{"x/old": "192.0.2.10", "x/young": "192.0.2.11"}},
		"the next pool":     {[]service{holding(web(80))}, map[string]string{"192.0.2.10": ofNode, "192.0.2.11": ofNode, "192.0.2.12": "that of a Service without pools"}, map[string]string{"x/web": "198.51.100.1"}},
		"of a node":         {[]service{holding(web(80), "192.0.2.10")}, map[string]string{"192.0.2.10": ofNode}, map[string]string{"x/web": "192.0.2.11 -192.0.2.10 is an address of a node"}},
		"from nodes":        {[]service{holding(web(80), "192.168.7.1")}, map[string]string{"192.168.7.1": ofNode}, map[string]string{"x/web": "192.0.2.10"}},
		"from a lost pool":  {[]service{holding(web(80), "192.0.9.9")}, nil, map[string]string{"x/web": "192.0.2.10 -192.0.9.9 is in no address pool"}},
		"all that is there": {[]service{holding(dual(web(80)), "192.0.2.12"), holding(balancerService("x", "other", 9, 80), "192.0.2.10")}, nil, map[string]string{"x/web": "192.0.2.12, 2001:db8::10", "x/other": "192.0.2.10"}},

		"by loadBalancerIP":        {[]service{holding(asking(web(80), "203.0.113.7"))}, nil, map[string]string{"x/web": "203.0.113.7"}},
		"by annotation":            {[]service{holding(asking(with(dual(web(80)), "loadBalancerIPs= 203.0.113.7 ,2001:db8:1::7"), "192.0.2.10"))}, nil, map[string]string{"x/web": "203.0.113.7, 2001:db8:1::7"}},
		"one family by annotation": {[]service{holding(with(dual(web(80)), "loadBalancerIPs=2001:db8:1::7"))}, nil, map[string]string{"x/web": "192.0.2.10, 2001:db8:1::7"}},
		"another one than before":  {[]service{holding(asking(web(80), "192.0.2.11"), "192.0.2.10")}, nil, map[string]string{"x/web": "192.0.2.11 -192.0.2.10 is not 192.0.2.11, for which the Service asks"}},
		"not an address":           {[]service{holding(asking(web(80), "web.example"))}, nil, map[string]string{"x/web": ` !spec.loadBalancerIP: "web.example" is not an IP address`}},
		"of another family":        {[]service{holding(with(web(80), "loadBalancerIPs=2001:db8:1::7"))}, nil, map[string]string{"x/web": " !the annotation coracle.io/loadBalancerIPs: 2001:db8:1::7 is not of a family in spec.ipFamilies"}},
		"two of a family":          {[]service{holding(with(web(80), "loadBalancerIPs=192.0.2.10,192.0.2.11"))}, nil, map[string]string{"x/web": " !the annotation coracle.io/loadBalancerIPs: 192.0.2.10 and 192.0.2.11 are of one family"}},
		"in no pool":               {[]service{holding(asking(web(80), "192.0.9.9"))}, nil, map[string]string{"x/web": " !192.0.9.9 is in no address pool"}},
		"with a zone":              {[]service{holding(asking(ipv6(web(80)), "2001:db8:1::7%eth0"))}, nil, map[string]string{"x/web": " !2001:db8:1::7%eth0 is in no address pool"}},
		"in that of others":        {[]service{holding(asking(web(80), "203.0.113.16"))}, nil, map[string]string{"x/web": " !203.0.113.16 is in the address pool y, which is not for namespace x"}},
		"of a node, asked for":     {[]service{holding(asking(web(80), "192.0.2.10"))}, map[string]string{"192.0.2.10": ofNode}, map[string]string{"x/web": " !192.0.2.10 is an address of a node"}},
		"taken":                    {[]service{holding(asking(web(80), "192.0.2.10")), holding(balancerService("x", "young", 1, 80), "192.0.2.10")}, nil, map[string]string{"x/web": " !192.0.2.10 is that of Service young", "x/young": "192.0.2.10"}},
		"taken elsewhere":          {[]service{holding(asking(web(80), "192.0.2.10")), holding(balancerService("z", "other", 1, 80), "192.0.2.10")}, nil, map[string]string{"x/web": " !192.0.2.10 is that of a Service in another namespace", "z/other": "192.0.2.10"}},
		"both ask for it":          {[]service{holding(asking(web(80), "192.0.2.10")), holding(asking(balancerService("x", "young", 1, 81), "192.0.2.10"))}, nil, map[string]string{"x/web": "192.0.2.10", "x/young": " !192.0.2.10 is that of Service web"}},

		"by pool":              {[]service{holding(with(web(80), "address-pool=wish"))}, nil, map[string]string{"x/web": "203.0.113.1"}},
		"by pool and address":  {[]service{holding(asking(with(web(80), "address-pool=wish"), "192.0.2.10"))}, nil, map[string]string{"x/web": " !192.0.2.10 is in the address pool a, and the Service asks for wish"}},
		"no such pool":         {[]service{holding(with(web(80), "address-pool=c"), "192.0.2.10")}, nil, map[string]string{"x/web": ` -192.0.2.10 is not needed any more !there is no address pool "c", for which the annotation coracle.io/address-pool asks`}},
		"pool of others":       {[]service{holding(with(web(80), "address-pool=y"))}, nil, map[string]string{"x/web": " !203.0.113.16 is in the address pool y, which is not for namespace x"}},
		"pool of one family":   {[]service{holding(with(dual(web(80)), "address-pool=a"))}, nil, map[string]string{"x/web": "192.0.2.10 !no IPv6 address is free in the pools a"}},
		"one family is enough": {[]service{holding(policy(with(dual(web(80)), "address-pool=a"), v1.IPFamilyPolicyPreferDualStack))}, nil, map[string]string{"x/web": "192.0.2.10"}},
		"does not ask anymore": {[]service{holding(web(80), "203.0.113.1")}, nil, map[string]string{"x/web": "203.0.113.1"}},
	} {
		c.check(t, name)
	}
}

func TestAllocateSharedAddresses(t *testing.T) {
	web := func(ports ...int32) *v1.Service { return balancerService("x", "web", 5, ports...) }
	var many []int32
	for i := range int32(mostSharedPorts + 1) {
		many = append(many, 1000+i)
	}
	for name, c := range map[string]allocation{
		"shared":                  {[]service{holding(with(web(80), "allow-shared-ip=k")), holding(with(balancerService("x", "api", 1, 81), "allow-shared-ip=k"))}, nil, map[string]string{"x/web": "192.0.2.10", "x/api": "192.0.2.10"}},
		"a stranger's key":        {[]service{holding(with(web(80), "allow-shared-ip=k"), "192.0.2.10"), holding(with(balancerService("y", "api", 9, 81), "allow-shared-ip=k"))}, nil, map[string]string{"x/web": "192.0.2.10", "y/api": "192.0.2.11"}},
		"a stranger's address":    {[]service{holding(with(web(80), "allow-shared-ip=k"), "192.0.2.10"), holding(asking(with(balancerService("y", "api", 9, 81), "allow-shared-ip=k"), "192.0.2.10"))}, nil, map[string]string{"x/web": "192.0.2.10", "y/api": " !192.0.2.10 is that of a Service in another namespace"}},
		"not one to ask for":      {[]service{holding(asking(with(web(80), "allow-shared-ip=k"), "203.0.113.7"), "203.0.113.7"), holding(with(balancerService("x", "api", 1, 81), "allow-shared-ip=k"))}, nil, map[string]string{"x/web": "203.0.113.7", "x/api": "192.0.2.10"}},
		"shared by protocol":      {[]service{holding(with(web(53), "allow-shared-ip=k")), holding(with(udp(balancerService("x", "udp", 1, 53)), "allow-shared-ip=k"))}, nil, map[string]string{"x/web": "192.0.2.10", "x/udp": "192.0.2.10"}},
		"shared and asked for":    {[]service{holding(asking(with(web(80), "allow-shared-ip=k"), "192.0.2.12")), holding(asking(with(balancerService("x", "api", 1, 81), "allow-shared-ip=k"), "192.0.2.12"))}, nil, map[string]string{"x/web": "192.0.2.12", "x/api": "192.0.2.12"}},
		"shared with one younger": {[]service{holding(with(web(80), "allow-shared-ip=k")), holding(with(balancerService("x", "api", 1, 81), "allow-shared-ip=k"), "192.0.2.11")}, nil, map[string]string{"x/web": "192.0.2.11", "x/api": "192.0.2.11"}},
		"another key":             {[]service{holding(with(web(80), "allow-shared-ip=k")), holding(with(balancerService("x", "api", 1, 81), "allow-shared-ip=l"))}, nil, map[string]string{"x/web": "192.0.2.10", "x/api": "192.0.2.11"}},
		"the same port":           {[]service{holding(with(web(80, 81), "allow-shared-ip=k")), holding(with(balancerService("x", "api", 1, 81), "allow-shared-ip=k"))}, nil, map[string]string{"x/web": "192.0.2.10", "x/api": "192.0.2.11"}},
		"very many ports":         {[]service{holding(with(web(many...), "allow-shared-ip=k")), holding(with(balancerService("x", "api", 1, 81), "allow-shared-ip=k"))}, nil, map[string]string{"x/web": "192.0.2.10", "x/api": "192.0.2.11"}},
		"many ports":              {[]service{holding(with(web(many[1:]...), "allow-shared-ip=k")), holding(with(balancerService("x", "api", 1, 81), "allow-shared-ip=k"))}, nil, map[string]string{"x/web": "192.0.2.10", "x/api": "192.0.2.10"}},
		"local, same pods":        {[]service{holding(with(local(web(80), "w"), "allow-shared-ip=k")), holding(with(local(balancerService("x", "api", 1, 81), "w"), "allow-shared-ip=k"))}, nil, map[string]string{"x/web": "192.0.2.10", "x/api": "192.0.2.10"}},
		"local, other pods":       {[]service{holding(with(local(web(80), "w"), "allow-shared-ip=k")), holding(with(local(balancerService("x", "api", 1, 81), "a"), "allow-shared-ip=k"))}, nil, map[string]string{"x/web": "192.0.2.10", "x/api": "192.0.2.11"}},
		"local, another place":    {[]service{holding(with(local(web(80), "w"), "allow-shared-ip=k")), holding(with(local(balancerService("z", "api", 1, 81), "w"), "allow-shared-ip=k"))}, nil, map[string]string{"x/web": "192.0.2.10", "z/api": "192.0.2.11"}},
		"no longer shared":        {[]service{holding(with(web(80), "allow-shared-ip=k"), "192.0.2.10"), holding(balancerService("x", "api", 1, 81), "192.0.2.10")}, nil, map[string]string{"x/web": "192.0.2.10", "x/api": "192.0.2.11 -192.0.2.10 is that of Service web"}},

		"twice by a fault": {[]service{holding(balancerService("x", "young", 1, 80), "192.0.2.11"), holding(web(80), "192.0.2.11")}, nil, map[string]string{"x/web": "192.0.2.11", "x/young": "192.0.2.10 -192.0.2.11 is that of Service web"}},
		// The younger one gets the address after the API server has that the older one
		// does not have it.
		"not before it is free": {[]service{holding(asking(web(80), "192.0.2.12"), "192.0.2.10"), holding(asking(balancerService("x", "young", 1, 80), "192.0.2.10"))}, nil, map[string]string{"x/web": "192.0.2.12 -192.0.2.10 is not 192.0.2.12, for which the Service asks", "x/young": " !192.0.2.10 is that of Service web"}},
	} {
		c.check(t, name)
	}
}

func TestAllocateUntilNoneIsLeft(t *testing.T) {
	pools := parsePools(t, map[string]string{"a": "{addresses: [192.0.2.254-192.0.3.1, 198.51.100.0/31], avoidBuggyIPs: true}", "b": `addresses: ["2001:db8::/64"]`})
	var services []service
	for i := range 4 {
		services = append(services, holding(dual(balancerService("x", fmt.Sprint("s", i), 9-i, 80))))
	}
	var got []string
	for _, s := range services {
		a := allocate(services, pools, nil)[controller.Key{Namespace: "x", Name: s.Name}]
		got = append(got, a.String()+a.problem)
	}
	want := []string{
		"192.0.2.254, 2001:db8::", "192.0.3.1, 2001:db8::1", "198.51.100.1, 2001:db8::2",
		"2001:db8::3no IPv4 address is free in the pools a, b",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestAllocateIsBounded checks that Services get no more addresses than nodes announce,
// and that those who have one keep it.
func TestAllocateIsBounded(t *testing.T) {
	pools := parsePools(t, map[string]string{"a": `addresses: ["2001:db8::/64"]`})
	var services []service
	for i := range addresspool.MostAddresses - 1 {
		services = append(services, holding(ipv6(balancerService("x", fmt.Sprint("s", i), 1, 80)), fmt.Sprintf("2001:db8::1:%x", i)))
	}
	last, asks := holding(ipv6(balancerService("y", "last", 8, 80))), holding(asking(ipv6(balancerService("y", "asks", 7, 80)), "2001:db8::7"))
	shares := holding(with(ipv6(balancerService("y", "shares", 6, 81)), "allow-shared-ip=k"))
	with(last.Service, "allow-shared-ip=k")
	got := allocate(append(services, last, asks, shares), pools, nil)
	for name, want := range map[string]string{"last": "2001:db8::", "asks": "1024 addresses are in use, and nodes announce no more", "shares": "2001:db8::"} {
		if a := got[controller.Key{Namespace: "y", Name: name}]; a.String()+a.problem != want {
			t.Errorf("%s: %s%s, want %s", name, a, a.problem, want)
		}
	}
	for _, s := range services {
		if a := got[controller.Key{Namespace: "x", Name: s.Name}]; !slices.Equal(a.addresses, s.held) {
			t.Errorf("%s: %s, want %s", s.Name, a, s.held)
		}
	}
}

func TestPooled(t *testing.T) {
	pools := parsePools(t, map[string]string{"a": "{addresses: [192.0.2.1], namespaces: [x]}", "b": "{addresses: [192.0.2.2], autoAssign: false}"})
	in, elsewhere := balancerService("x", "web", 1, 80), balancerService("y", "web", 1, 80)
	marked, copied := with(balancerService("x", "web", 1, 80), "servicelb-nodes=u"), with(balancerService("x", "web", 1, 80), "servicelb-nodes=of-another")
	marked.UID, copied.UID = "u", "v"
	const ofA, ofB = "192.0.2.1", "192.0.2.2"
	others := map[netip.Addr]string{netip.MustParseAddr("203.0.113.1"): ofNode, netip.MustParseAddr(ofA): ofNode, netip.MustParseAddr("203.0.113.2"): "that of a Service without pools"}
	for name, c := range map[string]struct {
		service    service
		pools      addresspool.Pools
		want, kept bool
	}{
		"no pools":                {holding(asking(balancerService("x", "web", 1, 80), ofA)), nil, false, false},
		"a pool for all":          {holding(in), pools, true, false},
		"none for it":             {holding(elsewhere), pools, false, false},
		"asks for a pool":         {holding(with(balancerService("y", "web", 1, 80), "address-pool=b")), pools, true, false},
		"asks for an address":     {holding(with(balancerService("y", "web", 1, 80), "loadBalancerIPs="+ofB)), pools, true, false},
		"asks as before":          {holding(asking(balancerService("y", "web", 1, 80), ofB)), pools, true, false},
		"asked for a node's":      {holding(asking(balancerService("x", "web", 1, 80), "203.0.113.1"), "203.0.113.1"), pools, false, true},
		"has that of a node":      {holding(in, "203.0.113.1"), pools, false, true},
		"has it, and no pool":     {holding(elsewhere, "203.0.113.1"), pools, false, false},
		"has it and asks":         {holding(with(balancerService("x", "web", 1, 80), "address-pool=a"), "203.0.113.1"), pools, true, false},
		"had that of a node":      {holding(marked), pools, false, true},
		"of which it is a copy":   {holding(copied), pools, true, false},
		"has what it asked for":   {holding(elsewhere, ofB), pools, true, false},
		"has what is not for it":  {holding(elsewhere, ofA), pools, false, false},
		"has that of no node":     {holding(in, "203.0.113.2"), pools, true, false},
		"has what a node has now": {holding(in, ofA), pools, true, false},
	} {
		if got, kept := pooled(c.service.Service, c.service.held, c.pools, others); got != c.want || kept != c.kept {
			t.Errorf("%s: %v, keeps the addresses of nodes: %v; want %v, %v", name, got, kept, c.want, c.kept)
		}
	}
}

// world is an API server for allocations that are written in any order, and not all.
type world struct {
	*testing.T
	random   *rand.Rand
	pools    addresspool.Pools
	services map[controller.Key]*service
	next     int
}

// change creates, deletes or changes a Service.
func (w *world) change() {
	keys := slices.SortedFunc(maps.Keys(w.services), func(a, b controller.Key) int { return strings.Compare(a.String(), b.String()) })
	if len(keys) == 0 || w.random.IntN(3) == 0 {
		w.next++
		s := balancerService([]string{"x", "y"}[w.random.IntN(2)], fmt.Sprintf("s%03d", w.next), w.random.IntN(5), int32(80+w.random.IntN(3)))
		w.services[controller.Key{Namespace: s.Namespace, Name: s.Name}] = &service{Service: s}
		return
	}
	key := keys[w.random.IntN(len(keys))]
	s := w.services[key].Service.DeepCopy()
	switch w.random.IntN(6) {
	case 0, 1:
		delete(w.services, key)
		return
	case 2:
		with(s, []string{"allow-shared-ip=k", "allow-shared-ip=l", "address-pool=a", "address-pool=wish", "x=y"}[w.random.IntN(5)])
	case 3:
		s.Spec.LoadBalancerIP = []string{"", "192.0.2.10", "203.0.113.1", "192.0.9.9"}[w.random.IntN(4)]
	case 4:
		s.Spec.IPFamilies = [][]v1.IPFamily{{v1.IPv4Protocol}, {v1.IPv6Protocol}, {v1.IPv4Protocol, v1.IPv6Protocol}}[w.random.IntN(3)]
	case 5:
		local(s, []string{"w", "a"}[w.random.IntN(2)])
	}
	w.services[key].Service = s
}

// write decides, and writes some of that in any order. It fails if a Service gets an
// address that another one has then, with which it does not share it.
func (w *world) write(all bool) (wrote int, assignments map[controller.Key]assignment) {
	var list []service
	for _, s := range w.services {
		list = append(list, *s)
	}
	assignments = allocate(list, w.pools, nil)
	keys := slices.SortedFunc(maps.Keys(assignments), func(a, b controller.Key) int { return strings.Compare(a.String(), b.String()) })
	w.random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for _, key := range keys {
		s, got := w.services[key], assignments[key].addresses
		if slices.Equal(s.held, got) || !all && w.random.IntN(2) == 0 {
			continue
		}
		wrote++
		for other, o := range w.services {
			for _, a := range o.held {
				if other != key && slices.Contains(got, a) && !slices.Contains(s.held, a) && !share(s.Service, o.Service) {
					w.Errorf("%s gets %s, which %s has", key, a, other)
				}
			}
		}
		s.held = got
	}
	return wrote, assignments
}

// check fails if an address is that of two Services that do not share it, or of no
// pool, or is free while a Service has none.
func (w *world) check(assignments map[controller.Key]assignment) {
	users := map[netip.Addr][]controller.Key{}
	for key, s := range w.services {
		for _, a := range s.held {
			if pool := w.pools.Of(a); pool == nil || !pool.Admits(s.Namespace) || !slices.Contains(s.Spec.IPFamilies, addresspool.FamilyOf(a)) {
				w.Errorf("%s has %s", key, a)
			}
			for _, other := range users[a] {
				if !share(s.Service, w.services[other].Service) {
					w.Errorf("%s and %s have %s", key, other, a)
				}
			}
			users[a] = append(users[a], key)
		}
	}
	for key, a := range assignments {
		asks := len(w.services[key].Annotations) > 0 || w.services[key].Spec.LoadBalancerIP != ""
		for _, family := range w.services[key].Spec.IPFamilies {
			if asks || slices.ContainsFunc(a.addresses, func(a netip.Addr) bool { return addresspool.FamilyOf(a) == family }) {
				continue
			}
			for _, pool := range w.pools {
				for _, r := range pool.Ranges {
					for free := r.From; pool.AutoAssign && pool.Admits(key.Namespace) && addresspool.FamilyOf(free) == family && r.Contains(free); free = free.Next() {
						if len(users[free]) == 0 {
							w.Errorf("%s has no address (%s), and %s is free", key, a.problem, free)
						}
					}
				}
			}
		}
	}
}

// TestNoAddressTwice changes Services at random, while what is decided is written in
// any order and not always. Once all is written, nothing is decided anew, and no
// address is lost.
func TestNoAddressTwice(t *testing.T) {
	for seed := range uint64(200) {
		w := &world{T: t, random: rand.New(rand.NewPCG(seed, 0)), services: map[controller.Key]*service{}, pools: parsePools(t, map[string]string{
			"a": "addresses: [192.0.2.10-192.0.2.13]", "six": `addresses: ["2001:db8::1-2001:db8::4"]`, "wish": "{addresses: [203.0.113.1-203.0.113.2], autoAssign: false}",
			"y": `{addresses: [198.51.100.1], namespaces: ["y"]}`,
		})}
		for range 30 {
			for range 1 + w.random.IntN(4) {
				w.change()
			}
			w.write(false)
		}
		rounds := 0
		for wrote := 1; wrote > 0; rounds++ {
			if wrote, _ = w.write(true); rounds > 2*len(w.services)+2 {
				t.Fatalf("seed %d: still undecided after %d rounds", seed, rounds)
			}
		}
		_, assignments := w.write(true)
		if w.check(assignments); t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}
