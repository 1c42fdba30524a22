package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/host"
)

// keptInstances is how many sandboxes a pod may have, and how many instances of
// a container: the one that runs, and the last one that ended.
const keptInstances = 2

// The forms of the names of containers and sandboxes, and of pods.
const (
	containerID = `[0-9a-f]{64}`
	podUID      = `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`
)

// inventory holds what a node has of its pods, and what is left of pods that
// are gone.
type inventory struct {
	*cluster
	pods      map[string]bool       // UIDs in the API
	ids       map[string]bool       // containers and sandboxes in the runtime
	addresses map[netip.Addr]string // of sandboxes that run, with their ids
	networks  int                   // sandboxes that run in a network of their own
	leftovers []string
	podCIDR   netip.Prefix
}

func (i *inventory) leftover(format string, arguments ...any) {
	i.leftovers = append(i.leftovers, fmt.Sprintf(format, arguments...))
}

// leftovers lists what the node has of pods that the API does not have: in the
// runtime, on disk, in the kernel.
func leftovers(ctx context.Context, c *cluster) ([]string, error) {
	i := &inventory{cluster: c, pods: map[string]bool{}, ids: map[string]bool{}, addresses: map[netip.Addr]string{}}
	pods, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for n := range pods.Items {
		i.pods[string(pods.Items[n].UID)] = true
	}
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	if i.podCIDR, err = netip.ParsePrefix(nodes.Items[0].Spec.PodCIDR); err != nil {
		return nil, err
	}
	if err := errors.Join(i.inRuntime(ctx), i.inSnapshotter(ctx), i.onDisk(), i.inNetwork(ctx)); err != nil {
		return nil, err
	}
	return i.leftovers, nil
}

// runtime calls use with a client of the cluster's containerd.
func (c *cluster) runtime(use func(runtimeapi.RuntimeServiceClient) error) error {
	if _, err := os.Stat(c.containerdSocket()); err != nil { // gRPC would log it
		return err
	}
	conn, err := grpc.NewClient("unix://"+c.containerdSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	return errors.Join(use(runtimeapi.NewRuntimeServiceClient(conn)), conn.Close())
}

func (p clusterProcesses) containerdSocket() string {
	return filepath.Join(host.RunDir(p.name), "containerd", "containerd.sock")
}

// inRuntime checks the sandboxes and containers.
func (i *inventory) inRuntime(ctx context.Context) error {
	return i.runtime(func(client runtimeapi.RuntimeServiceClient) error {
		sandboxes, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			return err
		}
		containers, err := client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		if err != nil {
			return err
		}
		instances := map[string]int{}
		for _, s := range sandboxes.GetItems() {
			uid := s.GetLabels()[kubelettypes.KubernetesPodUIDLabel]
			instances["sandbox of pod "+uid]++
			i.ids[s.GetId()] = true
			if !i.pods[uid] {
				i.leftover("sandbox %s of pod %s, %v", s.GetId(), s.GetMetadata().GetName(), s.GetState())
			}
			status, err := client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.GetId()})
			if err != nil {
				return err
			}
			if ip, err := netip.ParseAddr(status.GetStatus().GetNetwork().GetIp()); err == nil && s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
				i.networks++
				i.addresses[ip] = s.GetId()
			}
		}
		for _, container := range containers.GetContainers() {
			uid := container.GetLabels()[kubelettypes.KubernetesPodUIDLabel]
			name := uid + "/" + container.GetMetadata().GetName()
			instances["container "+name]++
			i.ids[container.GetId()] = true
			if !i.pods[uid] {
				i.leftover("container %s of pod %s, %v", container.GetId(), uid, container.GetState())
			}
		}
		for what, n := range instances {
			if n > keptInstances {
				i.leftover("%s: %d instances", what, n)
			}
		}
		return nil
	})
}

// inSnapshotter checks containerd's own containers, tasks, snapshots and leases.
func (i *inventory) inSnapshotter(ctx context.Context) error {
	id := regexp.MustCompile(containerID)
	for _, question := range []string{"containers ls -q", "tasks ls -q", "snapshots ls", "leases ls -q"} {
		command := append([]string{"-a", i.containerdSocket(), "-n", "k8s.io"}, strings.Fields(question)...)
		out, err := exec.CommandContext(ctx, filepath.Join(filepath.Dir(i.binary), "bundle", "bin", "ctr"), command...).Output()
		if err != nil {
			return fmt.Errorf("ctr %s: %w", question, err)
		}
		for line := range strings.Lines(string(out)) {
			fields := strings.Fields(line)
			if question == "snapshots ls" && fields[len(fields)-1] != "Active" { // the head, and layers of images
				continue
			}
			if found := id.FindString(fields[0]); !i.ids[found] {
				i.leftover("ctr %s: %s", question, strings.TrimSpace(line))
			}
		}
	}
	return nil
}

