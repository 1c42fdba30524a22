package cri

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"
)

// Annotations by which a kubelet recognizes its containers after a restart. The
// names are upstream's, so that a node can switch between the two kubelets
// without restarting containers.
const (
	annotationHash                     = "io.kubernetes.container.hash"
	annotationRestartCount             = "io.kubernetes.container.restartCount"
	annotationTerminationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	annotationTerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	annotationPreStopHandler           = "io.kubernetes.container.preStopHandler"
	annotationPorts                    = "io.kubernetes.container.ports"
	annotationPodDeletionGracePeriod   = "io.kubernetes.pod.deletionGracePeriod"
	annotationPodTerminationGrace      = "io.kubernetes.pod.terminationGracePeriod"
	// The following are not upstream's. They hold Container.Round and Sandbox.Root.
	annotationRound = "coracle.io/container.round"
	annotationRoot  = "coracle.io/kubelet.root"
)

// Bounds of what the runtime gets of a pod's metadata, in bytes. It returns that
// with each list of sandboxes or containers. Runtimes and network plugins look at
// short annotations; long ones are for other programs.
const (
	maxLabels      = 16 << 10
	maxAnnotations = 32 << 10
	maxAnnotation  = 4 << 10
	maxStop        = 1 << 10 // of each annotation that says how to stop a container
)

// upTo returns the entries of m, in the order of their keys, that have at most each
// bytes and together at most all.
func upTo(m map[string]string, each, all int) map[string]string {
	out := make(map[string]string, len(m)+3)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if size := len(k) + len(m[k]); size <= each && size <= all {
			out[k] = m[k]
			all -= size
		}
	}
	return out
}

// PodLabels returns the labels of a pod's sandbox: the pod's labels, as far as the
// runtime gets them, and its identity.
func PodLabels(pod *v1.Pod) map[string]string {
	labels := upTo(pod.Labels, maxLabels, maxLabels)
	labels[kubelettypes.KubernetesPodNameLabel] = pod.Name
	labels[kubelettypes.KubernetesPodNamespaceLabel] = pod.Namespace
	labels[kubelettypes.KubernetesPodUIDLabel] = string(pod.UID)
	return labels
}

// SandboxAnnotations returns the annotations of a pod's sandbox: the pod's, as far
// as the runtime gets them, and the root directory of the kubelet that makes the
// sandbox.
func SandboxAnnotations(pod *v1.Pod, root string) map[string]string {
	annotations := upTo(pod.Annotations, maxAnnotation, maxAnnotations)
	annotations[annotationRoot] = root
	return annotations
}

// ContainerLabels returns the labels of one container of a pod.
func ContainerLabels(pod *v1.Pod, name string) map[string]string {
	return map[string]string{
		kubelettypes.KubernetesPodNameLabel:       pod.Name,
		kubelettypes.KubernetesPodNamespaceLabel:  pod.Namespace,
		kubelettypes.KubernetesPodUIDLabel:        string(pod.UID),
		kubelettypes.KubernetesContainerNameLabel: name,
	}
}

// ContainerAnnotations returns the annotations that carry a container's state
// across restarts of the kubelet: the hash of its specification, its restart
// count, its round, and how to stop it. What is very long is left out: it is only
// for a pod that no source has any more.
func ContainerAnnotations(pod *v1.Pod, c *v1.Container, restartCount, round int, hash string) map[string]string {
	a := map[string]string{
		annotationHash:                     hash,
		annotationRestartCount:             strconv.Itoa(restartCount),
		annotationTerminationMessagePolicy: string(c.TerminationMessagePolicy),
	}
	if len(c.TerminationMessagePath) <= maxStop {
		a[annotationTerminationMessagePath] = c.TerminationMessagePath
	}
	if round > 0 {
		a[annotationRound] = strconv.Itoa(round)
	}
	if pod.DeletionGracePeriodSeconds != nil {
		a[annotationPodDeletionGracePeriod] = strconv.FormatInt(*pod.DeletionGracePeriodSeconds, 10)
	}
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		a[annotationPodTerminationGrace] = strconv.FormatInt(*pod.Spec.TerminationGracePeriodSeconds, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		if raw, err := json.Marshal(c.Lifecycle.PreStop); err == nil && len(raw) <= maxStop {
			a[annotationPreStopHandler] = string(raw)
		}
	}
	if len(c.Ports) > 0 {
		if raw, err := json.Marshal(c.Ports); err == nil && len(raw) <= maxStop {
			a[annotationPorts] = string(raw)
		}
	}
	return a
}

func restartCountOf(s *runtimeapi.ContainerStatus) int {
	if n, err := strconv.Atoi(s.GetAnnotations()[annotationRestartCount]); err == nil {
		return n
	}
	return int(s.GetMetadata().GetAttempt())
}

func roundOf(annotations map[string]string) int {
	n, err := strconv.Atoi(annotations[annotationRound])
	if err != nil || n < 0 {
		return 0
	}
	return n
}

func int64Annotation(annotations map[string]string, key string) *int64 {
	n, err := strconv.ParseInt(annotations[key], 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// RestoredPod rebuilds, from the annotations of a pod's containers, the part of
// the pod's specification that is needed to stop them. It is used for pods that
// no source has any more.
func RestoredPod(p *Pod) *v1.Pod {
	pod := &v1.Pod{}
	pod.UID, pod.Name, pod.Namespace = p.UID, p.Name, p.Namespace
	for _, c := range p.Containers {
		spec := v1.Container{
			Name:                     c.Name,
			TerminationMessagePath:   c.Annotations[annotationTerminationMessagePath],
			TerminationMessagePolicy: v1.TerminationMessagePolicy(c.Annotations[annotationTerminationMessagePolicy]),
		}
		if raw := c.Annotations[annotationPreStopHandler]; raw != "" {
			var h v1.LifecycleHandler
			if json.Unmarshal([]byte(raw), &h) == nil {
				spec.Lifecycle = &v1.Lifecycle{PreStop: &h}
			}
		}
		if raw := c.Annotations[annotationPorts]; raw != "" {
			_ = json.Unmarshal([]byte(raw), &spec.Ports)
		}
		known := false
		for i := range pod.Spec.Containers {
			known = known || pod.Spec.Containers[i].Name == c.Name
		}
		if !known {
			pod.Spec.Containers = append(pod.Spec.Containers, spec)
		}
		if g := int64Annotation(c.Annotations, annotationPodTerminationGrace); g != nil {
			pod.Spec.TerminationGracePeriodSeconds = g
		}
		if g := int64Annotation(c.Annotations, annotationPodDeletionGracePeriod); g != nil {
			pod.DeletionGracePeriodSeconds = g
		}
	}
	return pod
}
