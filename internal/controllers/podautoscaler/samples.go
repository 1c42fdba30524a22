package podautoscaler

import (
	"errors"
	"fmt"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/podquery"
)

// sample is a measurement of a pod.
type sample struct {
	milli  int64 // thousandths of the metric's unit
	at     time.Time
	window time.Duration // over which the measurement is averaged
}

// samples are measurements by the pods' names.
type samples map[string]sample

// readiness says when CPU samples of a starting pod count.
type readiness struct {
	now time.Time
	// initialization is the time after a pod's start in which its CPU counts only
	// while it is ready. delay is the time after its start in which a change of
	// readiness counts as the initial one.
	initialization, delay time.Duration
}

// tolerance is how far the ratio of the metric to its target may be from 1
// before the number of replicas changes.
type tolerance struct{ down, up float64 }

func (t tolerance) includes(ratio float64) bool { return 1-t.down <= ratio && ratio <= 1+t.up }

// podGroups are the pods of a workload, grouped as upstream's ReplicaCalculator does.
type podGroups struct {
	ready   int             // pods with samples that count
	ignored map[string]bool // pods that are being deleted or have failed: they do not count
	unready map[string]bool // pods that are starting: they will take a part of the load
	missing map[string]bool // pods without a sample
}

// groupPods groups the pods. Unready pods are distinguished only for CPU, whose usage
// is unusual while a pod starts.
func groupPods(pods []*v1.Pod, have samples, cpu bool, r readiness) podGroups {
	g := podGroups{ignored: map[string]bool{}, unready: map[string]bool{}, missing: map[string]bool{}}
	for _, p := range pods {
		measured, found := have[p.Name]
		switch {
		case p.DeletionTimestamp != nil || p.Status.Phase == v1.PodFailed:
			g.ignored[p.Name] = true
		case p.Status.Phase == v1.PodPending:
			g.unready[p.Name] = true
		case !found:
			g.missing[p.Name] = true
		case cpu && r.starts(p, measured):
			g.unready[p.Name] = true
		default:
			g.ready++
		}
	}
	return g
}

// starts reports whether a pod is still starting, so that its CPU says nothing
// about the load.
func (r readiness) starts(p *v1.Pod, s sample) bool {
	ready := podquery.Condition(&p.Status, v1.PodReady)
	if ready == nil || p.Status.StartTime == nil {
		return true
	}
	if p.Status.StartTime.Sub(r.now) > r.initialization { // it started before the clock was set back
		return ready.Status == v1.ConditionFalse
	}
	changed := ready.LastTransitionTime.Time
	if p.Status.StartTime.Add(r.initialization).After(r.now) {
		return ready.Status == v1.ConditionFalse || s.at.Before(changed.Add(s.window))
	}
	return ready.Status == v1.ConditionFalse && p.Status.StartTime.Add(r.delay).After(changed)
}

// metricReplicas computes replicas from measurements of pods.
type metricReplicas struct {
	current int32
	pods    []*v1.Pod
	have    samples
	cpu     bool
	readiness
	tolerance
	// ratio returns the ratio of the samples to the target, and the values for
	// the status.
	ratio func(samples) (ratio float64, shown shown, err error)
	// most returns the usage that is assumed for a pod without a sample when the
	// samples alone would reduce the replicas.
	most func(pod string) int64
}

// shown holds the values of a metric in the status.
type shown struct {
	utilization int32 // in percent of the requests
	milli       int64
}

// replicas returns the number of replicas that brings the metric to its target.
// Pods without samples, and pods that are starting, never reverse the direction:
// they count as idle on a scale-up and as busy on a scale-down.
func (c *metricReplicas) replicas() (int32, shown, error) {
	if len(c.pods) == 0 {
		return 0, shown{}, errors.New("no pods returned by selector while calculating replica count")
	}
	g := groupPods(c.pods, c.have, c.cpu, c.readiness)
	have := samples{}
	for name, s := range c.have {
		if !g.ignored[name] && !g.unready[name] {
			have[name] = s
		}
	}
	if len(have) == 0 {
		return 0, shown{}, errors.New("did not receive metrics for targeted pods (pods might be unready)")
	}
	ratio, show, err := c.ratio(have)
	if err != nil {
		return 0, shown{}, err
	}
	fill := len(g.unready) > 0 && ratio > 1
	if !fill && len(g.missing) == 0 {
		if c.includes(ratio) {
			return c.current, show, nil
		}
		return ceil(ratio * float64(g.ready)), show, nil
	}
	for name := range g.missing {
		switch {
		case ratio < 1:
			have[name] = sample{milli: c.most(name)}
		case ratio > 1:
			have[name] = sample{}
		}
	}
	if fill {
		for name := range g.unready {
			have[name] = sample{}
		}
	}
	filled, _, err := c.ratio(have)
	if err != nil {
		return 0, show, err
	}
	if c.includes(filled) || ratio < 1 && filled > 1 || ratio > 1 && filled < 1 {
		return c.current, show, nil
	}
	replicas := ceil(filled * float64(len(have)))
	if filled < 1 && replicas > c.current || filled > 1 && replicas < c.current {
		return c.current, show, nil
	}
	return replicas, show, nil
}