// onDisk checks the names of files, mounts, control groups and processes: they
// have the ids of containers or the UIDs of pods.
func (i *inventory) onDisk() error {
	settings, err := host.ReadSettings(i.dataDir)
	if err != nil {
		return err
	}
	run := host.RunDir(i.name)
	var places []string
	for _, dir := range []string{
		run, filepath.Join(i.dataDir, "kubelet", "pods"), filepath.Join(i.dataDir, "logs", "pods"),
		filepath.Join(i.dataDir, "containerd", "root", "io.containerd.grpc.v1.cri"),
		filepath.Join(i.dataDir, "containerd", "root", "io.containerd.runtime.v2.task"),
	} {
		places = append(places, names(dir)...)
	}
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		groups, err := filepath.Glob(filepath.Join(pattern, settings.Options.Node.CgroupRoot))
		if err != nil {
			return err
		}
		for _, group := range groups {
			places = append(places, names(group)...)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	namespaces := map[string]bool{}
	for line := range strings.Lines(string(mounts)) {
		point := strings.Fields(line)[4]
		switch {
		case strings.HasPrefix(filepath.Base(point), "cni-") && strings.HasPrefix(point, run):
			namespaces[point] = true
		case strings.HasPrefix(point, run+"/") || strings.HasPrefix(point, i.dataDir+"/"):
			places = append(places, "mount "+point)
		}
	}
	if len(namespaces) > i.networks {
		i.leftover("%d network namespaces for %d pods: %v", len(namespaces), i.networks, slices.Sorted(maps.Keys(namespaces)))
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, path := range commands {
		if raw, err := os.ReadFile(path); err == nil && bytes.Contains(raw, []byte(run+"/")) {
			places = append(places, "process "+strings.ReplaceAll(string(raw), "\x00", " "))
		}
	}
	id := regexp.MustCompile(containerID)
	uid := regexp.MustCompile(podUID)
	for _, place := range places {
		if strings.HasPrefix(place, filepath.Join(run, "containerd", "s")+"/") {
			continue // the socket of a shim, which one that was killed leaves
		}
		if found := id.FindString(place); found != "" && !i.ids[found] {
			i.leftover("%s", place)
			continue
		}
		if found := uid.FindString(place); found != "" && !i.pods[found] && !strings.Contains(place, "cni-") {
			i.leftover("%s", place)
		}
	}
	return nil
}

// names returns the paths of the directories below dir that have the id of a
// container or the UID of a pod, without what is in them.
func names(dir string) (paths []string) {
	named := regexp.MustCompile(containerID + "|" + podUID)
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error { // a file that is removed during the walk is not left
		if err != nil {
			return fs.SkipDir
		}
		base := filepath.Base(path)
		if !named.MatchString(base) {
			return nil
		}
		paths = append(paths, path)
		if strings.HasPrefix(base, "pod") { // the group of a pod has the groups of its containers
			return nil
		}
		return fs.SkipDir
	})
	return paths
}

// inNetwork checks addresses, interfaces and rules.
func (i *inventory) inNetwork(ctx context.Context) error {
	leases, err := filepath.Glob(filepath.Join(i.dataDir, "cni", "leases", i.name, "*"))
	if err != nil {
		return err
	}
	for _, path := range leases {
		address, err := netip.ParseAddr(filepath.Base(path))
		if err != nil {
			continue // the lock, and the last address
		}
		if _, used := i.addresses[address]; !used {
			i.leftover("lease of address %s", address)
		}
	}
	results, err := filepath.Glob("/var/lib/cni/results/" + i.name + "-*")
	if err != nil {
		return err
	}
	for _, path := range results {
		if id, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), i.name+"-"), "-"); !i.ids[id] {
			i.leftover("%s", path)
		}
	}
	out, err := exec.CommandContext(ctx, "ip", "-o", "link", "show", "master", clusternames.Bridge(i.name)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip link: %w: %s", err, out)
	}
	if interfaces := strings.Count(string(out), "\n"); interfaces > i.networks {
		i.leftover("%d interfaces for %d pods:\n%s", interfaces, i.networks, out)
	}
	tables, err := exec.CommandContext(ctx, "nft", "list", "tables").CombinedOutput()
	if err != nil {
		return fmt.Errorf("nft: %w: %s", err, tables)
	}
	address := regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+\b`)
	for line := range strings.Lines(string(tables)) {
		if !strings.Contains(line, i.name) {
			continue
		}
		rules, err := exec.CommandContext(ctx, "nft", append([]string{"list"}, strings.Fields(line)...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("nft: %w: %s", err, rules)
		}
		for rule := range strings.Lines(string(rules)) {
			for _, text := range address.FindAllString(rule, -1) {
				a, err := netip.ParseAddr(text)
				if err != nil || !i.podCIDR.Contains(a) || a == i.podCIDR.Addr() || a == i.podCIDR.Addr().Next() {
					continue
				}
				if _, used := i.addresses[a]; !used {
					i.leftover("rule in %s: %s", strings.TrimSpace(line), strings.TrimSpace(rule))
				}
			}
		}
	}
	return nil
}
