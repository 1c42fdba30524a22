package attack

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// maxLatency is the bound of the 99th percentile of the gets. By default it
// tells an attack that blocks others from one that slows them down, also on a
// machine that does other work.
var maxLatency = flag.Duration("attack.latency", time.Second, "bound of the 99th percentile of others' requests during an attack; 100ms is that of a machine that does nothing else")

const (
	// getInterval is the interval between two gets during an attack. A get is
	// sent even if earlier ones are unanswered.
	getInterval = 10 * time.Millisecond
	// getTimeout is the timeout of a get.
	getTimeout = maxAnswer
)

const (
	// attackAttempts is how often an attack is tried that exceeds maxLatency.
	// Other work on the machine can only slow the gets down, so the lowest
	// figure is the closest to the effect of the attack. The effect of the
	// attack itself is the same each time.
	attackAttempts = 5
	// After an attempt that is too slow, the same gets are timed for
	// baselineTime without an attack. If they exceed maxLatency too, the
	// machine is busy, and an attack may make them slower by baselineFactor.
	baselineTime   = 2 * time.Second
	baselineFactor = 3
)

// checkLatencyDuring runs an attack while another service account reads a
// ConfigMap over its own connection. It fails the test if the 99th percentile
// of these gets exceeds maxLatency in each attempt, if a get fails, or if the
// API server was restarted. The context of the attack ends after waitTimeout.
// The attack may be called several times.
func (c *cluster) checkLatencyDuring(t *testing.T, attack func(ctx context.Context)) {
	t.Helper()
	config, namespace := c.tenant(t, "view")
	other, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	get := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, getTimeout)
		defer cancel()
		_, err := other.CoreV1().ConfigMaps(namespace).Get(ctx, "plain", metav1.GetOptions{})
		return err
	}
	eventually(t, "the first get", func() error { return get(t.Context()) }) // the permissions take effect a moment later

	var figures []string
	for range attackAttempts {
		took, err := measureGets(get, attack)
		if err != nil {
			t.Errorf("a get failed during the attack: %v\n%s", err, c.log())
			break
		}
		p99 := percentile99(took)
		if p99 <= *maxLatency {
			figures = nil
			break
		}
		calm, err := measureGets(get, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, baselineTime)
			defer cancel()
			<-ctx.Done()
		})
		if err != nil {
			t.Errorf("a get failed after the attack: %v\n%s", err, c.log())
			break
		}
		if alone := percentile99(calm); alone > *maxLatency && p99 <= baselineFactor*alone {
			t.Logf("p99 of the gets is %v during the attack and %v without it: the machine is too busy to judge", p99, alone)
			figures = nil
			break
		}
		figures = append(figures, fmt.Sprintf("%v (%d gets, median %v, longest %v; %v without the attack)",
			p99, len(took), took[len(took)/2], took[len(took)-1], percentile99(calm)))
	}
	if len(figures) > 0 {
		report := t.Errorf
		if *soak > 0 { // hours may have busy minutes; a soak checks memory
			report = t.Logf
		}
		report("p99 of the gets during the attack is %s, want at most %v", strings.Join(figures, ", then "), *maxLatency)
	}
	c.checkNotRestarted(t)
}

// percentile99 sorts durations and returns their 99th percentile.
func percentile99(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)*99/100]
}

// measureGets runs an attack once and returns the durations of the gets that
// started during it.
func measureGets(get func(context.Context) error, attack func(ctx context.Context)) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		attack(ctx)
	}()
	var mu sync.Mutex // guards the following variables
	var took []time.Duration
	var failed error
	var asked sync.WaitGroup
	ask := func() {
		begun := time.Now()
		err := get(context.WithoutCancel(ctx))
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(begun))
		if err != nil && failed == nil {
			failed = fmt.Errorf("after %v: %w", time.Since(begun), err)
		}
	}
	pace := time.NewTicker(getInterval)
	defer pace.Stop()
	for ended := false; !ended; {
		asked.Go(ask)
		select {
		case <-over:
			ended = true
		case <-pace.C:
		}
	}
	asked.Wait()
	return took, failed
}

// checkRefused fails the test unless err is an API error with one of the codes.
func checkRefused(t *testing.T, what string, err error, codes ...int32) {
	t.Helper()
	var status apierrors.APIStatus
	switch s, ok := err.(apierrors.APIStatus); {
	case err == nil:
		t.Errorf("%s was allowed", what)
		return
	case !ok:
		t.Errorf("%s: %v, want an API error with code %v", what, err, codes)
		return
	default:
		status = s
	}
	if !slices.Contains(codes, status.Status().Code) {
		t.Errorf("%s: code %d (%v), want %v", what, status.Status().Code, err, codes)
	}
}
