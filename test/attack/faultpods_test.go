package attack

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const faultImage = "coracle.internal/frontend:1.0"

func named(name string, spec v1.PodSpec) *v1.Pod {
	grace := int64(1)
	if spec.TerminationGracePeriodSeconds == nil {
		spec.TerminationGracePeriodSeconds = &grace
	}
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

func container(name string, command ...string) v1.Container {
	return v1.Container{Name: name, Image: faultImage, Command: command}
}

func sleeper(name string) v1.Container { return container(name, "sleep", "infinity") }

func sidecar(name string) v1.Container {
	c, always := sleeper(name), v1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

// machineParts is what pods use of the machine.
type machineParts struct {
	dir string // a directory that pods mount
	// The ports of pods: one that keeps running, and the kinds of a podChurn,
	// of whose pods one at a time has it.
	lasts, port, everything int32
}

// lastingPods returns the pods that keep running.
func lastingPods(m machineParts) []*v1.Pod {
	plain := container("main")
	hostNetwork := named("host", v1.PodSpec{HostNetwork: true, Containers: []v1.Container{sleeper("main")}})
	guaranteed := sleeper("main")
	guaranteed.Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("50m"), v1.ResourceMemory: resource.MustParse("64Mi")}
	return []*v1.Pod{
		named("plain", v1.PodSpec{Containers: []v1.Container{plain}}),
		hostNetwork,
		named("guaranteed", v1.PodSpec{Containers: []v1.Container{guaranteed}}),
		everything("everything", m.dir, m.lasts),
	}
}

// everything returns a pod with init containers, a sidecar, several containers,
// probes, a host port and volumes of all local kinds.
func everything(name, dir string, hostPort int32) *v1.Pod {
	directory := v1.HostPathDirectory
	volumes := []v1.Volume{
		{Name: "disk", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "memory", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
		{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "lasts"}}}},
		{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "lasts"}}},
		{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir, Type: &directory}}},
		{Name: "image", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: faultImage}}},
		{Name: "pod", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
			{Path: "name", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}},
		}}}},
	}
	main, other := container("main"), sleeper("other")
	for _, volume := range volumes {
		main.VolumeMounts = append(main.VolumeMounts, v1.VolumeMount{Name: volume.Name, MountPath: "/" + volume.Name})
	}
	main.VolumeMounts = append(main.VolumeMounts,
		v1.VolumeMount{Name: "disk", MountPath: "/below", SubPath: "a/b"}, v1.VolumeMount{Name: "config", MountPath: "/key", SubPath: "key"})
	other.VolumeMounts = []v1.VolumeMount{{Name: "disk", MountPath: "/disk"}, {Name: "memory", MountPath: "/memory"}}
	main.Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: hostPort}}
	// A machine that is busy is slow; the probes are not what is tested here.
	main.ReadinessProbe = &v1.Probe{
		ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(80)}}, PeriodSeconds: 1, TimeoutSeconds: 10, FailureThreshold: 5,
	}
	main.LivenessProbe = &v1.Probe{
		ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(80)}}, PeriodSeconds: 5, TimeoutSeconds: 10, FailureThreshold: 10,
	}
	main.StartupProbe = &v1.Probe{
		ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(80)}}, PeriodSeconds: 1, TimeoutSeconds: 10, FailureThreshold: 100,
	}
	return named(name, v1.PodSpec{
		InitContainers: []v1.Container{container("first", "true"), sidecar("sidecar"), container("second", "sleep", "0.1")},
		Containers:     []v1.Container{main, other}, Volumes: volumes,
	})
}

// churnPods returns pods that are created and deleted.
func churnPods(m machineParts) []*v1.Pod {
	never := named("ends", v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{container("main", "true")}})
	stubborn := int64(5)
	plain := named("plain", v1.PodSpec{Containers: []v1.Container{container("main")}})
	port := container("main")
	port.Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: m.port}}
	hook := sleeper("main")
	hook.Lifecycle = &v1.Lifecycle{
		PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"true"}}},
		PreStop:   &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"true"}}},
	}
	burstable := sleeper("main")
	burstable.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1m")}
	return []*v1.Pod{
		plain, never,
		named("crashes", v1.PodSpec{Containers: []v1.Container{container("main", "false"), sleeper("other")}}),
		named("stubborn", v1.PodSpec{TerminationGracePeriodSeconds: &stubborn, Containers: []v1.Container{container("main", "sh", "-c", `trap "" TERM; while true; do sleep 1; done`)}}),
		named("port", v1.PodSpec{Containers: []v1.Container{port}}),
		named("hook", v1.PodSpec{Containers: []v1.Container{hook}}),
		named("burstable", v1.PodSpec{Containers: []v1.Container{burstable}}),
		named("host", v1.PodSpec{HostNetwork: true, Containers: []v1.Container{sleeper("main")}}),
		named("sidecar", v1.PodSpec{InitContainers: []v1.Container{sidecar("sidecar")}, Containers: []v1.Container{sleeper("main")}}),
		named("missing", v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "coracle.internal/missing:1.0", ImagePullPolicy: v1.PullNever}}}),
		everything("everything", m.dir, m.everything),
	}
}
