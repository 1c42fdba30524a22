package nft

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Ruleset is the content of a table of one family.
type Ruleset interface {
	// Chains are the chains of the table, by name.
	Chains() map[string][]Rule
	// Sets are the elements of the sets and maps that packets do not change, by
	// name.
	Sets(f Family) map[string][]nftables.SetElement
}

// Tables keeps the tables of one name, one for each family, in the kernel. One
// goroutine uses it.
type Tables[R Ruleset] struct {
	// Name is the name of the tables.
	Name string
	// IPv6 adds a table for IPv6.
	IPv6 bool
	// NetNS is the file descriptor of the network namespace; 0 means the
	// namespace of this process.
	NetNS int

	applied  []R       // by family; nil before the first Replace and when the kernel's state is unknown
	verified uint32    // the generation of nftables in which the tables held applied; 0: unknown
	compared time.Time // when everything was compared last
}

func (t *Tables[R]) families() []Family { return Families(t.IPv6) }

func (t *Tables[R]) table(f Family) *nftables.Table {
	return &nftables.Table{Family: f.Table, Name: t.Name}
}

// Known reports whether the kernel holds what the last Replace wrote, as far as
// this process knows.
func (t *Tables[R]) Known() bool { return t.applied != nil }

// Replace replaces what the tables hold with what plan returns, in one
// transaction. update adds the messages for the difference between two rulesets;
// before is the zero value if the table is new. plan may return the former ruleset with
// changes, if update does not need before: after an error all is written anew.
func (t *Tables[R]) Replace(plan func(Family) R, update func(b *Batch, before, next R)) error {
	conn, err := Connect(t.NetNS)
	if err != nil {
		return err
	}
	before, err := t.generation()
	if err != nil {
		return err
	}
	var wanted []R
	for i, f := range t.families() {
		next := plan(f)
		wanted = append(wanted, next)
		var former R
		b := &Batch{Conn: conn, Family: f, Table: t.table(f)}
		if t.Known() {
			former = t.applied[i]
		} else {
			b.Clear()
		}
		update(b, former, next)
		if b.Err != nil {
			t.forget() // plan may have changed what it returned before
			return b.Err
		}
	}
	if err := conn.Flush(); err != nil {
		t.forget() // the kernel's state is unknown now
		return fmt.Errorf("nftables transaction for table %s: %w", t.Name, err)
	}
	after, err := t.generation()
	if err != nil {
		t.forget()
		return err
	}
	switch certain := !t.Known() || t.verified == before; {
	case certain && follows(before, after):
		t.verified = after
	case before != after: // others have written something, too
		t.verified = 0
	}
	t.applied = wanted
	return nil
}

// Remove removes the tables, if they are there. It removes the IPv6 table even
// if IPv6 is off, because an earlier process may have added it.
func (t *Tables[R]) Remove() error {
	t.forget()
	conn, err := Connect(t.NetNS)
	if err != nil {
		return err
	}
	for _, f := range []Family{IPv4, IPv6} {
		// Adding the table first lets the removal succeed if there is none.
		conn.DelTable(conn.AddTable(t.table(f)))
	}
	if err := conn.Flush(); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
		return fmt.Errorf("removing nftables table %s: %w", t.Name, err)
	}
	return nil
}

// ForgetFlows deletes the flows that match from the kernel's connection table.
func (t *Tables[R]) ForgetFlows(match netlink.CustomConntrackFilter) error {
	return ForgetFlows(t.NetNS, t.families(), match, nil)
}
