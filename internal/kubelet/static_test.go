package kubelet

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientfake "k8s.io/client-go/kubernetes/fake"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	k8stesting "k8s.io/client-go/testing"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
	"github.com/coracle-io/coracle/internal/kubelet/source"
)

const manifestPath = "/etc/kubernetes/manifests/web.yaml"

// manifest writes the manifest of a static pod with that command.
func (b *bench) manifest(command string) {
	b.t.Helper()
	b.writeManifest(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: main, image: "example.com/app:1", command: [%s]}]}}`, command))
}

func (b *bench) writeManifest(text string) {
	b.t.Helper()
	if err := b.files.MkdirAll("/etc/kubernetes/manifests", 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := b.files.WriteFile(manifestPath, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// hangingAPI is an API server that never answers requests to change pods while
// hangs is set.
type hangingAPI struct {
	kubernetes.Interface
	hangs atomic.Bool
}

func (a *hangingAPI) CoreV1() typedv1.CoreV1Interface { return hangingCore{a.Interface.CoreV1(), a} }

type hangingCore struct {
	typedv1.CoreV1Interface
	api *hangingAPI
}

func (c hangingCore) Pods(namespace string) typedv1.PodInterface {
	return hangingPods{c.CoreV1Interface.Pods(namespace), c.api}
}

type hangingPods struct {
	typedv1.PodInterface
	api *hangingAPI
}

func (p hangingPods) Create(ctx context.Context, pod *v1.Pod, o metav1.CreateOptions) (*v1.Pod, error) {
	if p.api.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return p.PodInterface.Create(ctx, pod, o)
}

func (p hangingPods) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	if p.api.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return p.PodInterface.Delete(ctx, name, o)
}

// A static pod may be the API server: it starts, changes and comes back while
// there is none, or one that never answers.
func TestStaticPodsDoNotNeedTheAPIServer(t *testing.T) {
	away := func(b *bench) { b.sever() }
	hangs := func(b *bench) { b.api.(*hangingAPI).hangs.Store(true) }
	for name, test := range map[string]struct{ before, after func(b *bench) }{
		"away from the start": {before: away},
		"away later":          {after: away},
		"hangs later":         {before: func(b *bench) { b.api = &hangingAPI{Interface: b.api} }, after: hangs},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				if test.before != nil {
					test.before(b)
				}
				b.manifest("first")
				b.start()
				defer func() { b.stop() }()
				runs := func(when, command string) {
					t.Helper()
					b.after(2 * time.Minute)
					if id := b.live("main"); id == "" || !slices.Equal(b.runtime.Config(id).GetCommand(), []string{command}) {
						t.Fatalf("%s: containers %v, live %q", when, b.containers(), id)
					}
				}
				runs("at the start", "first")
				if test.after != nil {
					test.after(b)
				}
				b.runtime.Exit(b.live("main"), 1)
				runs("after it failed", "first")
				b.manifest("second")
				runs("after its manifest changed", "second")
				if err := b.files.Remove(manifestPath); err != nil {
					t.Fatal(err)
				}
				b.after(2 * time.Minute)
				if n := len(b.containers()); n > 0 {
					t.Errorf("%d containers are left without a manifest", n)
				}
				b.manifest("second")
				runs("after its manifest came back", "second")
			})
		})
	}
}

// Once the API server is back, it shows the static pod as it is then.
func TestMirrorAfterTheAPIServerIsBack(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.manifest("first")
		b.after(time.Minute)
		before := b.get("web-" + nodeName)
		if before == nil {
			t.Fatal("there is no mirror pod")
		}
		away := b.sever()
		b.manifest("second")
		b.after(time.Minute)
		away.Store(false)
		b.after(time.Minute)
		after := b.get("web-" + nodeName)
		if after == nil || after.Annotations[source.AnnotationHash] == before.Annotations[source.AnnotationHash] ||
			after.Status.Phase != v1.PodRunning || conditionOf(after, v1.PodReady) != v1.ConditionTrue {
			t.Errorf("the mirror pod is %+v", after)
		}
		if err := b.files.Remove(manifestPath); err != nil {
			t.Fatal(err)
		}
		b.after(time.Minute)
		if p := b.get("web-" + nodeName); p != nil {
			t.Errorf("a mirror pod without a static pod: %+v", p)
		}
	})
}

// A manifest that changes is another pod, also if the one before it has
// completed.
func TestManifestChangesAfterThePodCompleted(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		once := func(command string) {
			t.Helper()
			b.writeManifest(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {restartPolicy: Never, containers: [{name: main, image: "example.com/app:1", command: [%s]}]}}`, command))
			b.after(time.Minute)
		}
		once("first")
		b.runtime.Exit(b.live("main"), 1)
		b.after(time.Minute)
		if p := b.get("web-" + nodeName); p == nil || p.Status.Phase != v1.PodFailed {
			t.Fatalf("the mirror pod is %+v", p)
		}
		once("second")
		if id := b.live("main"); id == "" || !slices.Equal(b.runtime.Config(id).GetCommand(), []string{"second"}) {
			t.Errorf("containers %v, live %q", b.containers(), id)
		}
		p := b.get("web-" + nodeName)
		if p == nil || p.Status.Phase != v1.PodRunning || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("the mirror pod is %+v", p)
		}
	})
}

