package kubelet

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/node"
)

// changing is a machine whose free resources a test sets.
type changing struct {
	node.Machine
	mu   sync.Mutex // guards left
	left node.Free
}

func (c *changing) Free() (node.Free, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left, nil
}

func (c *changing) set(left node.Free) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = left
}

func (b *bench) nodeCondition(t v1.NodeConditionType) string {
	n, err := b.api.CoreV1().Nodes().Get(b.t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == t {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

func TestPressureEvictsAndPasses(t *testing.T) {
	const plenty, little = 1 << 30, 1 << 20
	synctest.Test(t, func(t *testing.T) {
		machine := &changing{left: node.Free{MemoryBytes: plenty, MemoryTotal: 8 << 30, PIDs: 1000, PIDsTotal: 2000}}
		b := newBench(t)
		b.configure = func(c *Config) { machine.Machine, c.Machine = c.Machine, machine }
		b.start()
		defer func() { b.stop() }()
		low, high := int32(0), int32(100)
		b.create(pod("low", func(p *v1.Pod) { p.Spec.Priority = &low }))
		b.create(pod("high", func(p *v1.Pod) { p.Spec.Priority = &high }))
		b.after(time.Minute)
		if got := b.nodeCondition(v1.NodeMemoryPressure); got != "False KubeletHasSufficientMemory" {
			t.Fatalf("before: %s", got)
		}

		machine.set(node.Free{MemoryBytes: little, MemoryTotal: 8 << 30, PIDs: 1000, PIDsTotal: 2000})
		b.after(15 * time.Second)
		if got := b.nodeCondition(v1.NodeMemoryPressure); got != "True KubeletHasInsufficientMemory" {
			t.Fatalf("under pressure: %s", got)
		}
		if low, high := b.get("low").Status, b.get("high").Status; low.Reason != "Evicted" || low.Phase != v1.PodFailed || high.Reason != "" ||
			!strings.HasPrefix(low.Message, "The node was low on resource: memory. Threshold quantity: 100Mi, available: 1Mi. ") {
			t.Fatalf("evicted: low %s %q, high %q", low.Phase, low.Message, high.Message)
		}
		if got := conditionOf(b.get("low"), v1.DisruptionTarget); got != v1.ConditionTrue {
			t.Errorf("the evicted pod has the condition DisruptionTarget: %s", got)
		}
		b.create(pod("late"))
		if late := b.get("late").Status; late.Reason != "Evicted" || late.Message != "Pod was rejected: The node had condition: [MemoryPressure]. " {
			t.Fatalf("a pod that came under pressure: %s %q", late.Reason, late.Message)
		}

		machine.set(node.Free{MemoryBytes: plenty, MemoryTotal: 8 << 30, PIDs: 1000, PIDsTotal: 2000})
		b.after(4 * time.Minute)
		if got := b.nodeCondition(v1.NodeMemoryPressure); got != "True KubeletHasInsufficientMemory" {
			t.Fatalf("within the transition period: %s", got)
		}
		b.after(2 * time.Minute)
		if got := b.nodeCondition(v1.NodeMemoryPressure); got != "False KubeletHasSufficientMemory" {
			t.Fatalf("after it: %s", got)
		}
		if high := b.get("high").Status.Phase; high != v1.PodRunning {
			t.Fatalf("the pod that stayed is %s", high)
		}
	})
}

// A critical pod stays, although it is the only one that could give memory back.
func TestCriticalPodIsNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := &changing{left: node.Free{MemoryBytes: 1 << 20, MemoryTotal: 8 << 30, PIDs: 1000, PIDsTotal: 2000}}
		b := newBench(t)
		b.configure = func(c *Config) { machine.Machine, c.Machine = c.Machine, machine }
		b.start()
		defer func() { b.stop() }()
		b.create(pod("critical", func(p *v1.Pod) { p.Spec.Priority = new(int32(2_000_001_000)) }))
		b.after(2 * time.Minute)
		if got := b.nodeCondition(v1.NodeMemoryPressure); got != "True KubeletHasInsufficientMemory" {
			t.Errorf("the node is not short of memory: %s", got)
		}
		if got := b.get("critical").Status; got.Phase != v1.PodRunning {
			t.Errorf("the critical pod is %s: %s", got.Phase, got.Message)
		}
	})
}

