// Package applyloop keeps the kernel at the newest rules of a component.
package applyloop

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/pace"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Loop applies rules whenever they changed, were lost, or could not be applied.
type Loop struct {
	// Name is the name of the rules in the log, such as "network policies".
	Name string
	// Changed receives a message when there are new rules.
	Changed <-chan struct{}
	// Apply applies the newest rules.
	Apply func() error
	// Intact reports whether the kernel still holds what Apply wrote, as far as that is
	// known.
	Intact func() (bool, error)
	// CheckPeriod is the interval of the calls of Intact. RetryPeriod is the wait
	// after a failed Apply, unless the rules change before.
	CheckPeriod time.Duration
	RetryPeriod time.Duration
	// MinPeriod is the least time from the start of an Apply to the next one. What
	// changes meanwhile is applied together.
	MinPeriod time.Duration
}

// Each Apply is a transaction of the kernel, and any user can change a Service or a policy
// all the time. After a burst, Apply is called so often in a second.
const (
	burst     = 64
	perSecond = 20
)

// Run calls Apply at once, and then as needed until ctx ends. Changes that arrive
// during an Apply, or before its turn, are applied together by the next one. All calls
// are made by the goroutine of Run.
func (l Loop) Run(ctx context.Context) {
	log := klog.FromContext(ctx).WithValues("rules", l.Name)
	ctx = klog.NewContext(ctx, log)
	check := time.NewTicker(l.CheckPeriod)
	defer check.Stop()
	select {
	case <-l.Changed: // the first Apply has it
	default:
	}
	turns := pace.Pace{}
	for {
		var retry <-chan time.Time
		next := time.Now().Add(l.MinPeriod)
		if err := l.Apply(); err != nil {
			log.Error(err, "Applying rules failed; the kernel keeps the former ones; trying again", "in", l.RetryPeriod)
			retry = time.After(l.RetryPeriod)
		}
		if !supervise.Pause(ctx, time.Until(next)) || !l.wait(ctx, check.C, retry) || !turn(ctx, &turns) {
			return
		}
		select {
		case <-l.Changed: // meanwhile; the next Apply has it
		default:
		}
	}
}

// wait waits until the next Apply is due. It returns false if ctx ends before.
func (l Loop) wait(ctx context.Context, check, retry <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-retry:
			return true
		case <-l.Changed:
			return true
		case <-check:
			if l.lost(ctx) {
				return true
			}
		}
	}
}

// turn waits until the next Apply may be. It returns false if ctx ends before.
func turn(ctx context.Context, turns *pace.Pace) bool {
	for {
		wait := turns.Take(time.Now(), burst, time.Second/perSecond)
		if wait == 0 {
			return true
		}
		if !supervise.Pause(ctx, wait) {
			return false
		}
	}
}

// lost reports whether the kernel may hold something else.
func (l Loop) lost(ctx context.Context) bool {
	log := klog.FromContext(ctx)
	intact, err := l.Intact()
	if err != nil {
		log.Error(err, "Comparing the kernel's rules failed")
		return false
	}
	if !intact {
		log.Info("The kernel may no longer hold the rules; writing them again")
	}
	return !intact
}
