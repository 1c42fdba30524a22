package spec

import (
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
)

// Instance is what one instance of a container has besides its specification.
type Instance struct {
	RestartCount int
	Round        int    // cri.Pod.Round
	Image        string // the reference or id to run
	ImageUID     *int64 // the user that the image names, if numeric
	ImageUser    string // else
	Env          []Variable
	Mounts       []*runtimeapi.Mount
	// Target is the id of the container whose processes an ephemeral
	// container sees, "" for none.
	Target        string
	UserNamespace *runtimeapi.UserNamespace
	CDIDevices    []*runtimeapi.CDIDevice
}

// ContainerConfig is the runtime's configuration of one container.
func ContainerConfig(pod *v1.Pod, c *v1.Container, node *Node, in *Instance) *runtimeapi.ContainerConfig {
	known := make(map[string]string, len(in.Env))
	envs := make([]*runtimeapi.KeyValue, 0, len(in.Env))
	for _, v := range in.Env {
		known[v.Name] = v.Value
		envs = append(envs, &runtimeapi.KeyValue{Key: v.Name, Value: []byte(v.Value)})
	}
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(in.RestartCount)},
		Image:       &runtimeapi.ImageSpec{Image: in.Image, UserSpecifiedImage: c.Image},
		Command:     expandAll(c.Command, known),
		Args:        expandAll(c.Args, known),
		WorkingDir:  c.WorkingDir,
		Envs:        envs,
		Mounts:      in.Mounts,
		Labels:      cri.ContainerLabels(pod, c.Name),
		Annotations: cri.ContainerAnnotations(pod, c, in.RestartCount, in.Round, plan.Hash(c)),
		LogPath:     ContainerLogPath(c.Name, in.RestartCount),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		CDIDevices:  in.CDIDevices,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       Resources(pod, c, node.MemoryCapacity, node.CFSQuota),
			SecurityContext: security(pod, c, node, in.ImageUID, in.ImageUser, in.Target, in.UserNamespace),
		},
	}
}

func expandAll(list []string, known map[string]string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, Expand(s, known))
	}
	return out
}
