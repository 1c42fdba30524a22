package nodeaddress

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/supervise"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m))
}

// fakeMachine is a machine whose addresses a test changes.
type fakeMachine struct {
	changed chan struct{}

	mu       sync.Mutex // guards what follows
	here     []Address
	defaults []Route
	failed   error // of Addresses
}

func (m *fakeMachine) Addresses() ([]Address, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.here, m.failed
}

func (m *fakeMachine) DefaultRoutes(ipv4 bool) (of []Route, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.defaults {
		if r.Gateway.Is4() == ipv4 {
			of = append(of, r)
		}
	}
	return of, nil
}

func (m *fakeMachine) Watch(context.Context) (<-chan struct{}, error) { return m.changed, nil }

// set changes what the machine has, and says so.
func (m *fakeMachine) set(here []Address, defaults ...Route) {
	m.setSilently(here, defaults...)
	m.changed <- struct{}{}
}

func (m *fakeMachine) setSilently(here []Address, defaults ...Route) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.here, m.defaults = here, defaults
}

// followed is a Follower that runs in a bubble of virtual time.
type followed struct {
	t       *testing.T
	machine *fakeMachine
	list    *List
	moves   int // calls of Moving
	group   *supervise.Group
}

// follow calls f with a Follower of a machine, for a node with some addresses.
func follow(t *testing.T, fixed string, here []Address, node []string, f func(*followed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &followed{t: t, machine: &fakeMachine{changed: make(chan struct{}, 1), here: here}, list: NewList(node...), group: supervise.NewGroup(supervise.Options{})}
		ctx, cancel := context.WithCancel(t.Context())
		follower := &Follower{Machine: b.machine, List: b.list, Fixed: fixed, Moving: func() { b.moves++ }}
		b.group.Go(ctx, "addresses", follower.Run)
		b.settle()
		f(b)
		cancel()
		b.group.Wait()
	})
}

// settle waits until the follower has seen what was changed. It does not wait for the
// time at which the follower reads the addresses without a message.
func (b *followed) settle() {
	b.t.Helper()
	synctest.Wait()
	time.Sleep(rest)
	synctest.Wait()
}

// wants fails the test unless the node has these addresses after so many moves, and the
// condition of the component has a text, "" for no condition.
func (b *followed) wants(when, addresses string, moves int, condition string) {
	b.t.Helper()
	got := strings.Join(b.list.Now(), " ")
	if got != addresses || b.moves != moves {
		b.t.Errorf("%s: the node has %q after %d moves, want %q after %d", when, got, b.moves, addresses, moves)
	}
	status, _ := b.group.Status()
	conditions := status.Components[0].Conditions
	switch {
	case condition == "" && len(conditions) > 0:
		b.t.Errorf("%s: the conditions are %+v", when, conditions)
	case condition != "" && (len(conditions) != 1 || !strings.Contains(conditions[0].Message, condition)):
		b.t.Errorf("%s: the conditions are %+v, want one with %q", when, conditions, condition)
	}
}

// TestANodeFollowsItsMachine checks that the node gets the next address at once when its
// own is gone, and not before.
func TestANodeFollowsItsMachine(t *testing.T) {
	loopback := on("", "127.0.0.1/8")
	first, second, third := on("eth0", "192.0.2.2/24"), on("eth0", "198.51.100.7/24"), on("wlan0", "203.0.113.5/24")
	follow(t, "", []Address{loopback, first}, []string{"192.0.2.2"}, func(b *followed) {
		b.wants("at the start", "192.0.2.2", 0, "")
		b.machine.set([]Address{loopback, first, second, third}, by("wlan0", "203.0.113.1"))
		b.settle()
		b.wants("with more addresses", "192.0.2.2", 0, "")
		b.machine.set([]Address{loopback})
		b.settle()
		b.wants("without addresses", "192.0.2.2", 0, "this machine has lost 192.0.2.2, the address of its node, and has no IPv4 address with a default route")
		b.machine.set([]Address{loopback, second})
		b.settle()
		b.wants("with another one", "198.51.100.7", 1, "")
		b.machine.set([]Address{loopback, third}, by("wlan0", "203.0.113.1"))
		b.settle()
		b.wants("on another interface", "203.0.113.5", 2, "")
		b.machine.set([]Address{loopback})
		b.settle()
		b.machine.set([]Address{loopback, third})
		b.settle()
		b.wants("with the same one again", "203.0.113.5", 2, "")
	})
}

