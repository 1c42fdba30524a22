package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// comparePeriod is the least time between two comparisons of everything that the
// tables hold. Other programs may write to the kernel all the time.
const comparePeriod = 30 * time.Second

// Intact reports whether the tables still hold what the last Replace wrote. If
// not, the next Replace writes everything. As long as no other program has written
// anything to nftables, Intact asks the kernel for a number only. Otherwise it
// compares the number of chains, and every 30 seconds the number of rules in each
// chain and the elements of sets.
func (t *Tables[R]) Intact() (bool, error) {
	if !t.Known() {
		return true, nil
	}
	const attempts = 3
	for range attempts {
		before, err := t.generation()
		if err != nil || before == t.verified {
			return err == nil, err
		}
		everything := time.Since(t.compared) >= comparePeriod
		intact, err := t.compare(everything)
		if err != nil {
			return false, err
		}
		after, err := t.generation()
		if err != nil {
			return false, err
		}
		switch {
		case before != after: // what was read may be of two moments
		case !intact:
			t.forget()
			return false, nil
		case everything:
			t.verified, t.compared = before, time.Now()
			return true, nil
		default:
			return true, nil
		}
	}
	return true, nil // as far as is known
}

// forget makes the next Replace write everything.
func (t *Tables[R]) forget() { t.applied, t.verified, t.compared = nil, 0, time.Time{} }

