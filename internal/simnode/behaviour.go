package simnode

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
	"github.com/coracle-io/coracle/internal/podquery"
)

// The annotations of a pod that say how its containers behave on a simulated
// node. Init containers end at once, and with success, unless their restart
// policy is Always. Without annotations, other containers start at once, are
// ready, and run until they are stopped.
const (
	// AnnotationStartAfter is how long a container takes to start, such as 2s.
	AnnotationStartAfter = "simulation.coracle.io/start-after"
	// AnnotationReadyAfter is how long a container that has started is not ready.
	AnnotationReadyAfter = "simulation.coracle.io/ready-after"
	// AnnotationRunFor is how long a container runs before it ends by itself.
	AnnotationRunFor = "simulation.coracle.io/run-for"
	// AnnotationExitCode is the exit code of a container that ends by itself.
	// Without AnnotationRunFor it ends at once.
	AnnotationExitCode = "simulation.coracle.io/exit-code"
	// AnnotationCPU and AnnotationMemory set the CPU and memory that each
	// container uses, such as 100m and 64Mi. They may change while it runs.
	AnnotationCPU    = "simulation.coracle.io/cpu-usage"
	AnnotationMemory = "simulation.coracle.io/memory-usage"
)

// atOnce is how long a container runs that ends at once: a runtime reports that
// it has started, and that it has ended.
const atOnce = time.Millisecond

// plan holds the values of a pod's annotations.
type plan struct {
	startAfter, readyAfter, runFor time.Duration
	exitCode                       int32
}

// planOf parses the annotations of a pod.
func planOf(pod *v1.Pod) (p plan, err error) {
	for name, field := range map[string]*time.Duration{AnnotationStartAfter: &p.startAfter, AnnotationReadyAfter: &p.readyAfter, AnnotationRunFor: &p.runFor} {
		text, ok := pod.Annotations[name]
		if !ok {
			continue
		}
		if *field, err = time.ParseDuration(text); err != nil || *field < 0 {
			return plan{}, fmt.Errorf("annotation %s: %q: want a duration such as 1.5s", name, text)
		}
		if name == AnnotationRunFor {
			p.runFor = max(p.runFor, atOnce)
		}
	}
	if text, ok := pod.Annotations[AnnotationExitCode]; ok {
		code, err := strconv.ParseUint(text, 10, 8)
		if err != nil {
			return plan{}, fmt.Errorf("annotation %s: %q: want a number from 0 to 255", AnnotationExitCode, text)
		}
		p.exitCode, p.runFor = int32(code), max(p.runFor, atOnce)
	}
	return p, nil
}

// identity returns the UID of a container's pod, and the container's name.
func identity(config *runtimeapi.ContainerConfig) (uid types.UID, name string) {
	labels := config.GetLabels()
	return types.UID(labels[kubelettypes.KubernetesPodUIDLabel]), labels[kubelettypes.KubernetesContainerNameLabel]
}

// behave returns the behaviour of a new container.
func (n *Node) behave(config *runtimeapi.ContainerConfig) inmemory.Behaviour {
	uid, name := identity(config)
	pod := n.pod(uid)
	if pod == nil { // the API server has it no more
		return inmemory.Behaviour{}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.Name == name && !podquery.IsSidecar(c) {
			return inmemory.Behaviour{RunFor: atOnce}
		}
	}
	p, err := planOf(pod)
	if err != nil {
		return inmemory.Behaviour{StartError: err}
	}
	started := time.Now().Add(p.startAfter)
	ready := started.Add(p.readyAfter)
	use := &meter{node: n, last: started}
	return inmemory.Behaviour{
		StartAfter: p.startAfter, RunFor: p.runFor, ExitCode: p.exitCode,
		Exec: func(command []string) (string, int32) {
			if strings.Join(command, " ") == readiness && time.Now().Before(ready) {
				return "not ready until " + ready.UTC().Format(time.RFC3339), 1
			}
			return "", 0
		},
		Usage: func() (cpu, memory uint64) { return use.read(n.pod(uid)) },
	}
}
