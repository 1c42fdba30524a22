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

// maxLatency is for soaks on a machine that does nothing else: there, the times
// are those of the server.
var maxLatency = flag.Duration("attack.latency", 0, "bound of the 99th percentile of others' requests during an attack, such as 100ms, for a machine that does nothing else; 0 only prints it")

const (
	// getInterval is the interval between two gets during an attack. A get is
	// sent even if earlier ones are unanswered.
	getInterval = 10 * time.Millisecond
	// attackAttempts is how often an attack is tried that holds others up. Other
	// work on the machine can only slow the gets down, so the best attempt is
	// the closest to the effect of the attack, which is the same each time.
	attackAttempts = 5
	// manyGets is how many gets an attack must last for to say whether they wait
	// for its end: then fewer than one in heldShare is answered before it. A busy
	// machine answers late, which counts only for the last of them.
	manyGets  = 100
	heldShare = 5
	// After an attempt that exceeds maxLatency, the same gets are timed for
	// baselineTime without an attack, which may make them slower by
	// baselineFactor.
	baselineTime   = 2 * time.Second
	baselineFactor = 3
	// maxAnswer bounds the time of each other answer, with maxLatency.
	maxAnswer = 20 * time.Second
)

// checkLatencyDuring runs an attack while another service account reads a
// ConfigMap over its own connection. It fails the test if a get fails, if the
// gets wait for the end of the attack in each attempt, or if the API server was
// restarted. With -attack.latency it also bounds the 99th percentile of the
// gets. The context of the attack ends after waitTimeout. The attack may be
// called several times.
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
		ctx, cancel := context.WithTimeout(ctx, waitTimeout)
		defer cancel()
		_, err := other.CoreV1().ConfigMaps(namespace).Get(ctx, "plain", metav1.GetOptions{})
		return err
	}
	eventually(t, "the first get", func() error { return get(t.Context()) }) // the permissions take effect a moment later

	var failures []string
	for range attackAttempts {
		during, err := measureGets(get, attack)
		if err != nil {
			t.Errorf("a get failed during the attack: %v\n%s", err, c.log())
			break
		}
		t.Logf("gets during the attack: %s", during)
		failure := during.heldUp()
		if failure == "" && *maxLatency > 0 {
			failure = during.slow(t, get)
		}
		if failure == "" {
			failures = nil
			break
		}
		failures = append(failures, failure)
	}
	if len(failures) > 0 {
		report := t.Errorf
		if *soak > 0 { // hours may have busy minutes; a soak checks memory
			report = t.Logf
		}
		report("%s", strings.Join(failures, ", then "))
	}
	c.checkNotRestarted(t)
}

// gets are the gets that started during an attack.
type gets struct {
	took   []time.Duration // sorted
	during int             // how many of them were answered before its end
}

func (g gets) String() string {
	return fmt.Sprintf("%d, %d answered before its end, 99th percentile %v, median %v, longest %v", len(g.took), g.during, g.percentile99(), g.took[len(g.took)/2], g.took[len(g.took)-1])
}

func (g gets) percentile99() time.Duration { return g.took[len(g.took)*99/100] }

// heldUp says whether the gets wait for the end of the attack. That is a count
// of answers, because their time depends on what else the machine does.
func (g gets) heldUp() string {
	if len(g.took) >= manyGets && g.during < len(g.took)/heldShare {
		return fmt.Sprintf("of %d gets during the attack, %d were answered before its end", len(g.took), g.during)
	}
	return ""
}

// slow says whether the gets exceed maxLatency, and are slower than without the
// attack.
func (g gets) slow(t *testing.T, get func(context.Context) error) string {
	t.Helper()
	if g.percentile99() <= *maxLatency {
		return ""
	}
	calm, err := measureGets(get, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, baselineTime)
		defer cancel()
		<-ctx.Done()
	})
	if err != nil {
		return fmt.Sprintf("a get failed after the attack: %v", err)
	}
	if g.percentile99() <= baselineFactor*calm.percentile99() {
		t.Logf("gets without the attack: %s: the machine is too busy to judge", calm)
		return ""
	}
	return fmt.Sprintf("p99 of the gets is %v during the attack and %v without it, want at most %v", g.percentile99(), calm.percentile99(), *maxLatency)
}

// measureGets runs an attack once and returns the gets that started during it.
func measureGets(get func(context.Context) error, attack func(ctx context.Context)) (gets, error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		attack(ctx)
	}()
	var mu sync.Mutex // guards the following variables
	var sent gets
	var failed error
	var asked sync.WaitGroup
	ask := func() {
		begun := time.Now()
		err := get(context.WithoutCancel(ctx))
		mu.Lock()
		defer mu.Unlock()
		sent.took = append(sent.took, time.Since(begun))
		select {
		case <-over:
		default:
			sent.during++
		}
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
	slices.Sort(sent.took)
	return sent, failed
}

// longest is the answer that took the longest.
type longest struct {
	what string
	took time.Duration
}

// note notes an answer to a request that begun at a time.
func (l *longest) note(what string, begun time.Time) {
	if took := time.Since(begun); took > l.took {
		l.what, l.took = what, took
	}
}

// check prints the time of the longest answer. With -attack.latency, more than
// maxAnswer is an error. Otherwise that it was answered is what counts: the wait
// that an attack is after ends with it, or never.
func (l *longest) check(t *testing.T) {
	t.Helper()
	t.Logf("the longest answer took %v: %s", l.took, l.what)
	if *maxLatency > 0 && l.took > maxAnswer {
		t.Errorf("%s took %v", l.what, l.took)
	}
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
