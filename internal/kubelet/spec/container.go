package spec

import (
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
)

// Instance is the part of a container's configuration that is not in its
// specification.
type Instance struct {
	RestartCount int
	Round        int    // cri.Pod.Round
	Image        string // the reference or id to run
	ImageUID     *int64 // numeric user of the image, nil if it has none
	ImageUser    string // user name of the image, if not numeric
	Env          []Variable
	Mounts       []*runtimeapi.Mount
	Devices      []*runtimeapi.Device // of block volumes
	Groups       []int64              // that volumes add to the groups of the process
	// Target is the id of the container whose process namespace an ephemeral
	// container joins, "" for none.
	Target        string
	UserNamespace *runtimeapi.UserNamespace
}

// ContainerConfig returns the runtime's configuration of one container. It fails
// with ErrConfig if the container's command, arguments, environment and groups exceed
// what a process can get.
func ContainerConfig(pod *v1.Pod, c *v1.Container, node *Node, in *Instance) (*runtimeapi.ContainerConfig, error) {
	if err := checkGroups(pod); err != nil {
		return nil, err
	}
	limits := limitsOf(pod)
	for _, v := range in.Env {
		if err := limits.add(variable, v.Name, variableSize(len(v.Name), len(v.Value))); err != nil {
			return nil, err
		}
	}
	lookup := Lookup(in.Env)
	command, err := expandAll("command", c.Command, lookup, &limits)
	if err != nil {
		return nil, err
	}
	args, err := expandAll("args", c.Args, lookup, &limits)
	if err != nil {
		return nil, err
	}
	envs := make([]*runtimeapi.KeyValue, 0, len(in.Env))
	for _, v := range in.Env {
		envs = append(envs, &runtimeapi.KeyValue{Key: v.Name, Value: []byte(v.Value)})
	}
	resources := node.Resources(pod, c)
	resources.HugepageLimits = noOthers(resources.HugepageLimits, node.HugePages)
	resources.Unified = unified(pod, c, node)
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(in.RestartCount)},
		Image:       &runtimeapi.ImageSpec{Image: in.Image, UserSpecifiedImage: c.Image},
		Command:     command,
		Args:        args,
		WorkingDir:  c.WorkingDir,
		Envs:        envs,
		Mounts:      in.Mounts,
		Devices:     in.Devices,
		Labels:      cri.ContainerLabels(pod, c.Name),
		Annotations: cri.ContainerAnnotations(pod, c, in.RestartCount, in.Round, plan.Hash(c)),
		LogPath:     containerLogPath(c.Name, in.RestartCount),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		StopSignal:  stopSignal(c),
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       resources,
			SecurityContext: security(pod, c, node, in),
		},
	}, nil
}

// unified returns the controls of a container that only control groups of version
// 2 have, nil if there are none.
func unified(pod *v1.Pod, c *v1.Container, node *Node) map[string]string {
	out := node.memoryControls(pod, c)
	if *node.Configuration.SingleProcessOOMKill && node.SwapCapacity == nil {
		return out
	}
	if out == nil {
		out = make(map[string]string, 2)
	}
	if !*node.Configuration.SingleProcessOOMKill {
		out["memory.oom.group"] = "1"
	}
	if node.SwapCapacity != nil {
		out["memory.swap.max"] = strconv.FormatInt(node.swapLimit(pod, c, *node.SwapCapacity), 10)
	}
	return out
}

// stopSignal returns the signal that stops a container. The zero value leaves the
// choice to the runtime.
func stopSignal(c *v1.Container) runtimeapi.Signal {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
	}
	name := strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(string(*c.Lifecycle.StopSignal)) // as in SIGRTMIN+1
	return runtimeapi.Signal(runtimeapi.Signal_value["SIGNAL_"+name])
}

// expandAll expands a list of strings of a container and counts them. field is
// the name of the list.
func expandAll(field string, list []string, lookup func(name string) (string, bool), limits *execLimits) ([]string, error) {
	out := make([]string, 0, len(list))
	for i, s := range list {
		expanded, _, err := Expand(s, lookup, maxString)
		if err != nil {
			return nil, errStringTooLong(field, strconv.Itoa(i))
		}
		if err := limits.add(field, strconv.Itoa(i), len(expanded)); err != nil {
			return nil, err
		}
		out = append(out, expanded)
	}
	return out, nil
}
