package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/kubelet/volume"
	"github.com/coracle-io/coracle/internal/nodeaddress"
	"github.com/coracle-io/coracle/internal/podquery"
	corepod "github.com/coracle-io/coracle/internal/resource/core/pod"
)

const (
	// maxPod is the size of a pod that the API server takes.
	maxPod = 3 << 20
	// perByte is how many bytes the kubelet may allocate for each byte of a pod
	// in one of its steps.
	perByte = 32
)

// largest has one config map and one secret for every name, of the largest size.
type largest struct {
	configMap *v1.ConfigMap
	secret    *v1.Secret
}

func newLargest() *largest {
	const large = 1<<20 - 100
	return &largest{
		&v1.ConfigMap{Data: map[string]string{"large": strings.Repeat("x", large), "small": "s"}},
		&v1.Secret{Data: map[string][]byte{"large": make([]byte, large), "small": []byte("s")}},
	}
}

func (l *largest) ConfigMap(context.Context, string, string) (*v1.ConfigMap, error) {
	return l.configMap, nil
}

func (l *largest) Secret(context.Context, string, string) (*v1.Secret, error) { return l.secret, nil }

func (l *largest) Token(context.Context, *v1.Pod, string, int64) (string, error) {
	return strings.Repeat("t", 1000), nil
}

func (l *largest) Forget(types.UID) {}

// scale is a disk that counts what is written and keeps none of it.
type scale struct {
	files.Memory
	bytes int
}

func (s *scale) WriteFile(path string, data []byte, perm fs.FileMode) error {
	s.bytes += len(data)
	return s.Memory.WriteFile(path, nil, perm)
}

// widening makes lists of a pod longer, by n elements.
type widening struct {
	name  string
	widen func(p *v1.Pod, c *v1.Container, n int)
}

func forEach(n int, f func(i int, name string)) {
	for i := range n {
		f(i, fmt.Sprint("n", i))
	}
}

func key(name string) *v1.SecretKeySelector {
	return &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: "large"}
}

// addVolume adds a volume that the first container mounts, and returns its name.
func addVolume(p *v1.Pod, source v1.VolumeSource) string {
	name := fmt.Sprint("v", len(p.Spec.Volumes))
	p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
	first := &p.Spec.Containers[0]
	first.VolumeMounts = append(first.VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/of/" + name})
	return name
}

func environmentWidenings() []widening {
	return []widening{
		{"variables that multiply", func(_ *v1.Pod, c *v1.Container, n int) {
			c.Env = append(c.Env, v1.EnvVar{Name: "M", Value: "0123456789"})
			for range min(n, 30) {
				c.Env = append(c.Env, v1.EnvVar{Name: "M", Value: strings.Repeat("$(M)", 10)})
			}
		}},
		{"references", func(_ *v1.Pod, c *v1.Container, n int) {
			c.Env = append(c.Env, v1.EnvVar{Name: "L", Value: strings.Repeat("x", min(n, 100_000))})
			forEach(n, func(_ int, name string) { c.Env = append(c.Env, v1.EnvVar{Name: name, Value: "$(L)"}) })
			forEach(n/2, func(int, string) { c.Args = append(c.Args, "$(L)") })
		}},
		{"keys of secrets", func(_ *v1.Pod, c *v1.Container, n int) {
			forEach(n, func(_ int, name string) {
				c.Env = append(c.Env, v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{SecretKeyRef: key("s")}})
			})
		}},
		{"secrets by prefix", func(_ *v1.Pod, c *v1.Container, n int) {
			forEach(n, func(_ int, name string) {
				c.EnvFrom = append(c.EnvFrom, v1.EnvFromSource{Prefix: name, SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}})
			})
		}},
		{"config maps", func(_ *v1.Pod, c *v1.Container, n int) {
			forEach(n, func(_ int, name string) {
				c.EnvFrom = append(c.EnvFrom, v1.EnvFromSource{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: name}}})
			})
		}},
		{"fields", func(p *v1.Pod, c *v1.Container, n int) {
			p.Annotations = map[string]string{"a": strings.Repeat("\x01", min(n, 200_000))}
			forEach(n, func(_ int, name string) {
				c.Env = append(c.Env, v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['a']"}}})
			})
		}},
		{"unclosed references", func(_ *v1.Pod, c *v1.Container, n int) { c.Command = append(c.Command, strings.Repeat("$(", n)) }},
	}
}

