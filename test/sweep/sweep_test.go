package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/containerd"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/mountinfo"
	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/iptables"
	"github.com/coracle-io/coracle/test/mark"
)

// The makers of these tests run this test binary. The variables say how many
// things each makes, and in which directories.
const (
	countVariable     = "CORACLE_SWEEP_COUNT"
	directoryVariable = "CORACLE_SWEEP_DIRECTORY"
)

func TestMain(m *testing.M) {
	if count, err := strconv.Atoi(os.Getenv(countVariable)); err == nil {
		if err := makeThings(os.Getenv(directoryVariable), count); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(mark.Main(m))
}

// makeThings makes the first things of a maker, writes its mark to standard
// output, and waits until standard input ends.
func makeThings(dir string, count int) error {
	m, err := mark.Begin(makersIn(dir), dir)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(file(makersIn(dir), m))
	if err := errors.Join(err, os.WriteFile(file(mark.Folder(), m), content, 0o600), os.Setenv(mark.Variable, m.Mark)); err != nil {
		return err
	}
	for _, thing := range thingsOf(dir, m)[:count] {
		if err := thing.make(); err != nil {
			return fmt.Errorf("%s: %w", thing.what, err)
		}
	}
	fmt.Println(m.Mark)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// file returns the file of a maker. That of a maker of these tests is also in the
// folder of all makers, in case that the test is killed.
func file(folder string, m mark.Maker) string { return filepath.Join(folder, m.Mark+".json") }

func makersIn(dir string) string { return filepath.Join(dir, "makers") }

func clustersIn(dir string) host.Registry { return host.NewRegistry(filepath.Join(dir, "clusters")) }

// thing is something that a test may leave.
type thing struct {
	what  string
	make  func() error
	there func() bool
}

// thingsOf returns one thing of each kind that a maker makes. The container
// runtime is the last.
func thingsOf(dir string, m mark.Maker) []thing {
	name := func(suffix string) string { return m.Prefix() + suffix }
	group, run := filepath.Join(hierarchy(), name("group"), "pod"), filepath.Join("/run", name("run"))
	record := host.Record{Occupied: host.Occupied{Name: name("cluster"), DataDir: filepath.Join(m.Directory, "data")}}
	return []thing{
		{"file", func() error { return os.WriteFile(filepath.Join(m.Directory, "file"), nil, 0o600) }, exists(m.Directory)},
		{"mount", mount(filepath.Join(m.Directory, "mounted")), mounted(m.Directory)},
		{"process", func() error { return exec.Command("sleep", "1000").Start() }, func() bool { all, err := marked(m); return err != nil || len(all) > 0 }},
		{"record of a cluster", func() error { return clustersIn(dir).Put(record) }, func() bool { _, err := clustersIn(dir).Get(record.Name); return err == nil }},
		{"control group", func() error { return startIn(group) }, exists(filepath.Dir(group))},
		{"network namespace", command("ip", "netns", "add", name("ns")), exists(filepath.Join("/run/netns", name("ns")))},
		{"interface to it", command("ip", "link", "add", name("h"), "type", "veth", "peer", "name", "eth0", "netns", name("ns")), isLink(name("h"))},
		{"bridge", command("ip", "link", "add", name("br"), "type", "bridge"), isLink(name("br"))},
		{"table", func() error { return addTable(name("table")) }, func() bool { return isTable(name("table")) }},
		{"directory in /run", mount(run), exists(run)},
		{"record of the CNI library", func() error { return recordPod(name("record"), filepath.Join(run, "netns")) }, exists(filepath.Join(cniRecords, name("record")))},
		{"container runtime", func() error { return runRuntime(m) }, exists(filepath.Join("/run", name("cri")))},
	}
}

// recordPod records a pod in a network namespace as the CNI library does.
func recordPod(name, namespace string) error {
	content := fmt.Appendf(nil, `{"kind": "cniCacheV1", "netns": %q}`, namespace)
	return errors.Join(os.MkdirAll(cniRecords, 0o700), os.WriteFile(filepath.Join(cniRecords, name), content, 0o600))
}

func exists(path string) func() bool {
	return func() bool { _, err := os.Lstat(path); return err == nil }
}

func mount(dir string) func() error {
	return func() error {
		return errors.Join(os.MkdirAll(dir, 0o700), unix.Mount("test", dir, "tmpfs", 0, "size=1m"), os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	}
}

func mounted(dir string) func() bool {
	return func() bool {
		points, err := mountinfo.Points()
		return err != nil || len(mountinfo.Below(points, dir)) > 0
	}
}

func command(program string, arguments ...string) func() error {
	return func() error {
		if out, err := exec.Command(program, arguments...).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
}

func isLink(name string) func() bool {
	return func() bool { _, err := netlink.LinkByName(name); return err == nil }
}

func hierarchy() string {
	const pids = "/sys/fs/cgroup/pids"
	if _, err := os.Stat(pids); err == nil {
		return pids
	}
	return filepath.Dir(pids)
}

// startIn starts a process without a mark in a new control group.
func startIn(group string) error {
	cmd := exec.Command("sleep", "1000")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	if err := errors.Join(os.MkdirAll(group, 0o755), cmd.Start()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600)
}

func addTable(name string) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		conn.AddTable(&nftables.Table{Family: family, Name: name})
	}
	return conn.Flush()
}

func isTable(name string) bool {
	conn, err := nftables.New()
	if err != nil {
		return true
	}
	tables, err := conn.ListTables()
	for _, table := range tables {
		if table.Name == name {
			return true
		}
	}
	return err != nil
}

// runRuntime starts the bundled container runtime.
func runRuntime(m mark.Maker) error {
	bundle, err := filepath.Abs("../../bin/bundle")
	if err != nil {
		return err
	}
	r, err := containerd.New(containerd.Config{
		BundleDir: bundle, DataDir: filepath.Join(m.Directory, "containerd"), RunDir: filepath.Join("/run", m.Prefix()+"cri"),
		CNIConfDir: filepath.Join(m.Directory, "cni"), CgroupRoot: "/" + m.Prefix() + "cri",
	})
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- r.Run(context.Background()) }()
	select {
	case <-r.Ready():
		return nil
	case err := <-done:
		return err
	}
}

// maker is a process that makes things.
type maker struct {
	mark.Maker
	process *exec.Cmd
	input   io.Closer
}

// start starts a maker and waits until it has made its first things.
func start(t *testing.T, dir string, count int) maker {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), countVariable+"="+strconv.Itoa(count), directoryVariable+"="+dir)
	cmd.Stderr = os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal("the maker has ended:", err)
	}
	m := mark.Maker{Mark: strings.TrimSpace(line)}
	m.Directory = filepath.Join(dir, m.Mark)
	t.Cleanup(func() {
		_ = errors.Join(in.Close(), cmd.Wait()) // it may have been killed
		if err := os.Remove(file(mark.Folder(), m)); err != nil {
			t.Error(err)
		}
	})
	return maker{m, cmd, in}
}

