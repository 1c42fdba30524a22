package nodeaddress

import (
	"context"
	"net/netip"
	"slices"
	"time"
)

// Patience is how long a machine must have lacked an address that a process keeps before
// another one takes its place. Interfaces go for a moment, and come back with their
// addresses.
const Patience = 30 * time.Second

// Loss says what has become of an address that a process keeps.
type Loss struct {
	Lost bool          // the machine does not have it
	For  time.Duration // for how long
	Had  string        // the interface that had it, "" if none did since the process began
	// Next is the address that a Follower would take in its place, invalid if there is
	// none.
	Next netip.Addr
}

// Keeper watches an address that a process chose when it began, and keeps as long as it
// runs. A process that begins later may choose another one.
type Keeper struct {
	Machine Machine
	Address netip.Addr
	// Judge is called at each look at the machine, and decides what follows. Its error is
	// the condition Address of the component that runs the Keeper.
	Judge func(context.Context, Loss) error

	had   string              // the interface of the address, once it was here
	known map[netip.Addr]bool // the addresses of the machine at the first look
	since time.Time           // when the machine was first seen without the address; zero while it has it
}

// Run watches until ctx ends.
func (k *Keeper) Run(ctx context.Context) error { return look(ctx, k.Machine, k.step) }

// step looks at the machine once.
func (k *Keeper) step(ctx context.Context) error {
	here, err := k.Machine.Addresses()
	if err != nil {
		return err
	}
	if k.known == nil {
		k.known = addressesOf(here)
	}
	if at := slices.IndexFunc(here, func(h Address) bool { return h.Prefix.Addr() == k.Address }); at >= 0 {
		k.had, k.since = here[at].Interface, time.Time{}
		return k.Judge(ctx, Loss{Had: k.had})
	}
	if k.since.IsZero() {
		k.since = time.Now()
	}
	defaults, err := k.Machine.DefaultRoutes(k.Address.Is4())
	if err != nil {
		return err
	}
	return k.Judge(ctx, Loss{Lost: true, For: time.Since(k.since), Had: k.had, Next: choose(k.Address, k.had, k.known, here, defaults)})
}