func volumeWidenings() []widening {
	return []widening{
		{"items", func(p *v1.Pod, _ *v1.Container, n int) {
			source := &v1.SecretVolumeSource{SecretName: "s"}
			forEach(n, func(_ int, name string) { source.Items = append(source.Items, v1.KeyToPath{Key: "large", Path: name}) })
			addVolume(p, v1.VolumeSource{Secret: source})
		}},
		{"items of one path", func(p *v1.Pod, _ *v1.Container, n int) {
			source := &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "c"}}
			forEach(n, func(int, string) { source.Items = append(source.Items, v1.KeyToPath{Key: "large", Path: "p"}) })
			addVolume(p, v1.VolumeSource{ConfigMap: source})
		}},
		{"deep items", func(p *v1.Pod, _ *v1.Container, n int) {
			source := &v1.SecretVolumeSource{SecretName: "s"}
			forEach(n/1000+1, func(_ int, name string) {
				source.Items = append(source.Items, v1.KeyToPath{Key: "small", Path: strings.Repeat(name+"/", 500) + "f"})
			})
			addVolume(p, v1.VolumeSource{Secret: source})
		}},
		{"sources", func(p *v1.Pod, _ *v1.Container, n int) {
			source := &v1.ProjectedVolumeSource{}
			forEach(n, func(_ int, name string) {
				source.Sources = append(source.Sources, v1.VolumeProjection{Secret: &v1.SecretProjection{
					LocalObjectReference: v1.LocalObjectReference{Name: "s"}, Items: []v1.KeyToPath{{Key: "large", Path: name}}}})
			})
			addVolume(p, v1.VolumeSource{Projected: source})
		}},
		{"downward fields", func(p *v1.Pod, _ *v1.Container, n int) {
			p.Annotations = map[string]string{"a": strings.Repeat("\x01", min(n, 200_000))}
			source := &v1.DownwardAPIVolumeSource{}
			forEach(n, func(_ int, name string) {
				source.Items = append(source.Items, v1.DownwardAPIVolumeFile{Path: name, FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations"}})
			})
			addVolume(p, v1.VolumeSource{DownwardAPI: source})
		}},
		{"tokens", func(p *v1.Pod, _ *v1.Container, n int) {
			source := &v1.ProjectedVolumeSource{}
			hour := int64(3600)
			forEach(n, func(_ int, name string) {
				source.Sources = append(source.Sources, v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Audience: name, ExpirationSeconds: &hour, Path: name}})
			})
			addVolume(p, v1.VolumeSource{Projected: source})
		}},
		{"config maps", func(p *v1.Pod, c *v1.Container, n int) {
			forEach(n, func(_ int, name string) {
				vol := addVolume(p, v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "c"}}})
				c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: vol, MountPath: "/" + vol})
			})
		}},
		{"secrets", func(p *v1.Pod, _ *v1.Container, n int) {
			forEach(min(n, 400), func(_ int, name string) {
				addVolume(p, v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: name}})
			})
		}},
		{"subPaths", func(p *v1.Pod, c *v1.Container, n int) {
			vol := addVolume(p, v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
			forEach(n, func(_ int, name string) {
				c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: vol, MountPath: "/" + vol + "/" + name, SubPath: name})
			})
		}},
		{"nested mounts", func(p *v1.Pod, c *v1.Container, n int) {
			vol := addVolume(p, v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "c"}}})
			path := "/" + vol
			forEach(min(n, 1000), func(int, string) {
				c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: vol, MountPath: path})
				path += "/x"
			})
		}},
	}
}