func TestUnusedImagesGoWhenTheDiskFillsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := &changing{left: node.Free{DiskBytes: 50, DiskTotal: 100}}
		b := newBench(t)
		b.configure = func(c *Config) {
			machine.Machine, c.Machine = c.Machine, machine
			c.Configuration.EvictionHard = map[string]string{}
		}
		b.runtime.AddImage("example.com/app:1", 10)
		b.runtime.AddImage("example.com/old:1", 10)
		b.start()
		defer func() { b.stop() }()
		b.create(pod("web"))
		images := func() (names []string) {
			list, err := b.runtime.Images().ListImages(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range list {
				names = append(names, i.GetRepoTags()...)
			}
			return names
		}
		b.after(time.Hour)
		if got := images(); len(got) != 2 {
			t.Fatalf("with half of the disk free there are left: %v", got)
		}
		machine.set(node.Free{DiskBytes: 14, DiskTotal: 100})
		b.after(11 * time.Minute)
		if got := images(); len(got) != 1 || got[0] != "example.com/app:1" {
			t.Fatalf("with the disk full there are left: %v", got)
		}
	})
}

// evictedOf returns which of the named pods were evicted.
func (b *bench) evictedOf(names ...string) (evicted []string) {
	for _, name := range names {
		if b.get(name).Status.Reason == "Evicted" {
			evicted = append(evicted, name)
		}
	}
	return evicted
}

// leftOf returns what the machine has of a pod: directories, and containers of the same
// name.
func (b *bench) leftOf(pod string) (found []string) {
	for _, dir := range []string{"/var/log/pods/default_" + pod + "_uid-" + pod, "/var/lib/kubelet/pods/uid-" + pod} {
		if _, err := b.files.Stat(dir); err == nil {
			found = append(found, dir)
		}
	}
	list, err := b.runtime.ListContainers(b.t.Context(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range list {
		if c.GetMetadata().GetName() == pod {
			found = append(found, c.GetId())
		}
	}
	return found
}

// createWriting creates a pod that has written to its volume. Its container has its
// name.
func (b *bench) createWriting(name string, bytes int) {
	b.t.Helper()
	b.create(pod(name, withVolume(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}), func(p *v1.Pod) { p.Spec.Containers[0].Name = name }))
	path := b.kubelet.volumes.Directory(types.UID("uid-"+name), &b.get(name).Spec.Volumes[0]) + "/data"
	if err := b.files.WriteFile(path, make([]byte, bytes), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// ends lets containers called job end by themselves at once, and those called later
// between the first and the second observation after a minute.
func ends(c *runtimeapi.ContainerConfig) inmemory.Behaviour {
	switch c.GetMetadata().GetName() {
	case "job":
		return inmemory.Behaviour{RunFor: time.Second}
	case "later":
		return inmemory.Behaviour{RunFor: 75 * time.Second}
	}
	return inmemory.Behaviour{}
}

// When the disk fills up, what no pod needs is removed first. A pod that is evicted
// all the same gives back what it wrote as soon as it has ended, and keeps its status,
// also with the next kubelet.
func TestDiskIsReclaimedBeforeAndAfterAnEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plenty, full := node.Free{DiskBytes: 50, DiskTotal: 100}, node.Free{DiskBytes: 1, DiskTotal: 100}
		machine := &changing{left: plenty}
		b := newBench(t)
		b.configure = func(c *Config) {
			machine.Machine, c.Machine = c.Machine, machine
			c.Configuration.EvictionHard = map[string]string{"nodefs.available": "10%"}
		}
		b.runtime.Behave = ends
		b.runtime.AddImage("example.com/old:1", 10)
		b.start()
		defer func() { b.stop() }()
		b.create(pod("job", func(p *v1.Pod) {
			p.Spec.RestartPolicy, p.Spec.Containers[0].Name = v1.RestartPolicyNever, "job"
		}))
		b.createWriting("greedy", 1000)
		b.createWriting("modest", 10)
		b.after(10 * time.Minute)
		if len(b.leftOf("job")) == 0 || len(b.leftOf("greedy")) == 0 {
			t.Fatalf("before: %q, %q", b.leftOf("job"), b.leftOf("greedy"))
		}
		machine.set(full)
		b.after(10 * time.Second)
		if images, err := b.runtime.Images().ListImages(t.Context(), nil); err != nil || len(images) != 1 || len(b.leftOf("job")) > 0 {
			t.Errorf("the full disk still has the images %v and of the pod that has ended %q", images, b.leftOf("job"))
		}
		if evicted := b.evictedOf("greedy", "modest"); evicted != nil {
			t.Errorf("evicted are %q, although something else was removed", evicted)
		}
		b.after(10 * time.Second)
		if evicted := b.evictedOf("greedy", "modest"); !slices.Equal(evicted, []string{"greedy"}) || len(b.leftOf("greedy")) > 0 {
			t.Errorf("evicted are %q, and the disk still has %q", evicted, b.leftOf("greedy"))
		}
		machine.set(plenty)
		b.after(time.Minute)
		b.keepsStatusesAcrossARestart("job", "greedy")
		if b.live("modest") == "" || len(b.leftOf("modest")) == 0 {
			t.Errorf("of the pod that stays are left %q", b.leftOf("modest"))
		}
		for _, name := range []string{"job", "greedy"} {
			b.delete(name, 30)
			b.after(time.Minute)
			if p := b.get(name); p != nil {
				t.Errorf("the deleted pod %s is there: %+v", name, p.Status)
			}
		}
	})
}

