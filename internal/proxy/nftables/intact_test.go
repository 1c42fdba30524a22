package nftables

import (
	"net/netip"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/proxytest"
)

// TestIntactFindsWhatOthersChange checks that rules and elements that another
// program has removed or added are found, and that its own tables do not matter.
func TestIntactFindsWhatOthersChange(t *testing.T) {
	l := proxytest.NewLab(t, newBackend, map[string]string{"client": "10.9.1.2", "a": "10.9.1.3"})
	l.Serve("a", 8080)
	service := &proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80, Cluster: proxytest.Endpoints("10.9.1.3:8080"), Affinity: 1000}
	table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "coracle-test"}
	own := batch{&nft.Batch{Family: nft.IPv4, Table: table}}
	frontend := func(port uint16) key {
		return key{address: service.ClusterIP, protocol: v1.ProtocolTCP, port: port}
	}
	for name, c := range map[string]struct {
		change func(*nftables.Conn) error
		intact bool
	}{
		"nothing": {func(conn *nftables.Conn) error {
			conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "coracle-test"})
			return nil
		}, true},
		"another table": {func(conn *nftables.Conn) error {
			other := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "other"})
			conn.AddChain(&nftables.Chain{Table: other, Name: "services"})
			return nil
		}, true},
		"an element gone": {func(conn *nftables.Conn) error {
			return conn.SetDeleteElements(own.fixedSet(clusterIPs), []nftables.SetElement{element(clusterIPs, frontend(80), "")})
		}, false},
		"an element more": {func(conn *nftables.Conn) error {
			return conn.SetAddElements(own.fixedSet(serviceIPs), []nftables.SetElement{element(serviceIPs, frontend(81), "reject")})
		}, false},
		"all elements gone": {func(conn *nftables.Conn) error { conn.FlushSet(own.fixedSet(serviceIPs)); return nil }, false},
		"a chain without rules": {func(conn *nftables.Conn) error {
			conn.FlushChain(&nftables.Chain{Table: table, Name: "services"})
			return nil
		}, false},
		"a rule more": {func(conn *nftables.Conn) error {
			conn.AddRule(&nftables.Rule{Table: table, Chain: &nftables.Chain{Table: table, Name: "services"}, Exprs: []expr.Any{&expr.Counter{}}})
			return nil
		}, false},
		"a chain more": {func(conn *nftables.Conn) error {
			conn.AddChain(&nftables.Chain{Table: table, Name: "more"})
			return nil
		}, false},
		"a table without rules": {func(conn *nftables.Conn) error { conn.FlushTable(table); return nil }, false},
		"no table":              {func(conn *nftables.Conn) error { conn.DelTable(table); return nil }, false},
	} {
		// A new backend has compared nothing yet.
		l.Backend = New(Config{Table: "coracle-test", ClusterCIDRs: []netip.Prefix{proxytest.PodCIDR}, NetNS: int(l.Node)})
		l.Apply(service)
		conn, err := nft.Connect(int(l.Node))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.change(conn); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := conn.Flush(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for range 2 {
			if intact, err := l.Backend.Intact(); err != nil || intact != c.intact {
				t.Errorf("%s: intact %v, %v", name, intact, err)
			}
			l.Apply(service) // writes everything if it was not intact
			c.intact = true
		}
		if seen := l.Answerers(l.Members["client"], "10.96.0.20:80", 1); seen["a"] != 1 {
			t.Errorf("%s: after the repair: %v", name, seen)
		}
	}
}
