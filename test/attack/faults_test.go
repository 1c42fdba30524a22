package attack

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/freeport"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/podquery"
	supervision "github.com/coracle-io/coracle/internal/processes"
)

var (
	faultTime = flag.Duration("attack.faults", 0, "how long TestNodeFaults repeats all faults; 0 is once")
	faultSeed = flag.Uint64("attack.seed", 0, "seed of TestNodeFaults; 0 is a random one")
	faultOnly = flag.String("attack.fault", "", "the only faults of TestNodeFaults, by their names, separated by commas")
)

// fault damages a part of a node and then ends the damage.
type fault struct {
	name   string
	strike func(n *faulty)
}

func nodeFaults() []fault {
	return []fault{
		{"kill node", func(n *faulty) { n.killProcess(supervision.Node) }},
		{"kill control plane", func(n *faulty) { n.killProcess(supervision.ControlPlane) }},
		{"kill containerd", func(n *faulty) { n.killProcess(containerd) }},
		{"kill supervisor", func(n *faulty) { n.killProcess(supervisor) }},
		{"kill node and containerd", func(n *faulty) { n.killProcess(supervision.Node, containerd) }},
		{"kill shims", (*faulty).killShims},
		{"suspend containerd", func(n *faulty) { n.suspend(containerd, func() { n.wait(0) }) }},
		{"suspend API server", func(n *faulty) { n.suspend(supervision.ControlPlane, func() { n.wait(n.long / 2) }) }},
		{"no API server", (*faulty).stopAPIServer},
		{"full disk", func(n *faulty) { n.fill((*faulty).fillDisk) }},
		{"no inodes", func(n *faulty) { n.fill((*faulty).fillInodes) }},
		{"no pids", (*faulty).limitProcesses},
		{"empty run directory", (*faulty).emptyRunDirectory},
	}
}

// faulty is a cluster with a node that faults strike.
type faulty struct {
	*cluster
	t      *testing.T
	random *rand.Rand
	churn  *podChurn
	// instances are the containers of the lasting pods and how often they were
	// restarted, by pod/container.
	instances map[string]string
	// mayRestart are the pods whose containers the fault ends.
	mayRestart map[string]bool
	machine    machineParts
	long       time.Duration // the most that a fault lasts
}

// TestNodeFaults lets faults strike a node that creates and deletes pods all the
// time. After each, everything works again, and the pods that should run have
// kept their containers. At the end the node has nothing of the deleted pods.
func TestNodeFaults(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("a node needs root: run these tests by make test")
	}
	seed, pods, long := *faultSeed, 8, time.Second
	if seed == 0 {
		seed = rand.Uint64()
	}
	if *faultTime > 0 {
		pods, long = 30, 2*time.Minute
	}
	t.Logf("seed %d", seed)
	t.Setenv("TMPDIR", smallDisk(t))
	n := &faulty{cluster: startOwn(t, "--kubelet-arg=eviction-hard=memory.available<1Mi"), t: t, random: rand.New(rand.NewPCG(seed, 0)), long: long}
	n.machine = machineParts{filepath.Join(n.dir, "host"), int32(freeport.For(t)), int32(freeport.For(t)), int32(freeport.For(t))}
	n.logOnFailure(t)
	n.startLasting()
	n.churn = &podChurn{faulty: n, pods: pods, random: rand.New(rand.NewPCG(seed, 1))}
	faults := nodeFaults()
	if *faultOnly != "" {
		faults = slices.DeleteFunc(faults, func(f fault) bool { return !slices.Contains(strings.Split(*faultOnly, ","), f.name) })
	}
	for began := time.Now(); ; {
		stop := n.churn.start()
		n.random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		for _, f := range faults {
			n.inflict(f)
		}
		stop()
		n.checkNothingLeft()
		if time.Since(began) >= *faultTime {
			return
		}
	}
}

