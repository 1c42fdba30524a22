package script

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/freeport"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/processes"
)

// killProcess kills one process of a cluster with SIGKILL, and waits until its
// successor is ready: killprocess CLUSTER PROCESS.
func killProcess(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: killprocess CLUSTER PROCESS")
	}
	find := func() processes.Process {
		st, _, err := processes.Read(host.RunDir(args[0]))
		ts.Check(err)
		for _, p := range st.Processes {
			if p.Name == args[1] {
				return p
			}
		}
		ts.Fatalf("cluster %s has no process %s", args[0], args[1])
		return processes.Process{}
	}
	before := find()
	ts.Check(unix.Kill(before.PID, unix.SIGKILL))
	again, end := time.NewTicker(20*time.Millisecond), time.After(timeout)
	defer again.Stop()
	for {
		if now := find(); now.Ready && now.Start != before.Start {
			return
		}
		select {
		case <-again.C:
		case <-end:
			ts.Fatalf("process %s did not come back within %v", args[1], timeout)
		}
	}
}

// adminConfig returns the current context of the session's kubeconfig.
func adminConfig(ts *testscript.TestScript) *rest.Config {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(ts.Getenv("HOME"), ".kube", "config"))
	ts.Check(err)
	config.QPS = -1
	return config
}

// request sends an HTTP request as cluster admin and checks the response's
// status code and the Status' reason (- for none): request CODE REASON METHOD
// PATH [CONTENT-TYPE [FILE]]. It writes the body to the file "answer".
func request(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: request CODE REASON METHOD PATH [CONTENT-TYPE [FILE]]")
	}
	config := adminConfig(ts)
	client, err := rest.HTTPClientFor(config)
	ts.Check(err)
	var body []byte
	if len(args) > 5 {
		body = []byte(ts.ReadFile(args[5]))
	}
	r, err := http.NewRequestWithContext(context.Background(), args[2], config.Host+args[3], bytes.NewReader(body))
	ts.Check(err)
	if len(args) > 4 {
		r.Header.Set("Content-Type", args[4])
	}
	resp, err := client.Do(r)
	ts.Check(err)
	answer, err := io.ReadAll(resp.Body)
	ts.Check(errors.Join(err, resp.Body.Close()))
	ts.Check(os.WriteFile(ts.MkAbs("answer"), answer, 0o600))
	var status metav1.Status
	_ = json.Unmarshal(answer, &status) // other answers have no reason
	reason := string(status.Reason)
	if reason == "" {
		reason = "-"
	}
	if strconv.Itoa(resp.StatusCode) != args[0] || reason != args[1] {
		ts.Fatalf("%s: want %s %s; got %d %s: %.500s", strings.Join(args[2:], " "), args[0], args[1], resp.StatusCode, reason, answer)
	}
}