// utilization returns the ratio function for a target in percent of requests,
// which are in thousandths by the pods' names.
func utilization(requests map[string]int64, target int32) func(samples) (float64, shown, error) {
	return func(have samples) (float64, shown, error) {
		var used, requested, count int64
		for name, s := range have {
			if r, known := requests[name]; known {
				used, requested, count = used+s.milli, requested+r, count+1
			}
		}
		if requested == 0 {
			return 0, shown{}, errors.New("no metrics returned matched known pods")
		}
		percent := saturate(float64(used) * 100 / float64(requested))
		return float64(percent) / float64(target), shown{percent, used / count}, nil
	}
}

// average returns the ratio function for a target of the average, in
// thousandths.
func average(target int64) func(samples) (float64, shown, error) {
	return func(have samples) (float64, shown, error) {
		var total int64
		for _, s := range have {
			total += s.milli
		}
		mean := total / int64(len(have))
		return float64(mean) / float64(target), shown{milli: mean}, nil
	}
}

// requestsOf returns what each pod requests of a resource, in thousandths, by
// the pods' names. container restricts it to one container, if it is not "".
func requestsOf(pods []*v1.Pod, resource v1.ResourceName, container string) (map[string]int64, error) {
	requests := make(map[string]int64, len(pods))
	for _, p := range pods {
		if p.Spec.Resources != nil && container == "" {
			if q, ok := p.Spec.Resources.Requests[resource]; ok {
				requests[p.Name] = q.MilliValue()
				continue
			}
		}
		var sum int64
		add := func(c *v1.Container) error {
			if container != "" && c.Name != container {
				return nil
			}
			q, ok := c.Resources.Requests[resource]
			if !ok {
				return fmt.Errorf("missing request for %s in container %s of Pod %s", resource, c.Name, p.Name)
			}
			sum += q.MilliValue()
			return nil
		}
		for i := range p.Spec.Containers {
			if err := add(&p.Spec.Containers[i]); err != nil {
				return nil, err
			}
		}
		for i := range p.Spec.InitContainers {
			if c := &p.Spec.InitContainers[i]; podquery.IsSidecar(c) {
				if err := add(c); err != nil {
					return nil, err
				}
			}
		}
		requests[p.Name] = sum
	}
	return requests, nil
}

// objectReplicas computes replicas from a measurement that is not of pods.
type objectReplicas struct {
	milli int64
	spec  int32 // replicas of the Scale
	now   int32 // replicas in its status
	pods  []*v1.Pod
	tolerance
}

// forValue returns the replicas for a target of the whole. Without replicas,
// one replica is taken to bring the metric to its target.
func (t *objectReplicas) forValue(target int64) (int32, error) {
	ratio := float64(t.milli) / float64(target)
	switch {
	case t.spec == 0:
		return ceil(ratio), nil
	case t.includes(ratio):
		return t.spec, nil
	case len(t.pods) == 0:
		return 0, errors.New("unable to calculate ready pods: no pods returned by selector while calculating replica count")
	}
	ready := 0
	for _, p := range t.pods {
		if c := podquery.Condition(&p.Status, v1.PodReady); p.Status.Phase == v1.PodRunning && c != nil && c.Status == v1.ConditionTrue {
			ready++
		}
	}
	return ceil(ratio * float64(ready)), nil
}

// forAverage returns the replicas for a target of the share of each replica,
// and the present share.
func (t *objectReplicas) forAverage(target int64) (replicas int32, share int64) {
	if t.now == 0 {
		return ceil(float64(t.milli) / float64(target)), t.milli
	}
	replicas = t.now
	if !t.includes(float64(t.milli) / (float64(target) * float64(t.now))) {
		replicas = ceil(float64(t.milli) / float64(target))
	}
	return replicas, int64(math.Ceil(float64(t.milli) / float64(t.now)))
}

// ceil rounds a number of replicas up.
func ceil(n float64) int32 { return saturate(math.Ceil(n)) }

func saturate(n float64) int32 {
	return int32(max(math.MinInt32, min(n, math.MaxInt32)))
}
