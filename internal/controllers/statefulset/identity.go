package statefulset

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/workload"
	"github.com/coracle-io/coracle/internal/podquery"
)

// ordinalOf returns the ordinal in a pod's name. ok is false if the name is not
// one that the set would give to a pod.
func ordinalOf(set *apps.StatefulSet, pod *v1.Pod) (ordinal int, ok bool) {
	rest, found := strings.CutPrefix(pod.Name, set.Name+"-")
	if !found {
		return 0, false
	}
	n, err := strconv.ParseUint(rest, 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != rest {
		return 0, false
	}
	return int(n), true
}

// start returns the first ordinal of a set.
func start(set *apps.StatefulSet) int {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return int(set.Spec.Ordinals.Start)
}

// replicaCount returns spec.replicas, which defaults to 1.
func replicaCount(set *apps.StatefulSet) int {
	if set.Spec.Replicas == nil {
		return 1
	}
	return int(*set.Spec.Replicas)
}

func podName(set *apps.StatefulSet, ordinal int) string {
	return fmt.Sprintf("%s-%d", set.Name, ordinal)
}

func claimName(set *apps.StatefulSet, template *v1.PersistentVolumeClaim, ordinal int) string {
	return fmt.Sprintf("%s-%s-%d", template.Name, set.Name, ordinal)
}

// newPod returns a new pod for an ordinal with the template of a revision.
func newPod(set *apps.StatefulSet, template *v1.PodTemplateSpec, revision string, ordinal int) *v1.Pod {
	pod := workload.PodFromTemplate(template, set, *metav1.NewControllerRef(set, kind))
	pod.Name = podName(set, ordinal)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[apps.ControllerRevisionHashLabelKey] = revision
	setIdentity(set, pod, ordinal)
	pod.Spec.Hostname = pod.Name
	pod.Spec.Subdomain = set.Spec.ServiceName
	return pod
}

// setIdentity sets the labels and volumes that depend on a pod's ordinal.
func setIdentity(set *apps.StatefulSet, pod *v1.Pod, ordinal int) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[apps.StatefulSetPodNameLabel] = pod.Name
	pod.Labels[apps.PodIndexLabel] = strconv.Itoa(ordinal)
	podquery.SetClaimTemplates(pod, set.Spec.VolumeClaimTemplates)
}

// identityMatches reports whether a pod has the labels and claims of its ordinal.
func identityMatches(set *apps.StatefulSet, pod *v1.Pod, ordinal int) bool {
	if pod.Labels[apps.StatefulSetPodNameLabel] != pod.Name || pod.Labels[apps.PodIndexLabel] != strconv.Itoa(ordinal) {
		return false
	}
	for i := range set.Spec.VolumeClaimTemplates {
		template := &set.Spec.VolumeClaimTemplates[i]
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
			return v.Name == template.Name && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claimName(set, template, ordinal)
		}) {
			return false
		}
	}
	return true
}

// claims returns the volume claims of an ordinal.
func claims(set *apps.StatefulSet, ordinal int) []*v1.PersistentVolumeClaim {
	var out []*v1.PersistentVolumeClaim
	for i := range set.Spec.VolumeClaimTemplates {
		template := &set.Spec.VolumeClaimTemplates[i]
		claim := template.DeepCopy()
		claim.Name = claimName(set, template, ordinal)
		claim.Namespace = set.Namespace
		claim.Labels = maps.Clone(template.Labels)
		if claim.Labels == nil {
			claim.Labels = map[string]string{}
		}
		maps.Copy(claim.Labels, set.Spec.Selector.MatchLabels)
		if policy := set.Spec.PersistentVolumeClaimRetentionPolicy; policy != nil && policy.WhenDeleted == apps.DeletePersistentVolumeClaimRetentionPolicyType {
			claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, kind)}
		}
		out = append(out, claim)
	}
	return out
}
