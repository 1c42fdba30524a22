// Package controllertest runs a controller against client-go's fake clientset
// with some behaviour of an API server added: it generates names, sets UIDs,
// generations, resource versions and creation times, rejects stale updates and
// separates spec and status.
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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/controller"
)

// Cluster is a fake API server and a controller environment that uses it.
type Cluster struct {
	Fake   *fake.Clientset
	Env    *controller.Env
	Events *record.FakeRecorder

	t      testing.TB
	mu     sync.Mutex // serializes updates and patches, and guards lists
	writes atomic.Int64
	// lists holds the objects of each list by its resource version.
	lists map[string][]runtime.Object
}

// New returns a cluster that holds objects. It is stopped when the test ends.
func New(t testing.TB, objects ...runtime.Object) *Cluster {
	c := &Cluster{
		t: t, Fake: fake.NewClientset(), Events: record.NewFakeRecorder(10000),
		lists: map[string][]runtime.Object{},
	}
	c.Fake.PrependReactor("create", "*", c.create)
	c.Fake.PrependReactor("update", "*", c.update)
	c.Fake.PrependReactor("patch", "*", c.patch)
	c.Fake.PrependReactor("list", "*", c.list)
	c.Fake.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := c.watch(action)
		return true, w, err
	})
	for _, o := range objects {
		c.setMetadata(o.(metav1.Object))
		if err := c.Fake.Tracker().Add(o); err != nil {
			t.Fatalf("adding %T: %v", o, err)
		}
	}
	factory := client.NewInformers(c.Fake)
	c.Env = &controller.Env{
		Client: &client.Client{Kubernetes: c.Fake, Informers: factory, Watch: c.informer},
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

// informer is Client.Watch. The fake API server knows no field selectors.
func (c *Cluster) informer(resource schema.GroupVersionResource, namespace string, _ fields.Selector) cache.SharedIndexInformer {
	factory := informers.NewSharedInformerFactoryWithOptions(c.Fake, 0, informers.WithNamespace(namespace))
	found, err := factory.ForResource(resource)
	if err != nil {
		panic(err)
	}
	return found.Informer()
}

// create sets the metadata that the API server would set.
func (c *Cluster) create(action clienttesting.Action) (bool, runtime.Object, error) {
	if o, ok := action.(clienttesting.CreateAction).GetObject().(metav1.Object); ok {
		c.setMetadata(o)
	}
	return false, nil, nil
}

// update rejects objects that are not based on the latest version. An update of
// the status changes only status and annotations; any other update leaves the
// status unchanged.
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
	if stored := current.(metav1.Object); next.GetUID() == "" {
		result.(metav1.Object).SetUID(stored.GetUID())
		result.(metav1.Object).SetCreationTimestamp(stored.GetCreationTimestamp())
	}
	if status := reflect.ValueOf(result).Elem().FieldByName("Status"); status.IsValid() {
		status.Set(reflect.ValueOf(from).Elem().FieldByName("Status"))
	}
	if spec := reflect.ValueOf(result).Elem().FieldByName("Spec"); spec.IsValid() {
		generation := current.(metav1.Object).GetGeneration()
		if !equality.Semantic.DeepEqual(spec.Interface(), reflect.ValueOf(current).Elem().FieldByName("Spec").Interface()) {
			generation++
		}
		result.(metav1.Object).SetGeneration(generation)
	}
	c.setMetadata(result.(metav1.Object))
	return true, result, c.Fake.Tracker().Update(resource, result, namespace)
}

// patch sets a new resource version on the patched object.
func (c *Cluster) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	handled, result, err := clienttesting.ObjectReaction(c.Fake.Tracker())(action)
	if err != nil || !handled {
		return handled, result, err
	}
	c.setMetadata(result.(metav1.Object))
	return true, result, c.Fake.Tracker().Update(action.GetResource(), result, action.GetNamespace())
}

// list gives a list a resource version and remembers what was in it.
func (c *Cluster) list(action clienttesting.Action) (bool, runtime.Object, error) {
	handled, list, err := clienttesting.ObjectReaction(c.Fake.Tracker())(action)
	if err != nil || !handled {
		return handled, list, err
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return true, nil, err
	}
	version := strconv.FormatInt(c.writes.Add(1), 10)
	list.(metav1.ListInterface).SetResourceVersion(version)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists[version] = objects
	return true, list, nil
}

