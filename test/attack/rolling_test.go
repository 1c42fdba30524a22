package attack

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	supervision "github.com/coracle-io/coracle/internal/processes"
)

var rollTime = flag.Duration("attack.rolls", 0, "how long TestConnectionsWhilePodsRoll updates pods and kills the proxy; 0 skips it")

const (
	// rollClients is the number of clients, rollPace the time between two connections of
	// one. The kernel knows each connection, and its port, for up to two minutes after its end.
	rollClients = 8
	rollPace    = 25 * time.Millisecond
	// rollGrace is how long a pod serves after its end has begun. The proxy must have left
	// it by then, and may have been killed meanwhile.
	rollGrace = 5
)

// TestConnectionsWhilePodsRoll makes a new connection to a Service for each request while
// rolling updates replace its pods, and the process of the node, which has the proxy, is
// killed again and again. No connection may fail.
func TestConnectionsWhilePodsRoll(t *testing.T) {
	if *rollTime == 0 {
		t.Skip("make soak runs it")
	}
	c := startOwn(t)
	c.logOnFailure(t)
	r := &rolling{c: c, t: t}
	r.start()
	stop := r.load()
	rounds, kills := 0, 0
	for began := time.Now(); time.Since(began) < *rollTime; rounds++ {
		r.update(rounds)
		for done := false; !done; kills++ {
			r.killNode()
			done = r.isUpdated(context.Background()) == nil
		}
	}
	stop()
	t.Logf("%d connections in %d updates and %d kills: %d failed", r.connections, rounds, kills, len(r.failures))
	for i, failure := range r.failures {
		if i == 10 {
			t.Errorf("and %d more", len(r.failures)-i)
			break
		}
		t.Error(failure)
	}
}

// rolling is a Deployment with a Service that is under load.
type rolling struct {
	c       *cluster
	t       *testing.T
	address string // of the Service

	mu          sync.Mutex // guards the following
	connections int
	failures    []string
}

// start creates the Deployment and the Service, and waits until it answers.
func (r *rolling) start() {
	r.t.Helper()
	ctx, labels := context.Background(), map[string]string{"app": "rolling"}
	if _, err := r.c.client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "rolling"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromInt32(2))},
			},
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: v1.PodSpec{Containers: []v1.Container{{
					Name: "web", Image: image,
					Lifecycle:      &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: rollGrace}}},
					ReadinessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(80)}}, PeriodSeconds: 1},
				}}},
			},
		},
	}, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	service, err := r.c.client.CoreV1().Services("default").Create(ctx, &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "rolling"},
		Spec:       v1.ServiceSpec{Selector: labels, Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.address = net.JoinHostPort(service.Spec.ClusterIP, "80")
	within(r.t, waitTimeout, "the pods are ready", r.isUpdated)
	within(r.t, waitTimeout, "the Service answers", r.get)
}

// load connects to the Service with all clients until stop is called.
func (r *rolling) load() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	for range rollClients {
		clients.Go(func() {
			next := time.NewTicker(rollPace)
			defer next.Stop()
			for ; ctx.Err() == nil; <-next.C {
				err := r.get(context.Background()) // the last one is not given up
				r.mu.Lock()
				r.connections++
				if err != nil {
					r.failures = append(r.failures, fmt.Sprint(time.Now().Format(time.TimeOnly), " ", err))
				}
				r.mu.Unlock()
			}
		})
	}
	return func() { cancel(); clients.Wait() }
}

// get sends a request by a connection of its own.
func (r *rolling) get(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.address, http.NoBody)
	if err != nil {
		return err
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(string(body), "rolling-") {
		return fmt.Errorf("%s: %s", response.Status, body)
	}
	return nil
}

// update begins a rolling update.
func (r *rolling) update(round int) {
	r.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"round":"%d"}}}}}`, round)
	if _, err := r.c.client.AppsV1().Deployments("default").Patch(context.Background(), "rolling", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// isUpdated returns an error unless the newest pods, and no others, are available.
func (r *rolling) isUpdated(ctx context.Context) error {
	d, err := r.c.client.AppsV1().Deployments("default").Get(ctx, "rolling", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if s := d.Status; s.ObservedGeneration < d.Generation || s.UpdatedReplicas != 3 || s.AvailableReplicas != 3 || s.Replicas != 3 {
		return fmt.Errorf("the update is not finished: %+v", s)
	}
	return nil
}

// killNode kills the process of the node and waits until all works again. It has run for
// a second before: then it is restarted at once.
func (r *rolling) killNode() {
	r.t.Helper()
	calm := time.NewTimer(1500 * time.Millisecond)
	<-calm.C
	former := map[string]int{supervision.Node: r.c.pid(r.t, supervision.Node)}
	r.c.kill(r.t, supervision.Node)
	within(r.t, waitTimeout, "the cluster is healthy after the kill of the node's process", func(ctx context.Context) error {
		return r.c.checkHealthy(ctx, former)
	})
}