// keepsStatusesAcrossARestart checks that another kubelet does not change the statuses
// of pods that have ended.
func (b *bench) keepsStatusesAcrossARestart(names ...string) {
	b.t.Helper()
	statuses := func() (all []any) {
		for _, name := range names {
			st := b.get(name).Status
			all = append(all, st.Phase, st.Reason, st.ContainerStatuses[0].State.Terminated)
		}
		return all
	}
	before := statuses()
	b.stop()
	b.start()
	b.after(time.Minute)
	if now := statuses(); !equality.Semantic.DeepEqual(now, before) || now[2].(*v1.ContainerStateTerminated) == nil {
		b.t.Errorf("the statuses were %+v and are %+v", before, now)
	}
}

// Pods that end all the time do not protect the one that fills the disk.
func TestEndedPodsProtectNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := &changing{left: node.Free{DiskBytes: 50, DiskTotal: 100}}
		b := newBench(t)
		b.configure = func(c *Config) {
			machine.Machine, c.Machine = c.Machine, machine
			c.Configuration.EvictionHard = map[string]string{"nodefs.available": "10%"}
		}
		b.runtime.Behave = ends
		b.start()
		defer func() { b.stop() }()
		b.createWriting("greedy", 1000)
		for _, name := range []string{"job", "later"} {
			b.create(pod(name, func(p *v1.Pod) {
				p.Spec.RestartPolicy, p.Spec.Containers[0].Name = v1.RestartPolicyNever, name
			}))
		}
		b.after(time.Minute)
		machine.set(node.Free{DiskBytes: 1, DiskTotal: 100})
		b.after(10 * time.Second)
		if evicted := b.evictedOf("greedy"); evicted != nil || len(b.leftOf("job")) > 0 || len(b.leftOf("later")) == 0 {
			t.Errorf("evicted are %q, and %q and %q are left", evicted, b.leftOf("job"), b.leftOf("later"))
		}
		b.after(10 * time.Second)
		if evicted := b.evictedOf("greedy"); len(evicted) != 1 || len(b.leftOf("later")) > 0 {
			t.Errorf("evicted are %q, and %q is left", evicted, b.leftOf("later"))
		}
	})
}

