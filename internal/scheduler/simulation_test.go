package scheduler

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/scheduler/config"
)

var podsResource = v1.SchemeGroupVersion.WithResource("pods")

// simulation is a cluster around a running scheduler: an API that deletes
// pods with a grace period, watches that lag, and a controller that replaces
// the pods it owns. It runs in a synctest bubble.
//
//	scheduler ── patch, delete, bind ──► API ──► lag ──► informers of the scheduler
//	                                      │ owned pod is deleted
//	                                      └──► a replacement
type simulation struct {
	scheduler *Scheduler
	t         *testing.T
	c         *fake.Clientset
	metrics   *Metrics                    // nil: of its own
	kube      kubernetes.Interface        // what the scheduler uses: c, unless prepare sets another
	objects   clienttesting.ObjectTracker // what the API holds
	grace     time.Duration
	lag       func() time.Duration
	replace   bool
	config    config.Configuration
	// onPatch, if set, sees each patch first; an error is the answer to it.
	onPatch func(name string) error
	// onBind, if set, sees each binding that the API would accept. apply says
	// whether it takes effect, and an error is the answer to it.
	onBind func(pod *v1.Pod, node string) (apply bool, err error)
	// lost, if set, says which pods the watch of assigned pods does not show, as
	// if it was interrupted while they were there.
	lost   func(pod *v1.Pod) bool
	stop   func() // ends what start began
	synced func() // the scheduler's Config.Synced
	logger klog.Logger

	mu           sync.Mutex // guards the following
	deletions    map[string]int
	replacements int
	patches      map[string][]string // bodies by the name of the pod
}

// simulate runs a scheduler over the objects while work runs.
func simulate(t *testing.T, prepare func(*simulation), work func(*simulation), objects ...runtime.Object) {
	synctest.Test(t, func(t *testing.T) {
		c, tracker := newFake(objects...)
		sim := &simulation{
			t: t, c: c, kube: c, objects: tracker, logger: klog.Background(), grace: 30 * time.Second, lag: func() time.Duration { return time.Millisecond },
			deletions: map[string]int{}, patches: map[string][]string{},
		}
		prepare(sim)
		sim.c.PrependReactor("delete", "pods", sim.delete)
		sim.c.PrependReactor("create", "pods", sim.bind)
		sim.c.PrependReactor("patch", "pods", sim.patch)
		sim.start()
		synctest.Wait() // the tracker loses what is made between a list and its watch
		work(sim)
		time.Sleep(time.Hour) // the grace periods end
		sim.stop()
	})
}

// start runs a new scheduler until stop is called.
func (s *simulation) start() {
	informers := client.NewInformers(s.c)
	ctx, cancel := context.WithCancel(klog.NewContext(s.t.Context(), s.logger))
	scheduler, err := New(ctx, Config{Client: &client.Client{Kubernetes: s.kube, Informers: informers, Watch: s.watch}, Configuration: s.config, Seed: 1, Metrics: s.metrics, Synced: s.synced})
	if err != nil {
		s.t.Fatal(err)
	}
	s.scheduler = scheduler
	ended := make(chan error, 2)
	go func() { ended <- informers.Run(ctx) }()
	go func() { ended <- scheduler.Run(ctx) }()
	s.stop = func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				s.t.Error(err)
			}
		}
	}
}

// newFake returns a client of an API that holds the objects. It leaves managed
// fields alone, which take most of the time of fake.NewClientset.
func newFake(objects ...runtime.Object) (*fake.Clientset, clienttesting.ObjectTracker) {
	tracker := clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	for _, object := range objects {
		if err := tracker.Add(object); err != nil {
			panic(err)
		}
	}
	c := &fake.Clientset{}
	c.AddReactor("*", "*", clienttesting.ObjectReaction(tracker))
	c.AddWatchReactor("*", watchReaction(tracker))
	return c, tracker
}

// watchReaction returns a reaction that uses the watchers of a tracker again once they
// are stopped: the tracker keeps them all, and copies each object that is written for
// each of them.
func watchReaction(tracker clienttesting.ObjectTracker) clienttesting.WatchReactionFunc {
	made := map[string][]*watch.RaceFreeFakeWatcher{} // guarded by the lock of the client
	return func(action clienttesting.Action) (bool, watch.Interface, error) {
		key := action.GetResource().String() + " " + action.GetNamespace()
		for _, w := range made[key] {
			if w.IsStopped() {
				w.Reset()
				return true, &watcher{RaceFreeFakeWatcher: w}, nil
			}
		}
		w, err := tracker.Watch(action.GetResource(), action.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		one := w.(*watch.RaceFreeFakeWatcher)
		made[key] = append(made[key], one)
		return true, &watcher{RaceFreeFakeWatcher: one}, nil
	}
}

// watcher is one use of a watcher of the tracker. Its user may stop it twice.
type watcher struct {
	*watch.RaceFreeFakeWatcher
	stop sync.Once
}

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.stop.Do(w.RaceFreeFakeWatcher.Stop) }