// smallDisk mounts a file system in memory that a test may fill.
func smallDisk(t *testing.T) string {
	dir := t.TempDir()
	if err := unix.Mount("faults", dir, "tmpfs", 0, "size=1g,nr_inodes=50k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// inflict lets a fault strike and waits until all works again.
func (n *faulty) inflict(f fault) {
	n.t.Helper()
	n.mayRestart = map[string]bool{}
	began := time.Now()
	f.strike(n)
	struck := time.Now()
	within(n.t, waitTimeout, "the cluster is healthy after "+f.name, func(ctx context.Context) error { return n.checkHealthy(ctx, nil) })
	within(n.t, waitTimeout, "lasting pods run after "+f.name, n.lastingRun)
	within(n.t, waitTimeout, "new pods run after "+f.name, n.churn.progress())
	n.t.Logf("%s: %v, and %v until all worked", f.name, struck.Sub(began).Round(time.Millisecond), time.Since(struck).Round(time.Millisecond))
}

// wait waits for a random time between least and the longest.
func (n *faulty) wait(least time.Duration) {
	timer := time.NewTimer(least + time.Duration(n.random.Int64N(int64(n.long-least))))
	<-timer.C
}

// lastingRun returns an error unless the lasting pods are Ready. It fails the
// test if a container was restarted that should not have been.
func (n *faulty) lastingRun(ctx context.Context) error {
	now, err := n.lasting(ctx)
	if err != nil {
		return err
	}
	for name, instance := range now {
		if pod, _, _ := strings.Cut(name, "/"); instance != n.instances[name] && !n.mayRestart[pod] {
			n.t.Errorf("container %s was %s and is %s", name, n.instances[name], instance)
		}
	}
	n.instances = now
	return nil
}

// lasting returns the containers of the lasting pods once these are Ready.
func (n *faulty) lasting(ctx context.Context) (map[string]string, error) {
	pods, err := n.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "lasts=true"})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) != len(lastingPods(n.machine)) {
		return nil, fmt.Errorf("there are %d lasting pods", len(pods.Items))
	}
	instances := map[string]string{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !podquery.IsReady(pod) {
			return nil, fmt.Errorf("pod %s is not Ready: %+v", pod.Name, pod.Status)
		}
		for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if s.State.Running != nil {
				instances[pod.Name+"/"+s.Name] = fmt.Sprint(s.ContainerID, " ", s.RestartCount)
			}
		}
	}
	return instances, n.runtime(func(client runtimeapi.RuntimeServiceClient) error {
		for name, instance := range instances {
			id, _, _ := strings.Cut(strings.TrimPrefix(instance, "containerd://"), " ")
			status, err := client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
			if err != nil {
				return err
			}
			if state := status.GetStatus().GetState(); state != runtimeapi.ContainerState_CONTAINER_RUNNING {
				return fmt.Errorf("container %s of %s: %v", id, name, state)
			}
		}
		return nil
	})
}

// startLasting creates the pods that all faults leave running.
func (n *faulty) startLasting() {
	ctx := context.Background()
	meta := metav1.ObjectMeta{Name: "lasts"}
	_, err := n.client.CoreV1().ConfigMaps("default").Create(ctx, &v1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": "value"}}, metav1.CreateOptions{})
	if err == nil {
		_, err = n.client.CoreV1().Secrets("default").Create(ctx, &v1.Secret{ObjectMeta: meta, StringData: map[string]string{"key": "value"}}, metav1.CreateOptions{})
	}
	if err == nil {
		err = os.Mkdir(n.machine.dir, 0o755)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	for _, pod := range lastingPods(n.machine) {
		pod.Labels = map[string]string{"lasts": "true"}
		if _, err := n.client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			n.t.Fatal(err)
		}
	}
	within(n.t, waitTimeout, "the lasting pods run", func(ctx context.Context) (err error) {
		n.instances, err = n.lasting(ctx)
		return err
	})
}

// killProcess sends SIGKILL to processes of the cluster.
func (n *faulty) killProcess(parts ...string) {
	n.t.Helper()
	former := map[string]int{}
	for _, part := range parts {
		former[part] = n.pid(n.t, part)
	}
	for _, part := range parts {
		n.kill(n.t, part)
	}
	within(n.t, waitTimeout, fmt.Sprintf("%v are restarted", parts), func(ctx context.Context) error { return n.checkHealthy(ctx, former) })
}

// killShims sends SIGKILL to the shims of one lasting pod and of some others.
func (n *faulty) killShims() {
	n.t.Helper()
	names := map[string]string{} // of pods, by the id of the sandbox
	if err := n.runtime(func(client runtimeapi.RuntimeServiceClient) error {
		sandboxes, err := client.ListPodSandbox(context.Background(), &runtimeapi.ListPodSandboxRequest{})
		for _, s := range sandboxes.GetItems() {
			names[s.GetId()] = s.GetMetadata().GetName()
		}
		return err
	}); err != nil {
		n.t.Fatal(err)
	}
	victim, former := lastingPods(n.machine)[n.random.IntN(len(lastingPods(n.machine)))].Name, n.instances
	for pid, program := range processes(n.t, n.cluster) {
		if program != "containerd-shim-runc-v2" {
			continue
		}
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue // it has ended
		}
		arguments := strings.Split(string(raw), "\x00")
		at := slices.Index(arguments, "-id")
		if at < 0 || at+1 >= len(arguments) {
			continue
		}
		pod := names[arguments[at+1]]
		if pod == victim || strings.HasPrefix(pod, "churn-") && n.random.IntN(3) == 0 {
			n.mayRestart[pod] = true
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
	n.awaitRestart(former, victim)
}

// awaitRestart waits until the containers of a lasting pod are other ones.
func (n *faulty) awaitRestart(former map[string]string, pod string) {
	n.t.Helper()
	within(n.t, waitTimeout, pod+" runs again", func(ctx context.Context) error {
		now, err := n.lasting(ctx)
		if err != nil {
			return err
		}
		for name, instance := range now {
			if strings.HasPrefix(name, pod+"/") && instance == former[name] {
				return fmt.Errorf("%s is still %s", name, instance)
			}
		}
		return nil
	})
}

// suspend calls during while a process is stopped.
func (n *faulty) suspend(part string, during func()) {
	n.t.Helper()
	pid := n.pid(n.t, part)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		n.t.Fatal(err)
	}
	defer func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			n.t.Error(err)
		}
	}()
	during()
}