// While the API server is away, an evicted pod keeps its containers until the disk needs
// their room: a kubelet that is killed meanwhile would start them again.
func TestEvictedPodIsKeptForTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := &changing{left: node.Free{DiskBytes: 50, DiskTotal: 100}}
		b := newBench(t)
		b.configure = func(c *Config) {
			machine.Machine, c.Machine = c.Machine, machine
			c.Configuration.EvictionHard = map[string]string{"nodefs.available": "10%"}
		}
		b.start()
		defer func() { b.stop() }()
		b.createWriting("greedy", 1000)
		b.after(time.Minute)
		away := b.sever()
		machine.set(node.Free{DiskBytes: 1, DiskTotal: 100})
		b.after(10 * time.Second)
		if b.live("greedy") != "" || len(b.leftOf("greedy")) == 0 {
			t.Errorf("while the API server does not know are left %q", b.leftOf("greedy"))
		}
		b.after(10 * time.Second)
		if left := b.leftOf("greedy"); len(left) > 0 {
			t.Errorf("while the disk is full are left %q", left)
		}
		away.Store(false)
		b.after(time.Minute)
		if evicted := b.evictedOf("greedy"); len(evicted) != 1 {
			t.Errorf("the pod is %+v", b.get("greedy").Status)
		}
	})
}

// slowDisk takes five minutes to count the files of a pod.
type slowDisk struct{ files.FS }

func (d slowDisk) Usage(path string) (bytes, inodes int64, err error) {
	<-time.After(5 * time.Minute)
	return d.FS.Usage(path)
}

// A pod is evicted when memory runs short, even while the files of pods are
// counted because the disk is full.
func TestMemoryIsWatchedWhileFilesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := &changing{left: node.Free{DiskBytes: 50, DiskTotal: 100, MemoryBytes: 1 << 30, MemoryTotal: 8 << 30}}
		b := newBench(t)
		b.configure = func(c *Config) {
			machine.Machine, c.Machine, c.Files = c.Machine, machine, slowDisk{c.Files}
			c.Configuration.EvictionHard = map[string]string{"memory.available": "100Mi"}
			c.Configuration.EvictionSoft = map[string]string{"nodefs.available": "10%"}
			c.Configuration.EvictionSoftGracePeriod = map[string]string{"nodefs.available": "1m"}
		}
		b.start()
		defer func() { b.stop() }()
		b.create(pod("web"))
		machine.set(node.Free{DiskBytes: 1, DiskTotal: 100, MemoryBytes: 1 << 30, MemoryTotal: 8 << 30})
		b.after(2 * time.Minute)
		machine.set(node.Free{DiskBytes: 1, DiskTotal: 100, MemoryBytes: 1 << 20, MemoryTotal: 8 << 30})
		b.after(20 * time.Second)
		if got := b.get("web").Status; got.Reason != "Evicted" || !strings.HasPrefix(got.Message, "The node was low on resource: memory.") {
			t.Errorf("%s %q %q", got.Phase, got.Reason, got.Message)
		}
	})
}

// manyFiles is a disk on which each tree of a pod takes five seconds to be counted.
type manyFiles struct {
	files.FS
	uid string // of the pod
}

func (d manyFiles) Usage(path string) (bytes, inodes int64, err error) {
	if strings.Contains(path, d.uid) {
		<-time.After(5 * time.Second)
	}
	return d.FS.Usage(path)
}

// A pod that exceeds the limit of a volume is evicted while the files of another one
// are counted, which takes very long.
func TestSlowPodDelaysNoOtherLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.configure = func(c *Config) { c.Files = manyFiles{c.Files, "uid-slow"} }
		b.start()
		defer func() { b.stop() }()
		limited := func(volumes int) func(p *v1.Pod) {
			return func(p *v1.Pod) {
				for i := range volumes {
					size := quantity("1Mi")
					name := fmt.Sprint("data", i)
					p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &size}}})
					p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
				}
			}
		}
		b.create(pod("slow", limited(200)))
		b.create(pod("web", limited(1)))
		b.after(15 * time.Second)
		if err := b.files.WriteFile("/var/lib/kubelet/pods/uid-web/volumes/kubernetes.io~empty-dir/data0/file", make([]byte, 2<<20), 0o644); err != nil {
			t.Fatal(err)
		}
		b.after(time.Minute)
		if evicted := b.evictedOf("slow", "web"); !slices.Equal(evicted, []string{"web"}) {
			t.Errorf("evicted are %q, and the pod over its limit is %+v", evicted, b.get("web").Status)
		}
		if got := conditionOf(b.get("web"), v1.DisruptionTarget); got != v1.ConditionUnknown {
			t.Errorf("the pod over its limit has the condition DisruptionTarget: %s", got)
		}
	})
}

