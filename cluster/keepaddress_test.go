package cluster

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/nodeaddress"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/simnode"
	"github.com/coracle-io/coracle/internal/supervise"
)

// TestWhichServersFollowTheirMachine checks that a server takes another address only if
// nobody gave the present one, and its processes are started again.
func TestWhichServersFollowTheirMachine(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		want   bool
	}{
		"of coracle":                    {func(*Options) {}, true},
		"without a node":                {func(o *Options) { o.Node, o.BindAddress = nil, "0.0.0.0" }, true},
		"of a program":                  {func(o *Options) { o.ControlPlane.FollowAddress = false }, false},
		"in one process":                {func(o *Options) { o.Node.SeparateProcess = false }, false},
		"on loopback":                   {func(o *Options) { o.Node = nil }, false},
		"with an address":               {func(o *Options) { o.AdvertiseAddress = net.IPv4(192, 0, 2, 7) }, false},
		"bound to an address":           {func(o *Options) { o.BindAddress = "192.0.2.7" }, false},
		"with an address by a flag":     {func(o *Options) { o.APIServerArgs = []string{"--advertise-address=192.0.2.7"} }, false},
		"bound by a flag":               {func(o *Options) { o.APIServerArgs = []string{"bind-address=192.0.2.7"} }, false},
		"with another flag":             {func(o *Options) { o.APIServerArgs = []string{"anonymous-auth=false"} }, true},
		"with a node at a given one":    {func(o *Options) { o.KubeletArgs = []string{"node-ip=192.0.2.7"} }, false},
		"with simulated nodes":          {func(o *Options) { o.Node, o.BindAddress, o.Simulated = nil, "0.0.0.0", &SimulatedNodes{Count: 1} }, false},
		"a node that has joined others": {func(o *Options) { o.Node.Joined = &JoinedNode{Server: "https://192.0.2.1:6443"} }, false},
	} {
		o := withNodes(t, 1)
		o.ControlPlane.FollowAddress = true
		c.change(&o)
		s, err := complete(o)
		if err != nil {
			t.Fatal(name, err)
		}
		if s.followsAddress() != c.want {
			t.Errorf("%s: it follows its machine: %v", name, !c.want)
		}
	}
}

// listedMachine is a machine with addresses of one interface, and a default route there, that
// a test changes.
type listedMachine struct {
	mu   sync.Mutex // guards what follows
	here []netip.Addr
}

func (m *listedMachine) set(addresses ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.here = parseAddresses(addresses)
}

func (m *listedMachine) Addresses() (all []nodeaddress.Address, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.here {
		all = append(all, nodeaddress.Address{Prefix: netip.PrefixFrom(a, 24), Interface: "eth0", Lasting: true})
	}
	return all, nil
}

func (*listedMachine) DefaultRoutes(bool) ([]nodeaddress.Route, error) {
	return []nodeaddress.Route{{Interface: "eth0"}}, nil
}

// Watch implements nodeaddress.Machine: the kernel tells of nothing, and the list is read
// now and then.
func (*listedMachine) Watch(context.Context) (<-chan struct{}, error) { return nil, nil }

// chosen returns the first address, as a server takes it that begins now.
func (m *listedMachine) chosen() (net.IP, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.here) == 0 {
		return nil, apiserver.ErrNoAddress
	}
	return m.here[0].AsSlice(), nil
}

