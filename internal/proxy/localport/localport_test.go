package localport

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/proxy"
)

// local parses a port such as "*:80", "192.0.2.1:80/UDP" or "[::]:80"; * is all
// addresses of IPv4 and [::] all of IPv6.
func local(text string) proxy.LocalPort {
	text, protocol, _ := strings.Cut(text, "/")
	p := proxy.LocalPort{Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol}
	if protocol != "" {
		p.Protocol = v1.Protocol(protocol)
	}
	at := netip.MustParseAddrPort(strings.Replace(text, "*", "0.0.0.0", 1))
	p.Port = at.Port()
	if at.Addr().Is6() {
		p.Family = v1.IPv6Protocol
	}
	if !at.Addr().IsUnspecified() {
		p.Address = at.Addr()
	}
	return p
}

func TestUseOf(t *testing.T) {
	for _, test := range []struct {
		socket, port string
		loopback     bool
		want         use
	}{
		{"0.0.0.0", "*:80", false, taken},
		{"0.0.0.0", "192.0.2.1:80", false, taken},
		{"0.0.0.0", "[::]:80", false, unused},
		{"192.0.2.1", "*:80", false, taken},
		{"192.0.2.1", "192.0.2.1:80", false, taken},
		{"192.0.2.1", "192.0.2.2:80", false, near},
		{"127.0.0.1", "*:80", false, near}, // node ports leave loopback alone
		{"127.0.0.1", "*:80", true, taken}, // host ports do not
		{"127.0.0.1", "127.0.0.1:80", false, taken},
		{"127.0.0.53", "192.0.2.1:80", true, near},
		{"224.0.0.251", "*:5353/UDP", true, near}, // a member of a group, which no rule for the node's addresses takes
		{"::", "[::]:80", false, taken},
		{"::", "*:80", false, taken}, // of both families
		{"::", "192.0.2.1:80", false, taken},
		{":: only", "[::]:80", false, taken},
		{":: only", "*:80", false, unused},
		{"::ffff:192.0.2.1", "192.0.2.1:80", false, taken},
		{"::ffff:0.0.0.0", "*:80", false, taken},
		{"::1", "[::]:80", true, near}, // no rule takes loopback of IPv6
		{"::1", "*:80", true, unused},
		{"2001:db8::1", "[::]:80", false, taken},
		{"2001:db8::1", "[2001:db8::2]:80", false, near},
		{"2001:db8::1", "*:80", false, unused},
	} {
		address, only := strings.CutSuffix(test.socket, " only")
		s := socket{address: netip.MustParseAddr(address), only6: only}
		if got := useOf(s, local(test.port), proxy.Claim{Loopback: test.loopback}); got != test.want {
			t.Errorf("a socket at %s, of a rule for %s (loopback %t): %d, want %d", test.socket, test.port, test.loopback, got, test.want)
		}
	}
}