// Versions of a manifest that come and go while the pod of an earlier one still ends
// never start: only the last one does, once that pod has ended.
func TestVersionsOfAManifestThatPassBy(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		var skipped atomic.Int32
		b.runtime.Behave = func(c *runtimeapi.ContainerConfig) inmemory.Behaviour {
			if slices.Equal(c.GetCommand(), []string{"skipped"}) {
				skipped.Add(1)
			}
			return inmemory.Behaviour{IgnoreStop: true}
		}
		write := func(command string) {
			t.Helper()
			b.writeManifest(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {terminationGracePeriodSeconds: 90, containers: [{name: main, image: "example.com/app:1", command: [%s]}]}}`, command))
			b.after(25 * time.Second) // the folder is looked at every 20 s
		}
		write("first")
		before := b.containers()
		if len(before) != 1 {
			t.Fatalf("containers %v, want one", before)
		}
		write("skipped")
		write("third")
		if got := b.containers(); !slices.Equal(got, before) {
			t.Fatalf("containers %v while the pod ends, want %v", got, before)
		}
		b.after(3 * time.Minute)
		if id := b.live("main"); id == "" || !slices.Equal(b.runtime.Config(id).GetCommand(), []string{"third"}) || len(b.containers()) != 1 {
			t.Fatalf("containers %v, live %q", b.containers(), id)
		}
		if p := b.get("web-" + nodeName); p == nil || p.Status.Phase != v1.PodRunning || !slices.Equal(p.Spec.Containers[0].Command, []string{"third"}) {
			t.Errorf("the mirror pod is %+v", p)
		}
		write("skipped")
		if err := b.files.Remove(manifestPath); err != nil {
			t.Fatal(err)
		}
		b.after(4 * time.Minute)
		if p, left := b.get("web-"+nodeName), b.containers(); p != nil || len(left) > 0 {
			t.Errorf("without a manifest there are containers %v and the mirror pod %+v", left, p)
		}
		if n := skipped.Load(); n > 0 {
			t.Errorf("%d containers of a version that has passed by", n)
		}
	})
}

// A pod that claims to be a mirror pod is deleted. If a finalizer keeps it, the kubelet
// does not ask again and again.
func TestClaimedMirrorPodWithFinalizers(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		var deletions atomic.Int32
		b.api.(*clientfake.Clientset).PrependReactor("delete", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
			deletions.Add(1)
			return true, nil, nil
		})
		b.create(pod("claimed", func(p *v1.Pod) { p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "1"} }))
		b.after(time.Minute)
		if deletions.Load() == 0 {
			t.Error("the kubelet does not delete it")
		}
		b.delete("claimed", 0)
		deletions.Store(0)
		b.after(time.Minute)
		if n := deletions.Load(); n > 0 {
			t.Errorf("the kubelet deletes it %d times more", n)
		}
	})
}