func otherWidenings() []widening {
	return []widening{
		{"pull secrets", func(p *v1.Pod, _ *v1.Container, n int) {
			forEach(n, func(_ int, name string) {
				p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: name}, v1.LocalObjectReference{Name: "s"})
			})
		}},
		{"hosts", func(p *v1.Pod, _ *v1.Container, n int) {
			forEach(n, func(_ int, name string) {
				p.Spec.HostAliases = append(p.Spec.HostAliases, v1.HostAlias{IP: "192.0.2.1", Hostnames: []string{name, name}})
			})
		}},
		{"options of DNS", func(p *v1.Pod, _ *v1.Container, n int) {
			p.Spec.DNSConfig = &v1.PodDNSConfig{}
			forEach(n, func(_ int, name string) {
				p.Spec.DNSConfig.Options = append(p.Spec.DNSConfig.Options, v1.PodDNSConfigOption{Name: name})
			})
		}},
		{"groups", func(p *v1.Pod, _ *v1.Container, n int) {
			p.Spec.SecurityContext = &v1.PodSecurityContext{}
			forEach(n, func(i int, _ string) {
				p.Spec.SecurityContext.SupplementalGroups = append(p.Spec.SecurityContext.SupplementalGroups, int64(i))
			})
		}},
		{"capabilities", func(_ *v1.Pod, c *v1.Container, n int) {
			c.SecurityContext = &v1.SecurityContext{Capabilities: &v1.Capabilities{}}
			forEach(n, func(_ int, name string) {
				c.SecurityContext.Capabilities.Add = append(c.SecurityContext.Capabilities.Add, v1.Capability(name))
			})
		}},
		{"ports", func(_ *v1.Pod, c *v1.Container, n int) {
			forEach(min(n, 60_000), func(i int, _ string) { c.Ports = append(c.Ports, v1.ContainerPort{ContainerPort: int32(i + 1)}) })
		}},
		{"headers of probes", func(_ *v1.Pod, c *v1.Container, n int) {
			action := &v1.HTTPGetAction{Port: intstr.FromInt(80)}
			forEach(n, func(_ int, name string) {
				action.HTTPHeaders = append(action.HTTPHeaders, v1.HTTPHeader{Name: name, Value: name})
			})
			c.LivenessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: action}}
		}},
		{"commands of hooks", func(_ *v1.Pod, c *v1.Container, n int) {
			action := &v1.ExecAction{Command: slices.Repeat([]string{"$(L)"}, n)}
			c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: action}}
		}},
		{"containers", func(p *v1.Pod, _ *v1.Container, n int) {
			forEach(n, func(_ int, name string) {
				p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name, Image: "i"})
			})
		}},
	}
}

// largePod returns a pod with the widenings, about as large as the API admits.
func largePod(t *testing.T, chosen []widening) (largest *v1.Pod, size int) {
	t.Helper()
	n := 1000
	for range 5 {
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "large", Namespace: "default", UID: "uid"},
			Spec:       v1.PodSpec{NodeName: nodeName, ServiceAccountName: "default", Containers: []v1.Container{{Name: "main", Image: "example.com/app:1"}}},
		}
		for _, w := range chosen {
			w.widen(p, &p.Spec.Containers[0], n)
		}
		corepod.Default(p)
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) <= maxPod && len(raw) > size {
			largest, size = p, len(raw)
		}
		if size > maxPod*3/4 {
			break
		}
		n = min(n*(maxPod/100*95)/len(raw), 300_000)
	}
	if errs := corepod.ValidateCreate(largest, nil); len(errs) > 0 {
		t.Fatalf("the API does not admit the pod: %v", errs[0])
	}
	return largest, size
}

// meter fails the test if a step of the kubelet allocates more than its bound.
type meter struct {
	t    *testing.T
	what string
}

func (m *meter) step(name string, bound int, f func() error) error {
	m.t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := f()
	runtime.ReadMemStats(&after)
	if bytes := int(after.TotalAlloc - before.TotalAlloc); bytes > bound {
		m.t.Errorf("%s: %s allocates %d bytes, want at most %d (%v)", m.what, name, bytes, bound, err)
	}
	return err
}