// large writes a ConfigMap of a size in bytes: large FILE BYTES.
func large(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: large FILE BYTES")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	content := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large"},"data":{"x":"` + strings.Repeat("x", n) + `"}}`
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(content), 0o600))
}

// freePort sets each variable to the number of a port that nothing listens on
// until the session starts a server there.
func freePort(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		port, release, err := freeport.Reserve()
		ts.Check(err)
		ts.Defer(release)
		ts.Setenv(name, strconv.Itoa(port))
	}
}

// holdport listens on a free port until the session ends: holdport VARIABLE.
func holdport(ts *testscript.TestScript, neg bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	ts.Setenv(args[0], strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
}

// createkilled creates ConfigMaps from eight callers until it has killed the
// cluster's control plane, which it does once a number of them is acknowledged.
// It writes the names of the acknowledged ones to the file "acknowledged":
// createkilled CLUSTER COUNT.
func createkilled(ts *testscript.TestScript, neg bool, args []string) {
	count, err := strconv.Atoi(args[1])
	ts.Check(err)
	client, err := kubernetes.NewForConfig(adminConfig(ts))
	ts.Check(err)
	const callers = 8
	var mu sync.Mutex
	var acknowledged []string
	enough := make(chan struct{})
	var next atomic.Int64
	var killed atomic.Bool
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for range callers {
		wg.Go(func() {
			for ctx.Err() == nil {
				name := fmt.Sprintf("cm-%06d", next.Add(1))
				_, err := client.CoreV1().ConfigMaps("default").Create(ctx, &v1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"name": name, "fill": strings.Repeat("x", 1000)},
				}, metav1.CreateOptions{})
				if err != nil { // it was not acknowledged
					if killed.Load() {
						return
					}
					continue
				}
				mu.Lock()
				if acknowledged = append(acknowledged, name); len(acknowledged) == count {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	select {
	case <-enough:
	case <-ctx.Done():
		ts.Fatalf("fewer than %d creates were acknowledged within %v", count, timeout)
	}
	record, err := host.NewRegistry(host.Root()).Get(args[0])
	if err == nil {
		err = record.Kill(context.Background())
	}
	killed.Store(true)
	wg.Wait()
	ts.Check(err)
	ts.Logf("%d creates were acknowledged", len(acknowledged))
	ts.Check(os.WriteFile(ts.MkAbs("acknowledged"), []byte(strings.Join(acknowledged, "\n")), 0o600))
}

// acknowledged checks that each acknowledged ConfigMap of createkilled exists,
// and that all stored ones are complete.
func acknowledged(ts *testscript.TestScript, neg bool, args []string) {
	client, err := kubernetes.NewForConfig(adminConfig(ts))
	ts.Check(err)
	list, err := client.CoreV1().ConfigMaps("default").List(context.Background(), metav1.ListOptions{})
	ts.Check(err)
	stored := map[string]bool{}
	for i := range list.Items {
		cm := &list.Items[i]
		if !strings.HasPrefix(cm.Name, "cm-") {
			continue
		}
		if cm.Data["name"] != cm.Name || len(cm.Data["fill"]) != 1000 || cm.UID == "" {
			ts.Fatalf("ConfigMap %s differs from the one that was sent", cm.Name)
		}
		stored[cm.Name] = true
	}
	for _, name := range strings.Fields(ts.ReadFile("acknowledged")) {
		if !stored[name] {
			ts.Fatalf("ConfigMap %s was acknowledged and is missing", name)
		}
	}
}

// noresidue checks that nothing of a cluster is left on this machine:
// noresidue CLUSTER.
func noresidue(ts *testscript.TestScript, neg bool, args []string) {
	name := args[0]
	holds := func(what string, content []byte) {
		for line := range strings.Lines(string(content)) {
			if strings.Contains(line, name) {
				ts.Fatalf("%s of cluster %s was not removed: %s", what, name, line)
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	ts.Check(err)
	holds("a mount", mounts)
	for what, line := range map[string][]string{
		"a network interface": {"ip", "-d", "link"}, "an nftables table": {"nft", "list", "tables"},
	} {
		out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
		ts.Check(err)
		holds(what, out)
		for _, bridge := range []string{clusternames.Bridge(name), clusternames.Segment(name), clusternames.Tunnel(name)} {
			if bytes.Contains(out, []byte(bridge)) {
				ts.Fatalf("bridge %s of cluster %s was not removed", bridge, name)
			}
		}
	}
	for _, pattern := range []string{
		"/sys/fs/cgroup/*" + name + "*", "/sys/fs/cgroup/*/*" + name + "*", "/run/coracle/" + name,
		host.Root() + "/" + name, host.Root() + "/clusters/" + name + ".json", "/var/run/netns/*" + name + "*",
	} {
		left, err := filepath.Glob(pattern)
		ts.Check(err)
		if len(left) > 0 {
			ts.Fatalf("cluster %s left %s", name, strings.Join(left, ", "))
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	ts.Check(err)
	for _, p := range processes {
		raw, err := os.ReadFile(p)
		if err != nil {
			continue // it has ended
		}
		line := string(bytes.ReplaceAll(raw, []byte{0}, []byte(" ")))
		if strings.Contains(line, "--name="+name+" ") || strings.Contains(line, "/run/coracle/"+name+"/") {
			ts.Fatalf("a process of cluster %s still runs: %s", name, line)
		}
	}
}

// etcdsocket sets a variable to the URL of a cluster's embedded etcd:
// etcdsocket VARIABLE CLUSTER.
func etcdsocket(ts *testscript.TestScript, neg bool, args []string) {
	ts.Setenv(args[0], "unix://"+host.EtcdSocket(host.RunDir(args[1])))
}

// nodeport requests a Service's node port at the address of each node until it
// answers: nodeport SERVICE.
func nodeport(ts *testscript.TestScript, neg bool, args []string) {
	client, err := kubernetes.NewForConfig(adminConfig(ts))
	ts.Check(err)
	ctx := context.Background()
	service, err := client.CoreV1().Services("default").Get(ctx, args[0], metav1.GetOptions{})
	ts.Check(err)
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	ts.Check(err)
	for _, node := range nodes.Items {
		address := net.JoinHostPort(node.Status.Addresses[0].Address, strconv.Itoa(int(service.Spec.Ports[0].NodePort)))
		eventually(ts, neg, []string{"", "curl", "-sf", "http://" + address})
	}
}

// affinity waits until a command succeeds, runs it ten times, and fails if the
// outputs differ: affinity COMMAND ARG...
func affinity(ts *testscript.TestScript, neg bool, args []string) {
	eventually(ts, neg, append([]string{""}, args...))
	var first string
	for i := range 10 {
		out, err := command(context.Background(), ts, args).Output()
		ts.Check(err)
		if i == 0 {
			first = string(out)
		}
		if string(out) != first {
			ts.Fatalf("the first answer was %q, another %q", first, out)
		}
	}
}

// different repeats a command until it has printed a number of different
// outputs: different NUMBER COMMAND ARG...
func different(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	seen := map[string]bool{}
	for range 100 {
		out, err := command(context.Background(), ts, args[1:]).Output()
		ts.Check(err)
		if seen[string(out)] = true; len(seen) == want {
			return
		}
	}
	ts.Fatalf("100 runs of %s gave %d different outputs, want %d", strings.Join(args[1:], " "), len(seen), want)
}
