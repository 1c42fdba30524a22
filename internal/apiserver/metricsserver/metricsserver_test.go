package metricsserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/watchcache"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// kubelets answers for nodes as kubelets do.
type kubelets struct {
	objects *objectstest.Memory
	served  bool
	answer  func(ctx context.Context, node string) (string, error)

	mu    sync.Mutex // guards asked, which tests read while no node is asked
	asked map[string]int
}

func (k *kubelets) ask(ctx context.Context, node, path string) (*http.Response, error) {
	if path != "/metrics/resource" {
		return nil, fmt.Errorf("asked for %s", path)
	}
	k.mu.Lock()
	k.asked[node]++
	k.mu.Unlock()
	text, err := k.answer(ctx, node)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text))}, nil
}

// run runs f beside a Server in a bubble.
func run(t *testing.T, f func(t *testing.T, k *kubelets, s *Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &kubelets{objects: objectstest.NewMemory(), served: true, asked: map[string]int{}}
		s := New(Config{Objects: k.objects, Ask: k.ask, Serves: func() bool { return k.served }})
		f(t, k, s)
	})
}

// start starts a Server until the test ends.
func start(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
}

func newPod(name, node string, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": name}}}
	p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
	}
	return p
}

// text returns the lines of a container that has used half a CPU since start.
func text(pod, container string, start time.Time, bytes int) string {
	labels := fmt.Sprintf(`{container=%q,namespace="shop",pod=%q}`, container, pod)
	now := time.Now()
	return fmt.Sprintf("# TYPE container_cpu_usage_seconds_total counter\ncontainer_cpu_usage_seconds_total%s %g %d\n", labels, now.Sub(start).Seconds()/2, now.UnixMilli()) +
		fmt.Sprintf("container_memory_working_set_bytes%s %d %d\n", labels, bytes, now.UnixMilli()) +
		fmt.Sprintf("container_start_time_seconds%s %g\n", labels, float64(start.UnixMilli())/1000)
}

func nodeText(since time.Time) string {
	return fmt.Sprintf("node_cpu_usage_seconds_total %g %d\nnode_memory_working_set_bytes 1.048576e+06 %d\n",
		time.Since(since).Seconds(), time.Now().UnixMilli(), time.Now().UnixMilli())
}