// TestLargestPods builds the largest pods that the API admits, with random lists,
// and counts what the kubelet allocates for them: a few bytes for each byte of the
// pod, and what its volumes and environments may have.
func TestLargestPods(t *testing.T) {
	all := slices.Concat(environmentWidenings(), volumeWidenings(), otherWidenings())
	var cases [][]widening
	for _, w := range all {
		cases = append(cases, []widening{w})
	}
	var many []widening // many volumes, each of which asks for the limits of many containers
	for _, name := range []string{"capabilities", "secrets", "variables that multiply", "containers"} {
		at := slices.IndexFunc(all, func(w widening) bool { return w.name == name })
		many = append(many, all[at])
	}
	cases = append(cases, many)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not for secrets
	for range 10 {
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		cases = append(cases, slices.Clone(all[:2+random.IntN(3)]))
	}
	objects := newLargest()
	for _, chosen := range cases {
		var names []string
		for _, w := range chosen {
			names = append(names, w.name)
		}
		p, size := largePod(t, chosen)
		m := &meter{t, fmt.Sprintf("%q in %d bytes", names, size)}
		measurePod(m, p, size, objects)
	}
}

// measurePod counts what each step for a pod allocates. What fails has failed by
// a bound.
func measurePod(m *meter, p *v1.Pod, size int, objects *largest) {
	const (
		mebi        = 1 << 20
		forStrings  = 16 * mebi  // allocated for the largest environment
		forContents = 512 * mebi // allocated for the largest volumes
		maxStrings  = 2 * mebi   // of arguments and environment
		maxContents = 64 * mebi  // written for volumes
	)
	proportional := perByte*size + mebi
	_ = m.step("CheckReferences", proportional, func() error { return spec.CheckReferences(p) })
	off, on := false, true
	node := &spec.Node{Configuration: &kubeletconfig.KubeletConfiguration{CPUCFSQuota: &on, SeccompDefault: &off, SingleProcessOOMKill: &on}, IPs: nodeaddress.NewList("192.0.2.1")}
	_ = m.step("Sandbox", proportional, func() error { _, err := spec.Sandbox(p, node, 0, "", nil); return err })
	_ = m.step("HostsFile", proportional, func() error { _, err := spec.HostsFile(p, node.IPs.Now(), "", nil); return err })
	_ = m.step("Credentials", proportional, func() error {
		image.Credentials("example.com/app:1", func(yield func(*v1.Secret) bool) {
			for range p.Spec.ImagePullSecrets {
				yield(objects.secret)
			}
		})
		return nil
	})
	disk := &scale{}
	volumes := &volume.Manager{Root: "/k", FS: disk, Mounter: disk, Objects: objects, Tokens: objects}
	var paths map[string]string
	failed := m.step("SetUp", proportional+forContents, func() (err error) {
		paths, _, err = volumes.SetUp(m.t.Context(), p, volume.Facts{})
		return err
	})
	if disk.bytes > maxContents {
		m.t.Errorf("%s: %d bytes are written", m.what, disk.bytes)
	}
	containers := slices.Collect(podquery.AllContainers(&p.Spec))
	for _, c := range []*v1.Container{containers[0], containers[len(containers)-1]} {
		in := &spec.Instance{}
		_ = m.step("ContainerConfig", proportional+forStrings, func() (err error) {
			if in.Env, err = (&spec.Env{Objects: objects}).Environment(m.t.Context(), p, c); err != nil {
				return err
			}
			config, err := spec.ContainerConfig(p, c, node, in)
			total := 0
			for _, s := range slices.Concat(config.GetCommand(), config.GetArgs()) {
				total += len(s)
			}
			for _, e := range config.GetEnvs() {
				total += len(e.GetKey()) + len(e.GetValue())
			}
			if total > maxStrings {
				m.t.Errorf("%s: a process gets %d bytes", m.what, total)
			}
			return err
		})
		if failed == nil {
			_ = m.step("Mounts", proportional, func() error { _, err := volumes.Mounts(p, c, paths, in.Env); return err })
		}
		handlers := &probe.Runner{
			Exec: func(context.Context, string, []string, time.Duration) ([]byte, error) { return nil, nil },
			Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") },
		}
		if c.LivenessProbe != nil {
			_ = m.step("a probe", proportional, func() error {
				_, _, err := handlers.Run(m.t.Context(), c.LivenessProbe, probe.Target{Pod: p, Container: c, IP: "192.0.2.2"})
				return err
			})
		}
	}
}
