package podnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/nft"
)

// Pins keep pods from using the addresses of others on their bridge, for which the
// capability NET_RAW suffices. They pin the port of each pod that the CNI library has
// recorded to the pod's hardware and IP addresses. The runtime makes the pod's first
// container after the record, and does not wait for the pin. One goroutine uses them. In a
// table of the family bridge:
//
//	iifname != @ports accept
//	iifname . ether saddr != @hardware drop
//	iifname . arp saddr ether @hardware iifname . arp saddr ip @ipv4 accept
//	iifname . ip saddr @ipv4 accept
//	icmpv6 type { nd-router-advert, nd-redirect } drop
//	icmpv6 type nd-neighbor-advert icmpv6 taddr != fe80::/10 iifname . icmpv6 taddr != @ipv6 drop
//	ip6 saddr { fe80::/10, :: } accept
//	iifname . ip6 saddr @ipv6 accept
//	drop
type Pins struct {
	network *Network
	known   map[string]pin // by record, which does not change
	applied []pin
	intact  bool // the kernel has applied, as far as is known
}

// pin is what the port of a pod may send.
type pin struct {
	port     string
	hardware [6]byte
	v4, v6   netip.Addr // invalid if the pod has none
}

// Pins returns the pins of the network's pods. They change nothing before Apply.
func (n *Network) Pins() *Pins { return &Pins{network: n} }

// Watch returns a channel that receives a message when pods have come or gone, until stop
// is called. The channel is nil if the kernel does not tell.
func (p *Pins) Watch() (changed <-chan struct{}, stop func()) {
	_ = os.MkdirAll(p.network.records, 0o700) // as the CNI library does; an error: it is not watched
	return files.OS{}.Watch(p.network.records)
}

// Apply pins the pods that there are. The error is errors.ErrUnsupported if the kernel has
// no nftables for bridges.
func (p *Pins) Apply() error {
	pins, err := p.read()
	if err != nil || p.intact && slices.Equal(pins, p.applied) {
		return err
	}
	p.intact = false
	if err := writePins(p.table(), pins); err != nil {
		return fmt.Errorf("nftables table bridge %s: %w", p.table().Name, err)
	}
	p.applied, p.intact = pins, true
	return nil
}

// Intact reports whether the kernel has the rules, and the pins of the pods that there are.
func (p *Pins) Intact() (bool, error) {
	pins, err := p.read()
	if err != nil {
		return false, err
	}
	counts, err := nft.CountRules(0, p.table())
	p.intact = p.intact && err == nil && counts[pinChain] == len(pinRules())
	return p.intact && slices.Equal(pins, p.applied), err
}

// read returns the pins of the recorded pods, sorted by port.
func (p *Pins) read() ([]pin, error) {
	records, err := p.network.results()
	if err != nil {
		return nil, err
	}
	known := map[string]pin{}
	for _, path := range records {
		is, ok := p.known[path]
		if !ok {
			content, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			if is, ok = pinOf(content); !ok {
				continue // the pod has ended, or the record is being written
			}
		}
		known[path] = is
	}
	p.known = known
	return slices.SortedFunc(maps.Values(known), func(a, b pin) int { return strings.Compare(a.port, b.port) }), nil
}

// pinOf returns the pin of the pod in a record of the CNI library, false if the record
// does not have all of it.
func pinOf(record []byte) (p pin, ok bool) {
	var pod struct {
		Result struct {
			Interfaces []struct{ Name, Mac, Sandbox string }
			IPs        []struct{ Address string }
		}
	}
	if json.Unmarshal(record, &pod) != nil {
		return p, false
	}
	found := false
	for _, i := range pod.Result.Interfaces {
		if i.Sandbox == "" && strings.HasPrefix(i.Name, vethPrefix) {
			p.port = i.Name
		}
		if address, err := net.ParseMAC(i.Mac); i.Sandbox != "" && err == nil {
			found = copy(p.hardware[:], address) == len(p.hardware)
		}
	}
	for _, ip := range pod.Result.IPs {
		address, err := netip.ParsePrefix(ip.Address)
		switch {
		case err != nil:
			return p, false
		case address.Addr().Is4():
			p.v4 = address.Addr()
		default:
			p.v6 = address.Addr()
		}
	}
	return p, found && p.port != "" && (p.v4.IsValid() || p.v6.IsValid())
}

func (p *Pins) table() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyBridge, Name: table(p.network.config.Name).Name}
}

// removePins removes the table if it is there, also on kernels without its family.
func (n *Network) removePins() error {
	conn, err := nft.Connect(0)
	if err != nil {
		return err
	}
	t := n.Pins().table()
	tables, err := conn.ListTablesOfFamily(t.Family)
	if err != nil || !slices.ContainsFunc(tables, func(found *nftables.Table) bool { return found.Name == t.Name }) {
		return err
	}
	conn.DelTable(t)
	return conn.Flush()
}
