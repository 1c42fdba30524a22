package containerd

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
)

const (
	// leasePeriod is the interval at which stale leases are looked for, first
	// firstLeases after the start, which is busy enough.
	leasePeriod = 10 * time.Minute
	firstLeases = 2 * time.Second
	// leaseTimeout bounds one look.
	leaseTimeout = time.Minute
	// expiry is the label of leases that containerd itself removes, a day after
	// it has made them.
	expiry = "containerd.io/gc.expire="
)

// lease keeps containerd from removing what an operation needs.
type lease struct {
	id      string
	created time.Time // in full seconds
	expires bool
}

// leases are the leases of one containerd process, from its start to its end.
type leases struct {
	runtime *Runtime
	started time.Time // zero if an earlier process has started it
	seen    map[string]sighting
}

// sighting says when a lease was first seen. The clock may be set while
// containerd runs, so that only this is certain, not when a lease was made.
type sighting struct {
	at    time.Time // with a monotonic reading
	first bool      // by the first look, just after containerd's start
}

// list returns the leases.
func (l *leases) list(ctx context.Context) ([]lease, error) {
	output, err := l.runtime.ctr(ctx, "leases", "ls").Output()
	if err != nil {
		return nil, fmt.Errorf("listing containerd's leases: %w", err)
	}
	return parseLeases(string(output)), nil
}

// parseLeases returns the leases of a table with a heading and the columns id,
// creation and labels.
func parseLeases(table string) (all []lease) {
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		created, err := time.Parse(time.RFC3339, fields[1])
		if err != nil {
			continue // the heading
		}
		all = append(all, lease{id: fields[0], created: created, expires: strings.Contains(line, expiry)})
	}
	return all
}

// ctr returns a command of containerd's client.
func (r *Runtime) ctr(ctx context.Context, arguments ...string) *exec.Cmd {
	return exec.CommandContext(ctx, r.config.program("ctr"), append([]string{"--address", r.config.socket(), "--namespace", Namespace}, arguments...)...)
}

// bound removes stale leases until ctx ends.
func (l *leases) bound(ctx context.Context) {
	if !l.started.IsZero() {
		if _, err := l.look(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Stale leases of an earlier containerd stay until they expire")
			l.note(nil, time.Now())
		}
	}
	if !supervise.Pause(ctx, firstLeases) {
		return
	}
	supervise.Repeat(ctx, leasePeriod, func() {
		if err := l.removeStale(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Removing stale leases of containerd failed, will try again", "in", leasePeriod)
		}
	})
}

// look lists the leases and notes which of them are new.
func (l *leases) look(ctx context.Context) ([]lease, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	all, err := l.list(ctx)
	if err == nil {
		l.note(all, time.Now())
	}
	return all, err
}

// note records when leases were first seen, and forgets those that are gone.
func (l *leases) note(all []lease, now time.Time) {
	seen := make(map[string]sighting, len(all))
	for _, one := range all {
		before, known := l.seen[one.id]
		if !known {
			before = sighting{at: now, first: l.seen == nil}
		}
		seen[one.id] = before
	}
	l.seen = seen
}

// removeStale removes the leases of operations that have ended without removing
// them, because containerd was killed or its disk was full. Such a lease keeps
// snapshots for a day, or the address of a sandbox that does not exist forever.
func (l *leases) removeStale(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	all, err := l.look(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	conn, err := l.runtime.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	known, err := sandboxIDs(ctx, conn)
	if err != nil {
		return err
	}
	stale := l.stale(all, known, time.Now())
	if len(stale) == 0 {
		return nil
	}
	klog.FromContext(ctx).V(2).Info("Removing stale leases of containerd", "leases", stale)
	return l.remove(ctx, stale)
}

// remove removes leases. If one no longer exists or cannot be removed, the others
// are removed all the same: ctr stops at the first error, so remove then removes
// them one by one.
func (l *leases) remove(ctx context.Context, ids []string) error {
	if len(ids) == 1 {
		output, err := l.runtime.ctr(ctx, "leases", "rm", "--sync", ids[0]).CombinedOutput()
		if text := strings.TrimSpace(string(output)); err != nil && !strings.Contains(text, "not found") {
			return fmt.Errorf("removing containerd's lease %s: %w: %s", ids[0], err, text)
		}
		return nil
	}
	if l.runtime.ctr(ctx, append([]string{"leases", "rm", "--sync"}, ids...)...).Run() == nil {
		return nil
	}
	var errs []error
	for _, id := range ids {
		errs = append(errs, l.remove(ctx, []string{id}))
	}
	return errors.Join(errs...)
}

// stale returns the ids of the leases that no operation needs. Leases of an
// earlier containerd are stale, except leases of sandboxes, which have their ids.
// A lease of this containerd is stale if it does not expire, and its sandbox is
// still missing leasePeriod after it was first seen: pulls, whose leases expire,
// may take longer. Leases whose ids do not have the form that the CRI plugin and
// its client use belong to other clients, such as ctr.
func (l *leases) stale(all []lease, sandboxes map[string]bool, now time.Time) (stale []string) {
	of := regexp.MustCompile(`^(?:[0-9a-f]{64}|[0-9]+-[A-Za-z0-9_-]{4})$`) // a sandbox, or time and random
	for _, one := range all {
		if !of.MatchString(one.id) {
			continue
		}
		seen := l.seen[one.id]
		// The clock may have been set back between the two, as when a machine starts.
		earlier := seen.first && (one.created.Before(l.started.Truncate(time.Second)) || one.created.After(seen.at))
		if !sandboxes[one.id] && (earlier || !one.expires && now.Sub(seen.at) >= leasePeriod) {
			stale = append(stale, one.id)
		}
	}
	return stale
}