// TestUseOfChosenAddresses checks that a program at an address of the node at which node
// ports do not answer is not in the way of one.
func TestUseOfChosenAddresses(t *testing.T) {
	ranges := proxy.NodePortRanges{netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::1/128")}
	for _, test := range []struct {
		socket, port string
		want         use
	}{
		{"0.0.0.0", "*:30080", taken},
		{"192.0.2.1", "*:30080", taken},
		{"192.0.2.2", "*:30080", near},
		{"::ffff:192.0.2.2", "*:30080", near},
		{"127.0.0.1", "*:30080", near},
		{"::", "[::]:30080", taken},
		{"2001:db8::1", "[::]:30080", taken},
		{"2001:db8::2", "[::]:30080", near},
	} {
		if got := useOf(socket{address: netip.MustParseAddr(test.socket)}, local(test.port), proxy.Claim{At: ranges}); got != test.want {
			t.Errorf("a socket at %s, of a rule for %s: %d, want %d", test.socket, test.port, got, test.want)
		}
	}
}

// fake is a kernel with servers and connections, as texts that local parses.
type fake struct {
	servers []string
	live    []string // outgoing connections
	ended   []string // connections to servers that have ended
	hidden  []string // sockets that are bound and nothing else
	refused error    // of bind
	unread  error    // of sockets
	bound   map[proxy.LocalPort]uint32
	binds   int
	asks    int // of connections
}

func (f *fake) addresses() ([]netip.Addr, error) { return nil, nil }

func (f *fake) sockets(protocol v1.Protocol, visit func(socket)) error {
	for _, text := range f.servers {
		p := local(text)
		if p.Protocol == protocol {
			visit(socket{address: addressOr(p.Address, netip.IPv4Unspecified()), port: p.Port, inode: 1})
		}
	}
	for p, inode := range f.bound {
		if protocol == v1.ProtocolUDP && p.Protocol == protocol { // a reservation is like any other
			visit(socket{address: addressOr(p.Address, netip.IPv4Unspecified()), port: p.Port, inode: inode})
		}
	}
	return f.unread
}

func (f *fake) connections(p proxy.LocalPort) (live, ended bool, err error) {
	f.asks++
	of := func(text string) bool { return local(text).Port == p.Port }
	return slices.ContainsFunc(f.live, of), slices.ContainsFunc(f.ended, of), f.unread
}

func (f *fake) bind(p proxy.LocalPort, ended bool) (*reservation, error) {
	f.binds++
	if f.refused != nil {
		return nil, f.refused
	}
	overlap := func(o proxy.LocalPort) bool {
		return o.Port == p.Port && o.Protocol == p.Protocol && o.Family == p.Family && (o.Address == p.Address || !o.Address.IsValid() || !p.Address.IsValid())
	}
	for i, text := range slices.Concat(f.ended, f.servers, f.live, f.hidden) {
		if overlap(local(text)) && (i >= len(f.ended) || !ended) {
			return nil, unix.EADDRINUSE
		}
	}
	for o := range f.bound {
		if overlap(o) {
			return nil, unix.EADDRINUSE
		}
	}
	f.bound[p] = uint32(100 + f.binds)
	return &reservation{inode: f.bound[p], close: func() { delete(f.bound, p) }}, nil
}

// keeperOf returns a Keeper on a kernel.
func keeperOf(f *fake) *Keeper {
	f.bound = map[proxy.LocalPort]uint32{}
	k := New()
	k.kernel = f
	return k
}

func want(hold proxy.Hold, ports ...string) map[proxy.LocalPort]proxy.Claim {
	wanted := map[proxy.LocalPort]proxy.Claim{}
	for _, text := range ports {
		wanted[local(text)] = proxy.Claim{Hold: hold}
	}
	return wanted
}

func show[T any](ports map[proxy.LocalPort]T) string {
	var list []string
	for p := range ports {
		at := "*"
		if p.Address.IsValid() {
			at = p.Address.String()
		}
		list = append(list, fmt.Sprintf("%s:%d/%s", at, p.Port, p.Protocol))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// TestClaim checks what is refused and what is reserved.
func TestClaim(t *testing.T) {
	for _, test := range []struct {
		name              string
		kernel            fake
		wanted            map[proxy.LocalPort]proxy.Claim
		refused, reserved string
		wantErr           bool
	}{
		{"free", fake{}, want(proxy.HoldIfVacant, "*:80", "192.0.2.1:81", "*:53/UDP"), "", "*:53/UDP *:80/TCP 192.0.2.1:81/TCP", false},
		{"not to be held", fake{}, want(proxy.DoNotHold, "*:80"), "", "", false},
		{"kept, but not held", fake{}, want(proxy.HoldIfHeld, "*:80"), "", "", false},
		{"a server", fake{servers: []string{"*:80", "192.0.2.1:81"}}, want(proxy.HoldIfVacant, "*:80", "*:81", "*:82"), "*:80/TCP *:81/TCP", "*:82/TCP", false},
		{"a server, not to be held", fake{servers: []string{"*:80"}}, want(proxy.DoNotHold, "192.0.2.1:80"), "192.0.2.1:80/TCP", "", false},
		{"a server of datagrams", fake{servers: []string{"*:53/UDP"}}, want(proxy.HoldIfVacant, "*:53/UDP", "*:53"), "*:53/UDP", "*:53/TCP", false},
		{"a server at another address", fake{servers: []string{"127.0.0.1:80"}}, want(proxy.HoldIfVacant, "*:80", "192.0.2.1:80"), "", "", false},
		{"an outgoing connection", fake{live: []string{"192.0.2.1:40000"}}, want(proxy.HoldIfVacant, "*:40000"), "", "", false},
		{"connections of a server that has ended", fake{ended: []string{"192.0.2.1:80"}}, want(proxy.HoldIfVacant, "*:80"), "", "*:80/TCP", false},
		{"the same, and a reservation", fake{ended: []string{"192.0.2.1:80"}, hidden: []string{"*:80"}}, want(proxy.HoldIfVacant, "*:80"), "*:80/TCP", "", false},
		{"a reservation of another cluster", fake{hidden: []string{"*:80"}}, want(proxy.HoldIfVacant, "*:80", "*:81"), "*:80/TCP", "*:81/TCP", false},
		{"one address and all", fake{}, want(proxy.HoldIfVacant, "*:80", "192.0.2.1:80", "192.0.2.1:81"), "", "*:80/TCP 192.0.2.1:81/TCP", false},
		{"no file descriptors", fake{refused: unix.EMFILE}, want(proxy.HoldIfVacant, "*:80"), "", "", false},
		{"no answer", fake{unread: errors.New("no answer"), hidden: []string{"*:80"}}, want(proxy.HoldIfVacant, "*:80", "*:81"), "*:80/TCP", "*:81/TCP", true},
		{"SCTP", fake{servers: []string{"*:80/SCTP"}}, want(proxy.HoldIfVacant, "*:80/SCTP", "*:81/SCTP"), "*:80/SCTP", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := keeperOf(&test.kernel)
			for range 2 { // the second time with reservations
				obstacles, err := k.Claim(test.wanted)
				if got := show(obstacles); got != test.refused || (err != nil) != test.wantErr {
					t.Errorf("refused %q (%v), want %q", got, err, test.refused)
				}
				if got := show(test.kernel.bound); got != test.reserved {
					t.Errorf("reserved %q, want %q", got, test.reserved)
				}
			}
			k.Release()
			if len(test.kernel.bound) != 0 {
				t.Errorf("still reserved: %q", show(test.kernel.bound))
			}
		})
	}
}

// TestReservationsFollow checks that reservations follow what is wanted, and that
// none is closed that is still wanted.
func TestReservationsFollow(t *testing.T) {
	f := &fake{}
	k := keeperOf(f)
	for _, step := range []struct {
		wanted   map[proxy.LocalPort]proxy.Claim
		reserved string
		binds    int // until then
	}{
		{want(proxy.HoldIfVacant, "*:80", "*:81"), "*:80/TCP *:81/TCP", 2},
		{want(proxy.HoldIfHeld, "*:80", "*:82"), "*:80/TCP", 2},
		{want(proxy.DoNotHold, "*:80"), "", 2},
		{want(proxy.HoldIfVacant, "192.0.2.1:80"), "192.0.2.1:80/TCP", 3},
		{want(proxy.HoldIfVacant, "192.0.2.1:80", "*:80"), "*:80/TCP", 4},
		{want(proxy.HoldIfVacant, "192.0.2.1:80"), "192.0.2.1:80/TCP", 5},
		{nil, "", 5},
	} {
		if obstacles, err := k.Claim(step.wanted); len(obstacles) > 0 || err != nil {
			t.Fatalf("refused %q, %v", show(obstacles), err)
		}
		if got := show(f.bound); got != step.reserved || f.binds != step.binds {
			t.Errorf("for %q: reserved %q after %d binds, want %q and %d", show(step.wanted), got, f.binds, step.reserved, step.binds)
		}
	}
}

// TestReservationsAreBounded checks that ports of all addresses are reserved before
// those of single addresses, and that the rest gets rules without reservations.
func TestReservationsAreBounded(t *testing.T) {
	f := &fake{}
	k := keeperOf(f)
	wanted := want(proxy.HoldIfVacant, "*:1", "*:2")
	for port := range mostHeld {
		wanted[local(fmt.Sprintf("192.0.2.1:%d", 3+port))] = proxy.Claim{Hold: proxy.HoldIfVacant}
	}
	obstacles, err := k.Claim(wanted)
	if len(obstacles) != 0 || err != nil || len(f.bound) != mostHeld {
		t.Errorf("%d refused (%v), %d reserved, want %d", len(obstacles), err, len(f.bound), mostHeld)
	}
	for _, first := range []string{"*:1", "*:2"} {
		if _, held := f.bound[local(first)]; !held {
			t.Errorf("%s is not reserved", first)
		}
	}
}

// TestConnectionsAreBounded checks that the connections of a bounded number of ports
// are looked for at a time, and that the others are left to whoever has them.
func TestConnectionsAreBounded(t *testing.T) {
	f := &fake{}
	k := keeperOf(f)
	wanted := map[proxy.LocalPort]proxy.Claim{}
	for port := range 2 * mostAsked {
		text := fmt.Sprintf("*:%d", 40000+port)
		f.live, wanted[local(text)] = append(f.live, text), proxy.Claim{Hold: proxy.HoldIfVacant}
	}
	obstacles, err := k.Claim(wanted)
	if len(obstacles) != mostAsked || err != nil || f.asks != mostAsked {
		t.Errorf("%d refused (%v) after %d looks, want %d of each", len(obstacles), err, f.asks, mostAsked)
	}
}

// TestRestartOfAProgram checks that a port stays its program's while that restarts.
func TestRestartOfAProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{servers: []string{"*:22"}}
		k := keeperOf(f)
		claim := func() map[proxy.LocalPort]proxy.Obstacle {
			obstacles, err := k.Claim(want(proxy.HoldIfVacant, "*:22"))
			if err != nil {
				t.Fatal(err)
			}
			return obstacles
		}
		in := func(o proxy.Obstacle) map[proxy.LocalPort]proxy.Obstacle {
			return map[proxy.LocalPort]proxy.Obstacle{local("*:22"): o}
		}
		if got := claim(); !maps.Equal(got, in(proxy.InUse)) {
			t.Errorf("while it runs: %v", got)
		}
		time.Sleep(time.Hour)
		claim()
		f.servers = nil
		for range 3 {
			time.Sleep(quiet / 4)
			if got := claim(); !maps.Equal(got, in(proxy.RecentlyInUse)) || f.binds != 0 {
				t.Errorf("while it restarts: %v, reserved %d times", got, f.binds)
			}
		}
		// A pod that is replaced by another one changes nothing.
		if _, err := k.Claim(nil); err != nil {
			t.Fatal(err)
		}
		if got := claim(); !maps.Equal(got, in(proxy.RecentlyInUse)) {
			t.Errorf("for another pod: %v", got)
		}
		time.Sleep(quiet)
		if got := claim(); len(got) != 0 || f.binds != 1 {
			t.Errorf("after its end: %v, reserved %d times", got, f.binds)
		}
	})
}
