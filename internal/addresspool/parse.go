package addresspool

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// mostPools and mostRanges bound the pools, and the ranges of each.
const mostPools, mostRanges = 64, 64

// Keys of a pool.
const (
	addressesKey  = "addresses"
	autoAssignKey = "autoAssign"
	avoidKey      = "avoidBuggyIPs"
	namespacesKey = "namespaces"
)

// Parse returns the pools in the data of the ConfigMap. There is an error for each
// wrong field, and no pools then. No range may overlap with another one, or with one
// of taken, which the cluster itself uses.
func Parse(data map[string]string, taken ...netip.Prefix) (Pools, field.ErrorList) {
	root := field.NewPath("data")
	if len(data) > mostPools {
		return nil, field.ErrorList{field.TooMany(root, len(data), mostPools)}
	}
	var pools Pools
	var placed []placedRange
	var all field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(data)) {
		path := root.Key(name)
		pool, errs := parsePool(path, name, data[name])
		for i, r := range pool.Ranges {
			if r.From.IsValid() {
				placed = append(placed, placedRange{r, path.Child(addressesKey).Index(i), len(placed)})
			}
		}
		pools, all = append(pools, pool), append(all, errs...)
	}
	all = append(all, overlaps(placed, taken)...)
	if len(all) > 0 {
		return nil, all
	}
	return pools, nil
}

// parsePool returns the pool that a text in YAML describes. Its wrong ranges are the
// zero value.
func parsePool(path *field.Path, name, text string) (Pool, field.ErrorList) {
	pool := Pool{Name: name, AutoAssign: true}
	var values map[string]json.RawMessage
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err == nil {
		err = json.Unmarshal(raw, &values)
	}
	if err != nil {
		return pool, field.ErrorList{field.Invalid(path, field.OmitValueType{}, fmt.Sprintf("want fields such as addresses: %v", err))}
	}
	var all, ofAddresses field.ErrorList
	var addresses []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		at, value := path.Child(key), values[key]
		switch key {
		case addressesKey:
			ofAddresses = decode(at, value, &addresses, "a list of ranges in quotes")
		case autoAssignKey:
			all = append(all, decode(at, value, &pool.AutoAssign, "true or false")...)
		case avoidKey:
			all = append(all, decode(at, value, &pool.AvoidBuggyIPs, "true or false")...)
		case namespacesKey:
			all = append(all, decodeNamespaces(at, value, &pool.Namespaces)...)
		default:
			all = append(all, field.Forbidden(at, fmt.Sprintf("unknown field, there are %s, %s, %s and %s", addressesKey, autoAssignKey, avoidKey, namespacesKey)))
		}
	}
	at := path.Child(addressesKey)
	switch {
	case len(ofAddresses) > 0:
		return pool, append(all, ofAddresses...)
	case len(addresses) > mostRanges:
		return pool, append(all, field.TooMany(at, len(addresses), mostRanges))
	case len(addresses) == 0:
		return pool, append(all, field.Required(at, "want ranges such as 192.0.2.240-192.0.2.250 or 192.0.2.64/28"))
	}
	pool.Ranges = make([]Range, len(addresses))
	for i, text := range addresses {
		r, problem := parseRange(text, pool.AvoidBuggyIPs)
		if problem != "" {
			all = append(all, field.Invalid(at.Index(i), text, problem))
			continue
		}
		pool.Ranges[i] = r
	}
	return pool, all
}

// decode reads a value, which must not be null.
func decode(at *field.Path, value json.RawMessage, into any, want string) field.ErrorList {
	if string(value) == "null" || json.Unmarshal(value, into) != nil {
		return field.ErrorList{field.Invalid(at, string(value), "want "+want)}
	}
	return nil
}

func decodeNamespaces(at *field.Path, value json.RawMessage, names *[]string) field.ErrorList {
	all := decode(at, value, names, "a list of namespaces")
	if len(all) == 0 && len(*names) == 0 {
		all = append(all, field.Required(at, "names no namespace: leave it out for all of them"))
	}
	for i, name := range *names {
		for _, problem := range validation.IsDNS1123Label(name) {
			all = append(all, field.Invalid(at.Index(i), name, problem))
		}
	}
	return all
}

// parseRange returns the range in a text, or why there is none. Without edges, it has
// neither the first nor the last address of a CIDR of more than two.
func parseRange(text string, withoutEdges bool) (r Range, problem string) {
	const want = "want a range such as 192.0.2.240-192.0.2.250, 192.0.2.64/28 or 2001:db8::/120"
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			return r, want
		case p != p.Masked():
			return r, fmt.Sprintf("%s is inside of the CIDR: want %s, or a range that begins there", p.Addr(), p.Masked())
		}
		r = Range{p.Addr(), lastOf(p)}
		if withoutEdges && p.Addr().BitLen()-p.Bits() > 1 {
			r = Range{r.From.Next(), r.To.Prev()}
		}
	} else {
		first, last, isRange := strings.Cut(text, "-")
		if !isRange {
			last = first
		}
		from, err := netip.ParseAddr(strings.TrimSpace(first))
		to, errTo := netip.ParseAddr(strings.TrimSpace(last))
		if err != nil || errTo != nil || from.Zone() != "" || to.Zone() != "" || from.BitLen() != to.BitLen() {
			return r, want
		}
		if r = (Range{from, to}); to.Less(from) {
			return Range{}, "the last address is before the first one"
		}
	}
	for _, p := range unfit() {
		if r.overlaps(Range{p.Addr(), lastOf(p)}) {
			return Range{}, fmt.Sprintf("has addresses of %s, which no Service can have", p)
		}
	}
	return r, ""
}

// lastOf returns the last address of a masked prefix.
func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for i := p.Bits(); i < len(bytes)*8; i++ {
		bytes[i/8] |= 1 << (7 - i%8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

// unfit returns the addresses that are not those of one machine, or lead to no other
// machine: this host, loopback, link-local, multicast and reserved ones, and IPv4
// addresses in the form of IPv6.
func unfit() []netip.Prefix {
	var list []netip.Prefix
	for _, text := range []string{"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/127", "::ffff:0:0/96", "fe80::/10", "ff00::/8"} {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func (r Range) overlaps(o Range) bool {
	return r.From.BitLen() == o.From.BitLen() && r.From.Compare(o.To) <= 0 && o.From.Compare(r.To) <= 0
}

// placedRange is a range and where it stands.
type placedRange struct {
	Range
	path  *field.Path
	order int
}

// overlaps returns an error for each range that overlaps with one that stands before
// it, or with one that is taken.
func overlaps(ranges []placedRange, taken []netip.Prefix) (all field.ErrorList) {
	slices.SortFunc(ranges, func(a, b placedRange) int { return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.order, b.order)) })
	var reach placedRange // of those with lower first addresses, the one that ends last
	for _, r := range ranges {
		for _, p := range taken {
			if r.overlaps(Range{p.Masked().Addr(), lastOf(p.Masked())}) {
				all = append(all, field.Invalid(r.path, r.String(), fmt.Sprintf("overlaps with %s, which is a range of the cluster itself", p)))
			}
		}
		if r.overlaps(reach.Range) {
			later, earlier := r, reach
			if later.order < earlier.order {
				later, earlier = earlier, later
			}
			all = append(all, field.Invalid(later.path, later.String(), fmt.Sprintf("overlaps with %s", earlier.path)))
		}
		if reach.To.Less(r.To) {
			reach = r
		}
	}
	return all
}

// String returns the range as it is written.
func (r Range) String() string { return r.From.String() + "-" + r.To.String() }
