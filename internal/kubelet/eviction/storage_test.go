package eviction

import (
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
)

func storagePod(limit string) *v1.Pod {
	size := resource.MustParse("1Mi")
	p := &v1.Pod{Spec: v1.PodSpec{
		Containers: []v1.Container{{Name: "a"}, {Name: "b"}},
		Volumes: []v1.Volume{
			{Name: "small", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &size}}},
			{Name: "free", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		},
	}}
	if limit != "" {
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(limit)}
	}
	return p
}

func TestExceeds(t *testing.T) {
	const mib = 1 << 20
	for name, test := range map[string]struct {
		limit      string
		containers map[string]int64
		volumes    map[string]int64
		want       string
	}{
		"nothing":   {"2Mi", map[string]int64{"a": mib}, map[string]int64{"small": mib}, ""},
		"volume":    {"9Mi", nil, map[string]int64{"small": mib + 1}, `Usage of EmptyDir volume "small" exceeds the limit "1Mi". `},
		"pod":       {"2Mi", map[string]int64{"a": mib, "b": mib}, map[string]int64{"free": 1}, `Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. `},
		"unlimited": {"", map[string]int64{"a": 1 << 40}, map[string]int64{"free": 1 << 40}, ""},
	} {
		if _, got := exceeds(storagePod(test.limit), &diskUsage{Containers: test.containers, Volumes: test.volumes}); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	two := storagePod("1Mi")
	two.Spec.Containers[1].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("9Mi")}
	want := `Container a exceeded its local ephemeral storage limit "1Mi". `
	if _, got := exceeds(two, &diskUsage{Containers: map[string]int64{"a": 2 * mib}}); got != want {
		t.Errorf("container: %q, want %q", got, want)
	}
}

