package podautoscaler

import (
	"strconv"
	"strings"
	"testing"
	"time"

	autoscaling "k8s.io/api/autoscaling/v2"
)

func policies(selected autoscaling.ScalingPolicySelect, window *int32, all ...autoscaling.HPAScalingPolicy) *autoscaling.HPAScalingRules {
	return &autoscaling.HPAScalingRules{StabilizationWindowSeconds: window, SelectPolicy: &selected, Policies: all}
}

func byPods(n, period int32) autoscaling.HPAScalingPolicy {
	return autoscaling.HPAScalingPolicy{Type: autoscaling.PodsScalingPolicy, Value: n, PeriodSeconds: period}
}

func byPercent(n, period int32) autoscaling.HPAScalingPolicy {
	return autoscaling.HPAScalingPolicy{Type: autoscaling.PercentScalingPolicy, Value: n, PeriodSeconds: period}
}

// TestLimits proposes replicas one after another, 15 seconds apart, and follows
// what the limits allow. A step is proposed→replicas with the reasons of
// AbleToScale and ScalingLimited where they are not the usual ones.
func TestLimits(t *testing.T) {
	const most, least, none = autoscaling.MaxChangePolicySelect, autoscaling.MinChangePolicySelect, autoscaling.DisabledPolicySelect
	usualUp := policies(most, new(int32(0)), byPods(4, 15), byPercent(100, 15))
	usualDown := policies(most, nil, byPercent(100, 15))
	at := func(up, down *autoscaling.HPAScalingRules) *autoscaling.HorizontalPodAutoscalerBehavior {
		return &autoscaling.HorizontalPodAutoscalerBehavior{ScaleUp: up, ScaleDown: down}
	}
	for _, c := range []struct {
		what     string
		behavior *autoscaling.HorizontalPodAutoscalerBehavior
		first    int32
		steps    string
	}{
		{"without behaviour up to four or twice", nil, 1, "50→4 ScaleUpLimit, 50→8 ScaleUpLimit, 50→16 ScaleUpLimit, 50→20 TooManyReplicas, 50→20 TooManyReplicas"},
		{"without behaviour, fewer replicas wait for five minutes", nil, 10,
			strings.Repeat("3→10 ScaleDownStabilized, ", 20) + "3→3, 3→3"},
		{"never below the minimum", at(usualUp, policies(most, new(int32(0)), byPercent(100, 15))), 10, "0→2 TooFewReplicas"},
		{"the usual behaviour up: four pods or twice in 15 seconds", at(usualUp, usualDown), 1, "50→5 ScaleUpLimit, 50→10 ScaleUpLimit, 50→20 TooManyReplicas"},
		{"the usual behaviour down waits for the window of the flag", at(usualUp, usualDown), 10, strings.Repeat("3→10 ScaleDownStabilized, ", 20) + "3→3"},
		{"a peak in the window holds the replicas", at(usualUp, policies(most, new(int32(60)), byPercent(100, 15))), 10,
			"10→10, 9→10 ScaleDownStabilized, 3→10 ScaleDownStabilized, 3→10 ScaleDownStabilized, 3→9 ScaleDownStabilized, 3→3"},
		{"a window up takes the lowest recommendation", at(policies(most, new(int32(45)), byPods(100, 15)), usualDown), 2,
			"8→2 ScaleUpStabilized, 9→2 ScaleUpStabilized, 10→2 ScaleUpStabilized, 10→9 ScaleUpStabilized, 10→10"},
		{"windows of both directions", at(policies(most, new(int32(300)), byPods(100, 15)), policies(most, new(int32(300)), byPercent(100, 15))), 2,
			"1→2 ScaleDownStabilized, 3→2 ScaleUpStabilized, 2→2"},
		{"at most two pods a minute", at(policies(most, new(int32(0)), byPods(2, 60)), usualDown), 2,
			"20→4 ScaleUpLimit, 20→4 ScaleUpLimit, 20→4 ScaleUpLimit, 20→4 ScaleUpLimit, 20→6 ScaleUpLimit"},
		{"the smaller policy", at(policies(least, new(int32(0)), byPods(4, 15), byPercent(50, 15)), usualDown), 2, "20→3 ScaleUpLimit, 20→5 ScaleUpLimit, 20→8 ScaleUpLimit, 20→12 ScaleUpLimit"},
		{"percent is rounded up", at(policies(most, new(int32(0)), byPercent(1, 15)), usualDown), 2, "20→3 ScaleUpLimit"},
		{"up disabled", at(policies(none, new(int32(0))), usualDown), 3, "20→3 ScaleUpLimit"},
		{"down disabled", at(usualUp, policies(none, new(int32(0)))), 10, "3→10 ScaleDownLimit"},
		{"down by one pod in 30 seconds", at(usualUp, policies(most, new(int32(0)), byPods(1, 30))), 10, "3→9 ScaleDownLimit, 3→9 ScaleDownLimit, 3→8 ScaleDownLimit"},
		{"down by the larger policy", at(usualUp, policies(most, new(int32(0)), byPods(1, 15), byPercent(50, 15))), 16, "3→8 ScaleDownLimit, 3→4 ScaleDownLimit, 3→3"},
		{"down by the smaller policy", at(usualUp, policies(least, new(int32(0)), byPods(1, 15), byPercent(50, 15))), 16, "3→15 ScaleDownLimit"},
	} {
		h := &history{recommended: []event{{c.first, noon}}}
		l := &limits{minimum: 2, maximum: 20, behavior: c.behavior, window: 5 * time.Minute}
		if c.first < l.minimum {
			l.minimum = c.first
		}
		current := c.first
		for i, step := range strings.Split(c.steps, ", ") {
			now := noon.Add(time.Duration(i) * 15 * time.Second)
			given, _, _ := strings.Cut(step, "→")
			proposed, err := strconv.Atoi(given)
			if err != nil {
				t.Fatal(err)
			}
			out := h.apply(l, current, int32(proposed), now)
			if out.replicas != current {
				h.record(c.behavior, current, out.replicas, now)
			}
			current = out.replicas
			got := given + "→" + strconv.Itoa(int(current))
			if out.able.reason != "ReadyForNewScale" {
				got += " " + out.able.reason
			}
			if out.limited.reason != "DesiredWithinRange" {
				got += " " + out.limited.reason
			}
			if got != step {
				t.Errorf("%s: step %d is %s, want %s", c.what, i, got, step)
				break
			}
			if out.isLimited != (out.limited.reason != "DesiredWithinRange") {
				t.Errorf("%s: step %d is limited: %v, but %s", c.what, i, out.isLimited, out.limited.reason)
			}
		}
		if len(h.recommended) > 22 || len(h.up)+len(h.down) > 6 {
			t.Errorf("%s: %d recommendations and %d changes are remembered", c.what, len(h.recommended), len(h.up)+len(h.down))
		}
	}
}