// TestAServerLosesItsAddress checks that a lone server ends once its machine has lacked the
// address for half a minute and has another one, and that others go on and say why.
func TestAServerLosesItsAddress(t *testing.T) {
	for name, c := range map[string]struct {
		server serverAddress
		shared bool   // with other servers
		node   string // of another machine
		lists  error  // of nodes
		says   string // while the machine has another address
		ends   bool
	}{
		"alone":                {server: serverAddress{follows: true}, says: "after 30s, the server gets another one", ends: true},
		"with a joined node":   {server: serverAddress{follows: true}, node: "worker", says: "node worker of another machine knows it"},
		"nodes are not listed": {server: serverAddress{follows: true}, lists: errors.New("too busy"), says: "look for nodes of other machines: too busy"},
		"with other servers":   {server: serverAddress{follows: true}, shared: true, says: "other servers may use the same etcd"},
		"at a given address":   {server: serverAddress{given: true}, says: "it was given: give the machine this address again, or start cluster t with another one"},
		"of a program":         {server: serverAddress{}, says: "or start cluster t again for another one"},
	} {
		synctest.Test(t, func(t *testing.T) {
			machine, group := &listedMachine{}, supervise.NewGroup(supervise.Options{})
			machine.set("192.0.2.2")
			ctx, cancel := context.WithCancelCause(t.Context())
			server := c.server
			server.own, server.cluster, server.chosen, server.end = netip.MustParseAddr("192.0.2.2"), "t", machine.chosen, cancel
			server.neighbour = func(context.Context) (string, error) { return c.node, c.lists }
			server.shared = func() bool { return c.shared }
			server.move = func(_ context.Context, to net.IP) error {
				if to.String() != "198.51.100.7" {
					t.Errorf("%s: it moves to %s", name, to)
				}
				return nil
			}
			keeper := nodeaddress.Keeper{Machine: machine, Address: server.own, Judge: server.judge}
			group.Go(ctx, "addresses", keeper.Run)
			wants := func(when, condition string) {
				t.Helper()
				synctest.Wait()
				status, _ := group.Status()
				got := ""
				for _, one := range status.Components[0].Conditions {
					got += one.Message
				}
				if (got == "") != (condition == "") || !strings.Contains(got, condition) {
					t.Errorf("%s, %s: the condition is %q, want %q", name, when, got, condition)
				}
				if ctx.Err() != nil {
					t.Errorf("%s, %s: it has ended: %v", name, when, context.Cause(ctx))
				}
			}
			time.Sleep(time.Minute)
			wants("with its address", "")
			machine.set("192.0.2.2", "198.51.100.7")
			time.Sleep(time.Minute)
			wants("with another one as well", "")
			machine.set("198.51.100.7")
			time.Sleep(nodeaddress.Patience / 2)
			wants("without its own for a moment", c.says)
			machine.set("192.0.2.2")
			time.Sleep(time.Minute)
			wants("with its own again", "")
			machine.set()
			time.Sleep(time.Hour)
			waiting := c.says
			if c.ends {
				waiting = "the server gets the next one"
			}
			wants("without a network", "this machine has lost 192.0.2.2, the address of its API server: ")
			wants("without a network", waiting)
			machine.set("198.51.100.7")
			time.Sleep(time.Minute)
			if !c.ends {
				wants("with another one alone", c.says)
			} else if err := context.Cause(ctx); err == nil || err.Error() != "this machine has lost 192.0.2.2, the address of its API server: the control plane begins again with 198.51.100.7" {
				t.Errorf("%s: it has ended with %v", name, err)
			}
			cancel(nil)
			group.Wait()
		})
	}
}

// TestAServerThatCannotStoreItsAddress checks that a server goes on while it cannot be
// stored that the next one has another address.
func TestAServerThatCannotStoreItsAddress(t *testing.T) {
	server := serverAddress{
		own: netip.MustParseAddr("192.0.2.2"), follows: true, chosen: func() (net.IP, error) { return net.IPv4(198, 51, 100, 7), nil }, shared: func() bool { return false },
		neighbour: func(context.Context) (string, error) { return "", nil }, move: func(context.Context, net.IP) error { return errors.New("no room") },
		end: func(err error) { t.Errorf("it has ended: %v", err) },
	}
	loss := nodeaddress.Loss{Lost: true, For: nodeaddress.Patience, Had: "eth0", Next: netip.MustParseAddr("198.51.100.7")}
	if err := server.judge(t.Context(), loss); err == nil || !strings.Contains(err.Error(), "store that the server gets 198.51.100.7: no room") {
		t.Errorf("it goes on with %v", err)
	}
}

// TestAGivenAddressNeedNotBeOfTheMachine checks that a server says nothing of a given address
// that its machine has never had, or that is of a cluster's interface.
func TestAGivenAddressNeedNotBeOfTheMachine(t *testing.T) {
	given := serverAddress{own: netip.MustParseAddr("203.0.113.9"), given: true}
	for _, had := range []string{"", "cor-t"} {
		if err := given.judge(t.Context(), nodeaddress.Loss{Lost: true, Had: had}); err != nil {
			t.Errorf("lost from interface %q: %v", had, err)
		}
	}
}

// TestAServerKeepsItsFamily checks that a server goes on when the machine has another address
// of its family, but a server that begins now would take one of the other: the Services are
// of one family.
func TestAServerKeepsItsFamily(t *testing.T) {
	for own, c := range map[string]struct{ next, chosen string }{
		"192.0.2.2":   {"198.51.100.7", "2001:db8::7"},
		"2001:db8::2": {"2001:db8::7", "198.51.100.7"},
	} {
		server := serverAddress{
			own: netip.MustParseAddr(own), follows: true, chosen: func() (net.IP, error) { return net.ParseIP(c.chosen), nil }, shared: func() bool { return false },
			neighbour: func(context.Context) (string, error) { return "", nil }, end: func(err error) { t.Errorf("%s: it has ended: %v", own, err) },
		}
		loss := nodeaddress.Loss{Lost: true, For: nodeaddress.Patience, Had: "eth0", Next: netip.MustParseAddr(c.next)}
		if err := server.judge(t.Context(), loss); err == nil || !strings.Contains(err.Error(), "the server would get "+c.chosen+", which is of another family") {
			t.Errorf("%s: %v", own, err)
		}
	}
}

