package simnode

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/coracle-io/coracle/internal/amount"
)

// meter counts what a container uses.
type meter struct {
	node *Node
	mu   sync.Mutex // guards what follows
	used uint64     // nanoseconds of CPU until last
	last time.Time
}

// restMemory is the memory that a container uses without AnnotationMemory, in
// bytes. Metrics without memory count as missing.
const restMemory = 1 << 20

// maxCPU bounds the CPU that a container uses, in cores.
const maxCPU = 1 << 20

// read returns the use until now, by the annotations of the container's pod. pod
// may be nil.
func (m *meter) read(pod *v1.Pod) (cpuNanoseconds, memoryBytes uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.After(m.last) {
		cpu := annotated(pod, AnnotationCPU)
		more := uint64(min(cpu.AsApproximateFloat64(), maxCPU) * float64(now.Sub(m.last)))
		m.used += more
		m.last = now
		m.node.use(more)
	}
	memory := annotated(pod, AnnotationMemory)
	return m.used, max(uint64(memory.Value()), restMemory)
}

// use adds to what all containers of the node have used.
func (n *Node) use(cpuNanoseconds uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cpu += cpuNanoseconds
}

// annotated returns the quantity in an annotation, 0 if there is none.
func annotated(pod *v1.Pod, annotation string) resource.Quantity {
	if pod == nil {
		return resource.Quantity{}
	}
	q, err := amount.Parse(pod.Annotations[annotation])
	if err != nil || q.Sign() < 0 {
		return resource.Quantity{}
	}
	return q
}

// metricsPath is the path of a kubelet's metrics that metrics servers read.
const metricsPath = "/metrics/resource"

// RoundTrip implements http.RoundTripper: it answers a request for the node's
// resource metrics, as a kubelet does. It has no other paths.
func (n *Node) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path != metricsPath {
		return answer(r, http.StatusNotFound, []byte("a simulated node serves only "+metricsPath)), nil
	}
	all, err := n.runtime.ListContainerStats(r.Context(), nil)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	var memory uint64
	for _, s := range all {
		labels := s.GetAttributes().GetLabels()
		named := fmt.Sprintf("{container=%q,namespace=%q,pod=%q}", labels[kubelettypes.KubernetesContainerNameLabel], labels[kubelettypes.KubernetesPodNamespaceLabel], labels[kubelettypes.KubernetesPodNameLabel])
		usedCPU, usedMemory := s.GetCpu().GetUsageCoreNanoSeconds().GetValue(), s.GetMemory().GetWorkingSetBytes().GetValue()
		write(&out, "container", named, usedCPU, usedMemory, s.GetCpu().GetTimestamp())
		memory += usedMemory
	}
	n.mu.Lock()
	cpu := n.cpu
	n.mu.Unlock()
	write(&out, "node", "", cpu, max(memory, restMemory), time.Now().UnixNano())
	return answer(r, http.StatusOK, out.Bytes()), nil
}

// write writes the metrics of a node or a container in Prometheus' text format.
func write(out *bytes.Buffer, what, labels string, cpuNanoseconds, memoryBytes uint64, at int64) {
	millis := at / int64(time.Millisecond)
	fmt.Fprintf(out, "%s_cpu_usage_seconds_total%s %g %d\n", what, labels, float64(cpuNanoseconds)/float64(time.Second), millis)
	fmt.Fprintf(out, "%s_memory_working_set_bytes%s %d %d\n", what, labels, memoryBytes, millis)
}

func answer(r *http.Request, code int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/plain; version=0.0.4"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}