// TestAMachineGetsItsNetworkLate checks that a node that began without a network leaves
// loopback with the first default route, and one whose address was given does not.
func TestAMachineGetsItsNetworkLate(t *testing.T) {
	loopback, first := passing("", "127.0.0.1/8"), on("eth0", "192.0.2.2/24")
	for fixed, want := range map[string]string{"": "192.0.2.2", "it was given": "127.0.0.1"} {
		follow(t, fixed, []Address{loopback}, []string{"127.0.0.1"}, func(b *followed) {
			b.wants("at the start", "127.0.0.1", 0, "")
			b.machine.set([]Address{loopback, first})
			b.settle()
			b.wants("without a default route", "127.0.0.1", 0, "")
			b.machine.set([]Address{loopback, first}, by("eth0", "192.0.2.1"))
			b.settle()
			moves := 0
			if fixed == "" {
				moves = 1
			}
			b.wants("with one", want, moves, "")
		})
	}
}

// TestAMessageOfTheKernelIsLost checks that the node then follows a moment later.
func TestAMessageOfTheKernelIsLost(t *testing.T) {
	follow(t, "", []Address{on("eth0", "192.0.2.2/24")}, []string{"192.0.2.2"}, func(b *followed) {
		b.machine.setSilently([]Address{on("eth0", "198.51.100.7/24")})
		b.settle()
		b.wants("at once", "192.0.2.2", 0, "")
		time.Sleep(checkPeriod)
		b.settle()
		b.wants("later", "198.51.100.7", 1, "")
	})
}

// TestEachFamilyFollows checks that one family of a node moves without the other.
func TestEachFamilyFollows(t *testing.T) {
	six := on("eth0", "2001:db8::2/64")
	follow(t, "", []Address{on("eth0", "192.0.2.2/24"), six}, []string{"192.0.2.2", "2001:db8::2"}, func(b *followed) {
		b.machine.set([]Address{six, on("eth0", "198.51.100.7/24")})
		b.settle()
		b.wants("with another IPv4", "198.51.100.7 2001:db8::2", 1, "")
		b.machine.set([]Address{on("eth0", "198.51.100.7/24")})
		b.settle()
		b.wants("without IPv6", "198.51.100.7 2001:db8::2", 1, "has no IPv6 address with a default route")
	})
}

// TestAGivenAddressStays checks that an address that was given stays, and that the node
// says what it lacks, unless the machine has never had the address.
func TestAGivenAddressStays(t *testing.T) {
	const why = "it was given"
	here := []Address{on("eth0", "192.0.2.2/24"), on("cos-t", "10.212.0.1/24")}
	follow(t, why, here, []string{"192.0.2.2", "10.212.0.1", "203.0.113.99", "::", "fe80::1%eth0", "no address"}, func(b *followed) {
		all := strings.Join(b.list.Now(), " ")
		b.wants("at the start", all, 0, "")
		b.machine.set([]Address{on("eth0", "198.51.100.7/24")}, by("eth0", "198.51.100.1"))
		b.settle()
		b.wants("without it", all, 0, "this machine has lost 192.0.2.2, the address of its node: it was given")
		b.machine.set(here)
		b.settle()
		b.wants("with it again", all, 0, "")
	})
}

// TestAddressesThatCannotBeRead checks that the node keeps its addresses meanwhile, and
// says why.
func TestAddressesThatCannotBeRead(t *testing.T) {
	follow(t, "", []Address{on("eth0", "192.0.2.2/24")}, []string{"192.0.2.2"}, func(b *followed) {
		b.machine.mu.Lock()
		b.machine.failed = errors.New("no buffer space")
		b.machine.mu.Unlock()
		b.machine.set(nil)
		b.settle()
		b.wants("with an error", "192.0.2.2", 0, "no buffer space")
	})
}

// TestList checks who is told of changes.
func TestList(t *testing.T) {
	if now := (*List)(nil).Now(); now != nil {
		t.Errorf("no list has %q", now)
	}
	synctest.Test(t, func(t *testing.T) {
		l, calls := NewList("192.0.2.1"), 0
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Each(ctx, func() { calls++ })
		}()
		synctest.Wait()
		changed, stop := l.Watch()
		l.Set([]string{"192.0.2.1"})
		synctest.Wait()
		if len(changed) > 0 || calls > 0 {
			t.Errorf("the same addresses are %d changes", calls)
		}
		for _, a := range []string{"192.0.2.2", "192.0.2.3"} {
			l.Set([]string{a})
			synctest.Wait()
		}
		if len(changed) != 1 || calls != 2 || strings.Join(l.Now(), " ") != "192.0.2.3" {
			t.Errorf("%d and %d changes to %q", len(changed), calls, l.Now())
		}
		stop()
		<-changed
		l.Set(nil)
		synctest.Wait()
		if len(changed) > 0 || calls != 3 {
			t.Errorf("after the end: %d and %d changes", len(changed), calls)
		}
		cancel()
		<-done
	})
}
