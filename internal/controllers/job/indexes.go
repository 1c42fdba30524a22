package job

import (
	"slices"
	"strconv"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/workload"
	"github.com/coracle-io/coracle/internal/podquery"
)

// indexOf returns the completion index of a pod, or -1 if it has none.
func indexOf(pod *v1.Pod) int {
	n, err := strconv.Atoi(pod.Annotations[batch.JobCompletionIndexAnnotation])
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// maxGenerateName is the number of bytes of a name to generate that the API server keeps. It
// adds five more.
const maxGenerateName = 58

// generateName returns the name to generate of a pod of an index. It cuts the name of the Job
// so that the API server keeps the index.
func generateName(job, index string) string {
	suffix := "-" + index + "-"
	return job[:min(len(job), maxGenerateName-len(suffix))] + suffix
}

// newPod returns a new pod of a Job.
func newPod(job *batch.Job, s podToCreate) *v1.Pod {
	pod := workload.PodFromTemplate(&job.Spec.Template, job, *metav1.NewControllerRef(job, kind))
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
	if s.failures != nil {
		s.failures.annotate(pod)
	}
	pod.Spec.Hostname = job.Name + "-" + index
	pod.GenerateName = generateName(job.Name, index)
	field := "metadata.labels['" + batch.JobCompletionIndexAnnotation + "']"
	for c := range podquery.Containers(&pod.Spec) {
		if !slices.ContainsFunc(c.Env, func(e v1.EnvVar) bool { return e.Name == "JOB_COMPLETION_INDEX" }) {
			c.Env = append(c.Env, v1.EnvVar{Name: "JOB_COMPLETION_INDEX", ValueFrom: &v1.EnvVarSource{
				FieldRef: &v1.ObjectFieldSelector{FieldPath: field},
			}})
		}
	}
	return pod
}