// show returns the metrics as text.
func show(entries []*watchcache.Entry) string {
	var lines []string
	for _, e := range entries {
		switch m := e.Object.(type) {
		case *v1beta1.NodeMetrics:
			lines = append(lines, fmt.Sprintf("%s %s %s %v", m.Name, m.Usage.Cpu(), m.Usage.Memory(), m.Window.Duration))
		case *v1beta1.PodMetrics:
			line := fmt.Sprintf("%s/%s %v", m.Namespace, m.Name, m.Window.Duration)
			for _, c := range m.Containers {
				line += fmt.Sprintf(" %s=%s,%s", c.Name, c.Usage.Cpu(), c.Usage.Memory())
			}
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

func (s *Server) list(kind, selector string) string {
	o := &internalversion.ListOptions{}
	if selector != "" {
		parsed, err := labels.Parse(selector)
		if err != nil {
			panic(err)
		}
		o.LabelSelector = parsed
	}
	return show(s.List(kind, "", o))
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n%s\nwant:\n%s", what, got, want)
	}
}

func TestRatesOfTwoSamples(t *testing.T) {
	run(t, func(t *testing.T, k *kubelets, s *Server) {
		boot := time.Now().Add(-time.Hour)
		k.objects.Put(objects.Nodes, newNode("n1"))
		k.objects.Put(objects.Pods, newPod("web", "n1", "main", "side"), newPod("db", "n1", "main"))
		k.answer = func(context.Context, string) (string, error) {
			return nodeText(boot) + text("web", "main", boot, 1<<20) + text("web", "side", boot, 1<<19) + text("db", "main", boot, 1<<20), nil
		}
		start(t, s)
		synctest.Wait()
		expect(t, "after one sample", s.list("NodeMetrics", "")+s.list("PodMetrics", ""), "")
		time.Sleep(activePeriod + time.Second)
		expect(t, "nodes", s.list("NodeMetrics", ""), "n1 1 1Mi 15s")
		expect(t, "pods", s.list("PodMetrics", ""), "shop/db 15s main=500m,1Mi\nshop/web 15s main=500m,1Mi side=500m,512Ki")
		expect(t, "selected by labels", s.list("PodMetrics", "app=db"), "shop/db 15s main=500m,1Mi")
		expect(t, "selected by name", show(s.List("PodMetrics", "shop", &internalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", "web")})),
			"shop/web 15s main=500m,1Mi side=500m,512Ki")
		expect(t, "of another namespace", show(s.List("PodMetrics", "other", &internalversion.ListOptions{})), "")
		if _, ok := s.Get("PodMetrics", "shop", "web"); !ok {
			t.Error("a pod is not found")
		}
		if _, ok := s.Get("NodeMetrics", "", "n2"); ok {
			t.Error("a node that is not there is found")
		}

		k.objects.Delete(objects.Pods, "shop", "db")
		expect(t, "after a pod was deleted", s.list("PodMetrics", "app=db"), "")
		again := newPod("db", "n1", "main")
		time.Sleep(time.Second)
		again.CreationTimestamp = metav1.Now()
		k.objects.Put(objects.Pods, again)
		expect(t, "of a new pod of the same name", s.list("PodMetrics", "app=db"), "")
	})
}

// Nodes and pods that were created before the clock was set back have metrics. A list asks the
// kubelets again, so that another one may have what they answer to that.
func TestMetricsAfterTheClockIsSetBack(t *testing.T) {
	for kind, want := range map[string]string{"NodeMetrics": "n1 1 1Mi 15s", "PodMetrics": "shop/web 15s main=500m,1Mi"} {
		run(t, func(t *testing.T, k *kubelets, s *Server) {
			boot, created := time.Now().Add(-time.Hour), metav1.NewTime(time.Now().Add(time.Hour))
			n, p := newNode("n1"), newPod("web", "n1", "main")
			n.CreationTimestamp, p.CreationTimestamp = created, created
			k.objects.Put(objects.Nodes, n)
			k.objects.Put(objects.Pods, p)
			k.answer = func(context.Context, string) (string, error) {
				return nodeText(boot) + text("web", "main", boot, 1<<20), nil
			}
			start(t, s)
			time.Sleep(activePeriod + time.Second)
			expect(t, kind, s.list(kind, ""), want)
		})
	}
}

// TestFreshContainers have rates since their start, also after a restart.
func TestFreshContainers(t *testing.T) {
	run(t, func(t *testing.T, k *kubelets, s *Server) {
		began := time.Now()
		k.objects.Put(objects.Nodes, newNode("n1"))
		k.objects.Put(objects.Pods, newPod("web", "n1", "main"))
		k.answer = func(context.Context, string) (string, error) {
			return nodeText(began) + text("web", "main", began, 1<<20), nil
		}
		time.Sleep(12 * time.Second)
		start(t, s)
		synctest.Wait()
		expect(t, "after the first sample", s.list("PodMetrics", ""), "shop/web 12s main=500m,1Mi")
		time.Sleep(5 * time.Second) // until a restart
		began = time.Now()
		time.Sleep(activePeriod - 5*time.Second + time.Second)
		expect(t, "10 seconds after a restart", s.list("PodMetrics", ""), "shop/web 10s main=500m,1Mi")
	})
}

// TestMistrust checks that a node is believed only about its own pods.
func TestMistrust(t *testing.T) {
	run(t, func(t *testing.T, k *kubelets, s *Server) {
		boot := time.Now().Add(-time.Hour)
		k.objects.Put(objects.Nodes, newNode("n1"), newNode("n2"))
		k.objects.Put(objects.Pods, newPod("web", "n1", "main"))
		k.answer = func(_ context.Context, node string) (string, error) {
			if node == "n1" {
				return text("web", "main", boot, 1<<20) + text("web", "other", boot, 1<<20), nil
			}
			return text("web", "main", boot, 1<<30) + text("none", "main", boot, 1<<30), nil
		}
		start(t, s)
		time.Sleep(activePeriod + time.Second)
		expect(t, "pods", s.list("PodMetrics", ""), "shop/web 15s main=500m,1Mi")
		expect(t, "nodes without figures", s.list("NodeMetrics", ""), "")
	})
}

// TestSilentNodes does not delay the others, and their metrics vanish.
func TestSilentNodes(t *testing.T) {
	run(t, func(t *testing.T, k *kubelets, s *Server) {
		boot := time.Now().Add(-time.Hour)
		const silent = 200
		for i := range silent {
			k.objects.Put(objects.Nodes, newNode(fmt.Sprintf("silent-%d", i)))
		}
		k.objects.Put(objects.Nodes, newNode("zz-answers"))
		dead := map[string]bool{}
		k.answer = func(ctx context.Context, node string) (string, error) {
			if node != "zz-answers" || dead[node] {
				<-ctx.Done()
				return "", ctx.Err()
			}
			return nodeText(boot), nil
		}
		start(t, s)
		for range 60 { // somebody reads all the time
			time.Sleep(10 * time.Second)
			s.list("NodeMetrics", "")
		}
		expect(t, "nodes", s.list("NodeMetrics", ""), "zz-answers 1 1Mi 15s")
		if n := k.asked["zz-answers"]; n < 35 || n > 41 {
			t.Errorf("the node that answers was asked %d times in 10 minutes", n)
		}
		if n := k.asked["silent-7"]; n == 0 || n > 5 {
			t.Errorf("a silent node was asked %d times in 10 minutes", n)
		}
		dead["zz-answers"] = true
		time.Sleep(maxAge + time.Second)
		expect(t, "after the last one fell silent", s.list("NodeMetrics", ""), "")
	})
}

// TestPeriods checks that nodes are asked less often while no client reads the
// metrics, and not at all while another server serves the group.
func TestPeriods(t *testing.T) {
	run(t, func(t *testing.T, k *kubelets, s *Server) {
		boot := time.Now().Add(-time.Hour)
		k.objects.Put(objects.Nodes, newNode("n1"))
		k.answer = func(context.Context, string) (string, error) { return nodeText(boot), nil }
		start(t, s)
		time.Sleep(time.Hour)
		if n := k.asked["n1"]; n < 59 || n > 63 {
			t.Errorf("asked %d times in an hour in which nobody read", n)
		}
		k.asked["n1"] = 0
		s.list("NodeMetrics", "")
		synctest.Wait()
		if k.asked["n1"] != 1 {
			t.Error("the first reader does not bring a new sample")
		}
		time.Sleep(time.Minute + time.Second)
		if n := k.asked["n1"]; n != 5 {
			t.Errorf("asked %d times in the minute after a reader", n)
		}
		k.served = false
		time.Sleep(time.Minute)
		k.asked["n1"] = 0
		time.Sleep(time.Hour)
		if k.asked["n1"] != 0 || s.list("NodeMetrics", "") != "" {
			t.Error("nodes are asked although another server serves the group")
		}
	})
}

func TestAnswers(t *testing.T) {
	all := func(types.NamespacedName, string) bool { return true }
	for line, want := range map[string]string{
		`node_cpu_usage_seconds_total 4.5 1700000000000`:                                       "node 4500000000 1700000000000000000",
		`node_cpu_usage_seconds_total 4.5`:                                                     "node 4500000000 5",
		`node_cpu_usage_seconds_total NaN`:                                                     "node 0 0",
		`node_cpu_usage_seconds_total -1`:                                                      "node 0 0",
		`node_cpu_usage_seconds_total 1e300`:                                                   "node 0 0",
		`node_cpu_usage_seconds_total 1 99999999999999999`:                                     "node 0 0",
		`node_cpu_usage_seconds_total 1 2 3`:                                                   "node 0 0",
		`container_cpu_usage_seconds_total{container="c",namespace="n",pod="p",more="x"} 1e-9`: "node 0 0 n/p/c 1 5",
		`container_cpu_usage_seconds_total{ container="c", namespace="n", pod="p" } 2 7`:       "node 0 0 n/p/c 2000000000 7000000",
		`container_cpu_usage_seconds_total{container="a\"b",namespace="n",pod="p"} 1`:          "node 0 0",
		`container_cpu_usage_seconds_total{container="c",namespace="n"} 1`:                     "node 0 0",
		`container_cpu_usage_seconds_total{container="c",namespace="n",pod="p} 1`:              "node 0 0",
		`container_cpu_usage_seconds_total{container="c",namespace="n",pod="p"}`:               "node 0 0",
		"container_cpu_usage_seconds_total":                                                    "node 0 0",
		"{":                                                                                    "node 0 0",
		"":                                                                                     "node 0 0",
		`container_cpu_usage_seconds_total{container="c",namespace="n",pod="p"} 1` + "\xff \x00\nnode": "node 0 0",
	} {
		s, err := read(strings.NewReader(line), time.Unix(0, 5), all)
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint("node ", s.node.cpu, " ", s.node.at)
		for pod, containers := range s.pods {
			for _, c := range containers {
				got += fmt.Sprint(" ", pod, "/", c.name, " ", c.cpu, " ", c.at)
			}
		}
		expect(t, line, got, want)
	}
}

// Lines of metrics that are not read cost nothing, and the others only what is
// kept: an answer has up to 16 MiB of them.
func TestCostOfAnswers(t *testing.T) {
	for line, want := range map[string]float64{
		`container_swap_usage_bytes{container="c",namespace="n",pod="p"} 2 7`:         0,
		`container_memory_working_set_bytes{container="c",namespace="n",pod="p"} 2 7`: 0,
		"node_memory_working_set_bytes " + strings.Repeat("1", 1000):                  0,
	} {
		text := []byte(line)
		if got := testing.AllocsPerRun(100, func() { parse(text, 5) }); got != want {
			t.Errorf("%s: %v allocations, want %v", line, got, want)
		}
	}
}

// A pod has no metrics if a container was not measured: the sum over the others
// would be taken for the usage of the pod.
func TestPartialMetricsOfAPod(t *testing.T) {
	of := func(pod, container string, cpu, memory float64) string {
		labels := fmt.Sprintf("{container=%q,namespace=\"n\",pod=%q}", container, pod)
		text := fmt.Sprintf("container_cpu_usage_seconds_total%s %v 1700000000000\n", labels, cpu)
		if memory > 0 {
			text += fmt.Sprintf("container_memory_working_set_bytes%s %v 1700000000000\n", labels, memory)
		}
		return text
	}
	s, err := read(strings.NewReader(of("whole", "a", 1, 1)+of("part", "a", 1, 1)+of("part", "b", 1, 0)), time.Now(), func(types.NamespacedName, string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for pod := range next(nil, s, time.Now()).pods {
		got = append(got, pod.Name)
	}
	expect(t, "pods with metrics", strings.Join(got, " "), "whole")
}

func TestAnswersAreBounded(t *testing.T) {
	none := func(types.NamespacedName, string) bool { return false }
	if _, err := read(io.MultiReader(strings.NewReader("a "), strings.NewReader(strings.Repeat("x", 2*maxLine))), time.Now(), none); err == nil {
		t.Error("a line without end was read")
	}
	endless := bytes.Repeat([]byte("node_memory_working_set_bytes 1\n"), 1<<10)
	if _, err := read(repeating(endless), time.Now(), none); err == nil {
		t.Error("an answer without end was read")
	}
	if _, err := read(failing{}, time.Now(), none); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an answer that breaks off gave %v", err)
	}
}

// Pods with very many containers make the answer of their node longer, and do not hide what
// the others on it use. Containers that do not exist are no reason for a long answer.
func TestVeryManyContainers(t *testing.T) {
	const pods, containers = 20, 512
	var answer strings.Builder
	for _, metric := range []string{"container_cpu_usage_seconds_total", "container_swap_usage_bytes", "container_memory_working_set_bytes", "container_start_time_seconds"} {
		for p := range pods {
			for c := range containers {
				fmt.Fprintf(&answer, "%s{container=%q,namespace=%q,pod=\"%s-%d\"} 7 1700000000000\n", metric, fmt.Sprintf("%s-%d", strings.Repeat("c", 58), c), strings.Repeat("n", 63), strings.Repeat("p", 249), p)
			}
		}
	}
	answer.WriteString("container_memory_working_set_bytes{container=\"other\",namespace=\"other\",pod=\"other\"} 7 1700000000000\n")
	if answer.Len() <= maxAnswer {
		t.Fatalf("the answer has only %d bytes", answer.Len())
	}
	s, err := read(strings.NewReader(answer.String()), time.Now(), func(types.NamespacedName, string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if n := len(s.pods); n != pods+1 {
		t.Errorf("%d pods are measured, want %d", n, pods+1)
	}
	if _, err := read(strings.NewReader(answer.String()), time.Now(), func(types.NamespacedName, string) bool { return false }); err == nil {
		t.Error("a long answer about containers that do not exist was read")
	}
}

type repeating []byte

func (r repeating) Read(p []byte) (int, error) { return copy(p, r), nil }

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func FuzzAnswers(f *testing.F) {
	f.Add("node_cpu_usage_seconds_total 4.5 1700000000000\n", "container_cpu_usage_seconds_total{container=\"c\",namespace=\"n\",pod=\"p\"} 2 7\n")
	f.Fuzz(func(t *testing.T, first, second string) {
		var u *usage
		for i, answer := range []string{first, second, first} {
			now := time.Unix(int64(i), 0)
			s, err := read(strings.NewReader(answer), now, func(types.NamespacedName, string) bool { return true })
			if err != nil {
				return
			}
			u = next(u, s, now)
			for _, windows := range u.pods {
				for i := range windows {
					if usage := windows[i]; usage.length() > 0 && usage.last.cpu < usage.previous.cpu {
						t.Error("the use of CPU went backwards")
					}
				}
			}
		}
	})
}
