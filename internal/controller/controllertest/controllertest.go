// Package controllertest runs a controller against client-go's fake
// clientset, made to behave a little more like an API server: it generates
// names, sets UIDs, resource versions and creation times, refuses stale
// updates and keeps spec and status apart.
package controllertest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/controller"
)

// Cluster is a fake API server and what a controller needs of it.
type Cluster struct {
	Fake   *fake.Clientset
	Env    *controller.Env
	Events *record.FakeRecorder

	t      *testing.T
	mu     sync.Mutex // makes updates and patches one at a time
	writes atomic.Int64
}

// New makes a cluster that holds objects. It is taken down when the test
// ends.
func New(t *testing.T, objects ...runtime.Object) *Cluster {
	c := &Cluster{t: t, Fake: fake.NewClientset(), Events: record.NewFakeRecorder(10000)}
	c.Fake.PrependReactor("create", "*", c.create)
	c.Fake.PrependReactor("update", "*", c.update)
	c.Fake.PrependReactor("patch", "*", c.patch)
	for _, o := range objects {
		c.fill(o.(metav1.Object))
		if err := c.Fake.Tracker().Add(o); err != nil {
			t.Fatalf("adding %T: %v", o, err)
		}
	}
	factory := client.NewInformers(c.Fake)
	c.Env = &controller.Env{
		Client: &client.Client{Kubernetes: c.Fake, Informers: factory},
		Events: c.Events,
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- factory.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Errorf("informers: %v", err)
		}
	})
	return c
}

// create fills in what the API server would.
func (c *Cluster) create(action clienttesting.Action) (bool, runtime.Object, error) {
	if o, ok := action.(clienttesting.CreateAction).GetObject().(metav1.Object); ok {
		c.fill(o)
	}
	return false, nil, nil
}

// update refuses what is not based on the latest version, and lets an update
// of the status change nothing but the status and annotations, and any other
// everything but the status.
func (c *Cluster) update(action clienttesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	object := action.(clienttesting.UpdateAction).GetObject()
	next, ok := object.(metav1.Object)
	if !ok {
		return false, nil, nil
	}
	resource, namespace := action.GetResource(), action.GetNamespace()
	current, err := c.Fake.Tracker().Get(resource, namespace, next.GetName())
	if err != nil {
		return true, nil, err
	}
	if v := next.GetResourceVersion(); v != "" && v != current.(metav1.Object).GetResourceVersion() {
		return true, nil, apierrors.NewConflict(resource.GroupResource(), next.GetName(), errors.New("the object has been modified"))
	}
	result, from := object.DeepCopyObject(), current
	if action.GetSubresource() == "status" {
		result, from = current.DeepCopyObject(), object
		result.(metav1.Object).SetAnnotations(next.GetAnnotations())
	}
	if status := reflect.ValueOf(result).Elem().FieldByName("Status"); status.IsValid() {
		status.Set(reflect.ValueOf(from).Elem().FieldByName("Status"))
	}
	c.fill(result.(metav1.Object))
	return true, result, c.Fake.Tracker().Update(resource, result, namespace)
}

// patch gives a patched object a new version.
func (c *Cluster) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	handled, result, err := clienttesting.ObjectReaction(c.Fake.Tracker())(action)
	if err != nil || !handled {
		return handled, result, err
	}
	c.fill(result.(metav1.Object))
	return true, result, c.Fake.Tracker().Update(action.GetResource(), result, action.GetNamespace())
}

func (c *Cluster) fill(o metav1.Object) {
	n := c.writes.Add(1)
	if o.GetName() == "" {
		o.SetName(fmt.Sprintf("%s%05d", o.GetGenerateName(), n))
	}
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("uid-%s-%d", o.GetName(), n)))
	}
	if o.GetCreationTimestamp().Time.IsZero() {
		o.SetCreationTimestamp(metav1.Now())
	}
	o.SetResourceVersion(strconv.FormatInt(n, 10))
}

// Run runs a controller with flags, as "--name=value", until the test ends. It
// fails the test if the controller returns earlier, fails or does not stop.
func (c *Cluster) Run(d controller.Descriptor, flags ...string) {
	c.t.Helper()
	var none []string
	set := pflag.NewFlagSet(d.Name, pflag.ContinueOnError)
	controller.AddFlags(set, &none, []controller.Descriptor{d})
	if err := set.Parse(flags); err != nil {
		c.t.Fatal(err)
	}
	if d.Validate != nil {
		if err := d.Validate(); err != nil {
			c.t.Fatal(err)
		}
	}
	k, err := d.New(c.Env)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Errorf("controller: %v", err)
		}
	})
}

// Eventually waits until get returns want. Failing that, it shows the
// difference.
func Eventually[T any](t *testing.T, get func() T, want T) {
	t.Helper()
	var got T
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if got = get(); equality.Semantic.DeepEqual(got, want) {
			return
		}
	}
	t.Fatalf("want and got differ (-want +got):\n%s", cmp.Diff(want, got))
}

// Recorded drains the events recorded so far: "type reason message" each.
func (c *Cluster) Recorded() []string {
	var events []string
	for {
		select {
		case e := <-c.Events.Events:
			events = append(events, e)
		default:
			return events
		}
	}
}

// Pods lists the pods of a namespace.
func (c *Cluster) Pods(namespace string) []v1.Pod {
	c.t.Helper()
	list, err := c.Fake.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return list.Items
}

// SetReady makes a pod Running and ready since a time, if it is still there.
func (c *Cluster) SetReady(namespace, name string, since time.Time) {
	c.t.Helper()
	p, err := c.Fake.CoreV1().Pods(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return
	}
	if err != nil {
		c.t.Fatal(err)
	}
	p.Status.Phase = v1.PodRunning
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)}}
	if _, err := c.Fake.CoreV1().Pods(namespace).UpdateStatus(context.Background(), p, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		c.t.Fatal(err)
	}
}