// TestNodesOfOtherMachines checks which nodes make a server keep its address.
func TestNodesOfOtherMachines(t *testing.T) {
	o := withNodes(t, 2)
	s, err := complete(o)
	if err != nil {
		t.Fatal(err)
	}
	node := func(name string, labels map[string]string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	client := fake.NewClientset(node("m.example", nil), node("m-2.example", nil), node("sim-0", map[string]string{simnode.Label: "true"}))
	p := &controlPlane{planeConfiguration: &planeConfiguration{settings: s}, client: &reached{kubernetes: client}}
	if name, err := p.neighbour(t.Context()); err != nil || name != "" {
		t.Errorf("its own nodes: %q, %v", name, err)
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node("worker", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if name, err := p.neighbour(t.Context()); err != nil || name != "worker" {
		t.Errorf("one that has joined: %q, %v", name, err)
	}
	one := withNodes(t, 1)
	one.KubeletArgs = []string{"hostname-override=other"}
	if s, err = complete(one); err != nil {
		t.Fatal(err)
	}
	if own := ownNodes(s); !own["other"] || own["worker"] {
		t.Errorf("a node with --hostname-override: the own ones are %v", own)
	}
	if s, err = complete(Options{}); err != nil {
		t.Fatal(err)
	}
	if own := ownNodes(s); len(own) > 0 {
		t.Errorf("without a node: %v", own)
	}
}

// TestANodeFollowsItsServer checks that a node whose machine has lost its address ends once
// the kubelet's certificate is for another one, which the control plane writes.
func TestANodeFollowsItsServer(t *testing.T) {
	s, err := complete(withNodes(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := pki.Open(t.TempDir(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	own, other := net.ParseIP("192.0.2.2"), net.ParseIP("198.51.100.7")
	for name, c := range map[string]struct {
		certificate []net.IP // for which addresses; nil for none
		chosen      net.IP
		loss        nodeaddress.Loss
		starting    bool
		ends        bool
	}{
		"with its address":                       {certificate: []net.IP{own}, chosen: own},
		"with a better route":                    {certificate: []net.IP{own}, chosen: other},
		"with a control plane that knows it":     {certificate: []net.IP{other, own}, chosen: other},
		"lost, and the control plane waits":      {certificate: []net.IP{own}, chosen: other, loss: nodeaddress.Loss{Lost: true, For: time.Hour}},
		"lost for a moment":                      {certificate: []net.IP{other, own}, chosen: other, loss: nodeaddress.Loss{Lost: true}},
		"lost for long":                          {certificate: []net.IP{other, own}, chosen: other, loss: nodeaddress.Loss{Lost: true, For: nodeaddress.Patience}, ends: true},
		"lost, and the control plane has moved":  {certificate: []net.IP{other}, chosen: other, loss: nodeaddress.Loss{Lost: true}, ends: true},
		"back, when the control plane had moved": {certificate: []net.IP{other}, chosen: other, ends: true},
		"before it is ready":                     {certificate: []net.IP{other}, chosen: other, starting: true},
		"without a certificate":                  {chosen: other, loss: nodeaddress.Loss{Lost: true, For: time.Hour}},
	} {
		of := *s
		of.DataDir = t.TempDir()
		if c.certificate != nil {
			profile := apiserver.KubeletServing("m.example", c.certificate).In(nodeDir(of.DataDir), strings.TrimSuffix(apiserver.NodeServing, ".crt"))
			if _, err := keys.Issue(profile); err != nil {
				t.Fatal(err)
			}
		}
		ready := make(chan struct{})
		if !c.starting {
			close(ready)
		}
		var left error
		n := &Node{settings: &of, ready: ready, leave: func(err error) { left = err }, addresses: &nodeaddress.Follower{List: nodeaddress.NewList(own.String())}}
		keeper := nodeKeeper(n, func(string) (net.IP, error) { return c.chosen, nil })
		if err := keeper.Judge(t.Context(), c.loss); err != nil {
			t.Errorf("%s: the node reports %v, as the control plane does", name, err)
		}
		if errors.Is(left, errMoved) != c.ends || (left != nil) != c.ends || c.ends && !strings.Contains(left.Error(), "198.51.100.7 in place of 192.0.2.2") {
			t.Errorf("%s: the node ends with %v", name, left)
		}
		if keeper.Address.String() != own.String() {
			t.Errorf("%s: it watches %s", name, keeper.Address)
		}
	}
}