func TestASidecarExceedsItsLimit(t *testing.T) {
	pod := storagePod("9Mi")
	of := func(name string, policy *v1.ContainerRestartPolicy) v1.Container {
		return v1.Container{Name: name, RestartPolicy: policy, Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Mi")}}}
	}
	pod.Spec.InitContainers = []v1.Container{of("setup", nil), of("log", new(v1.ContainerRestartPolicyAlways))}
	for name, want := range map[string]string{"setup": "", "log": `Container log exceeded its local ephemeral storage limit "1Mi". `} {
		if _, got := exceeds(pod, &diskUsage{Containers: map[string]int64{name: 2 << 20}}); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestMessage(t *testing.T) {
	thresholds, err := parseThresholds(map[string]string{memoryAvailable: "100Mi"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pod := storagePod("")
	pod.Spec.Containers[1].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("4Mi")}
	message, annotations := evictionMessage(&thresholds[0], node.Free{MemoryBytes: 92 << 20, MemoryTotal: 1 << 30}, candidate{Pod: pod, Containers: map[string]int64{"a": 3 << 20, "b": 4 << 20}})
	if want := "The node was low on resource: memory. Threshold quantity: 100Mi, available: 92Mi. Container a was using 3Mi, request is 0, has larger consumption of memory. "; message != want {
		t.Errorf("message %q, want %q", message, want)
	}
	if annotations["offending_containers"] != "a" || annotations["offending_containers_usage"] != "3Mi" || annotations["starved_resource"] != "memory" {
		t.Errorf("annotations %v", annotations)
	}
	pod.Name = "web"
	pod.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("5Mi")}}
	message, annotations = evictionMessage(&thresholds[0], node.Free{MemoryBytes: 92 << 20, MemoryTotal: 1 << 30}, candidate{Pod: pod, Used: 7 << 20, Containers: map[string]int64{"a": 3 << 20}})
	if want := "available: 92Mi. Pod web was using 7Mi, request is 5Mi, has larger consumption of memory. Container a was using 3Mi"; !strings.Contains(message, want) {
		t.Errorf("a pod that requests memory as a whole: message %q, want %q", message, want)
	}
	if annotations["offending_pod"] != "web" || annotations["offending_pod_usage"] != "7Mi" || annotations["offending_containers"] != "a" {
		t.Errorf("a pod that requests memory as a whole: annotations %v", annotations)
	}
	if thresholds, err = parseThresholds(map[string]string{nodeFsInodesFree: "25%"}, nil); err != nil {
		t.Fatal(err)
	}
	message, _ = evictionMessage(&thresholds[0], node.Free{Inodes: 1000, InodesTotal: 4 << 20}, candidate{Pod: pod, Used: 7})
	if want := "The node was low on resource: inodes. Threshold quantity: 1Mi, available: 1k. "; message != want {
		t.Errorf("message %q, want %q", message, want)
	}
}

// Init containers and sidecars are named, too, ephemeral containers are not, and a
// threshold is shown as it was configured.
func TestMessageNamesInitContainers(t *testing.T) {
	pod := storagePod("")
	pod.Spec.InitContainers = []v1.Container{{Name: "setup"}, {Name: "log", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}}
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	used := candidate{Pod: pod, Containers: map[string]int64{"setup": 1 << 20, "log": 2 << 20, "debug": 4 << 20, "a": 3 << 20}}
	for text, want := range map[string]string{"100M": "100M", "0.5Gi": "512Mi", "10%": "100Mi"} {
		thresholds, err := parseThresholds(map[string]string{memoryAvailable: text}, nil)
		if err != nil {
			t.Fatal(err)
		}
		message, annotations := evictionMessage(&thresholds[0], node.Free{MemoryBytes: 92 << 20, MemoryTotal: 1000 << 20}, used)
		if want := "Threshold quantity: " + want + ", available: 92Mi. Container setup was using 1Mi, request is 0, has larger consumption of memory. " +
			"Container log was using 2Mi, request is 0, has larger consumption of memory. Container a was using 3Mi, request is 0, has larger consumption of memory. "; !strings.HasSuffix(message, want) {
			t.Errorf("message %q, want %q", message, want)
		}
		if annotations["offending_containers"] != "setup,log,a" || annotations["offending_containers_usage"] != "1Mi,2Mi,3Mi" {
			t.Errorf("annotations %v", annotations)
		}
	}
}

type podDirs struct{}

func (podDirs) PodDir(uid types.UID) string { return "/pods/" + string(uid) }
func (podDirs) Directory(uid types.UID, vol *v1.Volume) string {
	return "/pods/" + string(uid) + "/" + vol.Name
}

// The logs of init containers count for the pod, because sidecar containers may
// write for as long as the pod runs.
func TestLogsOfAllContainersCount(t *testing.T) {
	fs := &files.Memory{}
	pod := storagePod("")
	pod.Name, pod.Namespace, pod.UID = "web", "default", "1"
	pod.Spec.InitContainers = []v1.Container{{Name: "sidecar"}}
	for _, container := range []string{"a", "sidecar"} {
		dir := filepath.Join(spec.PodLogDirectory("/logs", pod.Namespace, pod.Name, string(pod.UID)), container)
		if err := fs.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := fs.WriteFile(filepath.Join(dir, "0.log"), make([]byte, 1<<20), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	u := &usage{sources: &Sources{Files: fs, Volumes: podDirs{}}, counter: newCounter(fs), podLogsDir: "/logs"}
	if got := u.disk(t.Context(), pod, everywhere(), tooLong); got.Containers["a"] < 1<<20 || got.Containers["sidecar"] < 1<<20 {
		t.Errorf("%+v", got)
	}
}

// What containers write to their termination messages and to /etc/hosts counts as
// their use of the disk: both are files of the node, and as large as they like.
func TestFilesOfTheKubeletCount(t *testing.T) {
	fs := &files.Memory{}
	pod := storagePod("1Mi")
	pod.UID = "1"
	for path, size := range map[string]int{"/pods/1/containers/a/12ab": 2 << 20, "/pods/1/etc-hosts": 4 << 20} {
		if err := fs.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := fs.WriteFile(path, make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	u := &usage{sources: &Sources{Files: fs, Volumes: podDirs{}}, counter: newCounter(fs), podLogsDir: "/logs"}
	got := u.disk(t.Context(), pod, everywhere(), tooLong)
	if got.Containers["a"] < 2<<20 || got.total() < 6<<20 {
		t.Errorf("%+v", got)
	}
	if signal, _ := exceeds(pod, got); signal == "" {
		t.Error("the pod exceeds no limit")
	}
}

// Only what a pod has on the file system that is short counts. File systems of the same
// size are not the same.
func TestUsageOfTheFileSystemThatIsShort(t *testing.T) {
	fs := &files.Memory{}
	if err := fs.MkdirAll("/pods/1/free", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := fs.WriteFile("/pods/1/free/data", make([]byte, 8<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	pod := storagePod("")
	pod.UID = "1"
	stats := &runtimeapi.ContainerStats{
		Attributes:    &runtimeapi.ContainerAttributes{Metadata: &runtimeapi.ContainerMetadata{Name: "a"}},
		WritableLayer: &runtimeapi.FilesystemUsage{UsedBytes: &runtimeapi.UInt64Value{Value: 1 << 30}, InodesUsed: &runtimeapi.UInt64Value{Value: 5000}},
	}
	u := &usage{sources: &Sources{Files: fs, Volumes: podDirs{}}, counter: newCounter(fs), podLogsDir: "/logs", stats: map[types.UID][]*runtimeapi.ContainerStats{"1": {stats}}}
	for _, test := range []struct {
		signal        string
		free          node.Free
		layer, volume bool
	}{
		{nodeFsAvailable, oneDisk(), true, true}, {imageFsAvailable, oneDisk(), true, true}, {nodeFsAvailable, node.Free{DiskTotal: 100}, true, true},
		{nodeFsAvailable, imageDisk(), false, true}, {imageFsAvailable, imageDisk(), true, false},
		{nodeFsAvailable, splitDisk(), true, true}, {imageFsAvailable, splitDisk(), false, false},
		{nodeFsAvailable, threeDisks(), false, true}, {imageFsAvailable, threeDisks(), false, false}, {containerFsAvailable, threeDisks(), true, false},
		{nodeFsInodesFree, oneDisk(), true, true}, {nodeFsInodesFree, imageDisk(), false, true}, {imageFsInodesFree, imageDisk(), true, false},
		{nodeFsInodesFree, splitDisk(), true, true}, {imageFsInodesFree, splitDisk(), false, false},
		{containerFsInodesFree, threeDisks(), true, false},
	} {
		layer, volume := int64(1<<30), int64(8<<20)
		if resourceOf(test.signal) == inodes {
			layer, volume = 5000, 1
		}
		got := u.candidate(t.Context(), pod, resourceOf(test.signal), areaOf(test.signal, &test.free)).Used
		if (got >= layer) != test.layer || (got%layer >= volume) != test.volume {
			t.Errorf("%s, disks %+v: %d are used", test.signal, test.free, got)
		}
	}
}

// Files of ConfigMaps are on the disk and count for the pod, as in upstream. Volumes of
// huge pages are memory: they have their own limits, and no others.
func TestVolumesThatCount(t *testing.T) {
	fs := &files.Memory{}
	pod := storagePod("3Mi")
	pod.UID = "1"
	pod.Spec.Volumes = append(pod.Spec.Volumes,
		v1.Volume{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
		v1.Volume{Name: "memory", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
		v1.Volume{Name: "pages", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumHugePages}}},
	)
	for path, size := range map[string]int{"/pods/1/config/key": 1 << 20, "/pods/1/memory/data": 4 << 20, "/pods/1/pages/data": 8 << 20} {
		if err := fs.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := fs.WriteFile(path, make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	u := &usage{sources: &Sources{Files: fs, Volumes: podDirs{}}, counter: newCounter(fs), podLogsDir: "/logs"}
	use := u.disk(t.Context(), pod, everywhere(), tooLong)
	if got := use.total(); got < 1<<20 || got >= 2<<20 {
		t.Errorf("%d bytes count, want the megabyte of the ConfigMap: %+v", got, use)
	}
	if signal, message := exceeds(pod, use); signal != "" {
		t.Errorf("a pod within its limits: %s %s", signal, message)
	}
	size := resource.MustParse("4Mi")
	pod.Spec.Volumes[4].EmptyDir.SizeLimit = &size
	if signal, message := exceeds(pod, use); signal != "emptydirfs.limit" || message != `Usage of EmptyDir volume "pages" exceeds the limit "4Mi". ` {
		t.Errorf("huge pages over their limit: %s %q", signal, message)
	}
}

// If writable layers are not on the node's file system, the limit of a container is that
// of its logs. The limit of the pod has both. A limit of 0 is the pod's alone.
func TestLimitsWhereLayersAreApart(t *testing.T) {
	const mib = 1 << 20
	for name, test := range map[string]struct {
		a, b        string // limits
		layer, logs int64  // of a
		apart       bool
		want        string
	}{
		"layer on the disk":           {"2Mi", "9Mi", 3 * mib, 0, false, "ephemeralcontainerfs.limit"},
		"layer apart":                 {"2Mi", "9Mi", 3 * mib, 0, true, ""},
		"logs, layer apart":           {"2Mi", "9Mi", 3 * mib, 3 * mib, true, "ephemeralcontainerfs.limit"},
		"of the pod, layer apart":     {"2Mi", "9Mi", 12 * mib, 0, true, "ephemeralpodfs.limit"},
		"no limit of the container":   {"0", "9Mi", 3 * mib, 0, false, ""},
		"no limit of any, but of all": {"0", "0", mib, 0, false, "ephemeralpodfs.limit"},
	} {
		pod := storagePod(test.a)
		pod.Spec.Containers[1].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(test.b)}
		use := &diskUsage{Containers: map[string]int64{"a": test.layer + test.logs}, Layers: map[string]int64{"a": test.layer}, Apart: test.apart}
		if got, message := exceeds(pod, use); got != test.want {
			t.Errorf("%s: %s %q, want %q", name, got, message, test.want)
		}
	}
}