// A pod that was evicted and takes its time to end is not chosen again. It gets
// half a minute before another one has to go.
func TestEvictedPodThatStillEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := &changing{left: node.Free{MemoryBytes: 1 << 30, MemoryTotal: 8 << 30}}
		b := newBench(t)
		b.configure = func(c *Config) {
			machine.Machine, c.Machine = c.Machine, machine
			c.Configuration.EvictionSoft = map[string]string{"memory.available": "500Mi"}
			c.Configuration.EvictionSoftGracePeriod = map[string]string{"memory.available": "1s"}
			c.Configuration.EvictionMaxPodGracePeriod = 300
		}
		b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour { return inmemory.Behaviour{IgnoreStop: true} }
		b.start()
		defer func() { b.stop() }()
		low, high, long := int32(0), int32(100), int64(300)
		for name, priority := range map[string]*int32{"low": &low, "high": &high} {
			b.create(pod(name, func(p *v1.Pod) { p.Spec.Priority, p.Spec.TerminationGracePeriodSeconds = priority, &long }))
		}
		b.after(time.Minute)
		machine.set(node.Free{MemoryBytes: 400 << 20, MemoryTotal: 8 << 30})
		b.after(35 * time.Second)
		evicted := func() (names []string) {
			list, err := b.api.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				if e := &list.Items[i]; e.Reason == "Evicted" {
					names = append(names, fmt.Sprint(e.InvolvedObject.Name, " ", e.Count))
				}
			}
			slices.Sort(names)
			return names
		}
		if got := evicted(); !slices.Equal(got, []string{"low 1"}) {
			t.Errorf("within half a minute evicted are %q", got)
		}
		b.after(time.Minute)
		if got := evicted(); !slices.Equal(got, []string{"high 1", "low 1"}) {
			t.Errorf("while the first takes minutes to end, evicted are %q", got)
		}
	})
}

// A pod that has long to end is in the way of others no less than before: a hard threshold
// leaves it no more time, whether it is being deleted or was evicted for a soft threshold.
// No other pod has to go in its place.
func TestHardThresholdEndsPodsThatAreEnding(t *testing.T) {
	for name, begin := range map[string]func(b *bench, machine *changing){
		"deleted": func(b *bench, _ *changing) { b.delete("low", 300) },
		"evicted": func(b *bench, machine *changing) {
			machine.set(node.Free{MemoryBytes: 400 << 20, MemoryTotal: 8 << 30})
			b.after(25 * time.Second)
			if evicted := b.evictedOf("low", "high"); b.get("low").Status.Phase != v1.PodRunning || !slices.Equal(evicted, []string{"low"}) && evicted != nil {
				b.t.Errorf("for the soft threshold evicted are %q, and the first is %s", evicted, b.get("low").Status.Phase)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				machine := &changing{left: node.Free{MemoryBytes: 1 << 30, MemoryTotal: 8 << 30}}
				b := newBench(t)
				b.configure = func(c *Config) {
					machine.Machine, c.Machine = c.Machine, machine
					c.Configuration.EvictionSoft = map[string]string{"memory.available": "500Mi"}
					c.Configuration.EvictionSoftGracePeriod = map[string]string{"memory.available": "1s"}
					c.Configuration.EvictionMaxPodGracePeriod = 300
				}
				b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour { return inmemory.Behaviour{IgnoreStop: true} }
				b.start()
				defer func() { b.stop() }()
				long := int64(300)
				for name, priority := range map[string]int32{"low": 0, "high": 100} {
					b.create(pod(name, func(p *v1.Pod) { p.Spec.Priority, p.Spec.TerminationGracePeriodSeconds = &priority, &long }))
				}
				b.after(time.Minute)
				begin(b, machine)
				machine.set(node.Free{MemoryBytes: 50 << 20, MemoryTotal: 8 << 30})
				for range 15 {
					b.after(time.Second)
					if p := b.get("low"); p == nil || p.Status.Phase == v1.PodFailed {
						break
					}
				}
				machine.set(node.Free{MemoryBytes: 1 << 30, MemoryTotal: 8 << 30})
				b.after(time.Minute)
				if p := b.get("low"); p != nil && p.Status.Phase != v1.PodFailed {
					t.Errorf("the pod that ends is %s after a hard threshold", p.Status.Phase)
				}
				if p := b.get("high"); p.Status.Phase != v1.PodRunning || p.Status.Reason != "" {
					t.Errorf("the other pod is %s %s", p.Status.Phase, p.Status.Reason)
				}
			})
		})
	}
}