// watch returns a watch that begins with what has changed since the list. The watch of the
// fake lacks that.
func (c *Cluster) watch(action clienttesting.Action) (watch.Interface, error) {
	w, err := c.Fake.Tracker().Watch(action.GetResource(), action.GetNamespace())
	if err != nil {
		return nil, err
	}
	missed, err := c.since(action.(clienttesting.WatchActionImpl))
	if err != nil {
		return nil, err
	}
	out := make(chan watch.Event)
	proxy := watch.NewProxyWatcher(out)
	send := func(e watch.Event) bool {
		select {
		case out <- e:
			return true
		case <-proxy.StopChan():
			return false
		}
	}
	go func() {
		defer close(out)
		defer w.Stop()
		for _, e := range missed {
			if !send(e) {
				return
			}
		}
		for {
			select {
			case e, ok := <-w.ResultChan():
				if !ok || !send(e) {
					return
				}
			case <-proxy.StopChan():
				return
			}
		}
	}()
	return proxy, nil
}

// since returns the changes from the list with the resource version of a watch until now.
func (c *Cluster) since(action clienttesting.WatchActionImpl) (changes []watch.Event, err error) {
	c.mu.Lock()
	key := func(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() + "/" + string(o.GetUID()) }
	listed := map[string]metav1.Object{}
	for _, o := range c.lists[action.ListOptions.ResourceVersion] {
		listed[key(o.(metav1.Object))] = o.(metav1.Object)
	}
	c.mu.Unlock()
	gv := action.GetResource().GroupVersion()
	for kind := range scheme.Scheme.KnownTypes(gv) {
		if plural, _ := meta.UnsafeGuessKindToResource(gv.WithKind(kind)); plural != action.GetResource() {
			continue
		}
		list, err := c.Fake.Tracker().List(action.GetResource(), gv.WithKind(kind), action.GetNamespace())
		if err != nil {
			return nil, err
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			now := o.(metav1.Object)
			before := listed[key(now)]
			delete(listed, key(now))
			switch {
			case before == nil:
				changes = append(changes, watch.Event{Type: watch.Added, Object: o})
			case before.GetResourceVersion() != now.GetResourceVersion():
				changes = append(changes, watch.Event{Type: watch.Modified, Object: o})
			}
		}
	}
	var deleted []watch.Event // ahead of a new object of the same name
	for _, o := range listed {
		deleted = append(deleted, watch.Event{Type: watch.Deleted, Object: o.(runtime.Object)})
	}
	return append(deleted, changes...), nil
}

func (c *Cluster) setMetadata(o metav1.Object) {
	n := c.writes.Add(1)
	if o.GetName() == "" {
		o.SetName(fmt.Sprintf("%s%05d", o.GetGenerateName(), n))
	}
	if o.GetGeneration() == 0 {
		o.SetGeneration(1)
	}
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("uid-%s-%d", o.GetName(), n)))
	}
	if o.GetCreationTimestamp().Time.IsZero() {
		o.SetCreationTimestamp(metav1.Now())
	}
	o.SetResourceVersion(strconv.FormatInt(n, 10))
}

// Run runs a controller with flags of the form "--name=value" until the test
// ends. The test fails if the controller returns an error.
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

// WaitSynced waits until informers have their first lists.
func WaitSynced(t testing.TB, informers ...cache.SharedInformer) {
	t.Helper()
	for _, informer := range informers {
		if !cache.WaitFor(t.Context(), "", informer.HasSyncedChecker()) {
			t.Fatal("an informer has no first list")
		}
	}
}

// Eventually waits up to three minutes until get returns want. Otherwise the test fails
// and shows the difference. It polls, so that tests of something that does not run in
// a bubble of testing/synctest can use it, too.
func Eventually[T any](t testing.TB, get func() T, want T) {
	t.Helper()
	var got T
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if got = get(); equality.Semantic.DeepEqual(got, want) {
			return
		}
	}
	t.Fatalf("want and got differ (-want +got):\n%s", cmp.Diff(want, got))
}

// DrainEvents returns and removes the events recorded so far, each in the form
// "type reason message".
func (c *Cluster) DrainEvents() []string {
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

// Pods returns the pods of a namespace.
func (c *Cluster) Pods(namespace string) []v1.Pod {
	c.t.Helper()
	list, err := c.Fake.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return list.Items
}

// SetReady makes a pod Running and ready since a time. It does nothing if the
// pod does not exist.
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