// kill kills the maker.
func (m maker) kill(t *testing.T) {
	t.Helper()
	if err := m.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = m.process.Wait() // it was killed
}

// testSweeper returns a sweeper of the makers and clusters in a new directory,
// with a program that removes records.
func testSweeper(t *testing.T) (s sweeper, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir = t.TempDir()
	s = sweeper{makers: makersIn(dir), clusters: clustersIn(dir), program: filepath.Join(dir, "coracle")}
	script := "#!/bin/sh\nexec rm '" + s.clusters.Folder() + "'/${3#--name=}.json\n"
	if err := os.WriteFile(s.program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return s, dir
}

// checkThings checks which of a maker's things are there.
func checkThings(t *testing.T, dir, whose string, m mark.Maker, there bool) {
	t.Helper()
	for _, thing := range thingsOf(dir, m) {
		if thing.there() != there {
			t.Errorf("%s of %s: there is %t, want %t", thing.what, whose, !there, there)
		}
	}
}

// A sweep removes what a killed test has left. It leaves what a running test
// makes, and what has no mark of a test, whatever its name.
func TestSweep(t *testing.T) {
	s, dir := testSweeper(t)
	other := mark.Maker{Mark: mark.Name(""), Directory: filepath.Join(dir, "other")} // which this sweeper does not know
	all := thingsOf(dir, other)
	t.Cleanup(func() {
		if err := errors.Join(removeFromKernel(context.Background(), other), removeFiles(context.Background(), other)); err != nil {
			t.Error(err)
		}
	})
	killed, running := start(t, dir, len(all)), start(t, dir, len(all))
	if err := os.Mkdir(other.Directory, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, thing := range all {
		if thing.what == "process" || thing.what == "container runtime" {
			continue // their environment has the mark of this test
		}
		if err := thing.make(); err != nil {
			t.Fatalf("%s: %v", thing.what, err)
		}
	}
	killed.kill(t)
	if err := s.sweep(t.Context()); err != nil {
		t.Error(err)
	}
	checkThings(t, dir, "the killed test", killed.Maker, false)
	checkThings(t, dir, "the running test", running.Maker, true)
	for _, thing := range all {
		if !thing.there() && thing.what != "process" && thing.what != "container runtime" {
			t.Errorf("%s of another is gone", thing.what)
		}
	}
	if err := errors.Join(running.input.Close(), running.process.Wait()); err != nil {
		t.Error(err)
	}
	if err := s.sweep(t.Context()); err != nil {
		t.Error(err)
	}
	checkThings(t, dir, "the test that has ended", running.Maker, false)
	if left, err := mark.Makers(s.makers); err != nil || len(left) > 0 {
		t.Errorf("makers %+v are left, %v", left, err)
	}
}

// The rules of a proxy of a test go, and those of another proxy stay. A network namespace
// has those of one.
func TestRulesOfIPTables(t *testing.T) {
	if err := iptables.Installed(false); err != nil {
		t.Skip(err)
	}
	var lacks error
	netnstest.Do(t, netnstest.New(t), func() error {
		lacks = exec.Command("iptables", "-t", "nat", "-S").Run()
		return nil
	})
	if lacks != nil {
		t.Skipf("the kernel has no tables of iptables: %v", lacks)
	}
	m := mark.Maker{Mark: mark.Name("rules")}
	for owner, stay := range map[string]bool{m.Prefix() + "table": false, "other": true} {
		netnstest.Do(t, netnstest.New(t), func() error {
			b := iptables.New(iptables.Config{Owner: owner})
			if err := errors.Join(b.Apply(proxy.Rules{}), removeRules(m)); err != nil {
				return err
			}
			if left := b.Owners(); len(left) > 0 != stay {
				t.Errorf("after the sweep there are the rules of %v", left)
			}
			return nil
		})
	}
}

// A test may be killed after anything that it makes.
func TestSweepOfATestKilledAtAnyPoint(t *testing.T) {
	s, dir := testSweeper(t)
	for count := range len(thingsOf(dir, mark.Maker{})) - 1 { // without the container runtime
		m := start(t, dir, count)
		m.kill(t)
		if count == 0 { // between its file and its directory
			if err := os.Remove(m.Directory); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.sweep(t.Context()); err != nil {
			t.Errorf("after %d things: %v", count, err)
		}
		checkThings(t, dir, fmt.Sprintf("a test killed after %d things", count), m.Maker, false)
	}
}

// A cluster that cannot be removed is reported and stays, with its data, for the
// next sweep. The makers after it are swept.
func TestSweepThatFails(t *testing.T) {
	s, dir := testSweeper(t)
	const withRecord = 4
	first, second := start(t, dir, withRecord), start(t, dir, 1)
	first.kill(t)
	second.kill(t)
	program := s.program
	s.program = "false"
	if err := s.sweep(t.Context()); err == nil || !strings.Contains(err.Error(), "down --yes --name="+first.Prefix()+"cluster") {
		t.Errorf("the error is %v", err)
	}
	checkThings(t, dir, "the second", second.Maker, false)
	if _, err := os.Lstat(first.Directory); err != nil {
		t.Error(err)
	}
	s.program = program
	if err := s.sweep(t.Context()); err != nil {
		t.Error(err)
	}
	checkThings(t, dir, "the first", first.Maker, false)
}

// Without any test that has ever run, there is nothing to do.
func TestSweepOfNothing(t *testing.T) {
	s := sweeper{makers: filepath.Join(t.TempDir(), "none")}
	if err := s.sweep(t.Context()); err != nil {
		t.Error(err)
	}
}

// The cluster of a killed test is taken down, and that of a running one, which
// this one is, stays.
func TestSweepOfClusters(t *testing.T) {
	s, dir := testSweeper(t)
	s.clusters, s.program = host.NewRegistry(host.Root()), os.Getenv("CORACLE_BINARY")
	if s.program == "" {
		s.program = filepath.Join("..", "..", "bin", "coracle")
	}
	if _, err := os.Stat(s.program); err != nil {
		t.Fatalf("%v: run these tests by make test", err)
	}
	killed := start(t, dir, 0)
	own := mark.Maker{Mark: strings.TrimSuffix(mark.Name(""), "-"), Directory: os.TempDir()}
	coracle := func(m mark.Maker, arguments ...string) {
		t.Helper()
		cmd := exec.Command(s.program, arguments...)
		cmd.Env = append(os.Environ(), mark.Variable+"="+m.Mark, "HOME="+m.Directory)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("coracle %s: %v\n%s", strings.Join(arguments, " "), err, out)
		}
	}
	t.Cleanup(func() { coracle(own, "down", "--yes", "--name="+own.Prefix()+"c") })
	for _, m := range []mark.Maker{killed.Maker, own} {
		coracle(m, "up", "--nodes=0", "--name="+m.Prefix()+"c", "--data-dir="+filepath.Join(m.Directory, "data"), "--kubeconfig="+filepath.Join(m.Directory, "kubeconfig"))
	}
	killed.kill(t)
	if err := s.sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if rec, err := s.clusters.Find(killed.Prefix() + "c"); !errors.Is(err, host.ErrNoCluster) {
		t.Errorf("the cluster of the killed test is there: %+v, %v", rec, err)
	}
	if rec, err := s.clusters.Find(own.Prefix() + "c"); err != nil || !rec.Running() {
		t.Errorf("the cluster of the running test does not run: %+v, %v", rec, err)
	}
	checkThings(t, dir, "the killed test", killed.Maker, false)
}
