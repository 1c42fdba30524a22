package kubelet

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientfake "k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory/inmemorytest"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/files/filestest"
)

// moment says how far a change has come when the kubelet is killed.
type moment string

const (
	before moment = "before" // it is not made
	after  moment = "after"  // it is made, and the kubelet does not hear of it
	later  moment = "later"  // the runtime makes it while the next kubelet works
	seen   moment = "seen"   // it makes it as soon as the next kubelet has seen that it is not made
)

// life is one kubelet's access to the machine. After its death it changes nothing
// more.
type life struct {
	last   int // the change at which the kubelet is killed, from 1; 0 is none
	moment moment

	mu      sync.Mutex // guards what follows
	changes []string   // the names of all so far
	dead    bool
	pending func() // the change that the runtime makes later; nil if there is none
	unseen  func() // a change that the runtime makes once this kubelet has seen that it is not made
}

// change makes a change, unless the kubelet is dead or is killed now.
func (l *life) change(name string, do func() error) error {
	_, err := l.attempt(name, do)
	return err
}

// attempt is change. postponed says that the runtime makes the change later.
func (l *life) attempt(name string, do func() error) (postponed bool, err error) {
	l.mu.Lock()
	if l.dead {
		l.mu.Unlock()
		return false, filestest.ErrKilled
	}
	l.changes = append(l.changes, name)
	l.dead = len(l.changes) == l.last
	dies := l.dead
	if postponed = dies && (l.moment == later || l.moment == seen); postponed {
		l.pending = func() { _ = do() } // what it needs may be gone by then
	}
	l.mu.Unlock()
	if !dies {
		return false, do()
	}
	if l.moment == after {
		_ = do()
	}
	return postponed, filestest.ErrKilled
}

// see makes the change that waits for this kubelet to have seen the runtime without it.
func (l *life) see() {
	l.mu.Lock()
	do := l.unseen
	l.unseen = nil
	l.mu.Unlock()
	if do != nil {
		do()
	}
}

func (l *life) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// names are the names of sandboxes and containers that the runtime is about to
// make.
type names struct {
	mu   sync.Mutex // guards held
	held map[string]bool
}

func (n *names) set(name string, held bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held[name] = held
}

func (n *names) check(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held[name] {
		return grpcstatus.Errorf(codes.AlreadyExists, "failed to reserve name %q: it is reserved", name)
	}
	return nil
}

// mortalRuntime is the runtime of one kubelet.
type mortalRuntime struct {
	*inmemorytest.Runtime
	life    *life
	names   *names
	started func(name string) // called for each container that starts
}

// make makes something whose name is reserved from the call to its end.
func (r mortalRuntime) make(call, name string, do func() error) error {
	if err := r.names.check(name); err != nil {
		return err
	}
	r.names.set(name, true)
	postponed, err := r.life.attempt(call, func() error {
		defer r.names.set(name, false)
		return do()
	})
	if !postponed {
		r.names.set(name, false)
	}
	return err
}

func (r mortalRuntime) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (id string, err error) {
	err = r.make("RunPodSandbox", config.GetMetadata().String(), func() (err error) {
		id, err = r.Runtime.RunPodSandbox(ctx, config, handler)
		return err
	})
	return id, err
}

func (r mortalRuntime) CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (id string, err error) {
	name := sandboxConfig.GetMetadata().GetUid() + config.GetMetadata().String()
	err = r.make("CreateContainer", name, func() (err error) {
		id, err = r.Runtime.CreateContainer(ctx, sandbox, config, sandboxConfig)
		return err
	})
	return id, err
}

func (r mortalRuntime) StartContainer(ctx context.Context, id string) error {
	return r.life.change("StartContainer", func() error {
		err := r.Runtime.StartContainer(ctx, id)
		if err == nil {
			r.started(r.Config(id).GetMetadata().GetName())
		}
		return err
	})
}

func (r mortalRuntime) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	answer, err := r.Runtime.ContainerStatus(ctx, id, verbose)
	if answer.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_CREATED && err == nil {
		r.life.see()
	}
	return answer, err
}

func (r mortalRuntime) StopContainer(ctx context.Context, id string, timeout int64) error {
	return r.life.change("StopContainer", func() error { return r.Runtime.StopContainer(context.WithoutCancel(ctx), id, timeout) })
}

func (r mortalRuntime) RemoveContainer(ctx context.Context, id string) error {
	return r.life.change("RemoveContainer", func() error { return r.Runtime.RemoveContainer(ctx, id) })
}

func (r mortalRuntime) StopPodSandbox(ctx context.Context, id string) error {
	return r.life.change("StopPodSandbox", func() error { return r.Runtime.StopPodSandbox(ctx, id) })
}

func (r mortalRuntime) RemovePodSandbox(ctx context.Context, id string) error {
	return r.life.change("RemovePodSandbox", func() error { return r.Runtime.RemovePodSandbox(ctx, id) })
}

// mortalImages are the images of one kubelet.
type mortalImages struct {
	*inmemorytest.Images
	life *life
}

