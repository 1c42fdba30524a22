package podautoscaler

import (
	"math"
	"slices"
	"time"

	autoscaling "k8s.io/api/autoscaling/v2"
	"k8s.io/utils/ptr"
)

// history holds the recommendations of an autoscaler and its changes of the
// replicas. Entries are kept as long as a window or a period covers them.
type history struct {
	recommended []event // numbers of replicas
	up, down    []event // changes of the number, both positive
}

// event is a number at a time.
type event struct {
	n  int32
	at time.Time
}

// limits holds the bounds on the replicas of a target.
type limits struct {
	minimum, maximum int32
	// behavior is nil if the user set none. Its rules have all defaults.
	behavior *autoscaling.HorizontalPodAutoscalerBehavior
	// window is the stabilization window for scaling down if the behavior does
	// not set one.
	window time.Duration
}

// outcome is the number of replicas within the limits, with the reasons for the
// conditions AbleToScale and ScalingLimited.
type outcome struct {
	replicas      int32
	able, limited reason
	isLimited     bool
}

// reason is the reason and the message of a condition.
type reason struct{ reason, message string }

// apply bounds a proposed number of replicas, and records the proposal.
func (h *history) apply(l *limits, current, proposed int32, now time.Time) outcome {
	upWindow, downWindow := time.Duration(0), l.window
	if l.behavior != nil {
		upWindow = seconds(l.behavior.ScaleUp.StabilizationWindowSeconds, 0)
		downWindow = seconds(l.behavior.ScaleDown.StabilizationWindowSeconds, l.window)
	}
	var out outcome
	lowest, highest := h.stabilize(proposed, upWindow, downWindow, now)
	stable := highest
	if l.behavior != nil {
		stable = min(max(current, lowest), highest)
	}
	switch {
	case stable == proposed:
		out.able = reason{"ReadyForNewScale", "recommended size matches current size"}
	case proposed >= current && l.behavior != nil:
		out.able = reason{"ScaleUpStabilized", "recent recommendations were lower than current one, applying the lowest recent recommendation"}
	default:
		out.able = reason{"ScaleDownStabilized", "recent recommendations were higher than current one, applying the highest recent recommendation"}
	}
	if l.behavior == nil {
		out.replicas, out.limited = l.withoutBehavior(current, stable)
	} else {
		out.replicas, out.limited = h.withBehavior(l, current, stable, now)
	}
	out.isLimited = out.replicas != stable
	return out
}

// stabilize returns the lowest recommendation in upWindow and the highest in
// downWindow, the proposal included, and records the proposal. With a behaviour,
// the replicas change only as far as needed to lie between the two. Without one,
// the highest is used.
func (h *history) stabilize(proposed int32, upWindow, downWindow time.Duration, now time.Time) (lowest, highest int32) {
	lowest, highest = proposed, proposed
	h.recommended = slices.DeleteFunc(h.recommended, func(e event) bool { return now.Sub(e.at) > max(upWindow, downWindow) })
	for _, e := range h.recommended {
		if now.Sub(e.at) < upWindow {
			lowest = min(lowest, e.n)
		}
		if now.Sub(e.at) < downWindow {
			highest = max(highest, e.n)
		}
	}
	h.recommended = append(h.recommended, event{proposed, now})
	return lowest, highest
}

// Without a behaviour, the replicas grow at most to scaleUpFactor times the
// current number, or to scaleUpMinimum.
const (
	scaleUpFactor  = 2
	scaleUpMinimum = 4
)

func (l *limits) withoutBehavior(current, desired int32) (int32, reason) {
	most, why := l.maximum, tooMany()
	if limit := saturate(max(scaleUpFactor*float64(current), scaleUpMinimum)); l.maximum > limit {
		most, why = limit, upLimit()
	}
	switch {
	case desired < l.minimum:
		return l.minimum, tooFew()
	case desired > most:
		return most, why
	}
	return desired, withinRange()
}