// watch implements client.Client.Watch for pods with or without a node.
func (s *simulation) watch(_ schema.GroupVersionResource, _ string, selector fields.Selector) clientcache.SharedIndexInformer {
	assigned := strings.Contains(selector.String(), "spec.nodeName!=")
	wanted := func(obj runtime.Object) bool { return (obj.(*v1.Pod).Spec.NodeName != "") == assigned }
	list := &clientcache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			all, err := s.c.CoreV1().Pods("").List(ctx, o)
			if err != nil {
				return nil, err
			}
			some := &v1.PodList{ListMeta: all.ListMeta}
			for i := range all.Items {
				if wanted(&all.Items[i]) {
					some.Items = append(some.Items, all.Items[i])
				}
			}
			return some, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := s.c.CoreV1().Pods("").Watch(ctx, o)
			if err != nil {
				return nil, err
			}
			if assigned && s.lost != nil {
				w = watch.Filter(w, func(e watch.Event) (watch.Event, bool) { return e, !s.lost(e.Object.(*v1.Pod)) })
			}
			return s.delayed(w, wanted), nil
		},
	}
	return clientcache.NewSharedIndexInformer(clientcache.ToListWatcherWithWatchListSemantics(list, s.c), &v1.Pod{}, 0, clientcache.Indexers{})
}

// delayed passes on the events of wanted objects in order. An object that is no
// longer wanted is deleted.
func (s *simulation) delayed(w watch.Interface, wanted func(runtime.Object) bool) watch.Interface {
	type due struct {
		event watch.Event
		at    time.Time
	}
	queue, out := make(chan due, 10_000), make(chan watch.Event)
	proxy := watch.NewProxyWatcher(out)
	go func() {
		defer close(queue)
		for {
			select {
			case e := <-w.ResultChan():
				queue <- due{e, time.Now().Add(s.lag())}
			case <-proxy.StopChan():
				w.Stop()
				return
			}
		}
	}()
	go func() {
		has := map[types.UID]bool{}
		for d := range queue {
			time.Sleep(time.Until(d.at))
			uid := d.event.Object.(*v1.Pod).UID
			switch {
			case wanted(d.event.Object):
				has[uid] = d.event.Type != watch.Deleted
			case has[uid] || d.event.Type == watch.Modified && d.event.Object.(*v1.Pod).Spec.NodeName != "":
				delete(has, uid)
				d.event.Type = watch.Deleted
			default:
				continue
			}
			select {
			case out <- d.event:
			case <-proxy.StopChan():
			}
		}
	}()
	return proxy
}

func (s *simulation) get(name string) *v1.Pod {
	obj, err := s.objects.Get(podsResource, "default", name)
	if err != nil {
		return nil
	}
	return obj.(*v1.Pod).DeepCopy()
}

func (s *simulation) update(p *v1.Pod) {
	if err := s.objects.Update(podsResource, p, p.Namespace); err != nil {
		s.t.Error(err)
	}
}

func (s *simulation) add(p *v1.Pod) {
	if p.Spec.SchedulerName == "" {
		p.Spec.SchedulerName = DefaultName
	}
	if err := s.objects.Create(podsResource, p, p.Namespace); err != nil {
		s.t.Error(err)
	}
}

// remove ends a pod at once, as a kubelet does after the grace period.
func (s *simulation) remove(name string) { _ = s.objects.Delete(podsResource, "default", name) }

func (s *simulation) delete(action clienttesting.Action) (bool, runtime.Object, error) {
	d := action.(clienttesting.DeleteActionImpl)
	p := s.get(d.Name)
	if p == nil {
		return true, nil, apierrors.NewNotFound(podsResource.GroupResource(), d.Name)
	}
	if c := d.DeleteOptions.Preconditions; c != nil && c.UID != nil && *c.UID != p.UID {
		return true, nil, apierrors.NewConflict(podsResource.GroupResource(), d.Name, fmt.Errorf("the UID is %s", p.UID))
	}
	s.mu.Lock()
	s.deletions[d.Name]++
	s.mu.Unlock()
	s.terminate(p)
	return true, nil, nil
}