func (i mortalImages) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (ref string, err error) {
	err = i.life.change("PullImage", func() (err error) {
		ref, err = i.Images.PullImage(ctx, image, auth, sandbox)
		return err
	})
	return ref, err
}

// mortalFiles are the files and mounts of one kubelet.
type mortalFiles struct {
	*files.Memory
	life *life
}

func (f mortalFiles) MkdirAll(path string, perm fs.FileMode) error {
	if _, err := f.Lstat(path); err == nil {
		return nil
	}
	return f.life.change("mkdir", func() error { return f.Memory.MkdirAll(path, perm) })
}

func (f mortalFiles) WriteFile(path string, data []byte, perm fs.FileMode) error {
	return f.life.change("write", func() error { return f.Memory.WriteFile(path, data, perm) })
}

func (f mortalFiles) Replace(path string, data []byte, perm fs.FileMode) error {
	return f.life.change("replace", func() error { return f.Memory.Replace(path, data, perm) })
}

func (f mortalFiles) ReplaceUnsynced(path string, data []byte, perm fs.FileMode) error {
	return f.life.change("replace", func() error { return f.Memory.ReplaceUnsynced(path, data, perm) })
}

func (f mortalFiles) Rename(from, to string) error {
	return f.life.change("rename", func() error { return f.Memory.Rename(from, to) })
}

func (f mortalFiles) Symlink(target, path string) error {
	return f.life.change("symlink", func() error { return f.Memory.Symlink(target, path) })
}

func (f mortalFiles) Remove(path string) error {
	return f.life.change("remove", func() error { return f.Memory.Remove(path) })
}

func (f mortalFiles) RemoveAll(path string) error {
	return f.life.change("remove", func() error { return f.Memory.RemoveAll(path) })
}

func (f mortalFiles) Chmod(path string, mode fs.FileMode) error {
	return f.life.change("chmod", func() error { return f.Memory.Chmod(path, mode) })
}

func (f mortalFiles) Mount(source, target, fstype string, options []string) error {
	return f.life.change("mount", func() error { return f.Memory.Mount(source, target, fstype, options) })
}

func (f mortalFiles) Unmount(target string) error {
	return f.life.change("unmount", func() error { return f.Memory.Unmount(target) })
}

// mortalGroups are the control groups of one kubelet.
type mortalGroups struct {
	*cgroup.Memory
	life *life
}

func (g mortalGroups) Apply(path string, r *runtimeapi.LinuxContainerResources, pids int64) error {
	return g.life.change("apply", func() error { return g.Memory.Apply(path, r, pids) })
}

func (g mortalGroups) Remove(path string) error {
	return g.life.change("remove group", func() error { return g.Memory.Remove(path) })
}

// story is the whole life of two pods, under kubelets that may be killed.
type story struct {
	*bench
	names *names
	lives []*life // of the kubelets so far
	fates []life  // of the next kubelets
	now   atomic.Pointer[life]

	mu     sync.Mutex     // guards starts
	starts map[string]int // by container
}

// tell runs a story and returns what was left at the end of each chapter, and the
// changes of each kubelet.
func tell(t *testing.T, fates ...life) (chapters string, lives []*life) {
	synctest.Test(t, func(t *testing.T) {
		s := &story{bench: newBench(t), names: &names{held: map[string]bool{}}, fates: fates, starts: map[string]int{}}
		s.bench.configure = s.configure
		s.runtime.Behave = behave
		s.api.(*clientfake.Clientset).PrependReactor("*", "*", func(k8stesting.Action) (bool, runtime.Object, error) {
			if now := s.now.Load(); now != nil && now.isDead() {
				return true, nil, filestest.ErrKilled
			}
			return false, nil, nil
		})
		s.secret("s", map[string][]byte{"k": []byte("v")})
		s.start()
		defer func() { s.stop() }()
		chapters = s.run()
		lives = s.lives
	})
	return chapters, lives
}

// behave lets the init container and the job end by themselves.
func behave(config *runtimeapi.ContainerConfig) inmemory.Behaviour {
	switch config.GetMetadata().GetName() {
	case "setup":
		return inmemory.Behaviour{RunFor: time.Second}
	case "task":
		return inmemory.Behaviour{RunFor: 5 * time.Second}
	}
	return inmemory.Behaviour{}
}

func (s *story) configure(c *Config) {
	now := &life{}
	if len(s.fates) > 0 {
		now.last, now.moment = s.fates[0].last, s.fates[0].moment
		s.fates = s.fates[1:]
	}
	if former := s.now.Load(); former != nil && former.moment == seen {
		now.unseen = former.pending
	}
	s.lives = append(s.lives, now)
	s.now.Store(now)
	started := func(name string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.starts[name]++
	}
	disk := mortalFiles{s.files, now}
	c.Runtime, c.Images = mortalRuntime{s.runtime, now, s.names, started}, mortalImages{s.runtime.Images(), now}
	c.Files, c.Mounter, c.Groups = disk, disk, mortalGroups{s.groups, now}
}