// stopAPIServer ends the API server. It is not restarted for a while, because
// the supervisor is suspended.
func (n *faulty) stopAPIServer() {
	n.t.Helper()
	n.suspend(supervisor, func() {
		if err := syscall.Kill(n.pid(n.t, supervision.ControlPlane), syscall.SIGKILL); err != nil {
			n.t.Fatal(err)
		}
		n.wait(n.long / 2)
	})
}

// fill fills the disk of the cluster for a while.
func (n *faulty) fill(full func(n *faulty, dir string)) {
	n.t.Helper()
	dir, err := os.MkdirTemp("", "full")
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			n.t.Error(err)
		}
	}()
	for until := time.Now().Add(time.Duration(n.random.Int64N(int64(min(n.long, 20*time.Second))))); ; { // space that is freed during this time is taken too
		full(n, dir)
		if time.Now().After(until) {
			return
		}
	}
}

func (n *faulty) fillDisk(dir string) {
	f, err := os.OpenFile(filepath.Join(dir, "large"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return // no room for another file
	}
	defer func() { _ = f.Close() }()
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		if _, err := f.Write(chunk); err != nil {
			chunk = chunk[:len(chunk)/2]
		}
	}
}

func (n *faulty) fillInodes(dir string) {
	for i := 0; ; i++ {
		err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600)
		if errors.Is(err, unix.ENOSPC) {
			return
		}
	}
}

// limitProcesses forbids the node's process and containerd to start threads and
// processes for a while.
func (n *faulty) limitProcesses() {
	n.t.Helper()
	root := "/sys/fs/cgroup/pids"
	if _, err := os.Stat(root); err != nil {
		root = "/sys/fs/cgroup"
	}
	dir := filepath.Join(root, n.name+"-pids")
	if err := os.Mkdir(dir, 0o755); err != nil {
		n.t.Fatal(err)
	}
	move := func(pid int, to string) error {
		return os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600)
	}
	limit := func(pids string) error { return os.WriteFile(filepath.Join(dir, "pids.max"), []byte(pids), 0o600) }
	if err := errors.Join(move(n.pid(n.t, supervision.Node), dir), move(n.pid(n.t, containerd), dir), limit("1")); err != nil {
		n.t.Error(err)
	}
	n.wait(0)
	if err := limit("max"); err != nil {
		n.t.Error(err)
	}
	within(n.t, waitTimeout, "the control group is empty", func(context.Context) error {
		pids, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return err
		}
		for _, pid := range strings.Fields(string(pids)) {
			if number, err := strconv.Atoi(pid); err == nil {
				_ = move(number, root) // it may have ended
			}
		}
		return os.Remove(dir)
	})
}

