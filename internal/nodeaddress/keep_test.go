package nodeaddress

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-io/coracle/internal/supervise"
)

// TestAKeptAddressIsLost checks what a process is told of the address that it keeps: how
// long the machine lacks it, and which one would take its place.
func TestAKeptAddressIsLost(t *testing.T) {
	first, second, other := on("eth0", "192.0.2.2/24"), on("eth0", "198.51.100.7/24"), on("docker0", "172.17.0.1/16")
	synctest.Test(t, func(t *testing.T) {
		machine := &fakeMachine{changed: make(chan struct{}, 1), here: []Address{first, other}}
		var told Loss
		b := &followed{t: t, machine: machine, list: NewList(), group: supervise.NewGroup(supervise.Options{})}
		keeper := &Keeper{Machine: machine, Address: netip.MustParseAddr("192.0.2.2"), Judge: func(_ context.Context, l Loss) error {
			if told = l; l.Lost {
				return errors.New("192.0.2.2 is lost")
			}
			return nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		b.group.Go(ctx, "addresses", keeper.Run)
		wants := func(when string, want Loss, condition string) {
			t.Helper()
			b.wants(when, "", 0, condition)
			if want.For > 0 && told.For >= want.For { // as long, or a little longer
				told.For = want.For
			}
			if told != want {
				t.Errorf("%s: told %+v, want %+v", when, told, want)
			}
		}
		b.settle()
		wants("at the start", Loss{Had: "eth0"}, "")
		machine.set([]Address{other})
		b.settle()
		wants("without it", Loss{Lost: true, Had: "eth0"}, "192.0.2.2 is lost")
		time.Sleep(Patience)
		b.settle()
		wants("for long", Loss{Lost: true, For: Patience - checkPeriod, Had: "eth0"}, "192.0.2.2 is lost")
		machine.set([]Address{other, second})
		b.settle()
		wants("with another one", Loss{Lost: true, For: Patience, Had: "eth0", Next: netip.MustParseAddr("198.51.100.7")}, "192.0.2.2 is lost")
		machine.set([]Address{other, second, first})
		b.settle()
		wants("with it again", Loss{Had: "eth0"}, "")
		machine.set([]Address{other})
		b.settle()
		wants("without it again", Loss{Lost: true, Had: "eth0"}, "192.0.2.2 is lost")
		cancel()
		b.group.Wait()
	})
}