// compare compares the tables with what was applied: the number of their chains,
// or everything.
func (t *Tables[R]) compare(everything bool) (bool, error) {
	for i, f := range t.families() {
		same, err := t.sameChains(f, t.applied[i], everything)
		if err == nil && same && everything {
			same, err = t.sameSets(f, t.applied[i])
		}
		if errors.Is(err, unix.ENOENT) {
			return false, nil // the table or a set is gone
		}
		if err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// sameChains compares the names of the chains and, if rules is set, the number of
// rules in each.
func (t *Tables[R]) sameChains(f Family, applied R, rules bool) (bool, error) {
	conn, err := Connect(t.NetNS)
	if err != nil {
		return false, err
	}
	chains, err := conn.ListChainsOfTableFamily(f.Table)
	if err != nil {
		return false, fmt.Errorf("listing chains: %w", err)
	}
	want, have := map[string]int{}, map[string]int{}
	for name, list := range applied.Chains() {
		want[name] = len(list)
	}
	for _, c := range chains {
		if c.Table.Name == t.Name {
			have[c.Name] = 0
		}
	}
	if !rules {
		return len(have) == len(want), nil
	}
	counts, err := CountRules(t.NetNS, t.table(f))
	if err != nil {
		return false, err
	}
	maps.Copy(have, counts)
	return maps.Equal(have, want), nil
}

// CountRules returns the number of rules in each chain of a table that has rules,
// by name.
func CountRules(netNS int, table *nftables.Table) (map[string]int, error) {
	messages, err := query(netNS, unix.NFT_MSG_GETRULE, netlink.Dump, table.Family, netlink.Attribute{Type: unix.NFTA_RULE_TABLE, Data: []byte(table.Name + "\x00")})
	if err != nil {
		return nil, fmt.Errorf("listing rules: %w", err)
	}
	counts := map[string]int{}
	for _, m := range messages {
		err := attributes(m.Data, func(d *netlink.AttributeDecoder) {
			if d.Type() == unix.NFTA_RULE_CHAIN {
				counts[d.String()]++
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// sameSets compares the elements of the sets that only Replace changes.
func (t *Tables[R]) sameSets(f Family, applied R) (bool, error) {
	for name, elements := range applied.Sets(f) {
		want := map[string]string{}
		for _, e := range elements {
			if e.IntervalEnd {
				continue
			}
			chain := ""
			if e.VerdictData != nil {
				chain = e.VerdictData.Chain
			}
			want[string(e.Key)] = chain
		}
		have, err := t.Elements(f, name)
		if err != nil || !maps.Equal(have, want) {
			return false, err
		}
	}
	return true, nil
}

// Elements returns the elements of a set in the kernel, by their keys: the chain
// that an element of a map leads to, and "" in a set. It leaves out the ends of
// intervals. The error is unix.ENOENT if there is no such set.
func (t *Tables[R]) Elements(f Family, set string) (map[string]string, error) {
	messages, err := query(t.NetNS, unix.NFT_MSG_GETSETELEM, netlink.Dump, f.Table,
		netlink.Attribute{Type: unix.NFTA_SET_ELEM_LIST_TABLE, Data: []byte(t.Name + "\x00")},
		netlink.Attribute{Type: unix.NFTA_SET_ELEM_LIST_SET, Data: []byte(set + "\x00")})
	if err != nil {
		return nil, fmt.Errorf("listing set %s: %w", set, err)
	}
	found := map[string]string{}
	for _, m := range messages {
		err := attributes(m.Data, func(d *netlink.AttributeDecoder) {
			if d.Type() == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				d.Nested(func(list *netlink.AttributeDecoder) error {
					for list.Next() {
						list.Nested(func(d *netlink.AttributeDecoder) error {
							if key, chain, end := element(d); !end {
								found[key] = chain
							}
							return nil
						})
					}
					return nil
				})
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// element reads an element of a set.
func element(d *netlink.AttributeDecoder) (key, chain string, end bool) {
	for d.Next() {
		switch d.Type() {
		case unix.NFTA_SET_ELEM_KEY:
			d.Nested(func(d *netlink.AttributeDecoder) error {
				for d.Next() {
					key = string(d.Bytes())
				}
				return nil
			})
		case unix.NFTA_SET_ELEM_DATA:
			d.Nested(func(d *netlink.AttributeDecoder) error {
				for d.Next() {
					d.Nested(func(d *netlink.AttributeDecoder) error {
						for d.Next() {
							if d.Type() == unix.NFTA_VERDICT_CHAIN {
								chain = d.String()
							}
						}
						return nil
					})
				}
				return nil
			})
		case unix.NFTA_SET_ELEM_FLAGS:
			end = d.Uint32()&unix.NFT_SET_ELEM_INTERVAL_END != 0
		}
	}
	return key, chain, end
}

// generation returns the number of transactions in the network namespace, of all
// programs.
func (t *Tables[R]) generation() (uint32, error) {
	messages, err := query(t.NetNS, unix.NFT_MSG_GETGEN, 0, nftables.TableFamilyUnspecified)
	if err != nil {
		return 0, fmt.Errorf("asking for the generation of nftables: %w", err)
	}
	var id uint32
	for _, m := range messages {
		if err := attributes(m.Data, func(d *netlink.AttributeDecoder) {
			if d.Type() == unix.NFTA_GEN_ID {
				id = d.Uint32()
			}
		}); err != nil {
			return 0, err
		}
	}
	return id, nil
}

// follows reports whether one transaction leads from one generation to another.
// The kernel skips 0.
func follows(before, after uint32) bool {
	return after == before+1 || before == math.MaxUint32 && after == 1
}

// query sends a request of nftables and returns the answers.
func query(netNS int, kind uint16, flags netlink.HeaderFlags, family nftables.TableFamily, list ...netlink.Attribute) ([]netlink.Message, error) {
	data, err := netlink.MarshalAttributes(list)
	if err != nil {
		return nil, err
	}
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netNS})
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return conn.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request | flags},
		Data:   append([]byte{byte(family), unix.NFNETLINK_V0, 0, 0}, data...),
	})
}

// attributes calls do with each attribute of a message of nftables.
func attributes(message []byte, do func(*netlink.AttributeDecoder)) error {
	const header = 4 // of struct nfgenmsg
	if len(message) < header {
		return errors.New("a message of nftables is too short")
	}
	d, err := netlink.NewAttributeDecoder(message[header:])
	if err != nil {
		return err
	}
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		do(d)
	}
	return d.Err()
}