// using are control groups that report a working set for some pods.
type using struct {
	cgroup.Groups
	memory map[string]uint64 // by the end of the path
}

func (u using) Usage(path string) (cgroup.Usage, error) {
	for end, bytes := range u.memory {
		if strings.HasSuffix(path, end) {
			return cgroup.Usage{WorkingSetBytes: bytes}, nil
		}
	}
	return u.Groups.Usage(path)
}

// A pod exceeds the requests that the node has granted, whatever it asks for in a
// resize.
func TestResizeThatWaitsDoesNotProtectFromEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := &changing{left: node.Free{MemoryBytes: 1 << 30, MemoryTotal: 8 << 30, PIDs: 1000, PIDsTotal: 2000}}
		b := newBench(t)
		b.configure = func(c *Config) {
			machine.Machine, c.Machine = c.Machine, machine
			c.Groups = using{c.Groups, map[string]uint64{"greedy": 4 << 30, "modest": 200 << 20}}
		}
		b.start()
		defer func() { b.stop() }()
		requests := v1.ResourceList{v1.ResourceMemory: quantity("100Mi")}
		for _, name := range []string{"greedy", "modest"} {
			b.create(pod(name, func(p *v1.Pod) { p.Generation, p.Spec.Containers[0].Resources.Requests = 1, requests }))
		}
		b.after(time.Minute)
		p := b.get("greedy").DeepCopy()
		p.Generation, p.Spec.Containers[0].Resources.Requests = 2, v1.ResourceList{v1.ResourceMemory: quantity("100Gi")}
		if _, err := b.api.CoreV1().Pods("default").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.after(time.Minute)
		machine.set(node.Free{MemoryBytes: 1 << 20, MemoryTotal: 8 << 30, PIDs: 1000, PIDsTotal: 2000})
		b.after(11 * time.Second)
		if greedy, modest := b.get("greedy").Status.Reason, b.get("modest").Status.Reason; greedy != "Evicted" || modest != "" {
			t.Errorf("the pod over its requests is %q, its neighbour %q", greedy, modest)
		}
	})
}

// Pods are evicted before all together meet their limit, which is less than the memory
// of the machine.
func TestMemoryOfAllPodsRunsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := &changing{left: node.Free{MemoryBytes: 4 << 30, MemoryTotal: 8 << 30, PIDs: 1000, PIDsTotal: 2000}}
		b := newBench(t)
		used := map[string]uint64{"large": 4 << 30, "small": 1 << 30}
		b.configure = func(c *Config) {
			machine.Machine, c.Machine = c.Machine, machine
			c.Configuration.KubeReserved = map[string]string{"memory": "2Gi"}
			c.Groups = using{c.Groups, used}
		}
		b.start()
		defer func() { b.stop() }()
		for _, name := range []string{"large", "small"} {
			b.create(pod(name))
		}
		used["/kubepods"] = 6<<30 - 50<<20
		b.after(11 * time.Second)
		if large, small := b.get("large").Status.Reason, b.get("small").Status.Reason; large != "Evicted" || small != "" {
			t.Errorf("the large pod is %q, the small one %q", large, small)
		}
	})
}