// terminate begins the grace period of a pod, and replaces it.
func (s *simulation) terminate(p *v1.Pod) {
	if p.DeletionTimestamp != nil {
		return
	}
	if p.Spec.NodeName == "" {
		s.remove(p.Name)
	} else {
		p.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(s.grace)}
		s.update(p)
		time.AfterFunc(s.grace, func() { s.remove(p.Name) })
	}
	if !s.replace {
		return
	}
	s.mu.Lock()
	s.replacements++
	name := fmt.Sprintf("replacement-%d", s.replacements)
	s.mu.Unlock()
	again := pod(name, priority(*p.Spec.Priority))
	again.Spec.Containers = p.Spec.Containers
	s.add(again)
}

func (s *simulation) bind(action clienttesting.Action) (bool, runtime.Object, error) {
	c := action.(clienttesting.CreateActionImpl)
	if c.Subresource != "binding" {
		return false, nil, nil
	}
	b := c.Object.(*v1.Binding)
	p := s.get(b.Name)
	switch {
	case p == nil:
		return true, nil, apierrors.NewNotFound(podsResource.GroupResource(), b.Name)
	case p.UID != b.UID || p.Spec.NodeName != "" || p.DeletionTimestamp != nil:
		return true, nil, apierrors.NewConflict(podsResource.GroupResource(), b.Name, fmt.Errorf("the pod has another UID, a node or is deleted"))
	}
	apply, err := true, error(nil)
	if s.onBind != nil {
		apply, err = s.onBind(p, b.Target.Name)
	}
	if apply {
		p.Spec.NodeName, p.Status.NominatedNodeName = b.Target.Name, ""
		s.update(p)
	}
	return true, b, err
}

func (s *simulation) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	patch := action.(clienttesting.PatchActionImpl)
	s.mu.Lock()
	s.patches[patch.Name] = append(s.patches[patch.Name], string(patch.Patch))
	s.mu.Unlock()
	if s.onPatch != nil {
		if err := s.onPatch(patch.Name); err != nil {
			return true, nil, err
		}
	}
	p := s.get(patch.Name)
	if p == nil {
		return true, nil, apierrors.NewNotFound(podsResource.GroupResource(), patch.Name)
	}
	if !strings.Contains(string(patch.Patch), fmt.Sprintf("%q", p.UID)) {
		return true, nil, apierrors.NewConflict(podsResource.GroupResource(), patch.Name, fmt.Errorf("the UID is %s", p.UID))
	}
	if p.Spec.NodeName != "" && strings.Contains(string(patch.Patch), `"nominatedNodeName":"`) {
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, patch.Name, nil)
	}
	return false, nil, nil
}

// deleted returns how often the scheduler deleted each pod.
func (s *simulation) deleted() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for name, n := range s.deletions {
		out[name] = n
	}
	return out
}

// wrote counts the patches of a pod that contain a text.
func (s *simulation) wrote(name, text string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, body := range s.patches[name] {
		if strings.Contains(body, text) {
			n++
		}
	}
	return n
}

// forget drops what is remembered of requests, for long runs.
func (s *simulation) forget() {
	s.c.ClearActions()
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.deletions)
	clear(s.patches)
}

// check reports what must not be once things are settled: a node with more
// than it has, or a bound pod that is nominated.
func (s *simulation) check(nodes ...*v1.Node) {
	s.t.Helper()
	for _, p := range s.checkRoom(nodes...) {
		if p.Spec.NodeName != "" && p.Status.NominatedNodeName != "" {
			s.t.Errorf("%s is on %s and still nominated for %s", p.Name, p.Spec.NodeName, p.Status.NominatedNodeName)
		}
	}
}

// checkRoom reports nodes whose pods request more than there is. It returns
// all pods.
func (s *simulation) checkRoom(nodes ...*v1.Node) []v1.Pod {
	s.t.Helper()
	used := map[string]int64{}
	list, err := s.c.CoreV1().Pods("").List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range list.Items {
		used[list.Items[i].Spec.NodeName] += list.Items[i].Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
	}
	for _, n := range nodes {
		if used[n.Name] > n.Status.Allocatable.Cpu().MilliValue() {
			s.t.Errorf("%s has pods that request %dm", n.Name, used[n.Name])
		}
	}
	return list.Items
}

// advance lets time of the simulation's bubble pass.
func advance(d time.Duration) { time.Sleep(d) }