func (h *history) withBehavior(l *limits, current, desired int32, now time.Time) (int32, reason) {
	switch {
	case desired > current:
		most, why := l.maximum, tooMany()
		if limit := max(current, h.limit(l.behavior.ScaleUp, current, now, true)); l.maximum > limit {
			most, why = limit, upLimit()
		}
		if desired > most {
			return most, why
		}
	case desired < current:
		least, why := l.minimum, tooFew()
		if limit := min(current, h.limit(l.behavior.ScaleDown, current, now, false)); l.minimum < limit {
			least, why = limit, reason{"ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate"}
		}
		if desired < least {
			return least, why
		}
	}
	return desired, withinRange()
}

func tooMany() reason {
	return reason{"TooManyReplicas", "the desired replica count is more than the maximum replica count"}
}

func tooFew() reason {
	return reason{"TooFewReplicas", "the desired replica count is less than the minimum replica count"}
}

func upLimit() reason {
	return reason{"ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate"}
}

func withinRange() reason {
	return reason{"DesiredWithinRange", "the desired count is within the acceptable range"}
}

// limit returns the number of replicas that the policies of a direction allow.
// The policy with the largest change decides, unless the rules select the
// smallest one or none.
func (h *history) limit(rules *autoscaling.HPAScalingRules, current int32, now time.Time, up bool) int32 {
	selected := ptr.Deref(rules.SelectPolicy, autoscaling.MaxChangePolicySelect)
	if selected == autoscaling.DisabledPolicySelect || len(rules.Policies) == 0 {
		return current
	}
	bounds := make([]float64, len(rules.Policies))
	for i := range rules.Policies {
		p := &rules.Policies[i]
		period := time.Duration(p.PeriodSeconds) * time.Second
		start := float64(current) - changed(h.up, period, now) + changed(h.down, period, now)
		bounds[i] = bound(p, start, up)
	}
	if up == (selected != autoscaling.MinChangePolicySelect) {
		return saturate(slices.Max(bounds))
	}
	return saturate(slices.Min(bounds))
}

// bound returns the number of replicas that a policy allows at most (up) or at
// least (down), given the number at the start of its period.
func bound(p *autoscaling.HPAScalingPolicy, start float64, up bool) float64 {
	percent := p.Type == autoscaling.PercentScalingPolicy
	switch {
	case up && percent:
		return math.Ceil(start * (1 + float64(p.Value)/100)) // else few replicas would never grow
	case up:
		return start + float64(p.Value)
	case percent:
		return math.Trunc(start * (1 - float64(p.Value)/100))
	}
	return start - float64(p.Value)
}

// changed returns the sum of the changes in a period.
func changed(events []event, period time.Duration, now time.Time) (sum float64) {
	for _, e := range events {
		if now.Sub(e.at) < period {
			sum += float64(e.n)
		}
	}
	return sum
}

// record records a change of the replicas.
func (h *history) record(b *autoscaling.HorizontalPodAutoscalerBehavior, from, to int32, now time.Time) {
	if b == nil || b.ScaleUp == nil || b.ScaleDown == nil {
		h.up, h.down = nil, nil
		return
	}
	var longest int32
	for _, p := range slices.Concat(b.ScaleUp.Policies, b.ScaleDown.Policies) {
		longest = max(longest, p.PeriodSeconds)
	}
	old := func(e event) bool { return now.Sub(e.at) > time.Duration(longest)*time.Second }
	h.up, h.down = slices.DeleteFunc(h.up, old), slices.DeleteFunc(h.down, old)
	if to > from {
		h.up = append(h.up, event{to - from, now})
	} else if to < from {
		h.down = append(h.down, event{from - to, now})
	}
}

func seconds(s *int32, otherwise time.Duration) time.Duration {
	if s == nil {
		return otherwise
	}
	return time.Duration(*s) * time.Second
}