// emptyRunDirectory removes all files of the cluster in /run. That ends all
// containers, because containerd has its state there.
func (n *faulty) emptyRunDirectory() {
	n.t.Helper()
	for _, pod := range lastingPods(n.machine) {
		n.mayRestart[pod.Name] = true
	}
	run, former := host.RunDir(n.name), n.instances
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		n.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if point := strings.Fields(line)[4]; strings.HasPrefix(point, run+"/") {
			_ = unix.Unmount(point, unix.MNT_DETACH) // a pod may have ended since
		}
	}
	entries, err := os.ReadDir(run)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(run, entry.Name())); err != nil {
			n.t.Log(err) // something was made there since
		}
	}
	for pod := range n.mayRestart {
		n.awaitRestart(former, pod)
	}
}

// checkNothingLeft deletes all pods of the churn and waits until the node has
// nothing of them.
func (n *faulty) checkNothingLeft() {
	n.t.Helper()
	began := time.Now()
	within(n.t, waitTimeout, "the pods are deleted", func(ctx context.Context) error {
		pods := n.client.CoreV1().Pods("default")
		if err := pods.DeleteCollection(ctx, *metav1.NewDeleteOptions(0), metav1.ListOptions{LabelSelector: "lasts!=true"}); err != nil {
			return err
		}
		left, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "lasts!=true"})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d pods are left", len(left.Items))
		}
		return err
	})
	deleted := time.Since(began)
	var last error
	within(n.t, waitTimeout, "nothing of deleted pods is left", func(ctx context.Context) error {
		left, err := leftovers(ctx, n.cluster)
		if err == nil && len(left) > 0 {
			err = errors.New(strings.Join(left[:min(len(left), 20)], "\n"))
		}
		if err != nil {
			last = err
		}
		return err
	})
	within(n.t, waitTimeout, "lasting pods run", n.lastingRun)
	n.t.Logf("%v until the pods were deleted, and %v until nothing was left of %d pods; last: %v",
		deleted.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), n.churn.created.Load(), last)
}

// podChurn creates and deletes pods.
type podChurn struct {
	*faulty
	pods    int // the most at a time
	random  *rand.Rand
	created atomic.Int64
}

const (
	// churnPace is the time between two pods of a podChurn.
	churnPace = 100 * time.Millisecond
	// churnAttempt bounds the requests for one of them.
	churnAttempt = 10 * time.Second
)

// start creates and deletes pods until the returned function is called.
func (p *podChurn) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(churnPace)
		defer ticker.Stop()
		for ctx.Err() == nil {
			attempt, done := context.WithTimeout(ctx, churnAttempt)
			_ = p.step(attempt) // the API server may be away
			done()
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// step creates a pod, and deletes one at random once there are many.
func (p *podChurn) step(ctx context.Context) error {
	pods := p.client.CoreV1().Pods("default")
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "lasts!=true"})
	if err != nil {
		return err
	}
	var live []string
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			live = append(live, list.Items[i].Name)
		}
	}
	if len(live) > p.pods/2 {
		grace := int64(p.random.IntN(3))
		if err := pods.Delete(ctx, live[p.random.IntN(len(live))], *metav1.NewDeleteOptions(grace)); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if len(list.Items) >= p.pods {
		return nil
	}
	kinds := churnPods(p.machine)
	pod := kinds[p.random.IntN(len(kinds))]
	pod.Name = fmt.Sprintf("churn-%d-%s", p.created.Add(1), pod.Name)
	_, err = pods.Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// progress returns a condition that is met once a pod that is created after the
// call is Ready.
func (p *podChurn) progress() func(ctx context.Context) error {
	since := p.created.Load()
	return func(ctx context.Context) error {
		pods, err := p.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "lasts!=true"})
		if err != nil {
			return err
		}
		states := map[string]string{}
		for i := range pods.Items {
			pod := &pods.Items[i]
			number, err := strconv.ParseInt(strings.Split(pod.Name, "-")[1], 10, 64)
			if err != nil {
				return err
			}
			if number > since && podquery.IsReady(pod) {
				return nil
			}
			states[pod.Name] = string(pod.Status.Phase)
		}
		return fmt.Errorf("no pod after %d is Ready: %v", since, slices.Sorted(maps.Keys(states)))
	}
}