// settle lets time pass, and starts the next kubelet while one is dead.
func (s *story) settle(d time.Duration) {
	for s.after(d); s.now.Load().isDead(); s.after(d) {
		dead := s.now.Load()
		s.stop()
		s.start()
		if dead.moment == later && dead.pending != nil {
			dead.pending()
			synctest.Wait()
		}
	}
}

// run tells the story.
func (s *story) run() string {
	var text strings.Builder
	chapter := func(title string) {
		s.settle(30 * time.Second) // dead containers are removed every ten seconds
		fmt.Fprintf(&text, "%s\n%s", title, s.describe())
	}
	s.settle(0)
	always := v1.ContainerRestartPolicyAlways
	s.create(pod("web", withVolume(v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}), func(p *v1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "empty", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "empty", MountPath: "/empty"})
		p.Spec.InitContainers = []v1.Container{
			{Name: "setup", Image: "example.com/setup:1"},
			{Name: "proxy", Image: "example.com/proxy:1", RestartPolicy: &always},
		}
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "side", Image: "example.com/side:1"})
		p.UID = "11111111-1111-4111-8111-111111111111" // what is left of a pod is known by the form of its UID
	}))
	s.settle(0)
	s.create(pod("job", func(p *v1.Pod) {
		p.Spec.RestartPolicy, p.Spec.Containers[0].Name = v1.RestartPolicyNever, "task"
		p.UID = "22222222-2222-4222-8222-222222222222"
	}))
	chapter("created")
	s.runtime.Exit(s.live("main"), 1)
	chapter("a container has ended")
	s.delete("web", 30)
	s.settle(0)
	s.delete("job", 30)
	chapter("deleted")
	return text.String()
}

// describe returns what the API server, the runtime and the machine have.
func (s *story) describe() string {
	var lines []string
	line := func(format string, args ...any) { lines = append(lines, "  "+fmt.Sprintf(format, args...)) }
	for _, name := range []string{"web", "job"} {
		p := s.get(name)
		if p == nil {
			continue
		}
		line("pod %s %s ready %s", name, p.Status.Phase, conditionOf(p, v1.PodReady))
		for _, st := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			line("pod %s %s: %s, last %s, ready %t, %d restarts", name, st.Name, stateOf(st.State), stateOf(st.LastTerminationState), st.Ready, st.RestartCount)
		}
	}
	sandboxes, _ := s.runtime.ListPodSandbox(s.t.Context(), nil)
	for _, sandbox := range sandboxes {
		line("sandbox %s %d %s", sandbox.GetMetadata().GetName(), sandbox.GetMetadata().GetAttempt(), sandbox.GetState())
	}
	containers, _ := s.runtime.ListContainers(s.t.Context(), nil)
	for _, c := range containers {
		line("container %s %d %s", c.GetMetadata().GetName(), c.GetMetadata().GetAttempt(), c.GetState())
	}
	for name, n := range s.starts {
		line("%s was started %d times", name, n)
	}
	for _, dir := range []string{"/var/lib/kubelet/pods", "/var/log/pods"} {
		names, _ := s.files.ReadDir(dir)
		line("%s: %v", dir, names)
	}
	mounts, _ := s.files.Below("/")
	slices.Sort(mounts)
	groups, _ := s.groups.Below("/kubepods/besteffort")
	slices.Sort(groups)
	line("mounts %v, control groups %v", mounts, groups)
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

func stateOf(st v1.ContainerState) string {
	switch {
	case st.Running != nil:
		return "running"
	case st.Terminated != nil:
		return fmt.Sprintf("exited %d %s", st.Terminated.ExitCode, st.Terminated.Reason)
	case st.Waiting != nil:
		return st.Waiting.Reason
	}
	return "none"
}

// ofRuntime reports whether a change is one of the runtime, which may go on with it
// when the kubelet is dead.
func ofRuntime(change string) bool { return strings.ToLower(change[:1]) != change[:1] }

// A kubelet that is killed at any change of the machine, before the change or after
// it, and one that is killed while the runtime works for it, is followed by one that
// brings every pod to where it would be otherwise, without starting a container twice.
func TestKilledAtAnyChange(t *testing.T) {
	want, lives := tell(t)
	for i, change := range lives[0].changes {
		moments := []moment{before}
		if ofRuntime(change) {
			moments = []moment{before, after, later}
		}
		if change == "StartContainer" {
			moments = append(moments, seen)
		}
		for _, m := range moments {
			t.Run(fmt.Sprintf("%d %s %s", i+1, m, change), func(t *testing.T) {
				if got, _ := tell(t, life{last: i + 1, moment: m}); got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
			})
		}
	}
}

// The same holds if the next kubelet is killed, too, at one of its first changes.
func TestKilledTwice(t *testing.T) {
	want, lives := tell(t)
	for _, change := range []string{"RunPodSandbox", "CreateContainer", "StopPodSandbox"} {
		first := slices.Index(lives[0].changes, change) + 1
		for next := range 12 {
			t.Run(fmt.Sprintf("%s, and %d", change, next+1), func(t *testing.T) {
				if got, _ := tell(t, life{last: first, moment: after}, life{last: next + 1, moment: before}); got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
			})
		}
	}
}