// A policy is about the replicas that there were at the start of its period, before the
// changes in both directions since. It never turns the direction.
func TestPoliciesAfterChanges(t *testing.T) {
	for _, c := range []struct {
		what             string
		policy           autoscaling.HPAScalingPolicy
		up, down         []int32 // changes
		current, desired int32
		want             string
	}{
		{"up by percent", byPercent(200, 120), []int32{1, 5, 9}, nil, 100, 500, "255 ScaleUpLimit"},
		{"up by percent, after both", byPercent(300, 300), []int32{4}, []int32{2}, 6, 24, "16 ScaleUpLimit"},
		{"up by pods", byPods(150, 120), []int32{1, 5, 9}, nil, 100, 500, "235 ScaleUpLimit"},
		{"fewer pods up than were added", byPods(5, 120), []int32{1, 5, 9}, nil, 100, 500, "100 ScaleUpLimit"},
		{"changes before the period", byPods(5, 15), []int32{1, 5, 9}, nil, 100, 500, "105 ScaleUpLimit"},
		{"down by percent", byPercent(50, 120), nil, []int32{2, 4, 6}, 100, 1, "56 ScaleDownLimit"},
		{"down by percent, after both", byPercent(50, 180), []int32{2}, []int32{4}, 10, 1, "6 ScaleDownLimit"},
		{"down by more than all", byPercent(1000, 120), nil, []int32{10, 10, 10}, 10, 5, "5 DesiredWithinRange"},
		{"fewer pods down than were removed", byPods(5, 120), nil, []int32{1, 5, 9}, 100, 1, "100 ScaleDownLimit"},
		{"fewer percent down than were removed", byPercent(10, 120), nil, []int32{10, 10, 10}, 100, 1, "100 ScaleDownLimit"},
	} {
		changes := func(all []int32) (events []event) {
			for i, n := range all {
				events = append(events, event{n, noon.Add(-time.Duration(20+40*i) * time.Second)})
			}
			return events
		}
		h := &history{up: changes(c.up), down: changes(c.down)}
		rules := policies(autoscaling.MaxChangePolicySelect, new(int32(0)), c.policy)
		l := &limits{minimum: 1, maximum: 1000, behavior: &autoscaling.HorizontalPodAutoscalerBehavior{ScaleUp: rules, ScaleDown: rules}}
		replicas, why := h.withBehavior(l, c.current, c.desired, noon)
		if got := strconv.Itoa(int(replicas)) + " " + why.reason; got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}
