package attack

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	supervision "github.com/coracle-io/coracle/internal/processes"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// getPace is how often the others ask during an attack.
	getPace = 5 * time.Millisecond
	// getBar is what 99 of 100 plain gets must stay below during an attack.
	getBar = 100 * time.Millisecond
	// leastGets is how many gets make a figure.
	leastGets = 200
)

// meanwhile runs an attack while somebody else, with a connection and a
// service account of his own, reads one ConfigMap again and again. It fails
// the test if 99 of 100 gets take longer than getBar or any get fails, or if the
// API server's process is another one afterwards. The attack gets a context
// that ends with the test's patience.
func (c *cluster) meanwhile(t *testing.T, attack func(ctx context.Context)) {
	t.Helper()
	config, namespace := c.tenant(t, "view")
	other, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := c.client.CoreV1().ConfigMaps(namespace).Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	get := func() (time.Duration, error) {
		begun := time.Now()
		_, err := other.CoreV1().ConfigMaps(namespace).Get(ctx, "plain", metav1.GetOptions{})
		return time.Since(begun), err
	}
	eventually(t, "the other's first get", func() error { _, err := get(); return err }) // his rights are there

	over := make(chan struct{})
	go func() {
		defer close(over)
		attack(ctx)
	}()
	var took []time.Duration
	var failed error
	pace := time.NewTicker(getPace)
	defer pace.Stop()
	for running := true; running || len(took) < leastGets; {
		select {
		case <-over:
			running, over = false, nil
		case <-pace.C:
			d, err := get()
			took = append(took, d)
			if err != nil {
				failed = fmt.Errorf("get %d after %v: %w", len(took), d, err)
			}
		}
		if failed != nil {
			break
		}
	}
	cancel()
	if over != nil {
		<-over
	}
	if failed != nil {
		t.Errorf("another's plain get failed during the attack: %v\n%s", failed, c.log())
	}
	slices.Sort(took)
	if p99 := took[len(took)*99/100]; p99 > getBar {
		t.Errorf("99 of 100 plain gets took up to %v during the attack, want %v at most (%d gets, median %v, longest %v)",
			p99, getBar, len(took), took[len(took)/2], took[len(took)-1])
	}
	c.unharmed(t)
}

// refused fails the test unless an error is the API's, with one of the codes.
func refused(t *testing.T, what string, err error, codes ...int32) {
	t.Helper()
	var status apierrors.APIStatus
	switch s, ok := err.(apierrors.APIStatus); {
	case err == nil:
		t.Errorf("%s was let through", what)
		return
	case !ok:
		t.Errorf("%s: %v, want the API's refusal with code %v", what, err, codes)
		return
	default:
		status = s
	}
	if !slices.Contains(codes, status.Status().Code) {
		t.Errorf("%s: refused with %d (%v), want %v", what, status.Status().Code, err, codes)
	}
}

// memory is what the API server's process takes of the machine's memory, in
// bytes, by its own account (proc(5), VmRSS).
func (c *cluster) memory(t *testing.T) int64 {
	t.Helper()
	pid := c.serverPID(t)
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if after, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kilobytes, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kilobytes << 10
		}
	}
	t.Fatalf("/proc/%d/status has no VmRSS", pid)
	return 0
}

// serverPID is the process that listens on the API server's port.
func (c *cluster) serverPID(t *testing.T) int {
	t.Helper()
	return c.pid(t, supervision.ControlPlane)
}
