package job

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/pods"
)

// indexOf is a pod's completion index, -1 if it has none.
func indexOf(pod *v1.Pod) int {
	n, err := strconv.Atoi(pod.Annotations[batch.JobCompletionIndexAnnotation])
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// parseIndexes reads "1,3-5,7". What cannot be read is left out.
func parseIndexes(s string) map[int]bool {
	out := map[int]bool{}
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		last := first
		if isRange {
			if last, err = strconv.Atoi(to); err != nil {
				continue
			}
		}
		for i := first; i <= last; i++ {
			out[i] = true
		}
	}
	return out
}

// formatIndexes writes what parseIndexes reads; a range has three or more.
func formatIndexes(set map[int]bool) string {
	var parts []string
	sorted := slices.Sorted(maps.Keys(set))
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		switch j - i {
		case 0:
			parts = append(parts, strconv.Itoa(sorted[i]))
		case 1:
			parts = append(parts, strconv.Itoa(sorted[i]), strconv.Itoa(sorted[j]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", sorted[i], sorted[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// newPod is a Job's pod for a slot.
func newPod(job *batch.Job, s slot) *v1.Pod {
	pod := pods.FromTemplate(&job.Spec.Template, job, *metav1.NewControllerRef(job, kind))
	pod.Finalizers = append(pod.Finalizers, batch.JobTrackingFinalizer)
	if s.index < 0 {
		return pod
	}
	index := strconv.Itoa(s.index)
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Annotations[batch.JobCompletionIndexAnnotation] = index
	pod.Labels[batch.JobCompletionIndexAnnotation] = index
	if s.after != nil {
		s.after.annotate(pod)
	}
	pod.Spec.Hostname = job.Name + "-" + index
	pod.GenerateName = job.Name + "-" + index + "-"
	field := "metadata.labels['" + batch.JobCompletionIndexAnnotation + "']"
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if !slices.ContainsFunc(list[i].Env, func(e v1.EnvVar) bool { return e.Name == "JOB_COMPLETION_INDEX" }) {
				list[i].Env = append(list[i].Env, v1.EnvVar{Name: "JOB_COMPLETION_INDEX", ValueFrom: &v1.EnvVarSource{
					FieldRef: &v1.ObjectFieldSelector{FieldPath: field},
				}})
			}
		}
	}
	return pod
}
